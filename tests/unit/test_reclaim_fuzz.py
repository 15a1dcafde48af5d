"""Bytes of strangers to the hub's port: whole requests, half ones, none at all. No crash, no write, no way in."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hostler.reclaim.hub import listener as listener_module
from hostler.reclaim.hub import server as hub_module
from tests.sizes import examples
from tests.unit.hub_world import (
    ENV_TOKEN,
    HERE,
    HOST_TOKEN,
    INSTRUCTIONS,
    KEYS,
    NOW,
    all_said,
    connected,
    hub_with,
    listening,
    until,
)

SECRET = b"the ignition of every host, and a token in it"
END = b"\r\n"


class Inside:
    """Where Agents are read and written. Nobody gets here."""

    def __init__(self) -> None:
        self.reached: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.reached.append(name)
        raise AssertionError(f"a stranger reached {name}")


def _changed(change: tuple[int, str]) -> str:
    at, letter = change[0] % len(HOST_TOKEN), change[1]
    found = HOST_TOKEN[:at] + letter + HOST_TOKEN[at + 1 :]
    return found if found != HOST_TOKEN else ""


CHARACTERS = st.characters(min_codepoint=33, max_codepoint=126)
TOKENS = st.one_of(
    st.sampled_from([
        "", "x", HOST_TOKEN.upper(), HOST_TOKEN + ".", "." + ENV_TOKEN, HOST_TOKEN.partition(".")[0] + "..",
        KEYS.for_host("ns", "ie-2", "env", "host-1", now=NOW, seconds=60),
        KEYS.for_infra_env("ns", "ie-2", "env", now=NOW, seconds=60),
        KEYS.for_host("ns", "ie-1", "env", "host-1", now=NOW, seconds=0),
        KEYS.for_infra_env("ns", "ie-1", "env", now=NOW, seconds=-1),
    ]),
    st.tuples(st.integers(0, 10_000), CHARACTERS).map(_changed),
    st.text(CHARACTERS, max_size=40),
)  # fmt: skip
METHODS = st.sampled_from(
    [b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT", b"get", b"X-Y", b"\x00"]
)
PLACES = st.sampled_from([
    INSTRUCTIONS, f"{HERE}/hosts", f"{HERE}/boot-artifacts/initrd", f"{HERE}/boot-artifacts/kernel", f"{HERE}/hosts/",
    f"{HERE}/boot-artifacts/../boot-artifacts/initrd", f"{HERE}/boot-artifacts/%2e%2e%2fie-1%2finitrd", "*", "", "/",
    f"{HERE}/boot-artifacts/initrd%00", f"{HERE}/boot-artifacts/initrd?a=b", f"http://elsewhere{INSTRUCTIONS}", "//x",
    f"{HERE.replace('ie-1', '..')}/boot-artifacts/ie-1", f"{HERE.replace('ie-1', 'ie-1%2f..')}/boot-artifacts/initrd",
    f"{HERE}/hosts/%ff%fe/instructions", f"/{'a' * 9000}", "/\x00", "/ü",
]).map(str.encode)  # fmt: skip
LINES = st.one_of(
    TOKENS.map(lambda token: b"X-Secret-Key: " + token.encode()),
    st.sampled_from([
        b"Host: hub", b"Host: a\r\nHost: b", b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: 5, 6",
        b"Content-Length: 99999999999999999999", b"Content-Length: 70000", b"Content-Length: 0x5", b"Content-Length:",
        b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked, chunked", b"Transfer-Encoding: x",
        b"Content-Encoding: gzip", b"Expect: 100-continue", b"Expect: more", b"Connection: upgrade",
        b"Upgrade: websocket", b"Connection: keep-alive, close", b"Range: bytes=0-", b"Range: bytes=-1",
        b"Range: bytes=9-2", b"Range: bytes=99999999999999999999-", b"Range: lines=1", b"Range: bytes=0-1,3-4",
        b"If-Range: x", b"If-None-Match: *", b"If-Modified-Since: yesterday", b" folded: x", b"no colon",
        b": nameless", b"X: " + b"y" * 9000, b"X\x00: y", b"X: \xff\xfe", b"Cookie: a=" + b"b" * 500,
    ]),
)  # fmt: skip
JUNK = st.sampled_from([
    b"", b"[" * 3000, b"5\r\nhello\r\n0\r\n\r\n", b"ffffffffffffffffff\r\n", b"5;" + b"x" * 9000, b"0\r\nX: y\r\n\r\n",
    b"\x1f\x8b" + b"\x00" * 50, b"-1\r\n\r\n", b"5\r\nhelloo", b"zz\r\n", b"\r\n", b"hello",
])  # fmt: skip
BODIES = st.one_of(
    JUNK,
    st.binary(max_size=80),
    st.sampled_from([b'{"host_id": "host-9"}', b'{"step_type": "progress", "step_id": "x"}']),
)
VERSIONS = st.sampled_from([b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9", b"", b"ICY"])


def _request(parts: tuple[bytes, bytes, bytes, list[bytes], bytes]) -> bytes:
    method, place, version, lines, body = parts
    return END.join([method + b" " + place + b" " + version, *lines, b"", body])


REQUESTS = st.tuples(METHODS, PLACES, VERSIONS, st.lists(LINES, max_size=5), BODIES).map(_request)
# Who holds a host's token, and says nothing that could be an answer.
HOLDERS = st.tuples(
    st.just(b"POST"),
    st.just(INSTRUCTIONS.encode()),
    st.just(b"HTTP/1.1"),
    st.lists(LINES, max_size=3).map(lambda lines: [b"Host: hub", b"X-Secret-Key: " + HOST_TOKEN.encode(), *lines]),
    JUNK,
).map(_request)
HALF_AN_ANSWER = (
    f"POST {INSTRUCTIONS} HTTP/1.1\r\nHost: hub\r\nX-Secret-Key: {HOST_TOKEN}\r\nContent-Length: 9\r\n\r\nx"
)


def _cut(parts: tuple[bytes, int, bytes, int]) -> bytes:
    """A request with something else in the middle of it, and perhaps not whole."""
    request, at, junk, left = parts
    at %= len(request) + 1
    return request[:at] + junk + request[at + left :]


SAID = st.one_of(
    REQUESTS,
    HOLDERS,
    st.lists(REQUESTS, min_size=2, max_size=3).map(b"".join),
    st.tuples(REQUESTS, st.integers(0, 10_000), st.binary(max_size=6), st.integers(0, 6)).map(_cut),
    st.binary(max_size=300),
)


@pytest.mark.parametrize("many", [30, pytest.param(600, marks=pytest.mark.full)])
def test_no_bytes_of_a_stranger_crash_the_hub_write_or_get_in(
    many: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Every example is some strangers at once. Afterwards the hub answers as ever, and no connection is left."""
    for module, name in ((listener_module, "SILENT"), (hub_module, "PATIENCE"), (listener_module, "LINGERS")):
        monkeypatch.setattr(module, name, 0.1)
    (tmp_path / "ie-1").mkdir()
    (tmp_path / "ie-1" / "initrd").write_bytes(SECRET)
    (tmp_path / "ie-1" / "kernel").write_bytes(b"everybody's")
    there = sorted(tmp_path.rglob("*"))
    inside = Inside()
    troubles: list[object] = []

    async def say(port: int, said: bytes, pieces: int = 1, leaves: bool = False) -> bytes:
        """In so many pieces; who leaves does not wait for an answer."""
        size = len(said) // pieces + 1
        async with connected(port) as (reader, writer):
            for piece in range(pieces):
                writer.write(said[piece * size : (piece + 1) * size])
                with suppress(ConnectionError):
                    await writer.drain()
                await asyncio.sleep(0.005 if leaves or pieces > 1 else 0)
            return b"" if leaves else await all_said(reader)

    async def run(strangers: list[tuple[bytes, int, bool]]) -> list[bytes]:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
        hub = hub_with(tmp_path, connections=64, agents=inside)
        async with listening(hub) as port:
            heard = await asyncio.gather(*(say(port, *one) for one in strangers))
            kernel = f"GET {HERE}/boot-artifacts/kernel HTTP/1.0\r\n\r\n".encode()
            async with asyncio.timeout(90):  # with so little patience, a busy machine may need to ask again
                while b"everybody's" not in await say(port, kernel):
                    await asyncio.sleep(0.05)
            await until(lambda: len(hub.connections) == 0, "everybody is gone")
            assert (hub._at_once, dict(hub._downloads)) == (0, {})
            return heard

    @settings(max_examples=examples(many))
    @given(st.lists(st.tuples(SAID, st.integers(1, 3), st.booleans()), min_size=1, max_size=12))
    @example([(b"", 1, False), (b"\r\n" * 100, 1, False), (b"GET / HTTP/1.1\r\n\r\n", 1, False)])
    @example([(b"CONNECT \r\n\r\n", 1, False), (b"CONNECT \n\r\n", 1, True)])  # no URL at all
    @example([(HALF_AN_ANSWER.encode(), 1, False), (HALF_AN_ANSWER.encode(), 1, True)])
    def strangers(said: list[tuple[bytes, int, bool]]) -> None:
        for one, heard in zip(said, asyncio.run(run(said)), strict=True):
            statuses = {int(found) for found in re.findall(rb"HTTP/1\.[01] ([0-9]{3})", heard)}
            assert not {status for status in statuses if status >= 500} - {503}, (one, heard)
            assert SECRET not in heard, one
        assert (inside.reached, troubles) == ([], [])
        assert [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR] == []

    strangers()
    assert sorted(tmp_path.rglob("*")) == there
