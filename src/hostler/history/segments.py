"""How entries lie in segments: chunks of which only the last one changes, and an index of what is in them. Pure.

A segment is one object of bounded size. New entries change its last chunk only, so that storing one entry costs the
same however full the segment is. A closed segment is one chunk and never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hostler.history.encoding import decode_entries, encode_entries
from hostler.history.model import Entry, id_order

CHUNK_ENTRIES = 30
SEGMENT_BYTES = 200 * 1024  # of chunks; with names and metadata below the 256 KiB that one object may have


@dataclass(frozen=True, slots=True)
class Segment:
    """The entries of one object, compressed. `keys`: the layers that they are about."""

    number: int
    chunks: Mapping[str, bytes]
    closed: bool = False
    keys: frozenset[str] = frozenset()
    ids: frozenset[str] = frozenset()  # of an open one: to store nothing twice
    first: float = 0.0
    last: float = 0.0
    count: int = 0
    highest: tuple[int, int] = (-1, -1)  # id
    version: str = ""  # the resourceVersion that was read or written last
    uid: str = ""
    tail: tuple[Entry, ...] = field(default=(), repr=False)  # of an open one: the entries of its last chunk

    @property
    def size(self) -> int:
        return sum(map(len, self.chunks.values()))

    @property
    def is_full(self) -> bool:
        return self.size >= SEGMENT_BYTES

    def entries(self) -> list[Entry]:
        return [entry for name in sorted(self.chunks) for entry in decode_entries(self.chunks[name])]


def read_segment(
    number: int, chunks: Mapping[str, bytes], *, closed: bool, version: str = "", uid: str = ""
) -> tuple[Segment, list[Entry]]:
    """A segment and its entries. Raises NotHistory where a chunk cannot be read."""
    found = [decode_entries(chunks[name]) for name in sorted(chunks)]
    entries = [entry for chunk in found for entry in chunk]
    tail = tuple(found[-1]) if found and not closed else ()
    made = Segment(
        number, dict(chunks), closed, frozenset(entry.key for entry in entries),
        frozenset() if closed else frozenset(entry.id for entry in entries),
        min((entry.at for entry in entries), default=0.0), max((entry.at for entry in entries), default=0.0),
        len(entries), _highest(entries), version, uid, tail,
    )  # fmt: skip
    return made, entries


def extend_segment(segment: Segment, entries: Sequence[Entry]) -> tuple[Segment, dict[str, bytes]]:
    """An open segment with these entries too, and the chunks to write for that; what it has already is left out."""
    new = [entry for entry in entries if entry.id not in segment.ids]
    if not new:
        return segment, {}
    is_sealed = len(segment.tail) >= CHUNK_ENTRIES
    place = len(segment.chunks) if is_sealed else max(0, len(segment.chunks) - 1)
    waiting = new if is_sealed else [*segment.tail, *new]
    parts = [waiting[start : start + CHUNK_ENTRIES] for start in range(0, len(waiting), CHUNK_ENTRIES)]
    chunks = {f"{place + number:04}": encode_entries(part) for number, part in enumerate(parts)}
    times = [entry.at for entry in new]
    return replace(
        segment,
        chunks={**segment.chunks, **chunks},
        keys=segment.keys.union(entry.key for entry in new),
        ids=segment.ids.union(entry.id for entry in new),
        first=min(times) if not segment.count else min(segment.first, *times),
        last=max(segment.last, *times),
        count=segment.count + len(new),
        highest=max(segment.highest, _highest(new)),
        tail=tuple(parts[-1]),
    ), chunks


def small_groups(segments: Iterable[Segment]) -> list[list[Segment]]:
    """Neighbours that together fit into one segment; each segment is in one group."""
    groups: list[list[Segment]] = []
    for segment in sorted(segments, key=lambda segment: segment.number):
        if groups and sum(small.size for small in groups[-1]) + segment.size <= SEGMENT_BYTES:
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def close_segment(number: int, entries: Sequence[Entry]) -> Segment:
    """A segment that never changes again."""
    times = [entry.at for entry in entries]
    return Segment(
        number, {"0000": encode_entries(entries)} if entries else {}, closed=True,
        keys=frozenset(entry.key for entry in entries), first=min(times, default=0.0), last=max(times, default=0.0),
        count=len(entries), highest=_highest(entries),
    )  # fmt: skip


def _highest(entries: Iterable[Entry]) -> tuple[int, int]:
    return max((id_order(entry.id) for entry in entries), default=(-1, -1))
