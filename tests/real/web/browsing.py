"""A real browser, `hostler web` as a person runs it, and a front such as an Ingress is."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, sync_playwright

from tests.real.operating import environment
from tests.tools import tool

ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
WAIT = 120_000  # milliseconds: the machine may be busy
DESK, WALL, PHONE = (1280, 800), (1920, 1080), (390, 844)


@contextmanager
def chromium() -> Iterator[Browser]:
    """While it runs, no other event loop can run in this thread: commands are asked as processes."""
    path = tool("chromium", "chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()


@contextmanager
def page_at(
    browser: Browser, url: str, *, size: tuple[int, int] = DESK, dark: bool = False, live: bool = True
) -> Iterator[Page]:
    """A page in a profile of its own. What its scripts complain of, or its policy forbids, fails the test."""
    said: list[str] = []
    viewport = {"width": size[0], "height": size[1]}
    context = browser.new_context(viewport=viewport, color_scheme="dark" if dark else "light")  # type: ignore[arg-type]
    context.set_default_timeout(WAIT)
    try:
        page = context.new_page()
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("console", lambda line: said.append(line.text) if "Content Security Policy" in line.text else None)
        page.goto(url)
        if live:
            until_live(page)
        yield page
        assert said == []
    finally:
        context.close()


def until_live(page: Page) -> None:
    page.locator("#link .on").wait_for()


def violations(page: Page) -> str:
    """What axe-core finds, as text; empty where it finds nothing."""
    found = Axe().run(page)
    return str(found.generate_report()) if found.violations_count else ""


@contextmanager
def hostler_web(kubeconfig: Path, *words: str) -> Iterator[str]:
    """`hostler web`; its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "hostler", "web", "--print-url", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(kubeconfig), cwd=kubeconfig.parent,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        url = process.stdout.readline().strip()
        assert url, process.stderr.read()
        yield url
    finally:
        process.terminate()
        process.wait(timeout=60)
        process.stdout.close()
        process.stderr.close()


class Front:
    """A reverse proxy on loopback, as an Ingress is: it says for whom it asks. Requests go to the targets by turns."""

    def __init__(self, targets: Callable[[], list[str]]) -> None:
        self._targets, self._turn = targets, 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.url = ""

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(60)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    async def _start(self) -> None:
        self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/"

    async def _stop(self) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        targets = self._targets()
        self._turn += 1
        target = targets[self._turn % len(targets)]
        headers = {**request.headers, "X-Forwarded-For": str(request.remote)}
        asked: Any = self._session.request(
            request.method, target + request.raw_path, headers=headers, data=await request.read(),
            allow_redirects=False, timeout=aiohttp.ClientTimeout(total=None),
        )  # fmt: skip
        try:
            async with asked as found:
                kept = {k: v for k, v in found.headers.items() if k not in ("Transfer-Encoding", "Content-Length")}
                response = web.StreamResponse(status=found.status, headers=kept)
                await response.prepare(request)
                async for piece in found.content.iter_any():
                    await response.write(piece)
                return response
        except aiohttp.ClientError:
            return web.Response(status=502)


@contextmanager
def front(targets: Callable[[], list[str]]) -> Iterator[str]:
    made = Front(targets)
    made.start()
    try:
        yield made.url
    finally:
        made.stop()
