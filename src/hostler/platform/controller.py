"""Keeps cloud-only DaemonSets off nodes without the cloud, checks vSphere nodes, frees waiting ones, says how it is.

Keys: `scope` (the policies, every scoped DaemonSet, the conditions), `checks` (one bulk read, the taints), `pods`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog
from prometheus_client import Counter, Gauge

from hostler.apis.fleet import NAME, PlatformPolicy, ScopedDaemonSet
from hostler.drain.observe import BY_NODE
from hostler.host.conditions import Condition, set_conditions
from hostler.host.facts import Fact, Unknown
from hostler.host.platform import UNINITIALIZED, Class, classify
from hostler.host.reverts import RevertLimits, RevertLog
from hostler.instant import Instant, parse
from hostler.kube.cache import UNREAD_SECONDS, Unread, first_unread
from hostler.kube.client import How
from hostler.kube.errors import ApiError, Unreachable, WriteRefused
from hostler.kube.events import Recorder
from hostler.kube.kinds import DAEMON_SET, FLEET, NODE, POD
from hostler.kube.metrics import Metrics
from hostler.kube.records import Node, Pod, key_of
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from hostler.platform import checks
from hostler.platform.conditions import Seen, decide_conditions
from hostler.platform.decide import ScopeFacts, TaintVerdict, decide_scope, decide_taint, lags, other_clouds
from hostler.platform.guard import DriverKeeper, PolicyKeeper
from hostler.platform.model import (
    MANAGER,
    NO_POLICIES,
    ClusterOperator,
    CsiDriver,
    DaemonSet,
    PlacedNode,
    PolicySpec,
    Result,
    Round,
    Scope,
    State,
    Way,
)
from hostler.platform.operator_status import OperatorStatusKeeper
from hostler.platform.scope import in_place, words
from hostler.platform.stranded import Stranded
from hostler.platform.targets import OPENSHIFT_DRIVER, key_of_target, resolve, targets_of
from hostler.platform.vcenters import VmSource, ask
from hostler.safety.guard import FleetWatch

log = structlog.get_logger("hostler.platform")

SCOPE, CHECKS, PODS = KEYS = ("scope", "checks", "pods")
VSPHERE = "vsphere"


@dataclass(frozen=True, slots=True)
class Caches:
    """What platform reads. Nodes, pods and the Fleet are shared with the rest of the house."""

    daemon_sets: Watch[DaemonSet]
    policies: Watch[PolicySpec]
    bindings: Watch[PolicySpec]
    operators: Watch[ClusterOperator]
    drivers: Watch[CsiDriver]
    nodes: Watch[Node]
    pods: Watch[Pod]
    fleet: FleetWatch

    def own(self) -> Iterator[Watch[Any]]:
        yield from (self.daemon_sets, self.policies, self.bindings, self.operators, self.drivers)

    def unread(self) -> Unread | None:
        unread = first_unread((*self.own(), self.nodes, self.pods))
        return unread if unread or self.fleet.store.synced else Unread(FLEET, only=True)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the settings say."""

    grace: float
    strict: bool = False
    remove_taint: bool = True
    way: str = "auto"  # as HOSTLER_PLATFORM_WAY has it
    limits: RevertLimits = field(default_factory=RevertLimits)


class PlatformKeeper:
    """Reconciles the three keys. Also answers what `explain` asks."""

    def __init__(
        self,
        caches: Caches,
        writer: Writer,
        recorder: Recorder,
        wishes: Wishes,
        *,
        vcenters: Callable[[], Sequence[VmSource]],
        stranded: Stranded,
        driver: DriverKeeper,
        metrics: Metrics,
        changed: Callable[[], None],
        wake: Callable[[str], None],
        clock: Callable[[], Instant] = time.time,
    ) -> None:
        """`changed` is told when the conditions changed; `wake` looks at one of our keys again soon."""
        self.caches = caches
        self.round = Round()
        self.answers: checks.Answers = {}
        self._asked: frozenset[str] = frozenset()  # the UUIDs they are about
        self.conditions: Sequence[Condition] = ()
        self.stranded: tuple[str, ...] = ()
        self._writer, self._recorder, self._wishes = writer, recorder, wishes
        self._vcenters, self._stranded = vcenters, stranded
        self._changed, self._wake, self._clock = changed, wake, clock
        self._policies = PolicyKeeper(caches.policies, caches.bindings, writer)
        self._driver = driver
        self._operator = OperatorStatusKeeper(caches.operators, writer)
        self._reverts = RevertLog()
        self._since: dict[str, Instant] = {}  # DaemonSet -> when we first saw it lag
        self._failures = 0
        registry = metrics.registry
        self._nodes_gauge = Gauge("hostler_platform_nodes", "Nodes by platform class.", ["class"], registry=registry)
        self._checks_gauge = Gauge(
            "hostler_platform_checks", "vSphere nodes by the result of their check.", ["result"], registry=registry
        )
        self._stranded_gauge = Gauge(
            "hostler_platform_stranded_pods", "Pods that need a driver their node lacks.", registry=registry
        )
        self._degraded_gauge = Gauge(
            "hostler_platform_condition", "1: True, 0: False, -1: Unknown.", ["type"], registry=registry
        )
        self._reverted = Counter(
            "hostler_platform_reverts", "How often somebody took the rule from a DaemonSet.", ["daemonset"],
            registry=registry,
        )  # fmt: skip

    # -- observing

    def entries(self) -> tuple[ScopedDaemonSet, ...]:
        """What the Fleet says of DaemonSets, by name or label."""
        fleet = self.caches.fleet.store.get(NAME)
        return targets_of(fleet.spec.platform if fleet is not None else PlatformPolicy())

    def targets(self) -> list[ScopedDaemonSet]:
        """One by one, as they are there now."""
        return resolve(self.entries(), (one.metadata for one in self.caches.daemon_sets.store))

    def placed(self) -> list[PlacedNode]:
        now = self._clock()
        return [PlacedNode(node, classify(node, now, self._wishes.grace)) for node in self.caches.nodes.store]

    @property
    def way(self) -> Way:
        if self._wishes.way == "unmanaged":
            return Way.UNMANAGED
        return Way.POLICY if self._wishes.way == "auto" and not self.caches.policies.absent else Way.APPLY

    def way_words(self, scopes: Sequence[tuple[Scope, DaemonSet | None]]) -> str:
        """The way in force, and why it is not another."""
        driver = self._driver.verdict(self._sets_aside(scopes))
        words = str(self.way)
        if self.way is Way.UNMANAGED:
            return f"{Way.APPLY}; {driver.why}"
        if self.way is Way.APPLY and self._wishes.way == "auto":
            words = f"{Way.APPLY}, because {NO_POLICIES}"
        return f"{words}; {driver.why}" if driver.patch is not None else words

    def _sets_aside(self, scopes: Sequence[tuple[Scope, DaemonSet | None]]) -> bool | None:
        """Whether the CSI operator is to leave its DaemonSet alone: only if that is there and gets the rule.

        None: its DaemonSet cannot be read, so things stay as they are.
        """
        mine = [scope for scope, _ in scopes if key_of_target(scope.target) == key_of_target(OPENSHIFT_DRIVER)]
        if self.way is not Way.UNMANAGED:
            return False
        if any(scope.state is State.UNREADABLE for scope in mine):
            return None
        return any(scope.state in (State.IN_PLACE, State.WRITE, State.FIGHT) for scope in mine)

    def scopes(self, nodes: Sequence[PlacedNode]) -> list[tuple[Scope, DaemonSet | None]]:
        """What is decided about every scoped DaemonSet now."""
        store, now = self.caches.daemon_sets.store, self._clock()
        found = []
        for target in self.targets():
            key = key_of_target(target)
            current = store.get(key)
            reverts, unreadable = self._reverts.of(key), store.unreadable.get(key, "")
            facts = ScopeFacts(target, current, nodes, reverts, unreadable, self._wishes.grace)
            found.append((decide_scope(facts, self._wishes.limits, now), current))
        return found

    def taint(self, one: PlacedNode, clouds: Sequence[str]) -> TaintVerdict | None:
        return decide_taint(one, self._in_none(one), wanted=self._wishes.remove_taint, clouds=clouds)

    def _in_none(self, one: PlacedNode) -> Fact[bool]:
        if self._vcenters() and not checks.uuids_of([one]) <= self._asked:
            return Unknown("vCenter was not asked about it yet")
        return checks.in_no_vcenter(one.node, self.answers)

    # -- acting

    async def reconcile(self, key: str) -> float | None:
        why = self.caches.unread()
        if why:
            log.debug("not looking yet", key=key, why=str(why))
            return UNREAD_SECONDS
        if key == CHECKS:
            return await self._check()
        if key == PODS:
            return await self._pods()
        return await self._scope()

    async def _scope(self) -> float | None:
        self._remember()
        nodes = self.placed()
        scopes = self.scopes(nodes)
        wakes = [scope.wake for scope, _ in scopes if scope.wake is not None]
        wakes += self._say(nodes, scopes)
        for scope, current in scopes:
            for one in scope.news:
                if current is not None:
                    self._recorder.event(DAEMON_SET, current.metadata, one.type, one.reason, "Scope", one.note)
        held = {key_of_target(scope.target) for scope, _ in scopes if scope.state is State.HELD_BACK}
        due = [(scope, now) for scope, now in scopes if scope.state is State.WRITE and now is not None]
        await _each(
            partial(self._driver.keep, self._sets_aside(scopes)),
            partial(self._policies.keep, self.entries() if self.way is Way.POLICY else (), held),
            *(partial(self._apply, scope, now) for scope, now in due),
            partial(self._operator.keep, self.conditions),
        )
        return min(wakes, default=None)

    async def _apply(self, scope: Scope, current: DaemonSet) -> None:
        meta = current.metadata
        written = await self.caches.daemon_sets.patch(
            self._writer, meta.name, scope.body, meta.namespace, why=scope.why, how=How.APPLY, manager=MANAGER,
            force=True,
        )  # fmt: skip
        if written is None:
            return
        self._reverts.is_in_place(key_of(meta), words(scope.target))
        note = f"It requires {words(scope.target)} now, so it stays off {len(scope.kept_off)} nodes without the cloud."
        self._recorder.event(DAEMON_SET, meta, "Normal", "Scoped", "Scope", note)

    def _remember(self) -> None:
        """Reverts and roll-outs, by our own clock: what a restart may forget."""
        now = self._clock()
        for target in self.targets():
            key, rule = key_of_target(target), words(target)
            current = self.caches.daemon_sets.store.get(key)
            if current is None:
                self._reverts.forget(key)
                self._since.pop(key, None)
                continue
            if in_place(current.spec.template.spec.affinity, target):
                self._reverts.is_in_place(key, rule)
                self._reverted.labels(key)  # there as 0, so that Prometheus sees the first one
            elif self._reverts.is_undone(key, rule, now):
                self._reverted.labels(key).inc()
            if lags(current):
                self._since.setdefault(key, now)
            else:
                self._since.pop(key, None)

    def _say(self, nodes: Sequence[PlacedNode], scopes: Sequence[tuple[Scope, DaemonSet | None]]) -> list[float]:
        """Make the conditions, tell whoever writes them down, and measure. Returns when to look again."""
        foreign = sorted(one.name for one in nodes if one.found.kind is Class.FOREIGN)
        seen = Seen(
            scopes, self.round, len(checks.to_check(nodes)), self.way_words(scopes), foreign, self._wishes.strict,
            dict(self._since), self.stranded,
        )  # fmt: skip
        made, wake = decide_conditions(seen, self._clock())
        conditions = set_conditions(self.conditions, made, self._clock())
        if conditions is not self.conditions:
            self.conditions = conditions
            self._changed()
        self._measure(nodes)
        return [wake] if wake is not None else []

    def _measure(self, nodes: Sequence[PlacedNode]) -> None:
        for kind in Class:
            self._nodes_gauge.labels(kind).set(sum(one.found.kind is kind for one in nodes))
        for result in Result:
            number = sum(one.result is result for one in self.round.results.values())
            self._checks_gauge.labels(result).set(number)
        self._stranded_gauge.set(len(self.stranded))
        for one in self.conditions:
            self._degraded_gauge.labels(one.type).set({"True": 1, "False": 0}.get(str(one.status), -1))

    # -- checks and taints

    async def _check(self) -> float | None:
        nodes = self.placed()
        waiting, wanted = _waiting(nodes), checks.to_check(nodes)
        if wanted or any(one.found.kind is Class.FOREIGN for one in waiting):
            about = checks.uuids_of([*wanted, *waiting])
            self.answers, self._asked = await ask(self._vcenters(), about), about
            self.round = checks.judge(nodes, self.answers, self.round, self._clock(), self._wishes.grace)
        else:
            self.round = Round(at=self._clock())
        well = not self.round.unknown and all(one.result is Result.PASSED for one in self.round.results.values())
        self._failures = 0 if well else self._failures + 1
        self._wake(SCOPE)
        # As they are now: while vCenter was asked somebody may have initialised them.
        nodes = self.placed()
        await _each(*(partial(self._free, one, other_clouds(nodes)) for one in _waiting(nodes)))
        return min([checks.next_look(self.round, self._failures), *self._ageing(nodes)])

    async def _free(self, one: PlacedNode, clouds: Sequence[str]) -> None:
        verdict = self.taint(one, clouds)
        if verdict is None or verdict.patch is None:
            return
        written = await self.caches.nodes.patch(
            self._writer, one.name, list(verdict.patch), why=verdict.why, how=How.JSON
        )
        if written is not None:
            note = f"The taint {UNINITIALIZED} was taken away: {verdict.why}."
            self._recorder.event(NODE, one.node.metadata, "Normal", "TaintRemoved", "Initialise", note)

    def _ageing(self, nodes: Sequence[PlacedNode]) -> Iterator[float]:
        """When a young node stops being young: then another class, or a failed check, is due."""
        now = self._clock()
        for one in nodes:
            young = self.round.results.get(one.name)
            if one.found.kind is Class.UNINITIALISED or (young is not None and young.result is Result.YOUNG):
                created = parse(one.node.metadata.creation_timestamp)
                if created is not None:
                    yield max(created + self._wishes.grace - now, 0.0) + 0.5

    # -- pods without a driver

    async def _pods(self) -> float | None:
        store = self.caches.pods.store
        lacking = [one.name for one in self.placed() if one.found.kind is not Class.VSPHERE]
        drivers = frozenset(
            current.metadata.uid
            for target in self.targets()
            if target.platform == VSPHERE
            and (current := self.caches.daemon_sets.store.get(key_of_target(target))) is not None
        )
        pods = [pod for name in lacking for pod in store.by(BY_NODE, name)]
        found, soon = await self._stranded.find(pods, drivers)
        named = tuple(f"{key_of(pod.metadata)} on {pod.spec.node_name}" for pod in found)
        if named != self.stranded:
            new = [pod for pod, name in zip(found, named, strict=True) if name not in self.stranded]
            self.stranded = named
            for pod in new:
                note = f"It needs the vSphere CSI driver, and node {pod.spec.node_name} has none."
                self._recorder.event(POD, pod.metadata, "Warning", "DriverMissing", "Scope", note)
            self._wake(SCOPE)
        return 2.0 if soon else None


def _waiting(nodes: Iterable[PlacedNode]) -> list[PlacedNode]:
    """Those that wait for a cloud provider."""
    return [one for one in nodes if any(taint.key == UNINITIALIZED for taint in one.node.spec.taints)]


async def _each(*writes: Callable[[], Awaitable[None]]) -> None:
    """One after the other, all of them: one that is refused does not keep the others back. Then its error."""
    errors: list[Exception] = []
    for write in writes:
        try:
            await write()
        except (ApiError, Unreachable, WriteRefused) as error:
            errors.append(error)
    if errors:
        raise errors[0]
