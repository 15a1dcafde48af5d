"""What to do next to empty a node. Pure: the same facts give the same decision, and repeating one is harmless.

Each pod is asked to go once; after a refusal again with back-off, or as soon as its budget has changed to allow it.
Deletions are seen in the facts, never polled for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hostler.drain.blockers import blockers_of, said_of
from hostler.drain.budgets import Says, Standing, covering, standing
from hostler.drain.filters import Around, judge, terminating_until
from hostler.drain.model import (
    Act,
    Attempt,
    Decision,
    Evict,
    Facts,
    Memory,
    Outcome,
    Policy,
    State,
    Verdict,
)
from hostler.drain.order import whose_turn
from hostler.host.conditions import count, cut, names
from hostler.host.facts import Known, Unknown, fresh, value_or
from hostler.instant import Instant
from hostler.kube.records import PodDisruptionBudget, VolumeAttachment, key_of

# Even when a budget has just changed for the better, the same pod is not asked twice within this time.
SPACING = 1.0
_BLOCKED = (Outcome.REFUSED, Outcome.SEVERAL_BUDGETS, Outcome.FAILED)


def decide(facts: Facts, policy: Policy, now: Instant) -> Decision:
    """Take the drain of one node one step further.

    Never says DRAINED or DEADLINE_PASSED on an unknown fact: a machine may be switched off on that word.
    """
    pods = fresh(facts.pods, now, policy.max_age)
    if isinstance(pods, Unknown):
        return Decision(State.UNKNOWN, (), f"The pods of {facts.node} are not known: {pods.why}.", None)
    # Of DaemonSets not heard of for long, one may be new: its pod is no pod that nobody puts back.
    around = Around(policy, fresh(facts.daemon_sets, now, policy.max_age), facts.memory, now)
    verdicts = tuple(sorted((judge(pod, around) for pod in pods.value), key=lambda verdict: verdict.key))
    refused = [verdict for verdict in verdicts if verdict.act is Act.REFUSE]
    if refused:
        return Decision(State.REFUSED, (), _refusal(facts.node, refused), None, verdicts=verdicts)
    leaving = [verdict for verdict in verdicts if verdict.act in (Act.EVICT, Act.WAIT)]
    deadline = policy.deadline(facts.started)
    passed = deadline is not None and now >= deadline
    if leaving and not passed:
        return _drain(leaving, verdicts, facts, policy, now)
    return _end(leaving, verdicts, facts, policy, now, passed)


# -- while pods are left


def _drain(
    leaving: list[Verdict], verdicts: tuple[Verdict, ...], facts: Facts, policy: Policy, now: Instant
) -> Decision:
    budgets = value_or(facts.budgets, ())
    stands = {verdict.pod.metadata.uid: standing(verdict.pod, budgets) for verdict in leaving}
    turn = whose_turn(leaving, facts, policy, now)
    due = [v for v in turn if _due(facts.memory.attempts.get(v.pod.metadata.uid), stands[v.pod.metadata.uid], now)]
    actions = tuple(
        Evict(v.pod.metadata.namespace, v.pod.metadata.name, v.pod.metadata.uid, v.why, stands[v.pod.metadata.uid].mark)
        for v in _within_budgets(due, stands, facts.memory, _under_way(leaving, budgets))
    )
    blocked = {uid for uid, attempt in facts.memory.attempts.items() if attempt.outcome in _BLOCKED}
    stuck = [verdict for verdict in leaving if verdict.act is Act.EVICT and verdict.pod.metadata.uid in blocked]
    blockers = blockers_of(stuck, stands, facts.memory)
    moving = [v for v in leaving if v.act is Act.WAIT] + [v for v in turn if v.pod.metadata.uid not in blocked]
    state = State.BLOCKED if stuck and not moving else State.DRAINING
    return Decision(
        state,
        actions,
        _progress(facts.node, leaving, turn, said_of(blockers)),
        _wake(leaving, turn, stands, facts, policy, now),
        left=tuple(verdict.key for verdict in leaving),
        blockers=blockers,
        verdicts=verdicts,
    )


def _due(attempt: Attempt | None, stands: Standing, now: Instant) -> bool:
    """Whether a pod may be asked (again) now."""
    if attempt is None:
        return True
    if attempt.outcome in (Outcome.ACCEPTED, Outcome.GONE):
        return False  # what is left is for the watch to show
    return now >= attempt.not_before or (_eased(attempt, stands) and now >= _soonest(attempt))


def _eased(attempt: Attempt, stands: Standing) -> bool:
    """A budget refused, and has changed since to let the pod go. The mark prevents a storm if we foresee it wrongly."""
    over_budget = attempt.outcome in (Outcome.REFUSED, Outcome.SEVERAL_BUDGETS)
    return over_budget and stands.says in (Says.FREE, Says.ALLOWS) and stands.mark != attempt.budgets


def _soonest(attempt: Attempt) -> Instant:
    return max(attempt.earliest, attempt.at + SPACING)


def _within_budgets(
    due: Iterable[Verdict], stands: dict[str, Standing], memory: Memory, under_way: set[str]
) -> list[Verdict]:
    """No more of a budget's pods at once than it allows; where it allows none, one: the API server has the truth.

    An accepted eviction has been taken off the budget there; until the watch shows that, it is taken off here. And
    while a pod of the budget is on its way out of this node, that is why it allows none: nobody else is asked.
    """
    spent = Counter(attempt.budgets for attempt in memory.attempts.values() if attempt.outcome is Outcome.ACCEPTED)
    asked: Counter[tuple[str, ...]] = Counter()
    chosen = []
    for verdict in due:
        over = stands[verdict.pod.metadata.uid]
        if over.says in (Says.ALLOWS, Says.HOLDS):
            holds = over.says is Says.HOLDS
            allowed = 1 if holds else over.budgets[0].status.disruptions_allowed
            if asked[over.mark] + spent[over.mark] >= allowed or (holds and over.names[0] in under_way):
                continue
            asked[over.mark] += 1
        chosen.append(verdict)
    return chosen


def _under_way(leaving: list[Verdict], budgets: tuple[PodDisruptionBudget, ...]) -> set[str]:
    """The budgets of which a pod is on its way out."""
    ending = [verdict.pod for verdict in leaving if verdict.act is Act.WAIT]
    return {key_of(budget.metadata) for pod in ending for budget in covering(pod, budgets)}


def _wake(
    leaving: list[Verdict],
    turn: list[Verdict],
    stands: dict[str, Standing],
    facts: Facts,
    policy: Policy,
    now: Instant,
) -> Instant | None:
    """The next moment at which the same facts would give another decision."""
    moments = [policy.deadline(facts.started)]
    if len(turn) < sum(verdict.act is Act.EVICT for verdict in leaving):
        moments.append(policy.patience_ends(facts.started))
    for verdict in turn:
        attempt = facts.memory.attempts.get(verdict.pod.metadata.uid)
        if attempt is not None and attempt.outcome in (*_BLOCKED, Outcome.MOVED):
            moments.append(attempt.not_before)
            if _eased(attempt, stands[verdict.pod.metadata.uid]):
                moments.append(_soonest(attempt))
    around = Around(policy, facts.daemon_sets, facts.memory, now)
    moments += [terminating_until(verdict.pod, around) for verdict in leaving if verdict.act is Act.WAIT]
    return min((moment for moment in moments if moment is not None and moment > now), default=None)


def _progress(node: str, leaving: list[Verdict], turn: list[Verdict], blocked: str) -> str:
    ending = sum(verdict.act is Act.WAIT for verdict in leaving)
    waiting = len(leaving) - ending - len(turn)
    parts = [f"{ending} terminating"] if ending else []
    parts += [f"{waiting} waiting for {'its' if waiting == 1 else 'their'} turn"] if waiting else []
    detail = f" ({', '.join(parts)})" if parts else ""
    return cut(f"{count(len(leaving), 'pod')} left on {node}{detail}{f': {blocked}' if blocked else ''}.")


# -- when none is left, or the time is over


def _end(
    leaving: list[Verdict],
    verdicts: tuple[Verdict, ...],
    facts: Facts,
    policy: Policy,
    now: Instant,
    passed: bool,
) -> Decision:
    left = tuple(verdict.key for verdict in leaving)
    attachments = fresh(facts.attachments, now, policy.max_age) if policy.wait_for_volumes else Known((), now)
    if isinstance(attachments, Unknown):
        why = f"Whether volumes are still attached to {facts.node} is not known: {attachments.why}."
        return Decision(State.UNKNOWN, (), why, None, left, verdicts=verdicts)
    volumes = tuple(sorted(_name(a) for a in attachments.value if _name(a) not in facts.kept_volumes))
    if not left and not volumes:
        return Decision(State.DRAINED, (), _drained(facts.node, verdicts), None, verdicts=verdicts)
    if passed:
        return Decision(
            State.DEADLINE_PASSED, (), _too_late(facts, left, volumes, policy), None, left, volumes, verdicts=verdicts
        )
    why = f"No pod is left on {facts.node}, but {count(len(volumes), 'volume')} still attached: {names(volumes)}."
    return Decision(
        State.WAITING_FOR_VOLUMES, (), cut(why), policy.deadline(facts.started), volumes=volumes, verdicts=verdicts
    )


def _name(attachment: VolumeAttachment) -> str:
    """The PersistentVolume's name; a volume written into the pod itself has only the attachment's."""
    return attachment.spec.source.persistent_volume_name or attachment.metadata.name


def _refusal(node: str, refused: list[Verdict]) -> str:
    by_reason: dict[str, list[str]] = {}
    for verdict in refused:
        by_reason.setdefault(verdict.why, []).append(verdict.key)
    said = "; ".join(f"{names(keys)}: {why}" for why, keys in sorted(by_reason.items()))
    return cut(f"{node} is not drained, because the policy forbids it for {count(len(refused), 'pod')}: {said}.")


def _drained(node: str, verdicts: tuple[Verdict, ...]) -> str:
    stays = len(verdicts)
    return f"{node} is drained" + (
        f"; {count(stays, 'pod')} of its own {'stays' if stays == 1 else 'stay'}." if stays else "."
    )


def _too_late(facts: Facts, left: tuple[str, ...], volumes: tuple[str, ...], policy: Policy) -> str:
    stuck = [
        f"{count(len(left), 'pod')} left: {names(left)}" if left else "",
        f"{count(len(volumes), 'volume')} attached: {names(volumes)}" if volumes else "",
    ]
    return cut(f"{facts.node} was not drained within {policy.timeout:g} s: {'; '.join(filter(None, stuck))}.")
