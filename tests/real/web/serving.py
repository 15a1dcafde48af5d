"""The page and its stream over a picture of the test's own, on loopback, in a thread: no cluster is needed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hostler.inventory.states import HostState
from hostler.kube.http import Server
from hostler.kube.metrics import Metrics
from hostler.web.files import Page
from hostler.web.stream import HostStream
from tests.unit.streaming import PictureOnly, Place


@dataclass
class Replica:
    """One replica of an operator, as far as the page sees it."""

    loop: asyncio.AbstractEventLoop
    place: Place = field(default_factory=Place)
    url: str = ""

    def put(self, name: str, state: HostState, why: str = "It is as it is.") -> None:
        self.loop.call_soon_threadsafe(self.place.hosts.put, name, state, why)

    def go(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)


@contextmanager
def replica(hosts: PictureOnly | None = None) -> Iterator[Replica]:
    made = Replica(asyncio.new_event_loop(), Place(hosts or PictureOnly()))
    place = made.place
    server = Server("127.0.0.1", 0, Metrics(), admit=place.admit)
    stream = HostStream(place.hosts, lambda: place.notes, lambda: place.follows, place.admit)
    stream.mount(server)
    Page().mount(server)
    thread = threading.Thread(target=made.loop.run_forever, daemon=True)
    thread.start()
    made.go(server.start()).result(60)
    running = made.go(stream.run())
    made.url = server.url
    try:
        yield made
    finally:
        running.cancel()
        made.go(server.stop()).result(60)
        made.loop.call_soon_threadsafe(made.loop.stop)
        thread.join(60)
        made.loop.close()
