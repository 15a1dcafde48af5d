"""The history in ConfigMaps of the operator's own namespace: needs no set-up, and any successor finds it.

One open segment is written at most once a second and only when there is something new; full ones are closed. Writes
carry the resourceVersion and pass the leader's gate. If it is not known whether a write arrived, the segment is read
again before anything else is written: no entry is stored twice.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import msgspec
import structlog

from hostler.history.encoding import NotHistory
from hostler.history.model import Entry, Limits, id_order, oldest_droppable, retain
from hostler.history.segments import Segment, close_segment, extend_segment, read_segment, small_groups
from hostler.instant import Instant
from hostler.kube.client import Client
from hostler.kube.errors import Conflict, NotFound, Unreachable
from hostler.kube.kinds import CONFIG_MAP
from hostler.kube.records import Metadata, Object, Record
from hostler.kube.writer import Writer

PREFIX = "hostler-history-"
LABEL = "hostler.dev/history"
OPEN, CLOSED = "open", "closed"
WHY = "The history of hosts."
_NAME = re.compile(rf"{PREFIX}(\d{{8}})")
log = structlog.get_logger("hostler.history")


class ConfigMap(Record, frozen=True):
    metadata: Metadata = Metadata()
    binary_data: dict[str, bytes] = msgspec.field(default_factory=dict)


class ConfigMapHistory:
    def __init__(self, client: Client, writer: Writer, namespace: str, limits: Limits) -> None:
        self._client, self._writer, self._namespace, self._limits = client, writer, namespace, limits
        self._segments: dict[int, Segment] = {}
        self._doubtful = False  # a write may have arrived: read before writing
        self.unreadable: dict[str, str] = {}  # ConfigMaps that are left alone, and why

    # -- reading

    async def load(self) -> list[Entry]:
        """Every entry that is stored. What cannot be read is named and left alone."""
        self._segments.clear()
        self.unreadable.clear()
        for found in await self._client.list(CONFIG_MAP, self._namespace, type=ConfigMap, labels=LABEL):
            self._take(found)
        self._doubtful = False
        # By id: a crash in the middle of a merge leaves entries in two segments.
        entries = {entry.id: entry for segment in self._segments.values() for entry in segment.entries()}
        return sorted(entries.values(), key=lambda entry: id_order(entry.id))

    def find(self, keys: Collection[str], since: Instant, most: int) -> list[Entry]:
        """The newest entries about these layers (none given: about all), the newest first."""
        wanted, found = frozenset(keys), dict[str, Entry]()
        for _, segment in sorted(self._segments.items(), reverse=True):
            if segment.last < since or (wanted and not wanted & segment.keys):
                continue
            entries = segment.entries()
            found |= {one.id: one for one in entries if one.at >= since and (not wanted or one.key in wanted)}
            if len(found) >= most and segment.closed:
                break
        return sorted(found.values(), key=lambda entry: id_order(entry.id), reverse=True)[:most]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments.values())

    @property
    def count(self) -> int:
        return sum(segment.count for segment in self._segments.values())

    # -- writing

    async def append(self, entries: Sequence[Entry]) -> None:
        """Store these. Raises what the API server answered; the same entries may be given again."""
        if self._doubtful:
            await self.load()
        segment = self._open()
        if segment is not None and segment.is_full:
            await self._close(segment)
            segment = None
        try:
            if segment is None:
                await self._begin(entries)
            else:
                await self._extend(segment, entries)
        except (Conflict, NotFound, Unreachable):
            self._doubtful = True
            raise

    async def prune(self, now: Instant) -> int:
        """Drop what is beyond the limits and merge small segments; returns how many entries went."""
        closed = [segment for segment in self._segments.values() if segment.closed]
        entries = [entry for segment in closed for entry in segment.entries()]
        kept = retain(entries, self._limits, now)
        share = sum(segment.size for segment in closed) / max(1, len(entries))
        beyond = int((self.size - self._limits.bytes) / share) if share else 0
        if beyond > len(entries) - len(kept):
            going = {entry.id for entry in oldest_droppable(kept, self._limits)[: beyond - (len(entries) - len(kept))]}
            kept = [entry for entry in kept if entry.id not in going]
        keeping = {entry.id for entry in kept}
        for group in small_groups(closed):
            entries_of_group = [entry for segment in group for entry in segment.entries()]
            staying = [entry for entry in entries_of_group if entry.id in keeping]
            if len(group) > 1 or len(staying) < len(entries_of_group):
                await self._replace(group, staying)
        return len(entries) - len(kept)

    def _open(self) -> Segment | None:
        return next((segment for segment in self._segments.values() if not segment.closed), None)

    async def _begin(self, entries: Sequence[Entry]) -> None:
        number = max(self._segments, default=0) + 1
        segment, _ = extend_segment(Segment(number, {}), entries)
        await self._create(segment)

    async def _extend(self, segment: Segment, entries: Sequence[Entry]) -> None:
        extended, chunks = extend_segment(segment, entries)
        if chunks:
            await self._patch(segment, extended, chunks)

    async def _close(self, segment: Segment) -> None:
        """The same entries as one chunk, which takes less room."""
        closed = close_segment(segment.number, segment.entries())
        gone: dict[str, bytes | None] = dict.fromkeys(segment.chunks)
        await self._patch(segment, closed, {**gone, **closed.chunks})

    async def _replace(self, group: Sequence[Segment], staying: Sequence[Entry]) -> None:
        """Write the first anew and delete the others; a crash in between leaves entries twice: readers count ids."""
        first, *others = group
        new = close_segment(first.number, staying)
        if new.count:
            await self._patch(first, new, dict(new.chunks))
        for segment in others if new.count else group:
            await self._writer.delete(
                CONFIG_MAP, _name(segment.number), self._namespace, uid=segment.uid, why="Merged or beyond the limits."
            )
            del self._segments[segment.number]

    async def _create(self, segment: Segment) -> None:
        metadata = {"name": _name(segment.number), "namespace": self._namespace, "labels": {LABEL: OPEN}}
        body = {"metadata": metadata, "binaryData": dict(segment.chunks)}
        self._took(await self._writer.create(CONFIG_MAP, body, self._namespace, type=Object, why=WHY), segment)

    async def _patch(self, old: Segment, new: Segment, chunks: Mapping[str, bytes | None]) -> None:
        label = {LABEL: CLOSED if new.closed else OPEN}
        body = {"metadata": {"resourceVersion": old.version, "labels": label}, "binaryData": chunks}
        name = _name(old.number)
        self._took(await self._writer.patch(CONFIG_MAP, name, body, self._namespace, type=Object, why=WHY), new)

    def _took(self, answer: Object | None, segment: Segment) -> None:
        if answer is not None:  # None: a dry run
            meta = answer.metadata
            self._segments[segment.number] = replace(segment, version=meta.resource_version, uid=meta.uid)

    def _take(self, found: ConfigMap) -> None:
        meta, name = found.metadata, _NAME.fullmatch(found.metadata.name)
        try:
            if name is None:
                raise NotHistory("its name has no number")
            closed = meta.labels.get(LABEL) == CLOSED
            segment = read_segment(
                int(name[1]), found.binary_data, closed=closed, version=meta.resource_version, uid=meta.uid
            )
            self._segments[segment.number] = segment
        except NotHistory as error:
            self.unreadable[meta.name] = str(error)
            log.warning("a segment of the history cannot be read; it is left alone", name=meta.name, error=str(error))


def _name(number: int) -> str:
    return f"{PREFIX}{number:08}"
