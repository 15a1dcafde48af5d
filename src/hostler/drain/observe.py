"""What a drain knows, read from the watch caches.

Only the claims of pods that stay are asked of the API server, and only when nothing but volumes is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog

from hostler.drain.filters import controller_of
from hostler.drain.model import Act, Facts, Memory, Verdict
from hostler.drain.order import is_helper, replicas_of
from hostler.host.conditions import names
from hostler.host.facts import Fact, Known, Unknown
from hostler.instant import Instant
from hostler.kube.client import Client
from hostler.kube.errors import ApiError, Unreachable
from hostler.kube.kinds import PERSISTENT_VOLUME_CLAIM
from hostler.kube.records import (
    HasMetadata,
    Pod,
    PodDisruptionBudget,
    Record,
    VolumeAttachment,
    Workload,
    key_of,
)
from hostler.kube.store import Index
from hostler.kube.watch import Watch

BY_NODE: Final = "node"
BY_CONTROLLER: Final = "controller"
POD_INDEXES: Final[Mapping[str, Index[Pod]]] = {
    BY_NODE: lambda pod: (pod.spec.node_name,) if pod.spec.node_name else (),
    BY_CONTROLLER: lambda pod: tuple(owner.uid for owner in pod.metadata.owner_references if owner.controller),
}
ATTACHMENT_INDEXES: Final[Mapping[str, Index[VolumeAttachment]]] = {BY_NODE: lambda found: (found.spec.node_name,)}

R = TypeVar("R", bound=HasMetadata)
V = TypeVar("V")
log = structlog.get_logger("hostler.drain")


class ClaimSpec(Record, frozen=True):
    volume_name: str = ""


class Claim(Record, frozen=True):
    spec: ClaimSpec = ClaimSpec()


@dataclass(frozen=True, slots=True)
class Sources:
    """The caches a drain reads. `pods` has POD_INDEXES and every pod, `attachments` has ATTACHMENT_INDEXES."""

    pods: Watch[Pod]
    budgets: Watch[PodDisruptionBudget]
    attachments: Watch[VolumeAttachment]
    daemon_sets: Watch[Workload]

    def node_of(self, pod: str) -> str:
        """The node of a pod by NAMESPACE/NAME; "" where it is not known."""
        found = self.pods.store.get(pod)
        return "" if found is None else found.spec.node_name


def observe(
    sources: Sources,
    node: str,
    started: Instant,
    memory: Memory,
    now: Instant,
    kept_volumes: frozenset[str] = frozenset(),
) -> Facts:
    """The facts of one node's drain as of now. `memory` is brought up to date with what is seen."""
    pods = tuple(sources.pods.store.by(BY_NODE, node))
    peers = tuple(_peers(sources.pods, pods, node))
    return Facts(
        node=node,
        started=started,
        pods=fact_of(sources.pods, pods, now),
        attachments=fact_of(sources.attachments, tuple(sources.attachments.store.by(BY_NODE, node)), now),
        budgets=fact_of(sources.budgets, _near(sources.budgets, pods), now),
        daemon_sets=fact_of(sources.daemon_sets, frozenset(sources.daemon_sets.store.keys()), now),
        peers=peers,
        kept_volumes=kept_volumes,
        memory=memory.seen(pods, now, replicas_of((*pods, *peers))),
    )


def fact_of(watch: Watch[R], value: V, now: Instant) -> Fact[V]:
    """A cache that was never complete, or that left out an object it could not read, is not knowledge."""
    age = watch.age()
    if age is None or not watch.store.synced:
        return Unknown(watch.problem or f"{watch.kind.resource} are still being read")
    if watch.store.unreadable:
        return Unknown(f"{watch.kind.resource} cannot be read: {names(watch.store.unreadable)}")
    return Known(value, now - age)


def _near(budgets: Watch[PodDisruptionBudget], pods: tuple[Pod, ...]) -> tuple[PodDisruptionBudget, ...]:
    namespaces = {pod.metadata.namespace for pod in pods}
    return tuple(budget for budget in budgets.store.values() if budget.metadata.namespace in namespaces)


def _peers(watch: Watch[Pod], pods: tuple[Pod, ...], node: str) -> Iterable[Pod]:
    """Replicas elsewhere of the cluster helpers here; no other pod's replicas are looked at."""
    owners = {owner.uid for pod in pods if is_helper(pod) and (owner := controller_of(pod)) is not None}
    for uid in sorted(owners):
        yield from (pod for pod in watch.store.by(BY_CONTROLLER, uid) if pod.spec.node_name != node)


async def volumes_of_staying(client: Client, verdicts: Iterable[Verdict]) -> frozenset[str]:
    """The PersistentVolumes of pods that stay on the node: their attachments never go, so nobody waits for them.

    A claim that cannot be read is left out; then its volume is waited for until the deadline, which harms nothing.
    """
    found = set()
    for verdict in verdicts:
        for claim in claims_of(verdict.pod) if verdict.act is Act.SKIP else ():
            try:
                read = await client.get(PERSISTENT_VOLUME_CLAIM, claim, verdict.pod.metadata.namespace, type=Claim)
            except (ApiError, Unreachable) as error:
                log.warning("cannot read a claim", pod=key_of(verdict.pod.metadata), claim=claim, error=str(error))
                continue
            found.add(read.spec.volume_name)
    return frozenset(found - {""})


def claims_of(pod: Pod) -> Iterator[str]:
    """The names of its claims, those that live and die with it among them."""
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name
        elif volume.ephemeral is not None:
            yield f"{pod.metadata.name}-{volume.name}"
