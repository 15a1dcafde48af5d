"""The history in ConfigMaps of the operator's own namespace: needs no set-up, and any successor finds it.

One open segment is written at most once a second and only when there is something new; full ones are closed. Writes
carry the resourceVersion and pass the leader's gate. If it is not known whether a write arrived, the segment is read
again before anything else is written: no entry is stored twice.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import msgspec
import structlog

from hostler.history.encoding import NotHistory
from hostler.history.model import (
    STAYS_LIMIT,
    Entry,
    Limits,
    Stayed,
    Stored,
    id_order,
    oldest_droppable,
    retain_entries,
    stay_of,
)
from hostler.history.segments import Segment, close_segment, extend_segment, read_segment, small_groups
from hostler.instant import Instant
from hostler.kube.client import Client
from hostler.kube.errors import ApiError, NotFound, Unreachable
from hostler.kube.kinds import CONFIG_MAP
from hostler.kube.records import Metadata, Object, Record
from hostler.kube.writer import Writer

PREFIX = "hostler-history-"
LABEL = "hostler.dev/history"
OPEN, CLOSED = "open", "closed"
WHY = "The history of hosts."
_NAME = re.compile(rf"{PREFIX}(\d{{8,12}})")
log = structlog.get_logger("hostler.history")


class ConfigMap(Record, frozen=True):
    metadata: Metadata = Metadata()
    binary_data: dict[str, bytes] = msgspec.field(default_factory=dict)


class ConfigMapHistory:
    def __init__(self, client: Client, writer: Writer, namespace: str, limits: Limits) -> None:
        self._client, self._writer, self._namespace, self._limits = client, writer, namespace, limits
        self._segments: dict[int, Segment] = {}
        self._taken: set[int] = set()  # numbers of ConfigMaps that exist, also of those that cannot be read
        self._doubtful = False  # a write may have arrived: read before writing
        self.loaded = False
        self.unreadable: dict[str, str] = {}  # ConfigMaps that are left alone, and why

    # -- reading

    async def load(self, stays_since: Instant = 0.0) -> Stored:
        """What to continue from. What cannot be read is left alone."""
        segments, unreadable = dict[int, Segment](), dict[str, str]()
        last, highest, stays = dict[str, Entry](), list[Entry](), deque[Stayed](maxlen=STAYS_LIMIT)
        for found in await self._client.list(CONFIG_MAP, self._namespace, type=ConfigMap, labels=LABEL):
            if (number := _NAME.fullmatch(found.metadata.name)) is not None:
                self._taken.add(int(number[1]))
            try:
                segment, entries = _read(found)
            except NotHistory as error:
                unreadable[found.metadata.name] = str(error)
                continue
            segments[segment.number] = segment
            highest = [max((*highest, *entries), key=_order)] if entries else highest
            for entry in entries:
                if entry.new and (entry.key not in last or _order(last[entry.key]) < _order(entry)):
                    last[entry.key] = entry
                if (stay := stay_of(entry)) is not None and stay.at >= stays_since:
                    stays.append(stay)
            await asyncio.sleep(0)  # a large history is read in turns with everything else
        if unreadable.keys() - self.unreadable.keys():
            log.warning("segments of the history cannot be read; they are left alone", segments=unreadable)
        self._segments, self.unreadable = segments, unreadable
        self._doubtful, self.loaded = False, True
        ordered = sorted({entry.id: entry for entry in (*last.values(), *highest)}.values(), key=_order)
        return Stored(tuple(ordered), tuple(stays))

    async def find(self, keys: Collection[str], since: Instant, most: int, capability: str = "") -> list[Entry]:
        """The newest entries about these layers (none given: about all), the newest first."""
        wanted, found = frozenset(keys), dict[str, Entry]()
        for _, segment in sorted(self._segments.items(), reverse=True):
            if segment.last < since or (wanted and not wanted & segment.keys):
                continue
            for entry in segment.entries():
                fits = (not wanted or entry.key in wanted) and capability in ("", entry.capability)
                if fits and entry.at >= since:
                    found[entry.id] = entry
            if len(found) >= most and segment.closed:
                break
            await asyncio.sleep(0)
        return sorted(found.values(), key=_order, reverse=True)[:most]

    async def after(self, id: str, since: Instant, most: int) -> list[Entry]:
        """The entries that were recorded after that one, the oldest first; "": from the first one on."""
        begin, found = id_order(id) if id else (-1, -1), dict[str, Entry]()
        for _, segment in sorted(self._segments.items()):
            if segment.last < since or segment.highest <= begin:
                continue
            for entry in segment.entries():
                if _order(entry) > begin and entry.at >= since:
                    found[entry.id] = entry
            if len(found) >= most:  # ids grow from segment to segment
                break
            await asyncio.sleep(0)
        return sorted(found.values(), key=_order)[:most]

    async def close(self) -> None:
        """Nothing is open."""

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments.values())

    # -- writing

    async def append(self, entries: Sequence[Entry]) -> None:
        """Store these. Raises what the API server answered; the same entries may be given again."""
        if self._doubtful or not self.loaded:
            await self.load()
        if self._writer.dry_run:
            return  # nothing is stored, and to name a new segment every second would help nobody
        with self._in_doubt():
            segment = next((segment for segment in self._segments.values() if not segment.closed), None)
            if segment is not None:
                entries = [entry for entry in entries if entry.id not in segment.ids]
                if entries and segment.is_full:
                    await self._close(segment)
                    segment = None
            if not entries:
                return
            if segment is None:
                await self._begin(entries)
            else:
                extended, chunks = extend_segment(segment, entries)
                await self._patch(segment, extended, chunks)

    async def prune(self, now: Instant) -> int:
        """Drop what is beyond the limits and merge small segments; returns how many entries went."""
        closed = [segment for segment in self._segments.values() if segment.closed]
        entries = list[Entry]()
        for segment in closed:
            entries += segment.entries()
            await asyncio.sleep(0)
        kept = retain_entries(entries, self._limits, now)
        share = sum(segment.size for segment in closed) / max(1, len(entries))
        beyond = int((self.size - self._limits.bytes) / share) if share else 0
        if beyond > len(entries) - len(kept):
            going = {entry.id for entry in oldest_droppable(kept, self._limits)[: beyond - (len(entries) - len(kept))]}
            kept = [entry for entry in kept if entry.id not in going]
        keeping = {entry.id for entry in kept}
        with self._in_doubt():
            for group in small_groups(closed):
                of_group = [entry for segment in group for entry in segment.entries()]
                staying = [entry for entry in of_group if entry.id in keeping]
                if len(group) > 1 or len(staying) < len(of_group):
                    await self._replace(group, staying)
                await asyncio.sleep(0)
        return len(entries) - len(kept)

    @contextmanager
    def _in_doubt(self) -> Iterator[None]:
        """After an answer that leaves open what is stored now, it is read before anything else is written."""
        try:
            yield
        except (ApiError, Unreachable, msgspec.MsgspecError):
            self._doubtful = True
            raise

    async def _begin(self, entries: Sequence[Entry]) -> None:
        number = max(self._taken | self._segments.keys(), default=0) + 1
        self._taken.add(number)  # one without our label may have it: then the next number is tried
        segment, _ = extend_segment(Segment(number, {}), entries)
        metadata = {"name": _name(number), "namespace": self._namespace, "labels": {LABEL: OPEN}}
        body = {"metadata": metadata, "binaryData": dict(segment.chunks)}
        self._took(await self._writer.create(CONFIG_MAP, body, self._namespace, type=Object, why=WHY), segment)

    async def _close(self, segment: Segment) -> None:
        """The same entries as one chunk, which takes less room."""
        closed = close_segment(segment.number, segment.entries())
        await self._patch(segment, closed, {**dict.fromkeys(segment.chunks), **closed.chunks})

    async def _replace(self, group: Sequence[Segment], staying: Sequence[Entry]) -> None:
        """Write the first anew and delete the others; a crash in between leaves entries twice: readers count ids."""
        first = group[0]
        new = close_segment(first.number, staying)
        if new.count:
            await self._patch(first, new, {**dict.fromkeys(first.chunks), **new.chunks})
        for segment in group[1:] if new.count else group:
            with suppress(NotFound):
                await self._writer.delete(
                    CONFIG_MAP, _name(segment.number), self._namespace, uid=segment.uid,
                    why="Merged or beyond the limits.",
                )  # fmt: skip
            del self._segments[segment.number]

    async def _patch(self, old: Segment, new: Segment, chunks: Mapping[str, bytes | None]) -> None:
        label = {LABEL: CLOSED if new.closed else OPEN}
        body = {"metadata": {"resourceVersion": old.version, "labels": label}, "binaryData": chunks}
        name = _name(old.number)
        self._took(await self._writer.patch(CONFIG_MAP, name, body, self._namespace, type=Object, why=WHY), new)

    def _took(self, answer: Object | None, segment: Segment) -> None:
        if answer is not None:  # None: a dry run
            meta = answer.metadata
            self._segments[segment.number] = replace(segment, version=meta.resource_version, uid=meta.uid)


def _read(found: ConfigMap) -> tuple[Segment, list[Entry]]:
    meta, name = found.metadata, _NAME.fullmatch(found.metadata.name)
    if name is None:
        raise NotHistory("its name has no number")
    closed = meta.labels.get(LABEL) == CLOSED
    return read_segment(int(name[1]), found.binary_data, closed=closed, version=meta.resource_version, uid=meta.uid)


def _order(entry: Entry) -> tuple[int, int]:
    return id_order(entry.id)


def _name(number: int) -> str:
    return f"{PREFIX}{number:08}"
