"""The gate at the last moment: whenever it turns to no before the bytes are out, the server gets nothing."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.errors import WriteRefused
from hostler.kube.kinds import CONFIG_MAP
from hostler.kube.records import Object
from tests.unit.kube_pki import Authority

AUTHORITY = Authority()
SERVER = AUTHORITY.issue("server", "127.0.0.1")


class Turning:
    """Says yes so many times, then no."""

    def __init__(self, yes: int) -> None:
        self.yes = yes
        self.asked = 0

    def __call__(self) -> str | None:
        self.asked += 1
        return None if self.asked <= self.yes else "another replica leads"


@asynccontextmanager
async def served(folder: Path, secure: bool) -> AsyncIterator[tuple[Client, list[str]]]:
    """A client, and what its server has received."""
    got: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        await request.read()
        got.append(request.method)
        return web.json_response({"metadata": {}})

    tls = None
    if secure:
        (folder / "server.pem").write_bytes(SERVER.certificate + SERVER.key)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(folder / "server.pem")
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    cluster = {"server": f"{'https' if secure else 'http'}://127.0.0.1:{runner.addresses[0][1]}"}
    if secure:
        cluster["certificate-authority-data"] = base64.b64encode(AUTHORITY.certificate).decode()
    config = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "x", "context": {"cluster": "c"}}],
        "current-context": "x",
    }
    (folder / "config").write_text(yaml.safe_dump(config))
    async with Client(load(str(folder / "config"), None)) as client:
        yield client, got
    await runner.cleanup()


# One look by the client, one by the body, one by the socket before it sends.
LOOKS = 3


@pytest.mark.parametrize("secure", [True, False])
@pytest.mark.parametrize("yes", range(LOOKS))
def test_a_no_at_any_look_keeps_the_write_from_leaving(tmp_path: Path, secure: bool, yes: int) -> None:
    async def story() -> None:
        async with served(tmp_path, secure) as (client, got):
            gate = Turning(yes)
            writes = client.gated(gate)
            with pytest.raises(WriteRefused, match="another replica leads"):
                await writes.patch(CONFIG_MAP, "x", {"data": {"big": "x" * 100_000}}, "ns", type=Object)
            with pytest.raises(WriteRefused, match="another replica leads"):
                await writes.delete(CONFIG_MAP, "x", "ns")
            await writes.get(CONFIG_MAP, "x", "ns", type=Object)
            assert got == ["GET"], "reads go on, writes do not"

    asyncio.run(story())


@pytest.mark.parametrize("secure", [True, False])
def test_with_a_yes_throughout_it_is_written_and_the_connection_is_free_again(tmp_path: Path, secure: bool) -> None:
    async def story() -> None:
        async with served(tmp_path, secure) as (client, got):
            gate = Turning(LOOKS)
            await client.gated(gate).patch(CONFIG_MAP, "x", {"data": {}}, "ns", type=Object)
            assert gate.asked == LOOKS
            # The same connection, now without a gate or with another's.
            await client.patch(CONFIG_MAP, "x", {"data": {}}, "ns", type=Object)
            await client.gated(lambda: None).delete(CONFIG_MAP, "x", "ns")
            assert got == ["PATCH", "PATCH", "DELETE"]
            assert gate.asked == LOOKS

    asyncio.run(story())


def test_a_refusal_on_a_connection_already_open(tmp_path: Path) -> None:
    async def story() -> None:
        async with served(tmp_path, True) as (client, got):
            await client.get(CONFIG_MAP, "x", "ns", type=Object)
            with pytest.raises(WriteRefused):
                await client.gated(Turning(LOOKS - 1)).patch(CONFIG_MAP, "x", {}, "ns", type=Object)
            await client.get(CONFIG_MAP, "x", "ns", type=Object)
            assert got == ["GET", "GET"]

    asyncio.run(story())
