"""What platform reads: caches, the VMs of nodes by one bulk read per vCenter, and pods that lack their driver."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from hostler.apis.fleet import NAME, PlatformPolicy, ScopedDaemonSet
from hostler.apis.openshift import ClusterCSIDriver, ClusterOperator
from hostler.drain.observe import BY_NODE, claims_of
from hostler.host.conditions import Condition
from hostler.host.facts import Fact, Unknown, then
from hostler.host.platform import Class, classify
from hostler.host.reverts import RevertLog
from hostler.instant import Instant
from hostler.kube.cache import Unread, first_unread
from hostler.kube.client import Client
from hostler.kube.errors import ApiError, Unreachable
from hostler.kube.kinds import FLEET, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, Kind
from hostler.kube.records import Metadata, Node, Pod, PodConditionType, PodPhase, Record, key_of
from hostler.kube.watch import Watch
from hostler.platform.admission_policy import PolicyFacts
from hostler.platform.conditions import OPERATOR_NAME
from hostler.platform.csi_driver import DriverFacts
from hostler.platform.decide import Facts, OperatorFacts, waits_for_provider
from hostler.platform.model import CSI_DRIVER, CheckRound, DaemonSet, PlacedNode, PolicySpec, StrandedPod
from hostler.platform.node_checks import Answers, Machine, in_no_vcenter, judge_nodes, nodes_to_check, spelled, uuids_of
from hostler.platform.scoping import ScopeFacts, describe_rule, has_rule, key_of_target, resolve, targets_of
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
        return {watch.kind: watch for watch in (*self.own(), self.nodes)}

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
    answers = await asyncio.gather(*(vcenter.check_nodes(uuids) for vcenter in vcenters))
    return {
        vcenter.name: then(answer, partial(_machines, vcenter=vcenter.name))
        for vcenter, answer in zip(vcenters, answers, strict=True)
    }


def _machines(found: Sequence[Checked], vcenter: str) -> Sequence[Machine]:
    return tuple(
        Machine(spelled(vm.uuid), vm.name, vm.hardware_version, vm.esxi_version, vcenter, vm.vm, vm.guest)
        for vm in found
    )


log = structlog.get_logger("hostler.platform")

# A pod that starts in time is not stuck.
VSPHERE = "vsphere"
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
    return not any(
        condition.type is PodConditionType.READY and condition.status == "True" for condition in pod.status.conditions
    )


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
        self._drivers = {key: asked for key, asked in self._drivers.items() if now - asked[0] < REMEMBER_SECONDS}
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


class Observer:
    """The facts about scoped DaemonSets and nodes: from caches, vCenters, and what this process has seen."""

    def __init__(
        self,
        caches: Caches,
        vcenters: Callable[[], Sequence[VmSource]],
        stranded: StrandedPods,
        displaced: Callable[[], bool],
        grace: float,
        clock: Callable[[], Instant] = time.time,
    ) -> None:
        """`displaced`: the CSI operator is at work, and we do not write beside it."""
        self.caches, self.grace, self.clock = caches, grace, clock
        self.round = CheckRound()
        self.stranded: tuple[StrandedPod, ...] = ()
        self.reverts = RevertLog()
        self.lagging_since: dict[str, Instant] = {}  # DaemonSet -> when we first saw it lag
        self._vcenters, self._stranded, self._displaced = vcenters, stranded, displaced
        self._answers: Answers = {}
        self._asked: frozenset[str] = frozenset()  # the UUIDs they are about

    def entries(self) -> tuple[ScopedDaemonSet, ...]:
        """What the Fleet says of DaemonSets, by name or label."""
        fleet = self.caches.fleet.store.get(NAME)
        return targets_of(fleet.spec.platform if fleet is not None else PlatformPolicy())

    def targets(self) -> list[ScopedDaemonSet]:
        """Each DaemonSet by itself, as they are there now."""
        return resolve(self.entries(), (daemon_set.metadata for daemon_set in self.caches.daemon_sets.store))

    def nodes(self) -> list[PlacedNode]:
        now = self.clock()
        return [PlacedNode(node, classify(node, now, self.grace)) for node in self.caches.nodes.store]

    def facts(self, conditions: Sequence[Condition], now: Instant) -> Facts:
        """`conditions` are those of the last pass."""
        caches, nodes = self.caches, self.nodes()
        operators, drivers = caches.operators, caches.drivers.store
        return Facts(
            entries=self.entries(),
            scopes=[self._scope_facts(target, nodes, now) for target in self.targets()],
            nodes=nodes,
            policies=PolicyFacts(
                tuple(caches.policies.store),
                tuple(caches.bindings.store),
                served=not (caches.policies.absent or caches.bindings.absent),
            ),
            driver=DriverFacts(drivers.get(CSI_DRIVER), drivers.unreadable.get(CSI_DRIVER, ""), self._displaced()),
            operator=OperatorFacts(
                operators.store.get(OPERATOR_NAME),
                usable=not operators.absent and OPERATOR_NAME not in operators.store.unreadable,
            ),
            round=self.round,
            since=dict(self.lagging_since),
            stranded=self.stranded,
            conditions=conditions,
        )

    def _scope_facts(self, target: ScopedDaemonSet, nodes: Sequence[PlacedNode], now: Instant) -> ScopeFacts:
        key, store = key_of_target(target), self.caches.daemon_sets.store
        current, reverts = store.get(key), self.reverts.of(key)
        if current is not None and not has_rule(current.spec.template.spec.affinity, target):
            reverts = self.reverts.seen_at(key, describe_rule(target), now)
        return ScopeFacts(target, current, nodes, reverts, store.unreadable.get(key, ""), self.grace)

    # -- vCenter

    async def check_nodes(self) -> None:
        """Ask every vCenter about the nodes that are checked, and those that wait for a provider: one bulk read."""
        nodes = self.nodes()
        waiting, wanted = [placed for placed in nodes if waits_for_provider(placed)], nodes_to_check(nodes)
        if wanted or any(placed.found.kind is Class.FOREIGN for placed in waiting):
            about = uuids_of([*wanted, *waiting])
            self._answers, self._asked = await ask_vcenters(self._vcenters(), about), about
            self.round = judge_nodes(nodes, self._answers, self.round, self.clock(), self.grace)
        else:
            self.round = CheckRound(at=self.clock())

    def in_no_vcenter(self, placed: PlacedNode) -> Fact[bool]:
        if self._vcenters() and not uuids_of([placed]) <= self._asked:
            return Unknown("vCenter was not asked about it yet")
        return in_no_vcenter(placed.node, self._answers)

    # -- pods without a driver

    async def find_stranded(self) -> tuple[list[Pod], bool]:
        """Pods that newly lack their driver; and whether some may soon. `stranded` are all of them from then on."""
        lacking = [placed.name for placed in self.nodes() if placed.found.kind is not Class.VSPHERE]
        daemon_sets = self.caches.daemon_sets.store
        drivers = frozenset(
            current.metadata.uid
            for target in self.targets()
            if target.platform == VSPHERE and (current := daemon_sets.get(key_of_target(target))) is not None
        )
        pods = [pod for name in lacking for pod in self.caches.pods.store.by(BY_NODE, name)]
        found, soon = await self._stranded.find(pods, drivers)
        before = self.stranded
        self.stranded = tuple(StrandedPod(key_of(pod.metadata), pod.spec.node_name) for pod in found)
        return [pod for pod, named in zip(found, self.stranded, strict=True) if named not in before], soon
