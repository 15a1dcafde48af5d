"""Segments: only the last chunk changes, nothing is in them twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hostler.history.encoding import decode_entries
from hostler.history.model import Entry, What
from hostler.history.segments import CHUNK_ENTRIES, Segment, close_segment, extend_segment, read_segment, small_groups


def entries_from(start: int, number: int) -> list[Entry]:
    return [
        Entry(f"1.{place}", float(place), f"node:p/{place % 7}", What.ACTION) for place in range(start, start + number)
    ]


@given(st.lists(st.integers(0, 250), max_size=8))
def test_a_segment_has_what_was_added_whatever_the_portions(portions: list[int]) -> None:
    segment, added = Segment(1, {}), list[Entry]()
    for portion in portions:
        new = entries_from(len(added), portion)
        before = segment.chunks
        segment, chunks = extend_segment(segment, new)
        added += new
        changed = {name for name in segment.chunks if segment.chunks[name] != before.get(name)}
        assert changed <= set(chunks)
        assert len(before) - len(set(before) - set(chunks)) <= 1  # at most the last one is written again
    assert segment.entries() == added
    assert all(len(decode_entries(chunk)) <= CHUNK_ENTRIES for chunk in segment.chunks.values())
    again, _ = read_segment(1, segment.chunks, closed=False)
    assert (again.keys, again.ids, again.count, again.first, again.last) == (
        segment.keys, segment.ids, segment.count, segment.first, segment.last,
    )  # fmt: skip


def test_what_is_there_already_is_not_added_again() -> None:
    segment, _ = extend_segment(Segment(1, {}), entries_from(0, 150))
    same, chunks = extend_segment(segment, entries_from(0, 150))
    assert (same, chunks) == (segment, {})
    more, _ = extend_segment(segment, entries_from(100, 60))
    assert more.entries() == entries_from(0, 160)


def test_a_closed_segment_takes_less_room() -> None:
    segment, _ = extend_segment(Segment(1, {}), entries_from(0, 3000))
    closed = close_segment(1, segment.entries())
    assert closed.entries() == segment.entries()
    assert closed.size < segment.size


def test_small_neighbours_are_merged_as_far_as_they_fit() -> None:
    small = [Segment(number, {"0000": b"x" * 80_000}, closed=True) for number in (3, 1, 2, 4)]
    assert [[one.number for one in group] for group in small_groups(small)] == [[1, 2], [3, 4]]
