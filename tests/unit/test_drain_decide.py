"""The drain's decisions: given facts, what is done, what is said, and when it looks again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostler.drain.decide import decide
from hostler.drain.model import Answer, Decision, Evict, Facts, Memory, Outcome, Policy, State
from hostler.drain.order import replicas_of
from hostler.host.facts import Known, Unknown
from hostler.kube.records import AttachmentSource, AttachmentSpec, Metadata, Pod, PodDisruptionBudget, VolumeAttachment
from tests.unit.test_drain_budgets import budget
from tests.unit.test_drain_filters import pod

START = 1_700_000_000.0
POLICY = Policy()


def facts(
    pods: list[Pod],
    budgets: list[PodDisruptionBudget] | None = None,
    volumes: tuple[str, ...] = (),
    at: float = START,
    **fields: Any,
) -> Facts:
    attachments = tuple(
        VolumeAttachment(
            metadata=Metadata(name=f"csi-{name}"),
            spec=AttachmentSpec(node_name="w1", source=AttachmentSource(persistent_volume_name=name)),
        )
        for name in volumes
    )
    known: dict[str, Any] = {
        "pods": Known(tuple(pods), at),
        "attachments": Known(attachments, at),
        "budgets": Known(tuple(budgets or ()), at),
        "daemon_sets": Known(frozenset({"web/web"}), at),
    }
    return Facts("w1", START, **(known | fields))


def asked(decision: Decision) -> list[str]:
    return [action.name for action in decision.actions]


def answered(decision: Decision, outcome: Outcome, at: float = START, **answer: Any) -> Memory:
    memory = Memory()
    for action in decision.actions:
        memory = memory.after(action, Answer(outcome, **answer), POLICY, at)
    return memory


def test_what_is_remembered_goes_with_the_pod_and_terminating_is_counted_from_the_first_look() -> None:
    memory = answered(decide(facts([pod("a"), pod("b", owner="")]), POLICY, START), Outcome.ACCEPTED)
    memory = memory.seen((pod("a", terminating=True),), START + 1)
    memory = memory.seen((pod("a", terminating=True),), START + 9)
    assert set(memory.attempts) == {"uid-web-a"}
    assert memory.terminating == {"uid-web-a": START + 1}
    assert memory.seen((), START + 10) == Memory()


# -- the way to the end


def test_an_empty_node_is_drained() -> None:
    decision = decide(facts([]), POLICY, START)
    assert (decision.state, decision.why) == (State.DRAINED, "w1 is drained.")


def test_pods_of_its_own_stay() -> None:
    decision = decide(facts([pod("a", owner="DaemonSet"), pod("b", owner="Node", mirror=True)]), POLICY, START)
    assert (decision.state, decision.why) == (State.DRAINED, "w1 is drained; 2 pods of its own stay.")


def test_each_pod_is_asked_once_with_its_uid() -> None:
    first = decide(facts([pod("a"), pod("b", owner="")]), POLICY, START)
    assert first.state is State.DRAINING
    assert first.actions == (
        Evict("web", "a", "uid-web-a", "nothing keeps it here"),
        Evict("web", "b", "uid-web-b", "it has no controller and will not come back by itself"),
    )
    memory = answered(first, Outcome.ACCEPTED)
    then = decide(facts([pod("a"), pod("b", terminating=True)], memory=memory, at=START + 299), POLICY, START + 299)
    assert then.actions == ()
    assert then.why == "2 pods left on w1 (1 terminating)."


def test_a_pod_of_the_same_name_is_another_pod() -> None:
    memory = answered(decide(facts([pod("a")]), POLICY, START), Outcome.MOVED)
    again = decide(facts([pod("a", uid="new")], memory=memory), POLICY, START)
    assert [action.uid for action in again.actions] == ["new"]
    same = decide(facts([pod("a")], memory=memory), POLICY, START)
    assert (same.actions, same.wake, same.state) == ((), START + 5, State.DRAINING)
    assert asked(decide(facts([pod("a")], memory=memory), POLICY, START + 5)) == ["a"]


def test_volumes_are_waited_for_within_the_same_deadline() -> None:
    waiting = decide(facts([], volumes=("pv-1", "pv-0")), POLICY, START + 10)
    assert waiting.state is State.WAITING_FOR_VOLUMES
    assert waiting.why == "No pod is left on w1, but 2 volumes still attached: pv-0 and pv-1."
    assert waiting.wake == START + 600
    late = decide(facts([], volumes=("pv-1",), at=START + 600), POLICY, START + 600)
    assert (late.state, late.volumes) == (State.DEADLINE_PASSED, ("pv-1",))


def test_volumes_of_pods_that_stay_are_not_waited_for_nor_any_if_so_asked() -> None:
    assert decide(facts([], volumes=("pv-1",), kept_volumes=frozenset({"pv-1"})), POLICY, START).state is State.DRAINED
    assert decide(facts([], volumes=("pv-1",)), replace(POLICY, wait_for_volumes=False), START).state is State.DRAINED


def test_at_the_deadline_nothing_more_is_asked_and_what_is_left_is_named() -> None:
    pods = [pod("b"), pod("a", terminating=True), pod("c", owner="DaemonSet")]
    late = decide(facts(pods, at=START + 600), POLICY, START + 600)
    assert (late.state, late.actions, late.left) == (State.DEADLINE_PASSED, (), ("web/a", "web/b"))
    assert late.why == "w1 was not drained within 600 s: 2 pods left: web/a and web/b."
    endless = decide(facts(pods, at=START + 600), replace(POLICY, timeout=None), START + 600)
    assert asked(endless) == ["b"]


def test_a_start_in_the_future_does_not_break_anything() -> None:
    decision = decide(facts([pod("a")]), POLICY, START - 1000)
    assert asked(decision) == ["a"]


def test_a_refusal_of_the_policy_evicts_nothing_and_no_deadline_overrules_it() -> None:
    strict = replace(POLICY, evict_empty_dir=False)
    pods = [pod("a"), pod("b", empty_dir=True), pod("c", empty_dir=True)]
    for now in (START, START + 9999):
        decision = decide(facts(pods, at=now), strict, now)
        assert (decision.state, decision.actions) == (State.REFUSED, ())
        assert decision.why == (
            "w1 is not drained, because the policy forbids it for 2 pods: "
            "web/b and web/c: the data in its emptyDir scratch would be lost."
        )


# -- budgets


def test_a_budget_that_refuses_is_named_and_asked_again_with_doubling_patience() -> None:
    pods, budgets = [pod("a")], [budget()]
    decision = decide(facts(pods, budgets), POLICY, START)
    memory, now = Memory(), START
    gaps = []
    for _ in range(6):
        for action in decision.actions:
            memory = memory.after(action, Answer(Outcome.REFUSED, "no"), POLICY, now)
        decision = decide(facts(pods, budgets, at=now, memory=memory), POLICY, now)
        assert decision.actions == ()
        assert decision.state is State.BLOCKED
        assert decision.why == (
            "1 pod left on w1: web/a: blocked by PodDisruptionBudget web/web (needs 3 healthy pods, has 3)."
        )
        assert decision.wake is not None
        gaps.append(decision.wake - now)
        now = decision.wake
        decision = decide(facts(pods, budgets, at=now, memory=memory), POLICY, now)
        assert asked(decision) == ["a"]
    assert gaps == [5, 10, 20, 40, 60, 60]


def test_retry_after_is_honoured_even_when_the_budget_has_eased() -> None:
    memory = answered(decide(facts([pod("a")], [budget()]), POLICY, START), Outcome.REFUSED, retry_after=10.0)
    eased = facts([pod("a")], [budget(allowed=1, version=2)], memory=memory)
    assert decide(eased, POLICY, START + 9).actions == ()
    assert decide(eased, POLICY, START + 9).wake == START + 10
    assert asked(decide(eased, POLICY, START + 10)) == ["a"]


@pytest.mark.parametrize("after", [[], [budget(allowed=1, version=2)]])
def test_a_budget_that_eased_or_went_is_used_at_once(after: list[PodDisruptionBudget]) -> None:
    memory = answered(decide(facts([pod("a")], [budget()]), POLICY, START), Outcome.REFUSED)
    eased = decide(facts([pod("a")], after, memory=memory), POLICY, START + 1)
    assert asked(eased) == ["a"]


def test_a_budget_that_seems_to_allow_and_yet_refuses_is_not_asked_in_a_storm() -> None:
    seems = [budget(allowed=1)]
    memory = answered(decide(facts([pod("a")], seems), POLICY, START), Outcome.REFUSED)
    assert decide(facts([pod("a")], seems, memory=memory), POLICY, START + 4.9).actions == ()


def test_no_more_pods_of_a_budget_are_asked_than_it_allows() -> None:
    pods = [pod(name) for name in "abcd"]
    assert asked(decide(facts(pods, [budget(allowed=2)]), POLICY, START)) == ["a", "b"]
    one = decide(facts(pods, [budget(allowed=1)]), POLICY, START)
    assert asked(one) == ["a"]
    # The API server took it off the budget; until our cache shows that, nobody else is asked.
    memory = answered(one, Outcome.ACCEPTED)
    assert asked(decide(facts(pods, [budget(allowed=1)], memory=memory), POLICY, START)) == []
    assert asked(decide(facts(pods, [budget(allowed=1, version=2)], memory=memory), POLICY, START)) == ["b"]


def test_while_a_pod_of_a_spent_budget_is_on_its_way_out_nobody_else_is_asked() -> None:
    spent = [budget(allowed=0, version=2)]
    going = decide(facts([pod("a", terminating=True), pod("b")], spent), POLICY, START)
    assert (going.state, going.actions) == (State.DRAINING, ())
    assert asked(decide(facts([pod("b")], spent), POLICY, START)) == ["b"]


def test_pods_of_one_blocked_budget_do_not_hold_up_others() -> None:
    pods = [pod("a"), pod("b", labels={"app": "db"})]
    memory = answered(decide(facts(pods[:1], [budget()]), POLICY, START), Outcome.REFUSED)
    decision = decide(facts(pods, [budget()], memory=memory), POLICY, START)
    assert asked(decision) == ["b"]
    assert decision.state is State.DRAINING


def test_more_than_one_budget_is_said_as_such_and_left_alone() -> None:
    budgets = [budget("x"), budget("y")]
    memory = answered(decide(facts([pod("a")], budgets), POLICY, START), Outcome.SEVERAL_BUDGETS)
    blocked = decide(facts([pod("a")], budgets, memory=memory, at=START + 299), POLICY, START + 299)
    assert (blocked.state, blocked.actions, blocked.wake) == (State.BLOCKED, (), START + 300)
    assert "more than one PodDisruptionBudget covers it (web/x and web/y)" in blocked.why
    mended = decide(facts([pod("a")], [budget("x", allowed=1)], memory=memory), POLICY, START + 2)
    assert asked(mended) == ["a"]


def test_without_knowing_the_budgets_the_servers_own_words_are_used() -> None:
    unknown = Unknown("forbidden")
    first = decide(replace(facts([pod("a")]), budgets=unknown), POLICY, START)
    assert asked(first) == ["a"]
    said = "The disruption budget web needs 3 healthy pods and has 3 currently"
    memory = answered(first, Outcome.REFUSED, said=said)
    assert said in decide(replace(facts([pod("a")], memory=memory), budgets=unknown), POLICY, START).why


def test_what_failed_is_said_and_tried_again() -> None:
    memory = answered(decide(facts([pod("a")]), POLICY, START), Outcome.FAILED, said="a webhook said no")
    blocked = decide(facts([pod("a")], memory=memory), POLICY, START)
    assert blocked.why == "1 pod left on w1: web/a: the API server did not evict it: a webhook said no."
    assert blocked.wake == START + 5


def test_the_words_are_bounded_and_stable() -> None:
    pods = [pod(f"p{i:03}", namespace=f"ns{i:03}") for i in range(200)]
    memory = Memory()
    for one in pods:
        evict = Evict(one.metadata.namespace, one.metadata.name, one.metadata.uid, "")
        memory = memory.after(evict, Answer(Outcome.FAILED, one.metadata.name * 100), POLICY, START)
    said = decide(facts(pods, memory=memory), POLICY, START).why
    assert len(said) <= 1024
    assert said == decide(facts(list(reversed(pods)), memory=memory), POLICY, START + 1).why


# -- order


def test_higher_priorities_go_last() -> None:
    pods = [pod("critical", priority=2_000_000_000), pod("batch", priority=-10), pod("plain")]
    assert asked(decide(facts(pods), POLICY, START)) == ["batch"]
    ending = [pods[0], pod("batch", priority=-10, terminating=True), pods[2]]
    waiting = decide(facts(ending), POLICY, START)
    assert waiting.actions == ()
    assert waiting.why == "3 pods left on w1 (1 terminating, 2 waiting for their turn)."
    assert waiting.wake == START + 300
    assert asked(decide(facts([pods[0], pods[2]]), POLICY, START)) == ["plain"]
    assert asked(decide(facts([pods[0]]), POLICY, START)) == ["critical"]


def test_good_order_ends_at_half_time() -> None:
    pods = [pod("critical", priority=2_000_000_000), pod("batch", priority=-10, terminating=True)]
    assert asked(decide(facts(pods, at=START + 299), POLICY, START + 299)) == []
    assert asked(decide(facts(pods, at=START + 300), POLICY, START + 300)) == ["critical"]
    quick = replace(POLICY, timeout=60)
    assert asked(decide(facts(pods), quick, START + 30)) == ["critical"]


def dns(name: str, **fields: Any) -> Pod:
    return pod(name, namespace="kube-system", priority_class_name="system-cluster-critical", **fields)


def test_replicas_of_a_cluster_helper_go_one_at_a_time() -> None:
    first = decide(facts([dns("a"), dns("b"), pod("x")]), POLICY, START)
    assert asked(first) == ["a", "x"]
    memory = answered(first, Outcome.ACCEPTED)
    assert asked(decide(facts([dns("a"), dns("b")], memory=memory), POLICY, START)) == []
    on_its_way = (dns("c", node="w2", ready=False),)
    assert asked(decide(facts([dns("b")], peers=on_its_way), POLICY, START)) == []
    assert asked(decide(facts([dns("b")], peers=(dns("c", node="w2"),)), POLICY, START)) == ["b"]
    assert asked(decide(facts([dns("b")], peers=on_its_way, at=START + 300), POLICY, START + 300)) == ["b"]


def test_between_the_end_of_one_replica_and_the_birth_of_the_next_nobody_is_sent_after_it() -> None:
    """Seen on a real cluster: for a moment there is no pod to show that one is missing."""
    memory = Memory().seen((), START, replicas_of([dns("a"), dns("b"), dns("c", node="w2")]))
    two_of_three = facts([dns("b")], peers=(dns("c", node="w2"),), memory=memory)
    assert asked(decide(two_of_three, POLICY, START)) == []
    all_three = facts([dns("b")], peers=(dns("c", node="w2"), dns("d", node="w3")), memory=memory)
    assert asked(decide(all_three, POLICY, START)) == ["b"]


def test_a_helper_that_does_not_serve_anyway_goes_at_once() -> None:
    assert asked(decide(facts([dns("a", ready=False), dns("b")]), POLICY, START)) == ["a"]


# -- unknown is not absent


@pytest.mark.parametrize("now", [START, START + 9999])
@pytest.mark.parametrize("pods", [Unknown("the watch is down"), Known((), START - 1000)])
def test_unknown_or_stale_pods_are_neither_drained_nor_late(pods: Any, now: float) -> None:
    decision = decide(replace(facts([]), pods=pods), POLICY, now)
    assert (decision.state, decision.actions) == (State.UNKNOWN, ())


def test_unknown_volumes_stop_the_end_but_not_the_evictions() -> None:
    unknown = Unknown("forbidden")
    assert asked(decide(replace(facts([pod("a")]), attachments=unknown), POLICY, START)) == ["a"]
    assert decide(replace(facts([]), attachments=unknown), POLICY, START).state is State.UNKNOWN
    late = replace(facts([pod("a")], at=START + 600), attachments=unknown)
    assert decide(late, POLICY, START + 600).state is State.UNKNOWN


some_pods = st.lists(
    st.builds(
        pod,
        st.sampled_from("abcdef"),
        namespace=st.sampled_from(["web", "kube-system"]),
        owner=st.sampled_from(["", "ReplicaSet", "DaemonSet"]),
        terminating=st.booleans(),
        mirror=st.booleans(),
        empty_dir=st.booleans(),
        phase=st.sampled_from(["Running", "Pending", "Succeeded", "Failed", "Unknown", ""]),
        ready=st.booleans(),
        priority=st.integers(-2, 2),
    ),
    max_size=6,
    unique_by=lambda p: (p.metadata.namespace, p.metadata.name),
)
some_facts = st.builds(
    facts,
    some_pods,
    st.lists(st.builds(budget, allowed=st.integers(-1, 2), healthy=st.integers(0, 3)), max_size=2),
    st.sampled_from([(), ("pv",)]),
)
policies = st.builds(
    Policy,
    timeout=st.none() | st.floats(0, 100),
    evict_empty_dir=st.booleans(),
    evict_unmanaged=st.booleans(),
    leave_daemon_sets=st.booleans(),
    wait_for_volumes=st.booleans(),
    skip_terminating_after=st.none() | st.floats(0, 10),
)


def test_a_daemon_set_is_not_gone_because_it_was_not_heard_of() -> None:
    """Pods are known as of now, DaemonSets as of two minutes ago: one made since is not among them."""
    own = pod("agent", owner="DaemonSet")
    gone = facts([own], daemon_sets=Known(frozenset(), START))
    assert asked(decide(gone, POLICY, START + POLICY.max_age)) == ["agent"]
    old = replace(gone, pods=Known((own,), START + 121), attachments=Known((), START + 121))
    decision = decide(old, POLICY, START + 121)
    assert (decision.state, decision.actions) == (State.DRAINED, ())
    assert "which cannot be looked up: last seen 121 s ago" in decision.verdicts[0].why


@given(
    some_facts, policies, st.floats(0, 110), st.sampled_from(["none", "pods", "attachments", "budgets", "daemon_sets"])
)
def test_a_decision_never_does_harm(known: Facts, policy: Policy, later: float, missing: str) -> None:
    found = known if missing == "none" else replace(known, **{missing: Unknown("x")})  # type: ignore[arg-type]
    decision = decide(found, policy, START + later)
    acts = {verdict.pod.metadata.uid: verdict.act for verdict in decision.verdicts}
    pods = {one.metadata.uid: one for one in known.pods.value} if isinstance(known.pods, Known) else {}
    for action in decision.actions:
        target = pods[action.uid]
        assert acts[action.uid] == "evict"
        assert target.metadata.annotations.mirror is None
        assert not target.metadata.deletion_timestamp
    if decision.state in (State.DRAINED, State.DEADLINE_PASSED):
        assert missing not in ("pods", "attachments") or (missing == "attachments" and not policy.wait_for_volumes)
    if decision.state is not State.DRAINING and decision.state is not State.BLOCKED:
        assert decision.actions == ()
    assert decision.wake is None or decision.wake > START + later
    assert decision.why
    assert len(decision.why) <= 1024
    assert decision == decide(found, policy, START + later)
