"""Why a host is returned to discovery, or is not: every rule with what it found, and what comes next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hostler.apis.assisted import Agent
from hostler.explain.registry import Action, Explainer, Explanation, FactSeen, Registry, RuleSeen, seen
from hostler.host.facts import then
from hostler.instant import Instant
from hostler.kube.client import Gate
from hostler.kube.records import key_of
from hostler.reclaim import decision as actions
from hostler.reclaim import model
from hostler.reclaim.controller import ReclaimController
from hostler.reclaim.decision import Decision, NotKnown, Refused, Seen, Waits
from hostler.reclaim.facts import PROGRESS
from hostler.reclaim.model import Host, Policy
from hostler.reclaim.old_clusters import needs_spoke
from hostler.reclaim.quoting import clean_text, quote_text
from hostler.reclaim.rules import RULES
from hostler.reclaim.simulate import Ending, Forecast, Happening, simulate

_VERBS: dict[type[object], str] = {
    actions.NoteCluster: "note its cluster on",
    actions.Enter: "move",
    actions.SetCondition: "set the condition of",
    actions.Hold: "hold the node of",
    actions.Evict: "empty the node of",
    actions.Deploy: "put the agent on the node of",
    actions.Withdraw: "take the agent off the node of",
    actions.Release: "release the node of",
    actions.RemoveNode: "delete the node of",
    actions.ForgetCluster: "forget the cluster of",
    actions.AddFinalizer: "put a finalizer on",
    actions.RemoveFinalizer: "take the finalizer off",
    actions.AnswerRetry: "note the answer on",
    actions.ClearCancel: "note the answer on",
    actions.WarnNotOneShot: "warn on",
}
_HAPPENINGS = {
    Happening.PODS_END: ("the pods", "they leave the node"),
    Happening.PODS_STAY: ("the pods", "a PodDisruptionBudget keeps them until the drain's time is over"),
    Happening.AGENT_DOWNLOADS: ("the agent", "it downloads the discovery image and reports success"),
    Happening.AGENT_GIVES_UP: ("the agent", "it is told to end and takes the discovery entry back"),
    Happening.HOST_RESTARTS: ("the host", "its agent restarts it"),
    Happening.HOST_REGISTERS: ("the host", "its discovery system registers with the hub"),
    Happening.NODE_GOES_DOWN: ("the node", "the old cluster notices that it is not Ready"),
    Happening.WORKERS_LEAVE: ("the workers", "they leave the cluster before its control plane"),
}
_ENDINGS = {
    Ending.DISCOVERED: "If every step succeeds, the host is in discovery at the end.",
    Ending.IN_ITS_CLUSTER: "It stays in its cluster until it is unbound.",
    Ending.DELETED: "The Agent goes.",
    Ending.NOT_OURS: "Reclaim leaves it alone.",
    Ending.OPEN: "More follows.",
}


@dataclass(frozen=True, slots=True)
class ReclaimExplainers:
    """Explains `agent/NAMESPACE/NAME`; the name alone does where it is unique."""

    controller: ReclaimController
    gate: Gate
    clock: Callable[[], Instant]

    def register(self, registry: Registry) -> None:
        registry.add(Explainer("agent", "reclaim", self.agent, self.plan))

    def agent(self, name: str) -> Explanation | None:
        """What was last decided: every rule with what it found, and the next actions."""
        return self._explain(name, lambda thought, _: (thought.decision.why, show_actions(thought, self._held_back)))

    def plan(self, name: str) -> Explanation | None:
        """The course from what was last seen, as `simulate` runs it."""

        def foresee(thought: Seen, policy: Policy) -> tuple[str, tuple[Action, ...]]:
            forecast = simulate(thought.host, policy, thought.at)
            outcome = f"{thought.decision.why} {render_ending(forecast)}"
            return outcome, show_steps(thought.host, forecast, self._held_back)

        return self._explain(name, foresee)

    @property
    def _held_back(self) -> str:
        return self.gate() or ""

    def _explain(self, name: str, tell: Callable[[Seen, Policy], tuple[str, tuple[Action, ...]]]) -> Explanation | None:
        store = self.controller.observer.agents.store
        named = [key for agent in store if name in ((key := key_of(agent.metadata)), agent.metadata.name)]
        agent = store.get(named[0]) if len(named) == 1 else None
        if agent is None:
            return None
        thought, policy = self.controller.seen.get(named[0]), self.controller.policy()
        if thought is None or policy is None:
            return Explanation("reclaim", "Nothing is decided yet: the Agent is still being read.")
        outcome, actions = tell(thought, policy)
        rules = tuple(rules_of(thought, policy)) if not model.is_unbound(thought.host.state) else ()
        return Explanation("reclaim", outcome, rules, tuple(self._facts(agent, thought)), actions)

    def _facts(self, agent: Agent, thought: Seen) -> Iterator[FactSeen]:
        host, now = thought.host, self.clock()
        yield FactSeen("state", host.state or "none")
        yield FactSeen("since", host.stage or "unknown")
        yield FactSeen("bound to", "/".join(host.bound) if host.bound is not None else "no cluster")
        previous = host.previous
        was = f"node {previous.node} of {previous.namespace}/{previous.name}" if previous is not None else "not known"
        yield FactSeen("was", was)
        if progress := agent.metadata.annotations.get(PROGRESS):
            yield FactSeen("progress", clean_text(progress, 120))
        if host.report is not None:
            told = f" {quote_text(host.report.message)}" if host.report.message else ""
            yield FactSeen("last answer", f"{host.report.exit_code} {host.report.reason or ''}".strip() + told)
        if needs_spoke(host):
            yield seen("may act there", host.spoke.reach, now)
            yield seen("kubeconfig", host.spoke.kubeconfig, now)
            yield seen("node", host.spoke.node, now)
            yield seen("left in the old cluster", then(host.spoke.remains, lambda left: sorted(map(str, left))), now)
        for condition in agent.status.conditions:
            if condition.type in ("Reclaimed", "Bound"):
                yield FactSeen(
                    f"condition {condition.type}", f"{condition.status} ({condition.reason}): {condition.message}"
                )


def rules_of(thought: Seen, policy: Policy) -> Iterator[RuleSeen]:
    """Every rule, until one does not hold: those after it rely on it."""
    if not needs_spoke(thought.host) and thought.host.previous is not None:
        return
    for rule in RULES:
        try:
            yield RuleSeen(rule.name, "holds", rule.check(thought.host, policy))
        except Refused as refused:
            yield RuleSeen(rule.name, "does not hold", f"{refused.reason}: {refused.message}", decided=True)
            return
        except Waits as waits:
            yield RuleSeen(rule.name, "does not hold", str(waits), decided=True)
            return
        except NotKnown as unknown:
            yield RuleSeen(rule.name, "unknown", unknown.sentence, decided=True)
            return


def show_actions(thought: Seen, held_back: str) -> tuple[Action, ...]:
    """What a decision does, for people."""
    return tuple(_show_step(thought.host, action, thought.decision, held_back) for action in thought.decision.actions)


def show_steps(host: Host, forecast: Forecast, held_back: str) -> tuple[Action, ...]:
    """What a forecast does, and what it waits for."""
    return tuple(_show_step(host, step.what, step.decision, held_back) for step in forecast.steps)


def render_ending(forecast: Forecast) -> str:
    if forecast.ending is Ending.LEFT_TO_PEOPLE:
        return f"It is left to a person at the end ({forecast.cause or 'no reason is noted'})."
    return _ENDINGS[forecast.ending]


def _show_step(host: Host, what: actions.Action | Happening, decision: Decision, held_back: str) -> Action:
    if what is Happening.TIME_PASSES:
        return Action("wait", "", decision.why)
    if isinstance(what, Happening):
        return Action("wait for", *_HAPPENINGS[what])
    return Action(_VERBS[type(what)], f"agent/{host.name}", _reason_of(what, decision), held_back=held_back)


def _reason_of(action: actions.Action, decision: Decision) -> str:
    match action:
        case actions.Enter(transition, reason, _):
            return f"to {transition.target} ({transition.name}, {reason})"
        case actions.SetCondition(reason, message):
            return f"{reason}: {message}"
    return decision.why
