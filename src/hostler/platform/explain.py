"""Explains a node, a scoped DaemonSet, and everything that platform would write now; and its notes on hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from hostler.explain.registry import Action, Explainer, Explanation, FactSeen, Registry, RuleSeen
from hostler.host.conditions import names
from hostler.instant import iso
from hostler.inventory.model import Host, Layer
from hostler.inventory.sources import Source
from hostler.kube.client import Gate
from hostler.platform.controller import PlatformReconciler
from hostler.platform.decide import other_clouds
from hostler.platform.model import PlacedNode, Result, Scope, State, Write
from hostler.platform.scoping import describe_rule, find_lag, key_of_target

CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class PlatformExplainers:
    """Explains `node/NAME` (its check, its taint, which scoped DaemonSets may run there), `daemonset/NS/NAME`, and
    `platform/cluster`: all of them, with what guards them and what is reported.
    """

    reconciler: PlatformReconciler
    gate: Gate  # why nothing would be written now

    def register(self, registry: Registry) -> None:
        registry.add(Explainer("node", "platform checks", self.node, self.node))
        registry.add(Explainer("daemonset", "platform", self.daemon_set, self.daemon_set))
        registry.add(Explainer("platform", "platform", self.cluster, self.cluster))

    def node(self, name: str) -> Explanation | None:
        if self.reconciler.observer.caches.nodes.store.get(name) is None:
            return None
        why = self.reconciler.observer.caches.unread()
        if why:
            return Explanation("platform checks", f"Nothing is decided yet: {why}.")
        facts, decision = self.reconciler.decide()
        placed = next(placed for placed in facts.nodes if placed.name == name)
        checked = self.reconciler.observer.round.results.get(name)
        rules = [
            RuleSeen("node check", str(checked.result), f"{checked.why}.")
            if checked is not None
            else _unchecked(placed)
        ]
        verdict = self.reconciler.decide_taint(placed, other_clouds(facts.nodes))
        writes = verdict.writes(name) if verdict is not None else ()
        if verdict is not None:
            rules.append(RuleSeen("uninitialized taint", "goes" if writes else "stays", f"{verdict.why}."))
        for scope, found in zip(decision.scopes, facts.scopes, strict=True):
            if found.current is not None:
                rules.append(_may_run(scope, name))
        seen = [FactSeen("asked vCenter", iso(at))] if (at := self.reconciler.observer.round.at) is not None else []
        seen += [FactSeen("stranded pod", str(pod)) for pod in self.reconciler.observer.stranded if pod.node == name]
        return Explanation("platform checks", _outcome(placed, rules), tuple(rules), tuple(seen), self._actions(writes))

    def daemon_set(self, name: str) -> Explanation | None:
        if self.reconciler.observer.caches.unread():
            return None
        facts, decision = self.reconciler.decide()
        found = [
            (scope, scope_facts.current)
            for scope, scope_facts in zip(decision.scopes, facts.scopes, strict=True)
            if key_of_target(scope.target) == name
        ]
        if not found:
            return None
        scope, current = found[0]
        seen = [FactSeen("way", decision.way), FactSeen("rule", describe_rule(scope.target))]
        if current is not None:
            seen.append(FactSeen("roll-out", find_lag(current) or "done"))
        seen.append(FactSeen("kept off by the rule alone", names(scope.kept_off) or "no node"))
        seen.append(FactSeen("may run on", names(scope.eligible, 10) or "no node"))
        actions = self._actions(write for write in decision.writes if name in write.about)
        decided = scope.state in (State.HELD_BACK, State.FIGHT)
        rule = RuleSeen(describe_rule(scope.target), str(scope.state), f"{scope.why}.", decided=decided)
        return Explanation("platform", f"{name}: {scope.why}.", (rule,), tuple(seen), actions)

    def cluster(self, name: str) -> Explanation | None:
        if name != CLUSTER:
            return None
        why = self.reconciler.observer.caches.unread()
        if why:
            return Explanation("platform", f"Nothing is decided yet: {why}.")
        _, decision = self.reconciler.decide()
        rules = tuple(
            RuleSeen(key_of_target(scope.target), str(scope.state), f"{scope.why}.") for scope in decision.scopes
        )
        seen = tuple(
            FactSeen(f"condition {condition.type}", f"{condition.status}: {condition.message}")
            for condition in decision.conditions
        )
        outcome = f"Scoped DaemonSets are kept on their platform by {decision.way}."
        return Explanation("platform", outcome, rules, seen, self._actions(decision.writes))

    def _actions(self, writes: Iterable[Write]) -> tuple[Action, ...]:
        back = self.gate() or ""
        return tuple(Action(str(write.verb), write.target, write.why, held_back=back) for write in writes)


def _unchecked(placed: PlacedNode) -> RuleSeen:
    if placed.found.platform == "vsphere":
        return RuleSeen("node check", "not yet", "vCenter was not asked about it yet.")
    return RuleSeen("node check", "none", f"Only vSphere nodes are checked, and {placed.found.why}.")


def _may_run(scope: Scope, name: str) -> RuleSeen:
    key = key_of_target(scope.target)
    if name in scope.eligible:
        return RuleSeen(key, "may run here", f"the node has what the rule asks for ({describe_rule(scope.target)}).")
    if name in scope.kept_off:
        return RuleSeen(key, "kept off", f"the node lacks what the rule asks for ({describe_rule(scope.target)}).")
    return RuleSeen(key, "not meant for it", "its own node selector or affinity does not fit.")


def _outcome(placed: PlacedNode, rules: list[RuleSeen]) -> str:
    first = rules[0]
    return f"{placed.name} is {placed.found.kind}; its check: {first.outcome}. {first.why}"


class PlatformSource(Source):
    """It shows no hosts; what it knows of one is told where that host is asked for."""

    def __init__(self, reconciler: PlatformReconciler) -> None:
        self._reconciler = reconciler

    def listen(self, changed: Callable[[], None]) -> None:
        """Nothing of it is in a layer."""

    def take(self) -> Mapping[str, Layer | None]:
        return {}

    def notes(self, host: Host) -> tuple[str, ...]:
        checked = self._reconciler.observer.round.results.get(host.node)
        failed = checked is not None and checked.result is not Result.PASSED
        check = (f"Its platform check: {checked.result}. {checked.why}.",) if checked is not None and failed else ()
        pods = (pod for pod in self._reconciler.observer.stranded if host.node and pod.node == host.node)
        return (*check, *(f"A pod needs a driver that its node lacks: {pod}." for pod in pods))
