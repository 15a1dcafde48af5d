"""The hub's service on a port of its own, without an API server: for what it refuses, and for artifacts."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from hostler.reclaim.hub.agents import HubAgents
from hostler.reclaim.hub.listener import Listener
from hostler.reclaim.hub.server import BASE, Hub, open_artifacts
from hostler.reclaim.hub.tokens import Keys
from tests.unit.kube_pki import Authority

NOW = 1_000_000.0
KEYS = Keys(Keys.make())
HOST_TOKEN = KEYS.for_host("ns", "ie-1", "env", "host-1", now=NOW, seconds=60)
ENV_TOKEN = KEYS.for_infra_env("ns", "ie-1", "env", now=NOW, seconds=60)
HERE = BASE.format(infra_env="ie-1")
INSTRUCTIONS = f"{HERE}/hosts/host-1/instructions"


def hub_with(artifacts: Path | None, connections: int = 2000, agents: object = None) -> Hub:
    """`agents` stands where Agents are read and written; without one nobody gets as far as that."""
    return Hub(
        cast(HubAgents, agents), lambda: KEYS, open_artifacts(str(artifacts or ""), "http://hub"),
        connections=connections, clock=lambda: NOW,
    )  # fmt: skip


def artifact(folder: Path, name: str = "kernel", size: int = 0) -> None:
    """A file of zeros; of more than buffers take, its sending lasts until somebody reads it."""
    (folder / "ie-1").mkdir(exist_ok=True)
    with (folder / "ie-1" / name).open("wb") as file:
        file.truncate(size)


@dataclass
class Pair:
    """A certificate's files, and who trusts it."""

    certificate: str
    key: str
    trusting: ssl.SSLContext


def pair(folder: Path) -> Pair:
    authority = Authority()
    issued = authority.issue("hub", "127.0.0.1")
    (folder / "tls.crt").write_bytes(issued.certificate)
    (folder / "tls.key").write_bytes(issued.key)
    trusting = ssl.create_default_context(cadata=authority.certificate.decode())
    return Pair(str(folder / "tls.crt"), str(folder / "tls.key"), trusting)


@asynccontextmanager
async def listening(hub: Hub, tls: Pair | None = None) -> AsyncIterator[int]:
    """Its port."""
    listener = Listener(hub, "127.0.0.1", 0, *((tls.certificate, tls.key) if tls is not None else ()))
    await listener.start()
    try:
        yield listener.port
    finally:
        await listener.stop()


@asynccontextmanager
async def connected(
    port: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, limit=1024)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


async def all_said(reader: asyncio.StreamReader) -> bytes:
    """What the other side says until it lets go, however it does."""
    said = b""
    async with asyncio.timeout(60):
        with suppress(OSError):
            while more := await reader.read(1 << 16):
                said += more
    return said


async def until(look: Callable[[], object], what: str) -> None:
    """Until it is true; on a busy machine that may take a while."""
    for _ in range(9000):
        if look():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(what)
