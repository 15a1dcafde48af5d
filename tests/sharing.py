"""What a capability is given, for tests that run one without the operator: it leads, and nothing is paused."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from hostler.capabilities import BY_NAME
from hostler.drain.observe import Sources
from hostler.host.ceiling import parse_limit, room
from hostler.kube import kinds
from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.events import Recorder
from hostler.kube.metrics import Metrics
from hostler.kube.records import Node, Pod, PodDisruptionBudget, VolumeAttachment, Workload
from hostler.kube.watch import Watch
from hostler.safety.guard import Guard
from hostler.safety.switches import Choice
from hostler.settings.model import Settings
from hostler.shared import Shared, Writers, drain_policy
from tests.unit.watching import fleets, pauses


def share(client: Client, capabilities: Sequence[str], settings: Settings) -> Shared:
    metrics = Metrics()
    fleet = fleets()
    guard = Guard(
        pauses(), fleet, leader=lambda: None, ignore_incumbent=capabilities,
        choices=[Choice(BY_NAME[one], True, "It is tested.") for one in capabilities],
    )  # fmt: skip
    writers = Writers(client, guard, WriteBudget(10_000), dry_run=False, metrics=metrics)
    nodes = Watch(client, kinds.NODE, Node, metrics=metrics)
    return Shared(
        client, settings, writers, Recorder(writers.of(capabilities[0]), "test", metrics), metrics, fleet=fleet,
        nodes=nodes, sources=Sources(
            Watch(client, kinds.POD, Pod, metrics=metrics),
            Watch(client, kinds.POD_DISRUPTION_BUDGET, PodDisruptionBudget, metrics=metrics),
            Watch(client, kinds.VOLUME_ATTACHMENT, VolumeAttachment, metrics=metrics),
            Watch(client, kinds.DAEMON_SET, Workload, metrics=metrics),
        ),
        drain=drain_policy(settings), ceiling=lambda *_: room((), parse_limit("1")),
        as_leader=lambda reconcile: reconcile, acting=nullcontext,
    )  # fmt: skip
