"""What platform reads: caches, the VMs of nodes by one bulk read per vCenter, and pods that lack their driver."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from hostler.apis.openshift import ClusterCSIDriver, ClusterOperator
from hostler.drain.observe import claims_of
from hostler.host.facts import Fact, then
from hostler.instant import Instant
from hostler.kube.cache import Unread, first_unread
from hostler.kube.client import Client
from hostler.kube.errors import ApiError, Unreachable
from hostler.kube.kinds import FLEET, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, Kind
from hostler.kube.records import Metadata, Node, Pod, PodConditionType, PodPhase, Record, key_of
from hostler.kube.watch import Watch
from hostler.platform.model import CSI_DRIVER, DaemonSet, PolicySpec
from hostler.platform.node_checks import Machine, spelled
from hostler.safety.guard import FleetWatch


@dataclass(frozen=True, slots=True)
class Caches:
    """What platform reads. Nodes, pods and the Fleet are shared with the other capabilities."""

    daemon_sets: Watch[DaemonSet]
    policies: Watch[PolicySpec]
    bindings: Watch[PolicySpec]
    operators: Watch[ClusterOperator]
    drivers: Watch[ClusterCSIDriver]
    nodes: Watch[Node]
    pods: Watch[Pod]
    fleet: FleetWatch

    def own(self) -> Iterator[Watch[Any]]:
        """The watches that only platform needs."""
        yield from (self.daemon_sets, self.policies, self.bindings, self.operators, self.drivers)

    @property
    def by_kind(self) -> dict[Kind, Watch[Any]]:
        """The watches of everything that is written."""
        return {one.kind: one for one in (*self.own(), self.nodes)}

    def unread(self) -> Unread | None:
        unread = first_unread((*self.own(), self.nodes, self.pods))
        return unread if unread or self.fleet.store.synced else Unread(FLEET, only=True)


if TYPE_CHECKING:  # the vCenter client costs memory, and an operator without a vCenter does not need it
    from hostler.vsphere.bulk import Checked


class VmSource(Protocol):
    """What we need of a vCenter; `vsphere.vcenter.VCenter` is the real one."""

    @property
    def name(self) -> str: ...
    async def check_nodes(self, uuids: Collection[str]) -> Fact[list[Checked]]: ...


async def ask_vcenters(vcenters: Sequence[VmSource], uuids: Collection[str]) -> dict[str, Fact[Sequence[Machine]]]:
    """The answer of each vCenter by its name; one that does not answer is Unknown, with its reason."""
    answers = await asyncio.gather(*(one.check_nodes(uuids) for one in vcenters))
    return {
        one.name: then(answer, partial(_machines, vcenter=one.name))
        for one, answer in zip(vcenters, answers, strict=True)
    }


def _machines(found: Sequence[Checked], vcenter: str) -> Sequence[Machine]:
    return tuple(
        Machine(spelled(one.uuid), one.name, one.hardware_version, one.esxi_version, vcenter, one.vm, one.guest)
        for one in found
    )


log = structlog.get_logger("hostler.platform")

# A pod that starts in time is not stuck.
STUCK_SECONDS = 10.0
REMEMBER_SECONDS = 600.0
LOOKUPS_MOST = 200


class _ClaimSpec(Record, frozen=True):
    volume_name: str = ""


class _Claim(Record, frozen=True):
    spec: _ClaimSpec = _ClaimSpec()


class _Csi(Record, frozen=True):
    driver: str = ""


class _Present(Record, frozen=True):
    """Only that it is there matters."""


class _VolumeSpec(Record, frozen=True):
    csi: _Csi | None = None
    vsphere_volume: _Present | None = None


class Volume(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: _VolumeSpec = _VolumeSpec()

    @property
    def needs_driver(self) -> bool:
        """Whether the vSphere CSI driver mounts it; a volume of the old plugin is migrated to the driver."""
        csi = self.spec.csi
        return (csi is not None and csi.driver == CSI_DRIVER) or self.spec.vsphere_volume is not None


def is_stuck(pod: Pod) -> bool:
    """It is on a node, is meant to run, and is not ready."""
    if pod.metadata.deletion_timestamp or pod.status.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED):
        return False
    return not any(one.type is PodConditionType.READY and one.status == "True" for one in pod.status.conditions)


class StrandedPods:
    """Remembers since when a pod is stuck and which driver a claim needs."""

    def __init__(self, client: Client, clock: Callable[[], Instant] = time.time) -> None:
        self._client = client
        self._clock = clock
        self._since: dict[str, Instant] = {}  # by uid
        self._drivers: dict[str, tuple[Instant, bool]] = {}  # claim -> when asked, whether it needs the driver

    async def find(self, pods: Iterable[Pod], drivers: frozenset[str]) -> tuple[list[Pod], bool]:
        """Those of `pods` (on nodes without the driver) that need it; `drivers` are uids of the driver's DaemonSets.

        The second answer: some are stuck but not for long enough, so look again soon.
        """
        now = self._clock()
        those = [pod for pod in pods if is_stuck(pod)]
        self._since = {pod.metadata.uid: self._since.get(pod.metadata.uid, now) for pod in those}
        self._drivers = {key: one for key, one in self._drivers.items() if now - one[0] < REMEMBER_SECONDS}
        found, soon, lookups = [], False, LOOKUPS_MOST
        for pod in those:
            if now - self._since[pod.metadata.uid] < STUCK_SECONDS:
                soon = True
                continue
            if any(owner.uid in drivers for owner in pod.metadata.owner_references):
                found.append(pod)
                continue
            for claim in (f"{pod.metadata.namespace}/{name}" for name in claims_of(pod)):
                if claim not in self._drivers and lookups <= 0:
                    soon = True
                    continue
                lookups -= claim not in self._drivers
                if await self._needs(claim, now):
                    found.append(pod)
                    break
        return sorted(found, key=lambda pod: key_of(pod.metadata)), soon

    async def _needs(self, claim: str, now: Instant) -> bool:
        if claim not in self._drivers:
            try:
                self._drivers[claim] = (now, await self._ask(claim))
            except (ApiError, Unreachable) as error:
                log.debug("a claim could not be read", claim=claim, error=str(error))
                return False  # not known: it is not named, and asked again
        return self._drivers[claim][1]

    async def _ask(self, claim: str) -> bool:
        namespace, _, name = claim.partition("/")
        bound = await self._client.get(PERSISTENT_VOLUME_CLAIM, name, namespace, type=_Claim)
        if not bound.spec.volume_name:
            return False
        volume = await self._client.get(PERSISTENT_VOLUME, bound.spec.volume_name, type=Volume)
        return volume.needs_driver
