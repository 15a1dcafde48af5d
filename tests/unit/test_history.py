"""The history keeps what happened, in few bytes, and says what it lost."""

from __future__ import annotations

import zlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostler.history.encoding import LARGEST, NAME, NotHistory, decode_entries, encode_entries
from hostler.history.model import Entry, Limits, What, id_order, oldest_droppable, retain_entries
from hostler.history.trail import TEXT_LIMIT, Stay, Trail

DAY = 86400.0
TEXT = st.text(st.characters(exclude_characters=NAME, codec="utf-8"), max_size=30)
ENTRIES = st.lists(
    st.builds(
        Entry,
        id=st.tuples(st.integers(0, 10**6), st.integers(0, 10**9)).map(lambda pair: f"{pair[0]}.{pair[1]}"),
        at=st.integers(0, 4 * 10**12).map(lambda milliseconds: milliseconds / 1000),
        key=st.sampled_from(["", "node:prod/a", "vm:vc/1", "bmh:metal/rack-1"]) | TEXT,
        what=st.sampled_from(What),
        capability=TEXT,
        old=TEXT,
        new=TEXT,
        reason=TEXT,
        sentence=TEXT | st.just("node a of a is drained"),
        duration=st.none() | st.integers(0, 10**10).map(lambda milliseconds: milliseconds / 1000),
        operation=TEXT,
    ),
    max_size=20,
)


@given(ENTRIES)
def test_what_is_encoded_is_read_back_exactly(entries: list[Entry]) -> None:
    assert decode_entries(encode_entries(entries)) == entries


@given(st.binary(max_size=200))
def test_bytes_of_anybody_are_refused_with_one_error(content: bytes) -> None:
    for given_bytes in (content, zlib.compress(content)):
        with pytest.raises(NotHistory):
            decode_entries(given_bytes)


def test_a_chunk_that_would_fill_the_memory_is_refused() -> None:
    with pytest.raises(NotHistory, match="larger"):
        decode_entries(zlib.compress(bytes(LARGEST + 1)))


def test_a_fleets_entries_take_few_bytes() -> None:
    entries = [
        Entry(
            f"3.{number}", 1.7e9 + 7 * number, f"node:prod/gpu-{number * 7919 % 3000}", What.TRANSITION, "maintenance",
            "in service", "draining", "HostEnters", f"gpu-{number * 7919 % 3000} leaves: esx-{number % 500} enters.",
        )
        for number in range(4000)
    ]  # fmt: skip
    assert len(encode_entries(entries)) / len(entries) < 32


@given(st.lists(st.sampled_from("abc"), max_size=400), st.integers(0, 60))
def test_the_last_entries_of_a_layer_are_never_dropped(keys: list[str], days: int) -> None:
    now, limits = 100 * DAY, Limits()
    entries = [Entry(f"1.{place}", now - days * DAY, key, What.ACTION) for place, key in enumerate(keys)]
    kept = retain_entries(entries, limits, now)
    for key, total in Counter(keys).items():
        mine = [entry for entry in entries if entry.key == key]
        expected = mine[-(limits.per_key if days <= limits.days else limits.kept_per_key) :]
        assert [entry for entry in kept if entry.key == key] == expected
        assert len(expected) >= min(total, limits.kept_per_key)


def test_what_may_go_leaves_the_last_of_each_layer() -> None:
    entries = [Entry(f"1.{place}", float(place), "ab"[place % 2], What.ACTION) for place in range(60)]
    droppable = oldest_droppable(entries, Limits(kept_per_key=20))
    assert droppable == entries[:20]
    assert oldest_droppable([Entry("1.1", 0.0, "", What.GAP)], Limits()) != []


def test_a_transition_tells_how_long_the_state_left_lasted() -> None:
    trail = Trail(4)
    trail.transition("node:p/a", "in service", 10.0)
    trail.transition("node:p/a", "in service", 15.0)
    trail.transition("node:p/a", "draining", 25.0, capability="maintenance", reason="HostEnters")
    first, second = trail.take(10, 30.0)
    assert (first.id, first.old, first.duration) == ("4.1", "", None)
    assert (second.id, second.old, second.new, second.duration) == ("4.2", "in service", "draining", 15.0)


def test_a_refusal_is_recorded_until_its_reason_changes() -> None:
    trail = Trail(1)
    for reason in ("PDB", "PDB", "Ceiling", "PDB"):
        trail.refusal("node:p/a", 1.0, reason=reason, operation="m1")
    trail.refusal("node:p/a", 1.0, reason="PDB", operation="m2")
    assert [entry.reason for entry in trail.take(10, 1.0)] == ["PDB", "Ceiling", "PDB", "PDB"]


def test_after_a_start_a_change_that_nobody_saw_is_inferred() -> None:
    trail = Trail(2)
    trail.resume(
        [
            Entry("2.7", 5.0, "node:p/a", What.TRANSITION, new="draining"),
            Entry("1.9", 4.0, "node:p/b", What.TRANSITION, new="in service"),
        ]
    )
    trail.infer(
        {"node:p/a": Stay("stopped", 9.0), "node:p/b": Stay("in service", 1.0), "node:p/c": Stay("unknown", 2.0)}
    )
    found = trail.take(10, 10.0)
    assert [(entry.key, entry.what, entry.old, entry.new) for entry in found] == [
        ("node:p/a", What.INFERRED, "draining", "stopped"),
        ("node:p/c", What.INFERRED, "", "unknown"),
    ]
    assert found[0].id == "2.8"


def test_what_could_not_be_stored_leaves_a_gap_that_counts_it() -> None:
    trail = Trail(1, limit=3)
    for number in range(5):
        trail.action("node:p/a", float(number))
    found = trail.take(10, 9.0)
    assert [entry.what for entry in found] == [What.ACTION] * 3 + [What.GAP]
    assert found[-1].sentence.startswith("2 entries dropped")
    trail.done(found[:2])
    assert [entry.id for entry in trail.take(10, 9.0)] == ["1.5", "1.6"]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "y"])), max_size=30), st.integers(1, 9))
def test_entries_are_taken_once_and_in_order(steps: list[tuple[str, str]], most: int) -> None:
    trail, stored = Trail(1), list[Entry]()
    for number, (key, state) in enumerate(steps):
        trail.transition(key, state, float(number))
        if number % 3 == 0:
            taken = trail.take(most, float(number))
            assert trail.take(most, float(number)) == taken
            trail.done(taken)
            stored += taken
    stored += trail.take(100, 99.0)
    orders = [id_order(entry.id) for entry in stored]
    assert orders == sorted(set(orders))
    last = {entry.key: entry.new for entry in stored}
    assert last == {key: stay.state for key, stay in trail.stays.items()}


def test_a_lease_that_counts_from_the_beginning_continues_the_ids() -> None:
    trail = Trail(0)
    trail.resume([Entry("7.41", 5.0, "node:p/a", What.TRANSITION, new="draining")])
    trail.transition("node:p/a", "stopped", 9.0)
    assert [entry.id for entry in trail.take(10, 9.0)] == ["7.42"]


def test_what_waits_is_not_lost_with_the_lease() -> None:
    before, after = Trail(1), Trail(2)
    before.transition("node:p/a", "held", 1.0)
    after.requeue(before.waiting)
    after.transition("node:p/a", "held", 2.0)
    after.transition("node:p/a", "in service", 3.0)
    assert [(entry.id, entry.old, entry.new) for entry in after.take(10, 3.0)] == [
        ("1.1", "", "held"),
        ("2.1", "held", "in service"),
    ]


def test_a_long_text_of_a_kubelet_is_cut() -> None:
    trail = Trail(1)
    trail.transition("node:p/a", "failed", 1.0, sentence="x" * 1_000_000)
    (entry,) = trail.take(1, 1.0)
    assert len(entry.sentence) == TEXT_LIMIT


def test_an_id_that_nobody_counts_to_is_refused() -> None:
    with pytest.raises(NotHistory, match="beyond"):
        decode_entries(encode_entries([Entry(f"1.{2**60}", 1.0, "", What.GAP)]))


def test_the_last_state_of_a_layer_outlives_its_later_entries() -> None:
    state = Entry("1.1", 0.0, "node:p/a", What.TRANSITION, new="draining")
    later = [Entry(f"1.{place}", 1.0, "node:p/a", What.ACTION) for place in range(2, 60)]
    limits = Limits(days=1, per_key=30, kept_per_key=20)
    assert retain_entries([state, *later], limits, 50 * DAY)[0] == state
    assert state not in oldest_droppable([state, *later], limits)


def test_the_step_that_ends_an_operation_is_part_of_it() -> None:
    trail = Trail(2)
    trail.resume([Entry("1.1", 5.0, "node:p/a", What.TRANSITION, new="stopped", operation="m1")], {"stopped"})
    for state in ("in service", "held"):
        trail.transition("node:p/a", state, 9.0)
    assert [entry.operation for entry in trail.take(10, 9.0)] == ["m1", ""]
