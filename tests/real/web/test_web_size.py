"""5,000 hosts in a real browser: few elements, and each change is seen."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import expect

from hostler.inventory.states import HostState
from hostler.kube.http import Server
from hostler.kube.metrics import Metrics
from hostler.web.files import Page as Files
from hostler.web.stream import HostStream
from tests.real.web.browsing import chromium, page_at
from tests.real.web.steps import tile
from tests.unit.streaming import PictureOnly, Place

HOSTS = 5000
MOST_ROWS = 60


@contextmanager
def served(hosts: PictureOnly) -> Iterator[tuple[str, asyncio.AbstractEventLoop]]:
    """The page and its stream in a thread of their own."""
    loop, place = asyncio.new_event_loop(), Place(hosts)
    server = Server("127.0.0.1", 0, Metrics(), admit=place.admit)
    stream = HostStream(hosts, lambda: (), lambda: None, place.admit)
    stream.mount(server)
    Files().mount(server)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(60)
    running = asyncio.run_coroutine_threadsafe(stream.run(), loop)
    try:
        yield server.url, loop
    finally:
        running.cancel()
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


@pytest.mark.full
def test_5000_hosts_stay_smooth_and_live() -> None:
    hosts = PictureOnly()
    for number in range(HOSTS):
        hosts.put(f"node-{number}", HostState.IN_SERVICE, "The node is Ready and takes pods.")
    with served(hosts) as (url, loop), chromium() as browser:
        began = time.monotonic()
        with page_at(browser, f"{url}/#/fleet?show=all") as page:
            expect(page.locator(".tile")).to_have_count(HOSTS)
            shown = time.monotonic() - began
            assert page.locator(".rows .row").count() < MOST_ROWS
            took = []
            for number in range(30):
                began = time.monotonic()
                name = f"node-{number * 160}"
                loop.call_soon_threadsafe(hosts.put, name, HostState.HELD, "It is held by ann.")
                tile(page, name, "held")
                took.append(time.monotonic() - began)
            page.get_by_label("Filter hosts").fill("node-499")
            expect(page.locator(".rows .row")).to_have_count(11)
            print(
                f"shown after {shown:.2f} s; a change after {sorted(took)[15]:.2f} s (median), {max(took):.2f} s (most)"
            )
