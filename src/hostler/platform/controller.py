"""Keeps cloud-only DaemonSets off nodes without the cloud, checks vSphere nodes, frees those that wait for a provider.

Keys: `scope` (the policies, every scoped DaemonSet, the conditions), `checks` (one bulk read, the taints), `pods`.
`explain` and `plan` show the decisions of `decide` and `decide_taint`: the ones that `reconcile` carries out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import structlog

from hostler.apis.fleet import NAME, PlatformPolicy, ScopedDaemonSet
from hostler.drain.observe import BY_NODE
from hostler.host.conditions import Condition
from hostler.host.facts import Fact, Unknown
from hostler.host.platform import Class, classify
from hostler.host.reverts import Revert, RevertLog
from hostler.instant import Instant, parse
from hostler.kube.cache import UNREAD_SECONDS
from hostler.kube.events import Recorder
from hostler.kube.kinds import DAEMON_SET, POD
from hostler.kube.metrics import Metrics
from hostler.kube.records import key_of
from hostler.platform import node_checks
from hostler.platform.admission_policy import PolicyFacts
from hostler.platform.conditions import OPERATOR_NAME
from hostler.platform.csi_driver import DriverFacts
from hostler.platform.decide import (
    Decision,
    Facts,
    OperatorFacts,
    Policy,
    TaintVerdict,
    decide,
    decide_taint,
    other_clouds,
    waits_for_provider,
)
from hostler.platform.executor import PlatformExecutor
from hostler.platform.model import CSI_DRIVER, CheckRound, PlacedNode, Result, State, StrandedPod, Write
from hostler.platform.observe import Caches, StrandedPods, VmSource, ask_vcenters
from hostler.platform.scoping import ScopeFacts, describe_rule, find_lag, has_rule, key_of_target, resolve, targets_of
from hostler.platform.status import PlatformMetrics

log = structlog.get_logger("hostler.platform")

SCOPE, CHECKS, PODS = KEYS = ("scope", "checks", "pods")
VSPHERE = "vsphere"


@dataclass(frozen=True, slots=True)
class Options:
    """What the operator's settings say."""

    grace: float
    policy: Policy
    remove_taint: bool = True


class PlatformKeeper:
    """Reconciles the three keys, and shows its decisions to `explain` and `plan`."""

    def __init__(
        self,
        caches: Caches,
        executor: PlatformExecutor,
        recorder: Recorder,
        options: Options,
        *,
        vcenters: Callable[[], Sequence[VmSource]],
        stranded: StrandedPods,
        displaced: Callable[[], bool],
        metrics: Metrics,
        changed: Callable[[], None],
        wake: Callable[[str], None],
        clock: Callable[[], Instant] = time.time,
    ) -> None:
        """`changed` is called when the conditions changed; `wake` queues one of our keys.

        `displaced`: the CSI operator is at work, and we do not write beside it.
        """
        self.caches = caches
        self.round = CheckRound()
        self.answers: node_checks.Answers = {}
        self._asked: frozenset[str] = frozenset()  # the UUIDs they are about
        self.conditions: Sequence[Condition] = ()
        self.stranded: tuple[StrandedPod, ...] = ()
        self._executor, self._recorder, self._options = executor, recorder, options
        self._vcenters, self._stranded, self._displaced = vcenters, stranded, displaced
        self._changed, self._wake, self._clock = changed, wake, clock
        self._reverts = RevertLog()
        self._since: dict[str, Instant] = {}  # DaemonSet -> when we first saw it lag
        self._failures = 0
        self._gauges = PlatformMetrics(metrics)

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
        return [PlacedNode(node, classify(node, now, self._options.grace)) for node in self.caches.nodes.store]

    def _facts(self, now: Instant) -> Facts:
        caches, nodes = self.caches, self.placed()
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
            since=dict(self._since),
            stranded=self.stranded,
            conditions=self.conditions,
        )

    def _scope_facts(self, target: ScopedDaemonSet, nodes: Sequence[PlacedNode], now: Instant) -> ScopeFacts:
        key, store = key_of_target(target), self.caches.daemon_sets.store
        current, reverts = store.get(key), self._reverts.of(key)
        if current is not None and not has_rule(current.spec.template.spec.affinity, target):
            undone = self._reverts.was_in_place(key, describe_rule(target))
            reverts = (*reverts, Revert(describe_rule(target), now)) if undone else reverts
        return ScopeFacts(target, current, nodes, reverts, store.unreadable.get(key, ""), self._options.grace)

    def _in_none(self, one: PlacedNode) -> Fact[bool]:
        if self._vcenters() and not node_checks.uuids_of([one]) <= self._asked:
            return Unknown("vCenter was not asked about it yet")
        return node_checks.in_no_vcenter(one.node, self.answers)

    # -- deciding

    def decide(self) -> tuple[Facts, Decision]:
        """What is decided about every scoped DaemonSet and what guards it now."""
        now = self._clock()
        facts = self._facts(now)
        return facts, decide(facts, self._options.policy, now)

    def decide_taint(self, one: PlacedNode, clouds: Sequence[str]) -> TaintVerdict | None:
        return decide_taint(one, self._in_none(one), wanted=self._options.remove_taint, clouds=clouds)

    # -- acting

    async def reconcile(self, key: str) -> float | None:
        why = self.caches.unread()
        if why:
            log.debug("not reconciling yet", key=key, why=str(why))
            return UNREAD_SECONDS
        if key == CHECKS:
            return await self._check()
        if key == PODS:
            return await self._pods()
        return await self._scope()

    async def _scope(self) -> float | None:
        facts, decision = self.decide()
        self._remember(facts, decision)
        if decision.conditions is not self.conditions:
            self.conditions = decision.conditions
            self._changed()
        self._gauges.show(facts.nodes, self.round, len(self.stranded), self.conditions)
        for scope, one in zip(decision.scopes, facts.scopes, strict=True):
            for news in scope.news:
                if one.current is not None:
                    about = one.current.metadata
                    self._recorder.event(DAEMON_SET, about, news.type, news.reason, "Scope", news.note)
        rules = {key_of_target(scope.target): describe_rule(scope.target) for scope in decision.scopes}

        def written(write: Write) -> None:
            if write.kind is DAEMON_SET:
                self._reverts.is_in_place(write.about[0], rules[write.about[0]])

        await self._executor.carry_out(decision.steps, written)
        return decision.wake

    def _remember(self, facts: Facts, decision: Decision) -> None:
        """Reverts and roll-outs, by our own clock: what a restart may forget."""
        now = self._clock()
        for scope, one in zip(decision.scopes, facts.scopes, strict=True):
            key, rule = key_of_target(scope.target), describe_rule(scope.target)
            if one.current is None:
                self._reverts.forget(key)
                self._since.pop(key, None)
                continue
            if scope.state is State.IN_PLACE:
                self._reverts.is_in_place(key, rule)
                self._gauges.in_place(key)
            elif self._reverts.is_undone(key, rule, now):
                self._gauges.reverted(key)
            if find_lag(one.current):
                self._since.setdefault(key, now)
            else:
                self._since.pop(key, None)

    # -- checks and taints

    async def _check(self) -> float | None:
        nodes = self.placed()
        waiting, wanted = [one for one in nodes if waits_for_provider(one)], node_checks.nodes_to_check(nodes)
        if wanted or any(one.found.kind is Class.FOREIGN for one in waiting):
            about = node_checks.uuids_of([*wanted, *waiting])
            self.answers, self._asked = await ask_vcenters(self._vcenters(), about), about
            self.round = node_checks.judge_nodes(nodes, self.answers, self.round, self._clock(), self._options.grace)
        else:
            self.round = CheckRound(at=self._clock())
        well = not self.round.unknown and all(one.result is Result.PASSED for one in self.round.results.values())
        self._failures = 0 if well else self._failures + 1
        self._wake(SCOPE)
        # As they are now: a cloud provider may have initialised them while vCenter was asked.
        nodes = self.placed()
        clouds = other_clouds(nodes)
        verdicts = ((one.name, self.decide_taint(one, clouds)) for one in nodes)
        await self._executor.carry_out([found.writes(name) for name, found in verdicts if found is not None])
        return min([node_checks.next_look(self.round, self._failures), *self._ageing(nodes)])

    def _ageing(self, nodes: Sequence[PlacedNode]) -> Iterator[float]:
        """When a young node stops being young: then another class, or a failed check, is due."""
        now = self._clock()
        for one in nodes:
            young = self.round.results.get(one.name)
            if one.found.kind is Class.UNINITIALISED or (young is not None and young.result is Result.YOUNG):
                created = parse(one.node.metadata.creation_timestamp)
                if created is not None:
                    yield max(created + self._options.grace - now, 0.0) + 0.5

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
        stranded = tuple(StrandedPod(key_of(pod.metadata), pod.spec.node_name) for pod in found)
        if stranded != self.stranded:
            new = [pod for pod, named in zip(found, stranded, strict=True) if named not in self.stranded]
            self.stranded = stranded
            for pod in new:
                note = f"It needs the vSphere CSI driver, and node {pod.spec.node_name} has none."
                self._recorder.event(POD, pod.metadata, "Warning", "DriverMissing", "Scope", note)
            self._wake(SCOPE)
        return 2.0 if soon else None
