"""Keeps cloud-only DaemonSets off nodes without the cloud, checks vSphere nodes, frees those that wait for a provider.

Keys: `scope` (the policies, every scoped DaemonSet, the conditions), `checks` (one bulk read, the taints), `pods`.
`explain` and `plan` show the decisions of `decide` and `decide_taint`: the ones that `reconcile` carries out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import structlog

from hostler.host.platform import Class
from hostler.instant import parse
from hostler.kube.cache import UNREAD_SECONDS
from hostler.kube.kinds import DAEMON_SET
from hostler.platform.decide import Decision, Facts, Policy, TaintVerdict, decide, decide_taint, other_clouds
from hostler.platform.executor import PlatformExecutor
from hostler.platform.model import PlacedNode, Result, State, Write
from hostler.platform.node_checks import next_look
from hostler.platform.observe import Observer
from hostler.platform.scoping import describe_rule, find_lag, key_of_target
from hostler.platform.status import PlatformReport

log = structlog.get_logger("hostler.platform")

SCOPE, CHECKS, PODS = KEYS = ("scope", "checks", "pods")


@dataclass(frozen=True, slots=True)
class Options:
    """What the operator's settings say."""

    policy: Policy
    remove_taint: bool = True


class PlatformReconciler:
    """Reconciles the three keys, and shows its decisions to `explain` and `plan`."""

    def __init__(
        self,
        observer: Observer,
        executor: PlatformExecutor,
        report: PlatformReport,
        options: Options,
        wake: Callable[[str], None],
    ) -> None:
        """`wake` queues one of our keys."""
        self.observer, self.report = observer, report
        self._executor, self._options, self._wake = executor, options, wake
        self._failures = 0

    # -- deciding

    def decide(self) -> tuple[Facts, Decision]:
        """What is decided about every scoped DaemonSet and what guards it now."""
        now = self.observer.clock()
        facts = self.observer.facts(self.report.conditions, now)
        return facts, decide(facts, self._options.policy, now)

    def decide_taint(self, placed: PlacedNode, clouds: Sequence[str]) -> TaintVerdict | None:
        in_none = self.observer.in_no_vcenter(placed)
        return decide_taint(placed, in_none, wanted=self._options.remove_taint, clouds=clouds)

    # -- acting

    async def reconcile(self, key: str) -> float | None:
        why = self.observer.caches.unread()
        if why:
            log.debug("not reconciling yet", key=key, why=str(why))
            return UNREAD_SECONDS
        if key == CHECKS:
            return await self._reconcile_checks()
        if key == PODS:
            return await self._reconcile_pods()
        return await self._reconcile_scope()

    async def _reconcile_scope(self) -> float | None:
        facts, decision = self.decide()
        self._remember(facts, decision)
        self.report.publish(facts, decision)
        rules = {key_of_target(scope.target): describe_rule(scope.target) for scope in decision.scopes}

        def written(write: Write) -> None:
            if write.kind is DAEMON_SET:
                self.observer.reverts.is_in_place(write.about[0], rules[write.about[0]])

        await self._executor.carry_out(decision.steps, written)
        return decision.wake

    def _remember(self, facts: Facts, decision: Decision) -> None:
        """Reverts and roll-outs, by our own clock: what a restart may forget."""
        now, reverts, since = self.observer.clock(), self.observer.reverts, self.observer.lagging_since
        for scope, scope_facts in zip(decision.scopes, facts.scopes, strict=True):
            key, rule = key_of_target(scope.target), describe_rule(scope.target)
            if scope_facts.current is None:
                reverts.forget(key)
                since.pop(key, None)
                continue
            if scope.state is State.IN_PLACE:
                reverts.is_in_place(key, rule)
                self.report.metrics.in_place(key)
            elif reverts.is_undone(key, rule, now):
                self.report.metrics.reverted(key)
            if find_lag(scope_facts.current):
                since.setdefault(key, now)
            else:
                since.pop(key, None)

    async def _reconcile_checks(self) -> float | None:
        await self.observer.check_nodes()
        last = self.observer.round
        well = not last.unknown and all(check.result is Result.PASSED for check in last.results.values())
        self._failures = 0 if well else self._failures + 1
        self._wake(SCOPE)
        # As they are now: a cloud provider may have initialised them while vCenter was asked.
        nodes = self.observer.nodes()
        clouds = other_clouds(nodes)
        verdicts = ((placed.name, self.decide_taint(placed, clouds)) for placed in nodes)
        await self._executor.carry_out([verdict.writes(name) for name, verdict in verdicts if verdict is not None])
        return min([next_look(last, self._failures), *self._ageing(nodes)])

    def _ageing(self, nodes: Sequence[PlacedNode]) -> Iterator[float]:
        """When a young node stops being young: then another class, or a failed check, is due."""
        now = self.observer.clock()
        for placed in nodes:
            young = self.observer.round.results.get(placed.name)
            if placed.found.kind is Class.UNINITIALISED or (young is not None and young.result is Result.YOUNG):
                created = parse(placed.node.metadata.creation_timestamp)
                if created is not None:
                    yield max(created + self.observer.grace - now, 0.0) + 0.5

    async def _reconcile_pods(self) -> float | None:
        before = self.observer.stranded
        new, soon = await self.observer.find_stranded()
        if self.observer.stranded != before:
            self.report.warn_stranded(new)
            self._wake(SCOPE)
        return 2.0 if soon else None
