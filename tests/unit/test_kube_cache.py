"""A cache says when it is complete, and shows what our own writes made of an object."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from hostler.kube.budget import WriteBudget
from hostler.kube.cache import Cache, Unread, first_unread
from hostler.kube.client import Client
from hostler.kube.errors import Conflict, Unreachable, WriteRefused
from hostler.kube.kinds import FLEET, NODE, POD
from hostler.kube.records import Metadata, Node, Pod, PodMetadata, is_deleted
from hostler.kube.writer import Writer
from tests.unit.kube_connection import Here

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
Story = Callable[[Cache[Node], Client], Awaitable[None]]


def node(version: int, **metadata: object) -> Node:
    return Node(metadata=Metadata(name="n", resource_version=str(version), **metadata))  # type: ignore[arg-type]


def writer_of(client: Client, *, dry_run: bool = False, held: str | None = None) -> Writer:
    return Writer(client, "test", gate=lambda: held, budget=WriteBudget(), dry_run=dry_run)


def play(answer: Answer, story: Story) -> None:
    """`answer` is the API server's; the cache has version 5 of one node."""

    async def run() -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        cache = Cache(NODE, Node)
        cache.store.put(node(5))
        try:
            async with Client(Here(f"http://127.0.0.1:{runner.addresses[0][1]}"), timeout=5) as client:
                await story(cache, client)
        finally:
            await runner.cleanup()

    asyncio.run(run())


def seen(cache: Cache[Node]) -> str:
    found = cache.store.get("n")
    return found.metadata.resource_version if found is not None else "none"


async def changed(_: web.Request) -> web.StreamResponse:
    return web.json_response({"metadata": {"name": "n", "resourceVersion": "7"}})


async def never_sent(_: web.Request) -> web.StreamResponse:
    raise AssertionError("nothing may be sent")


def test_a_patch_shows_its_answer_at_once() -> None:
    async def story(cache: Cache[Node], client: Client) -> None:
        written = await cache.patch(writer_of(client), "n", {}, why="test")
        assert written is not None
        assert (written.metadata.resource_version, seen(cache)) == ("7", "7")

    play(changed, story)


def test_what_was_created_or_read_afresh_is_shown() -> None:
    async def story(cache: Cache[Node], client: Client) -> None:
        cache.store.remove(node(6))
        await cache.create(writer_of(client), {"metadata": {"name": "n"}}, why="test")
        assert seen(cache) == "7"
        cache.store.remove(node(7))
        cache.store.version = 6
        await cache.read(client, "n")
        assert seen(cache) == "7"

    play(changed, story)


def test_a_dry_run_shows_nothing() -> None:
    async def story(cache: Cache[Node], client: Client) -> None:
        assert await cache.patch(writer_of(client, dry_run=True), "n", {}, why="test") is None
        assert seen(cache) == "5"

    play(never_sent, story)


def test_a_closed_gate_shows_nothing() -> None:
    async def story(cache: Cache[Node], client: Client) -> None:
        with pytest.raises(WriteRefused):
            await cache.patch(writer_of(client, held="paused"), "n", {}, why="test")
        assert seen(cache) == "5"

    play(never_sent, story)


def test_a_conflict_shows_nothing() -> None:
    async def refuse(_: web.Request) -> web.StreamResponse:
        body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409}
        return web.json_response(body, status=409)

    async def story(cache: Cache[Node], client: Client) -> None:
        with pytest.raises(Conflict):
            await cache.patch(writer_of(client), "n", {}, why="test")
        assert seen(cache) == "5"

    play(refuse, story)


def test_an_answer_that_was_cut_off_shows_nothing() -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "500"})
        await answer.prepare(request)
        await answer.write(b'{"metadata": {"name": "n", "resourceVersion": "7"')
        assert request.transport is not None
        request.transport.close()
        return answer

    async def story(cache: Cache[Node], client: Client) -> None:
        with pytest.raises(Unreachable):
            await cache.patch(writer_of(client), "n", {}, why="test")
        assert seen(cache) == "5"

    play(cut, story)


def test_an_object_that_lost_its_last_finalizer_does_not_come_back() -> None:
    async def deleted(_: web.Request) -> web.StreamResponse:
        metadata = {"name": "n", "resourceVersion": "7", "deletionTimestamp": "2026-01-01T00:00:00Z"}
        return web.json_response({"metadata": metadata})

    async def story(cache: Cache[Node], client: Client) -> None:
        written = await cache.patch(writer_of(client), "n", {}, why="test")
        assert written is not None
        assert seen(cache) == "5", "the watch takes it away"

    play(deleted, story)


def test_deleted_is_what_is_being_deleted_and_has_no_finalizer() -> None:
    assert not is_deleted(Metadata())
    assert not is_deleted(Metadata(deletion_timestamp="now", finalizers=("x",)))
    assert is_deleted(Metadata(deletion_timestamp="now"))
    assert not is_deleted(PodMetadata(deletion_timestamp="now")), "a pod ends gracefully"


def test_the_first_cache_that_is_not_complete_is_named() -> None:
    nodes, pods = Cache(NODE, Node), Cache(POD, Pod)
    assert first_unread([nodes, pods]) == Unread(NODE)
    nodes.store.synced = True
    assert str(first_unread([nodes, pods])) == "pods are still being read"
    pods.problem = "may not watch pods"
    assert str(first_unread([nodes, pods])) == "may not watch pods"
    pods.store.synced = True
    assert first_unread([nodes, pods]) is None


def test_a_single_object_is_called_by_its_kind() -> None:
    assert str(Unread(FLEET, only=True)) == "the Fleet is still being read"
