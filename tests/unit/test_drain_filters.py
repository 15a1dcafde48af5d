"""The filters of kubectl drain, pod by pod; also how the drain tests make their pods."""

from __future__ import annotations

from typing import Any

import pytest

from hostler.drain.filters import Around, judge
from hostler.drain.model import Act, Memory, Policy
from hostler.host.facts import Fact, Known, Unknown
from hostler.kube.records import (
    OwnerReference,
    Pod,
    PodAnnotations,
    PodCondition,
    PodConditionType,
    PodMetadata,
    PodPhase,
    PodSpec,
    PodStatus,
    Present,
    Selector,
    Volume,
)

NOW = 1_700_000_000.0


def pod(
    name: str,
    *,
    namespace: str = "web",
    owner: str = "ReplicaSet",
    labels: dict[str, str] | None = None,
    terminating: bool = False,
    mirror: bool = False,
    empty_dir: bool = False,
    phase: str = "Running",
    ready: bool = True,
    priority: int = 0,
    node: str = "w1",
    uid: str = "",
    **spec: Any,
) -> Pod:
    owners = (OwnerReference(kind=owner, name="web", uid=f"{namespace}-{owner}", controller=True),) if owner else ()
    return Pod(
        metadata=PodMetadata(
            name=name,
            namespace=namespace,
            uid=uid or f"uid-{namespace}-{name}",
            labels={"app": "web"} if labels is None else labels,
            deletion_timestamp="2023-11-14T22:13:20Z" if terminating else "",
            annotations=PodAnnotations(mirror="hash" if mirror else None),
            owner_references=owners,
        ),
        spec=PodSpec(
            node_name=node,
            priority=priority,
            volumes=(Volume(name="scratch", empty_dir=Present()),) if empty_dir else (),
            **spec,
        ),
        status=PodStatus(
            phase=PodPhase(phase),
            conditions=(PodCondition(type=PodConditionType.READY, status="True" if ready else "False"),),
        ),
    )


EXISTING: Fact[frozenset[str]] = Known(frozenset({"web/web"}), NOW)
GONE: Fact[frozenset[str]] = Known(frozenset(), NOW)
STRICT = Policy(evict_empty_dir=False, evict_unmanaged=False)
LISTED = Policy(leave_daemon_sets=False)


def around(policy: Policy | None = None, sets: Fact[frozenset[str]] = EXISTING, memory: Memory | None = None) -> Around:
    return Around(policy or Policy(), sets, memory or Memory(), NOW)


@pytest.mark.parametrize(
    ("given_pod", "given_around", "act"),
    [
        # what a drain is about
        (pod("a"), around(), Act.EVICT),
        (pod("a", phase="Pending", ready=False), around(), Act.EVICT),
        # DaemonSets
        (pod("a", owner="DaemonSet"), around(), Act.SKIP),
        (pod("a", owner="DaemonSet"), around(LISTED), Act.REFUSE),
        (pod("a", owner="DaemonSet", terminating=True), around(), Act.SKIP),
        (pod("a", owner="DaemonSet", phase="Succeeded"), around(), Act.EVICT),
        (pod("a", owner="DaemonSet", phase="Failed"), around(STRICT), Act.EVICT),
        (pod("a", owner="DaemonSet", empty_dir=True), around(STRICT), Act.SKIP),
        # orphans of a DaemonSet that is gone
        (pod("a", owner="DaemonSet"), around(sets=GONE), Act.EVICT),
        (pod("a", owner="DaemonSet"), around(STRICT, GONE), Act.REFUSE),
        (pod("a", owner="DaemonSet", terminating=True), around(STRICT, GONE), Act.WAIT),
        (pod("a", owner="DaemonSet", namespace="other"), around(), Act.EVICT),
        # unknown is not absent: the pod may well be put back at once
        (pod("a", owner="DaemonSet"), around(sets=Unknown("forbidden")), Act.SKIP),
        # static pods
        (pod("a", owner="Node", mirror=True), around(), Act.SKIP),
        (pod("a", owner="", mirror=True, empty_dir=True), around(STRICT), Act.SKIP),
        (pod("a", owner="Node", mirror=True, phase="Failed"), around(), Act.SKIP),
        # local storage
        (pod("a", empty_dir=True), around(), Act.EVICT),
        (pod("a", empty_dir=True), around(STRICT), Act.REFUSE),
        (pod("a", empty_dir=True, phase="Succeeded"), around(STRICT), Act.EVICT),
        # no controller
        (pod("a", owner=""), around(), Act.EVICT),
        (pod("a", owner=""), around(STRICT), Act.REFUSE),
        (pod("a", owner="", phase="Failed"), around(STRICT), Act.EVICT),
        # terminating already
        (pod("a", terminating=True), around(), Act.WAIT),
        (pod("a", owner="", empty_dir=True, terminating=True), around(STRICT), Act.WAIT),
        (pod("a", phase="Failed", terminating=True), around(), Act.WAIT),
    ],
)
def test_the_verdict(given_pod: Pod, given_around: Around, act: Act) -> None:
    verdict = judge(given_pod, given_around)
    assert verdict.act is act
    assert verdict.why


def test_an_owner_that_is_not_the_controller_does_not_manage() -> None:
    owned = pod("a", owner="")
    owner = OwnerReference(kind="ReplicaSet", name="web", uid="u", controller=False)
    stray = Pod(
        metadata=PodMetadata(name="a", namespace="web", owner_references=(owner,)), spec=owned.spec, status=owned.status
    )
    assert judge(stray, around(STRICT)).act is Act.REFUSE


def test_the_selector_comes_first() -> None:
    only_db = Policy(selector=Selector(match_labels={"app": "db"}), evict_unmanaged=False)
    assert judge(pod("a", owner=""), around(only_db)).act is Act.SKIP
    assert judge(pod("a", labels={"app": "db"}), around(only_db)).act is Act.EVICT


def test_a_pod_that_terminates_for_too_long_is_not_waited_for_by_our_own_clock() -> None:
    policy = Policy(skip_terminating_after=60)
    stuck = pod("a", terminating=True)
    uid = stuck.metadata.uid
    assert judge(stuck, around(policy)).act is Act.WAIT  # its deletionTimestamp is long past, on another clock
    assert judge(stuck, around(policy, memory=Memory(terminating={uid: NOW - 59}))).act is Act.WAIT
    assert judge(stuck, around(policy, memory=Memory(terminating={uid: NOW - 60}))).act is Act.SKIP
    assert judge(stuck, around(memory=Memory(terminating={uid: NOW - 9999}))).act is Act.WAIT


def test_a_mirror_pod_is_left_alone_even_if_it_claims_a_daemon_set_that_is_gone() -> None:
    """Found by the property test: the owner was judged first, and an orphan of a DaemonSet is evicted."""
    gone = Around(Policy(), Known(frozenset(), NOW), Memory(), NOW)
    assert judge(pod("a", owner="DaemonSet", mirror=True), gone).act is Act.SKIP
