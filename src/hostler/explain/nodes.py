"""What Foundation has to say about a node: its platform, who holds it, what the ceiling leaves, what a drain would do.

Functions over facts already in memory; the decisions are the same ones that run (`holds.keep`, `drain.decide`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hostler.drain.blockers import foreseen, said_of
from hostler.drain.decide import decide
from hostler.drain.model import Act, Blocker, Decision, Facts, Memory, Policy
from hostler.drain.observe import Sources, observe
from hostler.explain.registry import Action, Explainer, Explanation, FactSeen, Registry, RuleSeen, seen
from hostler.host.ceiling import Room
from hostler.host.conditions import count
from hostler.host.facts import Known, Unknown, then, value_or
from hostler.host.holds import Nothing, Patch, Refusal, holds_of, keep
from hostler.host.platform import classify
from hostler.instant import Instant
from hostler.kube.client import Gate
from hostler.kube.records import Node
from hostler.kube.watch import Watch


@dataclass(frozen=True, slots=True)
class NodeExplainers:
    """Explains `node/NAME` for what is always on."""

    nodes: Watch[Node]
    sources: Sources
    room: Callable[[], Room]
    gate: Gate  # of the holds: why nothing would be written now
    grace: float
    policy: Policy
    clock: Callable[[], Instant]

    def register(self, registry: Registry) -> None:
        registry.add(Explainer("node", "platform", self.platform))
        registry.add(Explainer("node", "holds", self.holds, self.holds))
        registry.add(Explainer("node", "ceiling", self.ceiling))
        registry.add(Explainer("node", "drain", self.drain, self.drain_plan))

    def platform(self, name: str) -> Explanation | None:
        node = self.nodes.store.get(name)
        if node is None:
            return None
        found = classify(node, self.clock(), self.grace)
        labels = {key: value for key, value in node.metadata.labels.items() if "type" in key}
        facts = (
            self._fact("providerID", node.spec.provider_id or "(none)"),
            self._fact("type labels", labels or "(none)"),
            self._fact("systemUUID", node.status.node_info.system_uuid or "(none)"),
        )
        return Explanation("platform", f"{name} is {found.kind}: {found.why}.", facts=facts)

    def holds(self, name: str) -> Explanation | None:
        node = self.nodes.store.get(name)
        if node is None:
            return None
        holds = holds_of(node)
        facts: tuple[FactSeen, ...] = (self._fact("unschedulable", node.spec.unschedulable),)
        if isinstance(holds, Unknown):
            facts += (FactSeen("holds", known=False, why=holds.why),)
        else:
            facts += tuple(self._fact(f"hold of {hold.holder}", f"{hold.why} (since {hold.since})") for hold in holds)
        match keep(node, self.clock()):
            case Patch(_, why):
                action = Action("patch", f"node/{name}", why, held_back=self.gate() or "")
                return Explanation("holds", why, facts=facts, actions=(action,))
            case Nothing(why) | Refusal(why):
                return Explanation("holds", f"{why}." if not why.endswith(".") else why, facts=facts)

    def ceiling(self, name: str) -> Explanation | None:
        if self.nodes.store.get(name) is None:
            return None
        room = self.room()
        taken = f"{len(room.out)} of {count(room.total, 'node')} out of service by us"
        rule = RuleSeen(
            "MAX_UNAVAILABLE",
            "holds" if room.admits(name) else "does not hold",
            f"{taken}, {room.allowed} allowed ({room.limit})",
            decided=not room.admits(name),
        )
        if name in room.out:
            may = f"{name} is out of service by us already."
        else:
            may = f"{name} may be taken out of service." if room.admits(name) else room.why_not(name)
        return Explanation("ceiling", may, rules=(rule,))

    def drain(self, name: str) -> Explanation | None:
        """How a drain would judge each pod of this node now."""
        looked = self._drained(name)
        if looked is None:
            return None
        facts, decision, now = looked
        rules = tuple(
            RuleSeen(verdict.key, verdict.act.value, verdict.why, decided=verdict.act is Act.REFUSE)
            for verdict in decision.verdicts
        )
        shown = (
            seen("pods", then(facts.pods, len), now),
            seen("volume attachments", then(facts.attachments, len), now),
            seen("disruption budgets", then(facts.budgets, len), now),
        )
        return Explanation(
            "drain", f"If it were drained now: {decision.why}{_held_back(facts, decision)}", rules, shown
        )

    def drain_plan(self, name: str) -> Explanation | None:
        """What a drain of this node would do now, in order, with what would hold it back."""
        looked = self._drained(name)
        if looked is None:
            return None
        facts, decision, _ = looked
        blocked = {blocker.pod: blocker.why for blocker in _ahead(facts, decision)}
        actions = tuple(
            Action("evict", verdict.key, verdict.why, held_back=blocked.get(verdict.key, ""))
            for verdict in decision.verdicts
            if verdict.act is Act.EVICT
        )
        rules = tuple(
            RuleSeen(verdict.key, verdict.act.value, verdict.why, decided=verdict.act is Act.REFUSE)
            for verdict in decision.verdicts
            if verdict.act is not Act.EVICT
        )
        outcome = f"If it were drained now: {decision.why}{_held_back(facts, decision)}"
        return Explanation("drain", outcome, rules, actions=actions)

    def _drained(self, name: str) -> tuple[Facts, Decision, Instant] | None:
        if self.nodes.store.get(name) is None:
            return None
        now = self.clock()
        facts = observe(self.sources, name, now, Memory(), now)
        return facts, decide(facts, self.policy, now), now

    def _fact(self, name: str, value: object) -> FactSeen:
        age = self.nodes.age()
        if age is None:
            return FactSeen(name, known=False, why=self.nodes.problem or "nodes are still being read")
        return seen(name, Known(value, self.clock() - age), self.clock())


def _ahead(facts: Facts, decision: Decision) -> tuple[Blocker, ...]:
    budgets = value_or(facts.budgets, ())
    return foreseen(decision.verdicts, budgets)


def _held_back(facts: Facts, decision: Decision) -> str:
    """What the budgets, as they stand, would hold back; empty where nothing."""
    ahead = _ahead(facts, decision)
    return f" {said_of(ahead)}." if ahead else ""
