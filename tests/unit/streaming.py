"""A picture of a few hosts and the stream over it, on a real socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from hostler.inventory.model import Layer, LayerKind, Line, node_key
from hostler.inventory.overdue import judge_overdue
from hostler.inventory.picture import Picture
from hostler.inventory.states import HostState
from hostler.inventory.wire import HostRow, HostsAnswer
from hostler.kube.http import Server
from hostler.kube.metrics import Metrics
from hostler.web.stream import HostStream


class PictureOnly:
    """The picture without caches behind it."""

    def __init__(self) -> None:
        self.picture = Picture("boot")
        self.now = time.time()
        self._listeners: list[Callable[[], None]] = []

    def put(self, name: str, state: HostState, why: str = "") -> None:
        line = Line("holds", state, why, self.now)
        key = node_key("local", name)
        self.picture.update({key: Layer(key, LayerKind.NODE, name, (line,), cluster="local", node=name)})
        for listener in self._listeners:
            listener()

    def listen(self, changed: Callable[[], None]) -> None:
        self._listeners.append(changed)

    def hosts(self, since: str = "") -> HostsAnswer:
        news = self.picture.since(since)
        rows = tuple(HostRow(host, judge_overdue(host, self.now, {})) for host in news.hosts)
        return HostsAnswer(news.version, self.now, rows, news.gone, news.complete)

    def rows_in(self, states: Collection[HostState]) -> tuple[HostRow, ...]:
        return tuple(
            HostRow(host, judge_overdue(host, self.now, {}))
            for host in self.picture.hosts.values()
            if host.state in states
        )


@dataclass
class Place:
    """One operator's stream: what a test changes, and how it asks."""

    hosts: PictureOnly = field(default_factory=PictureOnly)
    notes: tuple[str, ...] = ()
    follows: str | None = None
    refuses: bool = False
    url: str = ""
    viewers: Callable[[], int] = lambda: 0

    async def admit(self, _: web.Request) -> web.Response | None:
        return web.Response(status=401) if self.refuses else None


@asynccontextmanager
async def streaming(place: Place) -> AsyncIterator[aiohttp.ClientSession]:
    server = Server("127.0.0.1", 0, Metrics(), admit=place.admit, patience=1.0)
    stream = HostStream(place.hosts, lambda: place.notes, lambda: place.follows, place.admit)
    stream.mount(server)
    await server.start()
    place.viewers = lambda: stream.viewers
    place.url = f"{server.url}/v1/hosts/stream"
    running = asyncio.create_task(stream.run())
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            yield session
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await server.stop()


async def next_event(response: aiohttp.ClientResponse) -> HostsAnswer:
    """Comments are passed over."""
    async with asyncio.timeout(60):
        while True:
            line = await response.content.readuntil(b"\n")
            if not line:
                raise EOFError
            if line.startswith(b"data: "):
                return msgspec.json.decode(line[6:], type=HostsAnswer)


def play(story: Callable[[Place, aiohttp.ClientSession], Awaitable[Any]]) -> None:
    async def go() -> None:
        place = Place()
        async with streaming(place) as session:
            await story(place, session)

    asyncio.run(go())
