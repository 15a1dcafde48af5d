"""Which budgets stand over a pod, and what the eviction API makes of them."""

from __future__ import annotations

import pytest

from hostler.drain.blockers import foreseen
from hostler.drain.budgets import Says, describe, standing
from hostler.drain.model import Act, Verdict
from hostler.kube.records import BudgetSpec, BudgetStatus, Metadata, Pod, PodDisruptionBudget, Selector
from tests.unit.test_drain_filters import pod

WEB = Selector(match_labels={"app": "web"})


def budget(
    name: str = "web",
    *,
    namespace: str = "web",
    selector: Selector | None = WEB,
    allowed: int = 0,
    healthy: int = 3,
    desired: int = 3,
    policy: str = "",
    generation: int = 1,
    observed: int = 1,
    version: int = 1,
) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=Metadata(name=name, namespace=namespace, generation=generation, resource_version=str(version)),
        spec=BudgetSpec(selector=selector, unhealthy_pod_eviction_policy=policy),
        status=BudgetStatus(
            disruptions_allowed=allowed, current_healthy=healthy, desired_healthy=desired, observed_generation=observed
        ),
    )


UNREADY = pod("a", ready=False)


@pytest.mark.parametrize(
    ("given_pod", "budgets", "says"),
    [
        (pod("a"), [], Says.FREE),
        (pod("a"), [budget()], Says.HOLDS),
        (pod("a"), [budget(allowed=1)], Says.ALLOWS),
        (pod("a"), [budget(namespace="other")], Says.FREE),
        (pod("a"), [budget(selector=None)], Says.FREE),  # policy/v1: a missing selector covers nothing
        (pod("a", labels={}), [budget(selector=Selector())], Says.HOLDS),  # and an empty one everything
        (pod("a", labels={}), [budget()], Says.FREE),
        (pod("a"), [budget(), budget("all", selector=Selector(), allowed=5)], Says.SEVERAL),
        (pod("a"), [budget(allowed=1, generation=2)], Says.HOLDS),  # its controller has not worked it out yet
        # pods without disruption to count
        (pod("a", phase="Pending", ready=False), [budget(), budget("b")], Says.FREE),
        (pod("a", phase="Succeeded", ready=False), [budget()], Says.FREE),
        (pod("a", terminating=True), [budget()], Says.FREE),
        # unhealthy pods
        (UNREADY, [budget()], Says.FREE),  # IfHealthyBudget, and the budget is met without it
        (UNREADY, [budget(healthy=2)], Says.HOLDS),
        (UNREADY, [budget(healthy=2, policy="IfHealthyBudget")], Says.HOLDS),
        (UNREADY, [budget(healthy=2, policy="AlwaysAllow")], Says.FREE),
        (UNREADY, [budget(healthy=0, desired=0)], Says.HOLDS),
        (UNREADY, [budget(policy="AlwaysAllow"), budget("b", policy="AlwaysAllow")], Says.SEVERAL),
    ],
)
def test_how_the_budgets_stand(given_pod: Pod, budgets: list[PodDisruptionBudget], says: Says) -> None:
    assert standing(given_pod, budgets).says is says


def test_the_mark_changes_with_the_budgets_and_not_with_their_order() -> None:
    one, two = budget("a", version=1), budget("b", version=2)
    assert standing(pod("a"), [one, two]).mark == standing(pod("a"), [two, one]).mark == ("web/a@1", "web/b@2")
    assert standing(pod("a"), [budget("a", version=3)]).mark != standing(pod("a"), [one]).mark
    assert standing(pod("a"), [one]).mark != standing(UNREADY, [one]).mark


def test_a_budget_in_words() -> None:
    assert describe(budget()) == "PodDisruptionBudget web/web (needs 3 healthy pods, has 3)"
    assert "not yet worked out" in describe(budget(generation=2))


def test_a_plan_foresees_the_budget_that_would_hold_a_pod_back() -> None:
    pods = [pod("free", labels={}), pod("held"), pod("daemon", owner="DaemonSet")]
    acts = [Act.EVICT, Act.EVICT, Act.SKIP]
    verdicts = [Verdict(one, act, "") for one, act in zip(pods, acts, strict=True)]
    ahead = foreseen(verdicts, [budget("web", allowed=0)])
    assert [(one.pod, one.budget) for one in ahead] == [("web/held", "web/web")]
    assert foreseen(verdicts, [budget("web", allowed=1)]) == ()
