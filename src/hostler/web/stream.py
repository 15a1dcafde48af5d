"""`/v1/hosts/stream`: changes of the picture as they happen, by server-sent events or by long polling.

A change is judged and encoded once, and the same bytes go to every viewer, so its cost does not grow with their number.
A viewer names the version it knows; one of another process, or too old, gets the whole picture. Who reads too slowly
is hung up on, and comes back with the version it has.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Protocol

import msgspec
from aiohttp import web
from msgspec.structs import replace

from hostler.explain.read_api import answer
from hostler.explain.wire import NOT_LEADING, TOO_MANY_VIEWERS, Refused
from hostler.inventory.states import PASSING, HostState
from hostler.inventory.wire import HostRow, HostsAnswer
from hostler.kube.clock import Clock, boottime
from hostler.kube.http import Admit, Server

MOST_VIEWERS = 50
GATHER_SECONDS = 0.15  # hundreds of nodes that change together are one event
LOOK_SECONDS = 1.0  # for what changes without a host: notes, leadership
BEAT_SECONDS = 15.0  # less than what balancers give an idle connection
SLOW_SECONDS = 20.0  # for one event
MOST_BEHIND = 16 * 1024 * 1024  # bytes that wait for one viewer: some full pictures of 5,000 hosts
LONGEST_WAIT = 25.0  # of a long poll
FULL_SECONDS = 5.0  # how long a full picture serves the next who asks: after a change of leader all do
ADMIT_SECONDS = 60.0  # who was admitted may not be any more
BEAT = b": still here\n\n"
HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would keep events back
}
SINCE_HEADER = "Last-Event-ID"


class Hosts(Protocol):
    """The picture, as far as the stream needs it (`inventory.service.InventoryService`)."""

    def listen(self, changed: Callable[[], None]) -> None: ...
    def hosts(self, since: str = "") -> HostsAnswer: ...
    def rows_in(self, states: Collection[HostState]) -> tuple[HostRow, ...]: ...


class Viewer:
    """What waits for one reader."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self.frames = deque[bytes]()
        self.behind = 0
        self.dropped = False
        self.wake = asyncio.Event()

    def put(self, frame: bytes) -> None:
        self.behind += len(frame)
        self.frames.append(frame)
        if self.behind > MOST_BEHIND:
            self.cut()
        self.wake.set()

    @property
    def left(self) -> bool:
        """Whether the reader has hung up; a write would notice it too, but later."""
        transport = self._request.transport
        return transport is None or transport.is_closing()

    def take(self) -> list[bytes]:
        found, self.behind = list(self.frames), 0
        self.frames.clear()
        self.wake.clear()
        return found

    def cut(self) -> None:
        """Hang up at once: what it has not read yet is not waited for."""
        self.drop()
        if (transport := self._request.transport) is not None:
            transport.abort()

    def drop(self) -> None:
        self.frames.clear()
        self.dropped = True
        self.wake.set()


class HostStream:
    """`notes` limit every answer; `leadership` is None while this replica leads, else why it does not; `admit` is asked
    again while an answer lasts."""

    def __init__(
        self,
        inventory: Hosts,
        notes: Callable[[], tuple[str, ...]],
        leadership: Callable[[], str | None],
        admit: Admit,
        clock: Clock = boottime,
    ) -> None:
        self._inventory, self._notes, self._leadership, self._clock = inventory, notes, leadership, clock
        self._admit = admit
        self._viewers = set[Viewer]()
        self._version = ""  # what all viewers have, or have waiting
        self._noted: tuple[str, ...] = ()
        self._late = frozenset[str]()
        self._full = (-math.inf, "", b"")  # when, of which version, and the encoded answer
        self._changed = asyncio.Event()
        inventory.listen(self._changed.set)

    def mount(self, server: Server) -> None:
        server.add_stream("/v1/hosts/stream", self._answer)

    async def run(self) -> None:
        """Tell the viewers what changed, until cancelled."""
        beat = self._clock()
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._changed.wait()
                self._changed.clear()
                if self._viewers:
                    due = self._clock() - beat >= BEAT_SECONDS
                    if due:
                        beat = self._clock()
                    if self._leadership() is not None:
                        self._drop_all()  # they come back to the one that leads
                    else:
                        self._publish(look_at_times=due)
                await asyncio.sleep(GATHER_SECONDS)
        finally:
            self._drop_all()

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    def _drop_all(self) -> None:
        for viewer in self._viewers:
            viewer.drop()

    def _publish(self, *, look_at_times: bool = False) -> None:
        """One event for all viewers, if there is something new."""
        news, notes = self._inventory.hosts(self._version), self._notes()
        rows = {row.host.id: row for row in news.hosts}
        if look_at_times:  # a host becomes overdue without a change
            passing = self._inventory.rows_in(PASSING)
            late = _late_ids(passing)
            rows |= {row.host.id: row for row in passing if row.host.id in late ^ self._late}
            self._late = late
        if news.version == self._version and not rows and notes == self._noted:
            if look_at_times:
                self._send(BEAT)
            return
        self._version, self._noted = news.version, notes
        self._send(as_event(news.version, encode_answer(replace(news, hosts=tuple(rows.values()), notes=notes))))

    def _send(self, frame: bytes) -> None:
        for viewer in self._viewers:
            viewer.put(frame)

    def _first(self, since: str) -> tuple[str, bytes]:
        """What a viewer does not know yet, encoded, and its version."""
        news = self._inventory.hosts(since) if since else None
        if news is None or news.complete:
            return self._whole()
        known = {row.host.id for row in news.hosts}
        # It may have missed that one became overdue, which is no change of the host.
        passing = tuple(row for row in self._inventory.rows_in(PASSING) if row.host.id not in known)
        return news.version, encode_answer(replace(news, hosts=news.hosts + passing, notes=self._notes()))

    def _whole(self) -> tuple[str, bytes]:
        at, version, body = self._full
        if version != self._version or self._clock() - at > FULL_SECONDS:
            found = self._inventory.hosts()
            version, body = found.version, encode_answer(replace(found, notes=self._notes()))
            self._full = self._clock(), version, body
        return version, body

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if (why := self._leadership()) is not None:
            return answer(Refused(NOT_LEADING, f"This replica does not answer for the fleet: {why}."), status=421)
        if len(self._viewers) >= MOST_VIEWERS:
            for gone in [viewer for viewer in self._viewers if viewer.left]:
                gone.drop()
                self._viewers.discard(gone)
        if len(self._viewers) >= MOST_VIEWERS:
            refused = answer(
                Refused(TOO_MANY_VIEWERS, f"{MOST_VIEWERS} viewers watch already; close a page that is not needed."),
                status=503,
            )
            refused.headers["Retry-After"] = "10"
            return refused
        since = request.headers.get(SINCE_HEADER, "") or request.query.get("since", "")
        viewer = Viewer(request)
        if not self._viewers:  # nobody looked at the times; the first answer says who is late
            self._late = _late_ids(self._inventory.rows_in(PASSING))
        self._publish()  # so that what comes next for the others is next for this one, too
        version, body = self._first(since)
        self._viewers.add(viewer)
        try:
            if (wait := request.query.get("wait")) is not None:
                return await self._poll(viewer, since, (version, body), wait)
            return await self._stream(request, viewer, as_event(version, body))
        finally:
            self._viewers.discard(viewer)

    async def _poll(self, viewer: Viewer, since: str, first: tuple[str, bytes], wait: str) -> web.StreamResponse:
        """One answer: at once if there is something new, else after the first change or `wait` seconds."""
        version, body = first
        if version == since:
            with suppress(TimeoutError):
                async with asyncio.timeout(_seconds(wait)):
                    await viewer.wake.wait()
            version, body = self._first(since)
        return web.Response(body=body, content_type="application/json", headers={"Cache-Control": "no-store"})

    async def _stream(self, request: web.Request, viewer: Viewer, first: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers=HEADERS)
        await response.prepare(request)
        viewer.frames.appendleft(first)
        viewer.wake.set()
        admitted = self._clock()
        try:
            while not viewer.dropped:
                if self._clock() - admitted >= ADMIT_SECONDS:
                    if await self._admit(request) is not None:
                        break
                    admitted = self._clock()
                async with asyncio.timeout(SLOW_SECONDS) as patience:
                    for frame in viewer.take():
                        await response.write(frame)
                    patience.reschedule(None)
                    await viewer.wake.wait()
        except (TimeoutError, ConnectionError):
            viewer.cut()
        return response


def _late_ids(rows: Iterable[HostRow]) -> frozenset[str]:
    return frozenset(row.host.id for row in rows if row.overdue is not None)


def encode_answer(found: HostsAnswer) -> bytes:
    return msgspec.json.encode(found)


def as_event(version: str, body: bytes) -> bytes:
    """JSON of ours has no line breaks."""
    return b"id: %s\nevent: hosts\ndata: %s\n\n" % (version.encode(), body)


def _seconds(text: str) -> float:
    try:
        wanted = float(text)
    except ValueError:
        return LONGEST_WAIT
    return min(max(wanted, 0.0), LONGEST_WAIT) if math.isfinite(wanted) else LONGEST_WAIT
