"""Who blocks a drain, in words: the budget and the pods it holds, stable and bounded."""

from __future__ import annotations

from collections.abc import Iterable

from hostler.drain.budgets import Says, Standing, describe, standing
from hostler.drain.model import Act, Attempt, BlockedBy, Blocker, Memory, Outcome, Verdict
from hostler.host.conditions import cut, names
from hostler.kube.records import PodDisruptionBudget

SAID_LIMIT = 200
SHOWN = 3


def blockers_of(stuck: Iterable[Verdict], stands: dict[str, Standing], memory: Memory) -> tuple[Blocker, ...]:
    """One blocker per pod that was refused, in the order of their names."""
    found = [
        _blocker(verdict.key, memory.attempts[verdict.pod.metadata.uid], stands[verdict.pod.metadata.uid])
        for verdict in stuck
    ]
    return tuple(sorted(found, key=lambda blocker: blocker.pod))


def _blocker(pod: str, attempt: Attempt, stands: Standing) -> Blocker:
    if attempt.outcome is Outcome.FAILED:
        why = f"the API server did not evict it: {cut(attempt.said, SAID_LIMIT)}"
        return Blocker(pod, "", why, BlockedBy.API_SERVER)
    if attempt.outcome is Outcome.SEVERAL_BUDGETS or stands.says is Says.SEVERAL:
        return _several(pod, stands)
    if stands.says is Says.HOLDS:
        return Blocker(pod, stands.names[0], describe(stands.budgets[0]))
    if stands.budgets:
        return Blocker(pod, stands.names[0], f"PodDisruptionBudget {stands.names[0]}")
    if attempt.said:
        return Blocker(pod, "", cut(attempt.said, SAID_LIMIT), BlockedBy.API_SERVER)
    return Blocker(pod, "", "a PodDisruptionBudget")


def _several(pod: str, stands: Standing) -> Blocker:
    which = f" ({names(stands.names)})" if len(stands.names) > 1 else ""
    return Blocker(
        pod,
        ", ".join(stands.names),
        f"more than one PodDisruptionBudget covers it{which}, which the eviction API does not support; "
        f"delete one or narrow its selector",
        BlockedBy.SEVERAL_BUDGETS,
    )


def foreseen(verdicts: Iterable[Verdict], budgets: Iterable[PodDisruptionBudget]) -> tuple[Blocker, ...]:
    """Who would hold a drain back if it began now, as the budgets stand. For plans: nothing has been asked yet."""
    over = tuple(budgets)
    found = []
    for verdict in verdicts:
        stands = standing(verdict.pod, over) if verdict.act is Act.EVICT else Standing(Says.FREE)
        if stands.says is Says.SEVERAL:
            found.append(_several(verdict.key, stands))
        elif stands.says is Says.HOLDS:
            found.append(Blocker(verdict.key, stands.names[0], describe(stands.budgets[0])))
    return tuple(found)


def said_of(blockers: Iterable[Blocker]) -> str:
    """One clause per reason, with the pods it holds."""
    by_reason: dict[tuple[str, BlockedBy], list[str]] = {}
    for blocker in blockers:
        by_reason.setdefault((blocker.why, blocker.by), []).append(blocker.pod)
    clauses = [
        f"{names(pods)}: blocked by {why}" if by is BlockedBy.BUDGET else f"{names(pods)}: {why}"
        for (why, by), pods in sorted(by_reason.items())
    ]
    more = f"; and {len(clauses) - SHOWN} more reasons" if len(clauses) > SHOWN else ""
    return "; ".join(clauses[:SHOWN]) + more
