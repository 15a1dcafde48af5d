"""MAX_UNAVAILABLE: what its text means, and how many more nodes may go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostler.errors import Complaint, Exit
from hostler.host.ceiling import DEFAULT, overrun, parse_limit, room
from hostler.host.holds import HOLDS, Patch, place
from hostler.host.maintenance import STATE
from hostler.host.taints import OUT_OF_SERVICE_BY
from hostler.kube.records import Metadata, Node, NodeSpec


def node(name: str, held: bool = False, annotations: dict[str, str] | None = None, cordoned: bool = False) -> Node:
    plain = Node(metadata=Metadata(name=name, annotations=annotations or {}), spec=NodeSpec(unschedulable=cordoned))
    if not held:
        return plain
    change = place(plain, "maintenance", "test", 0.0)
    assert isinstance(change, Patch)
    return Node(metadata=Metadata(name=name, annotations=change.body["metadata"]["annotations"]))


@pytest.mark.parametrize(
    ("text", "total", "allowed"),
    [
        ("", 10, 5), ("", 5, 2), ("", 3, 2), ("", 2, 2), ("", 1, 1), ("", 0, 0), ("", 7, 3),  # 50%, at least 2
        ("50%", 5, 2), ("50%", 3, 1), ("50%", 1, 1), ("10%", 9, 1), ("10%", 25, 2), ("100%", 7, 7), ("99%", 2, 1),
        ("0%", 100, 0), ("0", 100, 0), ("3", 100, 3), ("3", 2, 2), (" 25% ", 8, 2),
    ],
)  # fmt: skip
def test_percentages_round_down_but_not_to_nothing(text: str, total: int, allowed: int) -> None:
    assert parse_limit(text).of(total) == allowed


@pytest.mark.parametrize("text", ["-1", "50 %", "101%", "half", "1.5", "0x3", "%", "٣"])
def test_a_wrong_limit_names_the_setting(text: str) -> None:
    with pytest.raises(Complaint, match=r"MAX_UNAVAILABLE is .*neither a number") as complaint:
        parse_limit(text)
    assert complaint.value.code is Exit.SETTING


def test_every_cause_counts_and_a_foreign_cordon_does_not() -> None:
    nodes = [
        node("a", held=True),
        node("b", annotations={STATE: "powered-off"}),
        node("c", annotations={HOLDS: "not json"}),
        node("d", cordoned=True),
        node("e", annotations={OUT_OF_SERVICE_BY: "the uid of a remediation"}),
        *(node(f"n{i}") for i in range(6)),
    ]
    found = room(nodes, parse_limit("5"), also_out=["a", "ghost"])
    assert found.out == ("a", "b", "c", "e", "ghost")
    assert (found.left, found.total) == (0, 12)
    assert found.admits("b")
    assert not found.admits("d")
    assert found.why_not("d") == (
        "d waits: MAX_UNAVAILABLE (5) allows 5 of 12 nodes out of service at a time, and 5 are out: a, b, c, e and "
        "ghost."
    )


def test_half_of_a_big_cluster_is_not_all_of_its_few_special_nodes() -> None:
    special = [node("a", held=True), node("b", held=True), node("c"), node("d")]
    found = room([*special, *(node(f"n{i}") for i in range(96))], DEFAULT, touched=special)
    assert not found.admits("c")
    assert found.why_not("c") == (
        "c waits: MAX_UNAVAILABLE (50%, at least 2) allows 2 of 4 nodes like it out of service at a time, and 2 are "
        "out: a and b."
    )


def test_what_others_took_counts_too() -> None:
    others = [node(f"n{i}", held=True) for i in range(3)]
    assert not room([node("a"), node("b"), *others], parse_limit("3"), touched=[node("a"), node("b")]).admits("a")
    assert room([node("a"), node("b"), *others], parse_limit("4"), touched=[node("a"), node("b")]).left == 1


def test_nothing_allowed_says_so() -> None:
    assert room([node("a")], parse_limit("0")).why_not("a") == (
        "a stays in service: MAX_UNAVAILABLE (0) allows none of 1 node out."
    )


def test_one_pass_over_many_nodes_counts_each_once() -> None:
    left = room([node(f"n{i}") for i in range(4)], DEFAULT)
    assert left.left == 2
    left = left.after("n0")
    left = left.after("n0")
    assert left.left == 1
    assert left.admits("n0")
    left = left.after("n1")
    assert not left.admits("n2")
    assert left.after("n1") is left


@given(st.integers(0, 100), st.integers(0, 500), st.integers(0, 501))
def test_more_nodes_never_means_fewer_allowed(percent: int, total: int, more: int) -> None:
    limit = parse_limit(f"{percent}%")
    assert 0 <= limit.of(total) <= limit.of(total + more) <= total + more


def test_two_held_at_the_same_moment_and_one_too_many_goes_back() -> None:
    nodes = [node("a", held=True), node("b", held=True), node("c")]
    assert overrun(nodes, parse_limit("2"), "b") is None
    assert overrun(nodes, parse_limit("1"), "b") == (
        "b was released again: others were held at the same moment, and b waits: MAX_UNAVAILABLE (1) allows 1 of "
        "3 nodes out of service at a time, and 2 are out: a and b."
    )
