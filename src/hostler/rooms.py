"""Makes the rooms out of what they share. Together with operator.py the only file that knows them all.

A room's author adds a maker here, to `MAKERS`. A maker imports its room itself: whoever has not switched it on pays for
none of its code, nor for the libraries only it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hostler.capability import CapabilityRoom
from hostler.drain.model import Policy
from hostler.drain.observe import Sources
from hostler.host import ceiling
from hostler.instant import Instant
from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.controller import Reconcile
from hostler.kube.events import Recorder
from hostler.kube.metrics import Metrics
from hostler.kube.records import Node
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from hostler.safety.guard import FleetWatch, Guard
from hostler.safety.pauses import PauseEnd
from hostler.settings.foundation import (
    DRAIN_REFUSE_EMPTY_DIR,
    DRAIN_REFUSE_UNMANAGED,
    DRAIN_TIMEOUT_SECONDS,
    NAMESPACE,
)
from hostler.settings.join import JOIN_SPOKES
from hostler.settings.maintenance import POLL_INTERVAL_SECONDS
from hostler.settings.metal import METAL_WRITES_PER_SECOND
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from hostler.ingress.capability import IngressRoom
    from hostler.join.capability import JoinRoom
    from hostler.maintenance.capability import MaintenanceRoom
    from hostler.metal.capability import MetalRoom
    from hostler.platform.capability import PlatformRoom
    from hostler.reclaim.capability import ReclaimRoom
    from hostler.safety.vcenter_trust import TrustSecret
    from hostler.vsphere.vcenter import VCenter

# Approvals of certificate requests per second, at most; in a burst twice as many.
JOIN_WRITES_PER_SECOND = 200.0
SPOKE_WRITES_PER_SECOND = 20.0  # the same in each further cluster


@dataclass(frozen=True, slots=True)
class Writers:
    """Makes the writer of a capability: every write passes its gate, a budget, and the dry run."""

    client: Client
    guard: Guard
    budget: WriteBudget
    dry_run: bool
    metrics: Metrics

    def of(self, capability: str, budget: WriteBudget | None = None, client: Client | None = None) -> Writer:
        return Writer(
            client or self.client, capability, gate=self.guard.gate_for(capability), budget=budget or self.budget,
            dry_run=self.dry_run, metrics=self.metrics,
        )  # fmt: skip

    def giving_back(self, capability: str) -> Writer:
        """Only for giving back to an incumbent what is its own; see `Guard.giving_back`."""
        return Writer(
            self.client, capability, gate=self.guard.giving_back(capability), budget=self.budget, dry_run=self.dry_run,
            metrics=self.metrics,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class House:
    """What the rooms share."""

    client: Client
    settings: Settings
    writers: Writers
    recorder: Recorder
    metrics: Metrics
    fleet: FleetWatch
    nodes: Watch[Node]
    sources: Sources
    drain: Policy
    ceiling: Callable[[Iterable[str], Iterable[Node]], ceiling.Room]
    vcenters: tuple[VCenter, ...]
    as_leader: Callable[[Reconcile], Reconcile]
    acting: Callable[[], AbstractContextManager[None]]
    changed: Callable[[], None]  # the conditions of a room changed
    stepped: Callable[[Instant], Instant]  # when the wall clock was last set forward


def drain_policy(settings: Settings) -> Policy:
    return Policy(
        timeout=settings[DRAIN_TIMEOUT_SECONDS],
        evict_empty_dir=not settings[DRAIN_REFUSE_EMPTY_DIR],
        evict_unmanaged=not settings[DRAIN_REFUSE_UNMANAGED],
    )


def make_maintenance(house: House) -> MaintenanceRoom:
    from hostler.maintenance.capability import MaintenanceRoom

    last_pause = PauseEnd(house.writers.guard.pause, house.fleet.store)
    return MaintenanceRoom(
        house.client, house.writers.of("maintenance"), house.recorder, house.settings,
        gate=house.writers.guard.gate_for("maintenance"), blocked=lambda: house.writers.guard.blocked("maintenance"),
        vcenters=house.vcenters, nodes=house.nodes,
        sources=house.sources, drain=house.drain, room=house.ceiling, metrics=house.metrics,
        resumed=lambda now: max(last_pause.ended(now), house.stepped(now)), as_leader=house.as_leader,
        acting=house.acting,
    )  # fmt: skip


def make_vcenters(settings: Settings, metrics: Metrics, writers: Writers) -> tuple[tuple[VCenter, ...], TrustSecret]:
    """One per endpoint, for all rooms, and where it is kept what they are recognised by.

    Raises a Complaint that names every mistake in how they are configured.
    """
    from hostler.safety.vcenter_trust import TrustSecret
    from hostler.vsphere.endpoints import endpoints
    from hostler.vsphere.metrics import Metrics as VsphereMetrics
    from hostler.vsphere.trust import Trust
    from hostler.vsphere.vcenter import VCenter

    def held() -> str | None:
        pause = writers.guard.pause()
        return pause.why if pause.stopped else None

    # Any replica writes it, not only the leader: each logs in by itself. A pause holds it back all the same.
    writer = Writer(writers.client, "fleet", gate=held, budget=writers.budget, dry_run=writers.dry_run, metrics=metrics)
    kept = TrustSecret(writers.client, writer, settings[NAMESPACE], held)
    counted, poll, trust = VsphereMetrics(metrics.registry), settings[POLL_INTERVAL_SECONDS], Trust(kept)
    return tuple(VCenter(one, counted, poll=poll, trust=trust) for one in endpoints(settings)), kept


def make_metal(house: House) -> MetalRoom:
    from hostler.metal.capability import MetalRoom

    # A budget of its own: a thousand machines at once must not keep a node from being held.
    rate = house.settings[METAL_WRITES_PER_SECOND]
    budget = WriteBudget(rate, max(1, int(rate)))
    return MetalRoom(
        house.client, lambda client: house.writers.of("metal", budget, client), house.recorder, house.settings,
        metrics=house.metrics, as_leader=house.as_leader, stepped=house.stepped,
    )  # fmt: skip


def make_ingress(house: House) -> IngressRoom:
    from hostler.ingress.capability import IngressRoom

    return IngressRoom(
        house.client, house.writers.of("ingress"), house.recorder, house.settings, fleet=house.fleet,
        nodes=house.nodes, pods=house.sources.pods, budgets=house.sources.budgets, metrics=house.metrics,
        as_leader=house.as_leader, changed=house.changed,
    )  # fmt: skip


def make_platform(house: House) -> PlatformRoom:
    from hostler.platform.capability import PlatformRoom

    writers = house.writers
    return PlatformRoom(
        house.client, writers.of("platform"), house.recorder, house.settings, fleet=house.fleet, nodes=house.nodes,
        pods=house.sources.pods, vcenters=lambda: house.vcenters, back=writers.giving_back("platform"),
        displaced=lambda: writers.guard.displaced("platform"), metrics=house.metrics, as_leader=house.as_leader,
        changed=house.changed,
    )  # fmt: skip


def make_join(house: House) -> JoinRoom:
    from hostler.join.capability import JoinRoom

    # A budget of its own: a rack of hosts coming up together must neither wait for other writes nor delay them.
    writer = house.writers.of("join", WriteBudget(JOIN_WRITES_PER_SECOND, 2 * int(JOIN_WRITES_PER_SECOND)))
    # What a spoke refuses or throttles says nothing about our rights here, nor about the hub's load: counted apart.
    apart = replace(house.writers, metrics=Metrics()) if house.settings[JOIN_SPOKES] else house.writers

    def spoke_writer(client: Client) -> Writer:
        return apart.of("join", WriteBudget(SPOKE_WRITES_PER_SECOND, 2 * int(SPOKE_WRITES_PER_SECOND)), client)

    return JoinRoom(
        house.client, writer, house.recorder, house.settings, fleet=house.fleet, nodes=house.nodes,
        metrics=house.metrics, as_leader=house.as_leader, changed=house.changed, spoke_writer=spoke_writer,
    )  # fmt: skip


def make_reclaim(house: House) -> ReclaimRoom:
    from hostler.reclaim.capability import ReclaimRoom

    writers = house.writers
    # What hosts report is a fact, not a deed: any replica writes it down. A pause holds it back all the same.
    facts = Writer(
        house.client, "reclaim", gate=lambda: writers.guard.blocked("reclaim"), budget=writers.budget,
        dry_run=writers.dry_run, metrics=house.metrics,
    )  # fmt: skip
    return ReclaimRoom(
        house.client, lambda client: writers.of("reclaim", client=client), facts, house.recorder, house.settings,
        dry_run=writers.dry_run, drain=house.drain, metrics=house.metrics, as_leader=house.as_leader,
    )  # fmt: skip


# Whose rooms ask the vCenters something.
ASKS_VCENTERS = frozenset({"maintenance", "platform"})

MAKERS: Mapping[str, Callable[[House], CapabilityRoom]] = {
    "maintenance": make_maintenance,
    "metal": make_metal,
    "ingress": make_ingress,
    "platform": make_platform,
    "join": make_join,
    "reclaim": make_reclaim,
}
