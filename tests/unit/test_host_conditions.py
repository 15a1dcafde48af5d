"""Conditions change when something changed, and their words are stable and bounded."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from hostler.host.conditions import (
    Condition,
    Status,
    count,
    cut,
    names,
    node_condition_patch,
    set_condition,
    set_conditions,
)
from hostler.instant import iso
from hostler.kube import records

READY = Condition(type="Ready", status=Status.TRUE, reason="AllGood", message="all good")


def test_the_first_time_a_condition_is_set_is_its_transition() -> None:
    (placed,) = set_condition([], READY, now=1000.0)
    assert placed.last_transition_time == iso(1000.0)


def test_nothing_changed_means_the_same_list_and_so_no_write() -> None:
    conditions = set_condition([], READY, now=1000.0)
    assert set_condition(conditions, READY, now=2000.0) is conditions


def test_a_new_message_keeps_the_transition_time_and_a_new_status_does_not() -> None:
    conditions = set_condition([], READY, now=1000.0)
    said = set_condition(conditions, msgspec.structs.replace(READY, message="still good"), now=2000.0)
    assert (said[0].message, said[0].last_transition_time) == ("still good", iso(1000.0))
    turned = set_condition(said, msgspec.structs.replace(READY, status=Status.FALSE), now=3000.0)
    assert turned[0].last_transition_time == iso(3000.0)


def test_other_conditions_keep_their_place() -> None:
    other = Condition(type="Paused", status=Status.FALSE, reason="No")
    conditions = set_condition(set_condition([], READY, 1.0), other, 1.0)
    changed = set_condition(conditions, msgspec.structs.replace(READY, status=Status.UNKNOWN), 2.0)
    assert [condition.type for condition in changed] == ["Ready", "Paused"]


def test_several_conditions_are_set_as_if_one_by_one() -> None:
    other = Condition(type="Paused", status=Status.FALSE, reason="No")
    conditions = set_conditions([], [READY, other], 1.0)
    assert conditions == set_condition(set_condition([], READY, 1.0), other, 1.0)
    assert set_conditions(conditions, [other, READY], 2.0) is conditions


def test_a_condition_is_written_in_full() -> None:
    """A status field left out by an encoder would be invalid for the API server."""
    written = msgspec.to_builtins(READY)
    assert written["lastTransitionTime"] == ""
    assert written["observedGeneration"] == 0
    assert written["status"] == "True"


def test_a_long_message_is_cut_and_set_again_is_no_change() -> None:
    long = msgspec.structs.replace(READY, message="x" * 5000)
    conditions = set_condition([], long, 1.0)
    assert len(conditions[0].message) == 1024
    assert conditions[0].message.endswith("...")
    assert set_condition(conditions, long, 2.0) is conditions


def test_names_are_sorted_and_bounded() -> None:
    assert names([]) == ""
    assert names(["b"]) == "b"
    assert names(["b", "a"]) == "a and b"
    assert names(["c", "b", "a"]) == "a, b and c"
    assert names(f"n{i:02}" for i in range(12)) == "n00, n01, n02, n03, n04 and 7 more"
    assert names(["a", "b"], limit=0) == "2 in all"
    assert count(1, "pod") == "1 pod"
    assert count(0, "pod") == "0 pods"


@given(st.lists(st.text(min_size=1, max_size=20), max_size=20))
def test_names_do_not_depend_on_the_order(found: list[str]) -> None:
    assert names(found) == names(reversed(found))


@given(st.text(max_size=50), st.integers(0, 40))
def test_cut_never_exceeds_its_limit(text: str, limit: int) -> None:
    assert len(cut(text, limit)) <= max(limit, 0)


def node(*conditions: records.Condition) -> records.Node:
    return records.Node(status=records.NodeStatus(conditions=conditions))


def test_a_node_condition_is_patched_by_type_and_only_when_it_changed() -> None:
    wanted = Condition(type="DrainInProgress", status=Status.TRUE, reason="Draining", message="3 pods left")
    patch = node_condition_patch(node(), wanted, now=1000.0)
    assert patch is not None
    (entry,) = patch["status"]["conditions"]
    assert entry["type"] == "DrainInProgress"
    assert entry["lastTransitionTime"] == iso(1000.0)
    same = records.Condition(
        type="DrainInProgress", status="True", reason="Draining", message="3 pods left", last_transition_time="t"
    )
    assert node_condition_patch(node(same), wanted, now=2000.0) is None
    progress = node_condition_patch(node(same), msgspec.structs.replace(wanted, message="2 pods left"), now=2000.0)
    assert progress is not None
    assert "lastTransitionTime" not in progress["status"]["conditions"][0]
