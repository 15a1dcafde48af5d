"""Many at once, slow ones and silent ones, over real sockets: hosts are answered all the same."""

from __future__ import annotations

import asyncio
import os
import ssl
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import aiohttp
import pytest
from structlog.testing import capture_logs

from hostler.errors import Complaint
from hostler.reclaim.hub import artifact_files
from hostler.reclaim.hub import connections as connections_module
from hostler.reclaim.hub import listener as listener_module
from hostler.reclaim.hub import server as hub_module
from hostler.reclaim.hub.connections import KEPT_FILES, connection_limit
from hostler.reclaim.hub.listener import Listener
from hostler.reclaim.hub.server import Hub
from tests.unit.hub_world import (
    HERE,
    HOST_TOKEN,
    INSTRUCTIONS,
    KEYS,
    NOW,
    all_said,
    artifact,
    connected,
    hub_with,
    listening,
    pair,
    until,
)

KERNEL = f"{HERE}/boot-artifacts/kernel"
LARGE = 128 << 20  # more than buffers take


async def asked(port: int, path: str = KERNEL, *, token: str = "", tls: ssl.SSLContext | None = None) -> int:
    """The status of one HEAD on a connection of its own."""
    scheme = "https" if tls is not None else "http"
    connector = aiohttp.TCPConnector(ssl=tls if tls is not None else False, force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.head(f"{scheme}://127.0.0.1:{port}{path}", headers={"X-Secret-Key": token}) as answer,
    ):
        return answer.status


HALF = f"GET {INSTRUCTIONS} HTTP/1.1\r\n".encode()
HALF_A_GREETING = b"\x16\x03\x01"


async def half_a_request(stack: AsyncExitStack, port: int, half: bytes = HALF) -> asyncio.StreamReader:
    reader, writer = await stack.enter_async_context(connected(port))
    writer.write(half)
    return reader


async def half_a_download(stack: AsyncExitStack, port: int, token: str = "") -> asyncio.StreamReader:
    """One that has begun, and of which nothing more is taken."""
    reader, writer = await stack.enter_async_context(connected(port))
    writer.write(f"GET {KERNEL} HTTP/1.1\r\nHost: hub\r\nX-Secret-Key: {token}\r\n\r\n".encode())
    assert b"200" in await reader.readline()
    return reader


async def half_an_answer(stack: AsyncExitStack, port: int) -> asyncio.StreamReader:
    """A host that says it has more to say."""
    reader, writer = await stack.enter_async_context(connected(port))
    head = f"POST {INSTRUCTIONS} HTTP/1.1\r\nHost: hub\r\nX-Secret-Key: {HOST_TOKEN}\r\nContent-Length: 100\r\n\r\n"
    writer.write(head.encode() + b"{")
    return reader


@pytest.mark.parametrize("secure", [False, True])
def test_who_holds_connections_and_asks_nothing_makes_room(tmp_path: Path, secure: bool) -> None:
    """With TLS they do not even greet; either way whoever asks is answered, and there are never more than allowed."""
    artifact(tmp_path)
    hub, tls = hub_with(tmp_path, connections=4), pair(tmp_path) if secure else None
    dropped: list[int] = []
    hub.connections.dropped = lambda: dropped.append(len(hub.connections))

    async def run() -> None:
        async with listening(hub, tls) as port, AsyncExitStack() as stack:
            half = HALF_A_GREETING if secure else HALF
            first = await half_a_request(stack, port, half)
            for _ in range(11):
                await half_a_request(stack, port, half)
            for _ in range(3):
                assert await asked(port, tls=tls.trusting if tls is not None else None) == 200
            await all_said(first)  # it was let go
            assert len(hub.connections) <= 4
        await until(lambda: len(hub.connections) == 0, "everybody has gone")

    asyncio.run(run())
    assert len(dropped) >= 8
    assert max(dropped) <= 4


def test_who_is_being_answered_is_kept_and_who_finds_no_room_is_closed(tmp_path: Path) -> None:
    artifact(tmp_path, size=LARGE)
    hub = hub_with(tmp_path, connections=2)

    async def run() -> None:
        async with listening(hub) as port, AsyncExitStack() as stack:
            one = await half_a_download(stack, port)
            for _ in range(3):
                assert [await asked(port), await asked(port, token=HOST_TOKEN)] == [503, 200]  # one each, of so few
            two = await half_a_download(stack, port, HOST_TOKEN)
            await until(lambda: len(hub.connections) == 2 and not hub.connections._waiting, "both are being answered")
            with pytest.raises(aiohttp.ClientConnectionError):
                await asked(port)
            for reader in (one, two):
                await reader.readuntil(b"\r\n\r\n")
                got = 0
                while got < LARGE:
                    got += len(await reader.read(1 << 20))
            await until(lambda: len(hub.connections._waiting) == 2, "both are whole")
            assert await asked(port) == 200

    asyncio.run(run())


def test_who_does_not_agree_on_tls_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections_module, "GREETING", 0.2)
    hub, tls = hub_with(tmp_path), pair(tmp_path)

    async def run() -> None:
        async with listening(hub, tls) as port, AsyncExitStack() as stack:
            silent, _ = await stack.enter_async_context(connected(port))
            plain = await half_a_request(stack, port)
            assert (await all_said(silent), len(await all_said(plain)) < 100) == (b"", True)
            with pytest.raises(OSError):  # noqa: PT011 - who does not trust us, or is too slow for so little patience
                await asyncio.open_connection("127.0.0.1", port, ssl=ssl.create_default_context())
            await until(lambda: len(hub.connections) == 0, "nobody is counted any more")

    asyncio.run(run())


def test_a_new_certificate_is_used_from_the_next_call_on(tmp_path: Path) -> None:
    first = pair(tmp_path)

    async def trusted(port: int, tls: ssl.SSLContext) -> bool:
        try:
            async with connected(port, tls):
                return True
        except OSError:
            return False

    async def run() -> None:
        listener = Listener(hub_with(None), "127.0.0.1", 0, first.certificate, first.key)
        await listener.start()
        try:
            assert await trusted(listener.port, first.trusting)
            second = pair(tmp_path)
            written_later(second.certificate, 10)
            listener.renew()
            assert [await trusted(listener.port, one.trusting) for one in (first, second)] == [False, True]
            # Half of a new pair is left for the next time, and spoils nothing.
            (tmp_path / "another").mkdir()
            third = pair(tmp_path / "another")
            for file, new in ((second.certificate, third.certificate), (second.key, third.key)):
                assert await trusted(listener.port, second.trusting)
                Path(file).write_bytes(Path(new).read_bytes())
                written_later(file, 20)
                listener.renew()
            assert [await trusted(listener.port, one.trusting) for one in (second, third)] == [False, True]
        finally:
            await listener.stop()

    asyncio.run(run())


def test_a_certificate_that_cannot_be_used_is_said_before_anything_is_served(tmp_path: Path) -> None:
    given = pair(tmp_path)
    Path(given.key).write_text("none")
    with pytest.raises(Complaint, match="cannot be used with key"):
        asyncio.run(Listener(hub_with(None), "127.0.0.1", 0, given.certificate, given.key).start())


def written_later(place: str, seconds: float) -> None:
    now = Path(place).stat().st_mtime
    os.utime(place, (now + seconds, now + seconds))


def test_who_says_no_whole_request_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """However it goes on with its half of one."""
    monkeypatch.setattr(listener_module, "SILENT", 0.2)

    async def run() -> None:
        async with listening(hub_with(None)) as port, connected(port) as (reader, writer):
            gone = asyncio.create_task(all_said(reader))
            writer.write(f"GET {INSTRUCTIONS} HTTP/1.1\r\n".encode())
            for _ in range(1200):
                with suppress(ConnectionError):
                    writer.write(b"x: y\r\n")
                    await writer.drain()
                await asyncio.sleep(0.05)
                if gone.done():
                    break
            assert gone.done(), "it may go on for ever"

    asyncio.run(run())


def test_bodies_that_do_not_end_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "PATIENCE", 0.2)

    async def run() -> None:
        async with listening(hub_with(None)) as port, AsyncExitStack() as stack:
            said = await (await half_an_answer(stack, port)).readuntil(b"\r\n\r\n")
            assert said.startswith(b"HTTP/1.1 503 ")
            assert b"Retry-After: 5" in said
            reader, writer = await stack.enter_async_context(connected(port))
            writer.write(f"POST {INSTRUCTIONS} HTTP/1.1\r\nHost: hub\r\nContent-Length: 100\r\n\r\n".encode() + b"{")
            assert b" 401 " in await reader.readline()  # a stranger's is not even begun with

    asyncio.run(run())


def test_more_requests_than_are_answered_at_once_are_told_to_ask_again() -> None:
    hub = hub_with(None, connections=8)

    async def run() -> None:
        async with listening(hub) as port, AsyncExitStack() as stack:
            for _ in range(6):
                await half_an_answer(stack, port)
            await until(lambda: hub._at_once == 6, "six are being answered")
            reader, writer = await stack.enter_async_context(connected(port))
            writer.write(f"GET {INSTRUCTIONS} HTTP/1.1\r\nHost: hub\r\n\r\n".encode())
            said = await reader.readuntil(b"\r\n\r\n")
            assert (said.startswith(b"HTTP/1.1 503 "), b"Retry-After: 5" in said) == (True, True)

    asyncio.run(run())


def test_who_takes_nothing_is_let_go_and_strangers_keep_no_host_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "DOWNLOADS_AT_ONCE", 1)
    artifact(tmp_path, size=LARGE)

    async def room(port: int) -> None:
        async with asyncio.timeout(90):
            while await asked(port) != 200:
                await asyncio.sleep(0.05)

    async def run() -> None:
        async with listening(hub_with(tmp_path)) as port:
            async with AsyncExitStack() as stack:
                await half_a_download(stack, port)
                assert await asked(port) == 503
                assert await asked(port, token=HOST_TOKEN) == 200
            await room(port)
            monkeypatch.setattr(artifact_files, "STALLED", 1.0)
            async with AsyncExitStack() as stack:
                await half_a_download(stack, port)
                await room(port)

    asyncio.run(run())


def test_one_host_does_not_take_every_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "DOWNLOADS_PER_HOST", 1)
    artifact(tmp_path, size=LARGE)
    another = KEYS.for_host("ns", "ie-1", "env", "host-2", now=NOW, seconds=60)
    hub = hub_with(tmp_path)

    async def run() -> None:
        async with listening(hub) as port:
            async with AsyncExitStack() as stack:
                await half_a_download(stack, port, HOST_TOKEN)
                assert [await asked(port, token=one) for one in (HOST_TOKEN, another)] == [503, 200]
            await until(lambda: not hub._downloads, "none is left")

    asyncio.run(run())


def test_strangers_do_not_fill_the_log() -> None:
    async def run(hub: Hub) -> None:
        async with listening(hub) as port:
            for _ in range(20):
                assert await asked_instructions(port) == 401

    with capture_logs() as said:
        asyncio.run(run(hub_with(None)))
    assert [one["why"] for one in said if one["event"] == "refused"] == ["This is not a token of this hub."]


async def asked_instructions(port: int) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{INSTRUCTIONS}", headers={"X-Secret-Key": "x"}) as answer,
    ):
        return answer.status


@pytest.mark.parametrize(
    ("wished", "files", "found"), [(2000, 20_000, 2000), (2000, 1024, 1024 - KEPT_FILES), (64, 100, 1), (9, -1, 9)]
)
def test_open_files_are_left_for_everything_else(wished: int, files: int, found: int) -> None:
    assert connection_limit(wished, files) == found
