"""What platform has to say about a node and about a scoped DaemonSet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hostler.explain.registry import Action, Explainer, Explanation, FactSeen, Registry, RuleSeen
from hostler.host.conditions import names
from hostler.host.platform import classify
from hostler.instant import Instant, iso
from hostler.kube.client import Gate
from hostler.platform.controller import PlatformKeeper
from hostler.platform.decide import lags, other_clouds
from hostler.platform.model import DaemonSet, PlacedNode, Scope, State
from hostler.platform.scope import words
from hostler.platform.targets import key_of_target


@dataclass(frozen=True, slots=True)
class PlatformExplainers:
    """Explains `node/NAME` (its check, its taint, which scoped DaemonSets may run there) and `daemonset/NS/NAME`."""

    keeper: PlatformKeeper
    grace: float
    gate: Gate  # why nothing would be written now
    clock: Callable[[], Instant]

    def register(self, registry: Registry) -> None:
        registry.add(Explainer("node", "platform checks", self.node, self.node))
        registry.add(Explainer("daemonset", "platform", self.daemon_set, self.daemon_set))

    def node(self, name: str) -> Explanation | None:
        node = self.keeper.caches.nodes.store.get(name)
        if node is None:
            return None
        why = self.keeper.caches.unread()
        if why:
            return Explanation("platform checks", f"Nothing is decided yet: {why}.")
        one = PlacedNode(node, classify(node, self.clock(), self.grace))
        checked = self.keeper.round.results.get(name)
        rules = [
            RuleSeen("node check", str(checked.result), f"{checked.why}.") if checked is not None else _unchecked(one)
        ]
        actions: tuple[Action, ...] = ()
        nodes = self.keeper.placed()
        verdict = self.keeper.taint(one, other_clouds(nodes))
        if verdict is not None:
            rules.append(RuleSeen("uninitialized taint", "goes" if verdict.patch else "stays", f"{verdict.why}."))
            if verdict.patch:
                actions = (Action("patch", f"node/{name}", verdict.why, held_back=self.gate() or ""),)
        for scope, current in self.keeper.scopes(nodes):
            if current is not None:
                rules.append(_may_run(scope, name))
        facts = [FactSeen("asked vCenter", iso(at))] if (at := self.keeper.round.at) is not None else []
        facts += [FactSeen("stranded pod", one) for one in self.keeper.stranded if one.endswith(f" on {name}")]
        return Explanation("platform checks", _outcome(one, rules), tuple(rules), tuple(facts), actions)

    def daemon_set(self, name: str) -> Explanation | None:
        if self.keeper.caches.unread():
            return None
        scopes = self._scopes()
        found = {key_of_target(scope.target): (scope, current) for scope, current in scopes}.get(name)
        if found is None:
            return None
        scope, current = found
        facts = [FactSeen("way", self.keeper.way_words(scopes)), FactSeen("rule", words(scope.target))]
        if current is not None:
            facts.append(FactSeen("roll-out", lags(current) or "done"))
        facts.append(FactSeen("kept off by the rule alone", names(scope.kept_off) or "no node"))
        facts.append(FactSeen("may run on", names(scope.eligible, 10) or "no node"))
        back = self.gate() or ""
        actions = (Action("apply", f"daemonset/{name}", scope.why, held_back=back),) if scope.body else ()
        decided = scope.state in (State.HELD_BACK, State.FIGHT)
        rule = RuleSeen(words(scope.target), str(scope.state), f"{scope.why}.", decided=decided)
        return Explanation("platform", f"{name}: {scope.why}.", (rule,), tuple(facts), actions)

    def _scopes(self) -> list[tuple[Scope, DaemonSet | None]]:
        return self.keeper.scopes(self.keeper.placed())


def _unchecked(one: PlacedNode) -> RuleSeen:
    if one.found.platform == "vsphere":
        return RuleSeen("node check", "not yet", "vCenter was not asked about it yet.")
    return RuleSeen("node check", "none", f"Only vSphere nodes are checked, and {one.found.why}.")


def _may_run(scope: Scope, name: str) -> RuleSeen:
    key = key_of_target(scope.target)
    if name in scope.eligible:
        return RuleSeen(key, "may run here", f"the node has what the rule asks for ({words(scope.target)}).")
    if name in scope.kept_off:
        return RuleSeen(key, "kept off", f"the node lacks what the rule asks for ({words(scope.target)}).")
    return RuleSeen(key, "not meant for it", "its own node selector or affinity does not fit.")


def _outcome(one: PlacedNode, rules: list[RuleSeen]) -> str:
    first = rules[0]
    return f"{one.name} is {one.found.kind}; its check: {first.outcome}. {first.why}"
