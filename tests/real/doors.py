"""Two doors, in front of the API server and of a vCenter, through which one operator goes: every write is seen.

In a chain of kills each write that was not seen before is let through, and then both doors are shut: nothing else gets
out, not even the answer, until the operator that asked for it has been killed and the next one knocks. So the process
dies after exactly that write, and each write is a crash point once.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from hostler.sandbox import Sandbox
from hostler.sandbox import http as sandbox_http
from tests.real.endings import end_connections
from tests.real.vsphere_world import certificate

# What changes something in vCenter; everything else reads, logs in or waits.
VCENTER_WRITES = (
    "PowerOffVM_Task", "PowerOnVM_Task", "RelocateVM_Task", "ShutdownGuest", "ResetVM_Task", "CancelTask", "SetField",
    "AddCustomFieldDef", "PowerOnMultiVM_Task", "EnterMaintenanceMode_Task", "ExitMaintenanceMode_Task",
)  # fmt: skip
_CALL = re.compile(rb"<soapenv:Body>\s*<(\w+)[^>]*>\s*<_this[^>]*>([^<]+)<")
_FAULT = re.compile(rb"<(?:\w+:)?Fault>")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:?\d\d)")
_HOP = {"host", "connection", "transfer-encoding", "content-length", "keep-alive"}


class Doors:
    """Serves both doors on a thread of its own. `stopped_at` are the crash points so far, in order."""

    def __init__(self, sandbox: Sandbox, vcenter_port: int, folder: Path) -> None:
        self._api_server = sandbox.server
        # Whoever brings a login goes in with it and nothing else; whoever brings none is the administrator.
        self._admin, self._trust = (sandbox_http.trust(sandbox.layout, who) for who in ("admin", None))
        self._vcenter = f"https://127.0.0.1:{vcenter_port}"
        self.cert, self._key = certificate(folder)
        self.api_port = self.vcenter_port = 0
        self.killing = False  # whether new writes are crash points
        self.stopped_at: list[str] = []
        self.writes: list[str] = []  # every write that succeeded, repeated or not
        self.shut = threading.Event()
        self._known: set[str] = set()
        self._generation = 0
        self._one_at_a_time = asyncio.Lock()
        self._loop = asyncio.new_event_loop()

    @contextmanager
    def open(self) -> Iterator[Doors]:
        ready, over = threading.Event(), asyncio.Event()
        thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve(ready, over)), name="doors")
        thread.start()
        try:
            assert ready.wait(20), "the doors do not open"
            yield self
        finally:
            self._loop.call_soon_threadsafe(over.set)
            thread.join(20)
            self._loop.close()

    def admit_the_next(self) -> None:
        """The operator is dead: whatever it still asks is nobody's, and the next one finds the doors open."""
        done = threading.Event()

        def turn() -> None:
            self._generation += 1
            self._one_at_a_time = asyncio.Lock()
            self.shut.clear()
            done.set()

        self._loop.call_soon_threadsafe(turn)
        assert done.wait(10)

    # -- serving

    async def _serve(self, ready: threading.Event, over: asyncio.Event) -> None:
        no_check = ssl.create_default_context()
        no_check.check_hostname, no_check.verify_mode = False, ssl.CERT_NONE
        front = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        front.load_cert_chain(self.cert, self._key)

        def session(tls: ssl.SSLContext) -> aiohttp.ClientSession:
            return aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=tls, limit=0), timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar(),
            )  # fmt: skip

        async with (
            session(self._admin) as admin,
            session(self._trust) as anybody,
            session(no_check) as vcenter,
        ):
            runners = []
            for by_login, upstream, tls, name in (
                ({True: anybody, False: admin}, self._api_server, None, "api_port"),
                ({True: vcenter, False: vcenter}, self._vcenter, front, "vcenter_port"),
            ):
                runner = web.AppRunner(self._door(by_login, upstream), handler_cancellation=True, shutdown_timeout=0.1)
                await runner.setup()
                place = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
                await place.start()
                setattr(self, name, runner.addresses[0][1])
                runners.append(runner)
            ready.set()
            await over.wait()
            for runner in runners:
                await runner.cleanup()
        await end_connections()

    def _door(self, by_login: dict[bool, aiohttp.ClientSession], upstream: str) -> web.Application:
        async def handle(request: web.Request) -> web.StreamResponse:
            session, body = by_login["Authorization" in request.headers], await request.read()
            name = write_of(request, body)
            if name is None:
                return await self._pass(session, upstream, request, body)
            return await self._write(session, upstream, request, body, name)

        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", handle)
        return app

    async def _write(
        self, session: aiohttp.ClientSession, upstream: str, request: web.Request, body: bytes, name: str
    ) -> web.StreamResponse:
        mine = self._generation
        async with self._one_at_a_time:
            if mine != self._generation:
                return web.Response(status=503)
            async with self._ask(session, upstream, request, body) as answer:
                said = await answer.read()
            if answer.status >= 300 or _FAULT.search(said):
                return _whole(answer, said)
            self.writes.append(name)
            if not self.killing or name in self._known:
                return _whole(answer, said)
            self._known.add(name)
            self.stopped_at.append(name)
            self.shut.set()
            await asyncio.Event().wait()  # until whoever asked is dead
            raise AssertionError("not reached")

    def _ask(self, session: aiohttp.ClientSession, upstream: str, request: web.Request, body: bytes) -> Any:
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in _HOP]
        return session.request(request.method, upstream + request.raw_path, data=body or None, headers=headers)

    async def _pass(
        self, session: aiohttp.ClientSession, upstream: str, request: web.Request, body: bytes
    ) -> web.StreamResponse:
        try:
            async with self._ask(session, upstream, request, body) as answer:
                passed = web.StreamResponse(status=answer.status)
                if request.version < aiohttp.HttpVersion11:
                    passed.force_close()  # its end is the end of the connection
                for name, value in answer.headers.items():
                    if name.lower() not in _HOP:
                        passed.headers.add(name, value)
                await passed.prepare(request)
                with suppress(ConnectionError):
                    async for piece in answer.content.iter_any():
                        await passed.write(piece)
                return passed
        except aiohttp.ClientError:
            return web.Response(status=502)


def _whole(answer: aiohttp.ClientResponse, said: bytes) -> web.Response:
    response = web.Response(status=answer.status, body=said)
    for name, value in answer.headers.items():
        if name.lower() not in _HOP | {"content-type"}:
            response.headers.add(name, value)
    response.headers["Content-Type"] = answer.headers.get("Content-Type", "application/json")
    return response


def write_of(request: web.Request, body: bytes) -> str | None:
    """What a request writes, the same words for the same write; None for one that changes nothing."""
    if call := _CALL.search(body):
        method, this = (part.decode() for part in call.groups())
        return f"{method} {this} {_digest(_without_this(body))}" if method in VCENTER_WRITES else None
    if request.method == "GET" or "selfsubject" in request.path or "/leases" in request.path:
        return None
    if "/configmaps" in request.path:  # the history: each leader adds a gap of its own, so no two bodies are alike
        return f"{request.method} {re.sub(r'-[0-9]+$', '-*', request.path)}"
    return f"{request.method} {_thing(request.path)}{_about(body)}"


def _without_this(body: bytes) -> str:
    return body.decode(errors="replace").partition("<soapenv:Body>")[2]


def _thing(path: str) -> str:
    """Without what is made up anew each time: an Event's name."""
    return re.sub(r"/events/[^/]+$", "/events/*", path)


def _about(body: bytes) -> str:
    try:
        said = json.loads(body)
    except ValueError:
        return ""
    said.get("metadata", {}).pop("resourceVersion", None)
    if "regarding" in said:
        return f" {said.get('reason')} {said['regarding'].get('name')}"
    annotations = said.get("metadata", {}).get("annotations") or {}
    state = next((f" state={value}" for key, value in annotations.items() if key.endswith("/state")), "")
    return f"{state} {_digest(json.dumps(said, sort_keys=True))}"


def _digest(text: str) -> str:
    return hashlib.sha256(_TIME.sub("T", text).encode()).hexdigest()[:8]
