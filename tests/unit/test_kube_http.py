"""Our own port, asked over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import aiohttp
import pytest
from aiohttp import web

import hostler.kube.http as http_module
from hostler.errors import Complaint, Exit
from hostler.kube.http import Server
from hostler.kube.metrics import Metrics

Ask = Callable[[str], Coroutine[Any, Any, tuple[int, str]]]


async def admit_all(_: web.Request) -> None:
    """Who may ask is not the story here."""


def play(story: Callable[[Server, Ask], Awaitable[None]], prepare: Callable[[Server], None] = lambda _: None) -> None:
    async def go() -> None:
        server = Server("127.0.0.1", 0, Metrics(), admit=admit_all, patience=0.5)
        prepare(server)
        await server.start()
        try:
            async with aiohttp.ClientSession() as session:

                async def ask(path: str) -> tuple[int, str]:
                    async with session.get(server.url + path) as response:
                        return response.status, await response.text()

                await story(server, ask)
        finally:
            await server.stop()

    asyncio.run(go())


def test_health_readiness_and_metrics() -> None:
    synced: dict[str, str | None] = {"pods": "not listed yet", "nodes": None}

    def prepare(server: Server) -> None:
        server.ready_if("pods", lambda: synced["pods"])
        server.ready_if("nodes", lambda: synced["nodes"])

    async def story(_: Server, ask: Ask) -> None:
        assert await ask("/healthz") == (200, "ok\n")
        assert await ask("/readyz") == (503, "pods: not listed yet\n")
        synced["pods"] = None
        assert await ask("/readyz") == (200, "ok\n")
        status, page = await ask("/metrics")
        assert status == 200
        assert "hostler_leader 0.0" in page

    play(story, prepare)


def test_something_that_makes_us_unhealthy() -> None:
    async def story(_: Server, ask: Ask) -> None:
        assert await ask("/healthz") == (503, "lag: the loop is stuck\n")

    play(story, lambda server: server.alive_if("lag", lambda: "the loop is stuck"))


def test_what_is_no_request_is_refused_and_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async def story(server: Server, ask: Ask) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\x00: \r\n\r\n")
        assert b" 400 " in await asyncio.wait_for(reader.readline(), 60)
        writer.close()
        await writer.wait_closed()
        assert await ask("/healthz") == (200, "ok\n")

    play(story)
    assert [one.getMessage() for one in caplog.records] == []


@pytest.mark.parametrize("said", [b"CONNECT \r\n\r\n", b"CONNECT \n\r\n", b"CONNECT  \n\r\n\r\n\r\n"])
def test_a_request_without_a_path_is_answered_400(said: bytes, caplog: pytest.LogCaptureFixture) -> None:
    troubles: list[object] = []

    async def story(server: Server, ask: Ask) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(said)
        assert b" 400 " in await asyncio.wait_for(reader.readline(), 60)
        await asyncio.wait_for(reader.read(), 60)  # and it is hung up on
        writer.close()
        assert await ask("/healthz") == (200, "ok\n")

    play(story)
    assert (troubles, [one.getMessage() for one in caplog.records]) == ([], [])


def test_routes_of_others_and_what_they_may_answer() -> None:
    async def explain(request: web.Request) -> web.StreamResponse:
        return web.json_response({"node": request.match_info["name"]})

    async def complain(_: web.Request) -> web.StreamResponse:
        raise Complaint("No such node.", hint="See kubectl get nodes.", code=Exit.REFUSED)

    async def bug(_: web.Request) -> web.StreamResponse:
        raise KeyError("a secret detail")

    async def slow(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        raise AssertionError

    def prepare(server: Server) -> None:
        server.add_get("/v1/explain/{name}", explain)
        server.add_get("/complain", complain)
        server.add_get("/bug", bug)
        server.add_get("/slow", slow)

    async def story(server: Server, ask: Ask) -> None:
        assert await ask("/v1/explain/n1") == (200, '{"node": "n1"}')
        assert await ask("/complain") == (409, "No such node. See kubectl get nodes.\n")
        assert await ask("/bug") == (500, "internal error; see the operator's log\n")
        assert await ask("/slow") == (504, "no answer within 0.5 s\n")
        assert (await ask("/nothing"))[0] == 404
        async with aiohttp.ClientSession() as session, session.post(server.url + "/bug") as response:
            assert response.status == 405

    play(story, prepare)


def test_a_port_in_use_names_the_address_and_the_setting() -> None:
    async def story(server: Server, _: Ask) -> None:
        second = Server("127.0.0.1", server.port, Metrics(), admit=admit_all)
        with pytest.raises(Complaint) as caught:
            await second.start()
        assert str(caught.value) == (
            f"cannot listen on 127.0.0.1:{server.port}: another process already listens there."
            " Set HOSTLER_HTTP_ADDRESS to a free address, or stop what uses this one."
        )
        assert caught.value.code is Exit.SETTING

    play(story)


def test_an_address_this_machine_has_not() -> None:
    with pytest.raises(Complaint, match="this machine has no such address"):
        asyncio.run(Server("192.0.2.1", 8080, Metrics(), admit=admit_all).start())


def test_too_many_at_once_are_told_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "MOST_AT_ONCE", 2)
    held = asyncio.Event()

    async def hold(_: web.Request) -> web.StreamResponse:
        await held.wait()
        return web.Response()

    async def story(_: Server, ask: Ask) -> None:
        both = [asyncio.create_task(ask("/hold")) for _ in range(2)]
        await asyncio.sleep(0.1)
        assert (await ask("/healthz"))[0] == 503
        held.set()
        assert [status for status, _ in await asyncio.gather(*both)] == [200, 200]
        assert (await ask("/healthz"))[0] == 200

    play(story, lambda server: server.add_get("/hold", hold))


async def open_silent(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost:")  # and never the rest
    await writer.drain()
    return reader, writer


def test_who_never_finishes_asking_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "SILENT_SECONDS", 0.2)

    async def story(server: Server, ask: Ask) -> None:
        reader, writer = await open_silent(server)
        assert await ask("/healthz") == (200, "ok\n")
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()

    play(story)


def test_more_connections_than_allowed_are_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "MOST_CONNECTIONS", 3)

    async def story(server: Server, _: Ask) -> None:
        opened: list[Any] = [await open_silent(server) for _ in range(3)]
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        for _, one in [*opened, (reader, writer)]:
            one.close()

    play(story)


def test_a_request_larger_than_any_of_ours_is_refused() -> None:
    async def story(_: Server, ask: Ask) -> None:
        status, _text = await ask("/healthz?" + "x" * 20_000)
        assert status == 400

    play(story)
