"""Which PodDisruptionBudgets stand over a pod, and what the eviction API would make of them.

The API server decides; this only foresees it, to name the blocker and to know when asking again is worth it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from hostler.drain.selector import matches
from hostler.kube.records import Pod, PodDisruptionBudget, key_of


class Says(StrEnum):
    FREE = "free"  # no budget is asked: none covers the pod, or the pod's state makes them irrelevant
    ALLOWS = "allows"
    HOLDS = "holds"
    SEVERAL = "several"  # more than one covers it, which the eviction API cannot do


@dataclass(frozen=True, slots=True)
class Standing:
    """How the budgets stand over one pod."""

    says: Says
    budgets: tuple[PodDisruptionBudget, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(key_of(budget.metadata) for budget in self.budgets)

    @property
    def mark(self) -> tuple[str, ...]:
        """Changes with every change of these budgets, and with whether they are asked at all."""
        versions = (f"{key_of(b.metadata)}@{b.metadata.resource_version}" for b in self.budgets)
        return ("free", *versions) if self.says is Says.FREE and self.budgets else tuple(versions)


def covers(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """As policy/v1 has it: an empty selector covers the whole namespace, a missing one nothing."""
    selector = budget.spec.selector
    return (
        budget.metadata.namespace == pod.metadata.namespace
        and selector is not None
        and matches(selector, pod.metadata.labels)
    )


def covering(pod: Pod, budgets: Iterable[PodDisruptionBudget]) -> tuple[PodDisruptionBudget, ...]:
    """The budgets over a pod, by name."""
    return tuple(sorted((b for b in budgets if covers(b, pod)), key=lambda b: b.metadata.name))


def standing(pod: Pod, budgets: Iterable[PodDisruptionBudget]) -> Standing:
    """What the eviction API would answer for this pod now, as far as we can see."""
    over = covering(pod, budgets)
    if not over or pod.status.phase in ("Succeeded", "Failed", "Pending") or pod.metadata.deletion_timestamp:
        return Standing(Says.FREE)
    if len(over) > 1:
        return Standing(Says.SEVERAL, over)
    return Standing(_one(pod, over[0]), over)


def _one(pod: Pod, budget: PodDisruptionBudget) -> Says:
    status = budget.status
    if not ready(pod):
        if budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
            return Says.FREE
        if 0 < status.desired_healthy <= status.current_healthy:
            return Says.FREE
    if status.observed_generation < budget.metadata.generation or status.disruptions_allowed <= 0:
        return Says.HOLDS
    return Says.ALLOWS


def ready(pod: Pod) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions)


def describe(budget: PodDisruptionBudget) -> str:
    """`PodDisruptionBudget web/web (needs 3 healthy pods, has 3)`."""
    status = budget.status
    if status.observed_generation < budget.metadata.generation:
        return f"PodDisruptionBudget {key_of(budget.metadata)} (not yet worked out by its controller)"
    return (
        f"PodDisruptionBudget {key_of(budget.metadata)} "
        f"(needs {status.desired_healthy} healthy pods, has {status.current_healthy})"
    )
