"""What reaches the history from the real writer, the real recorder of Events and the API server's answers."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from aiohttp import web

from hostler.history.actions import ActionFeed, Happened
from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.errors import ApiError, Unreachable, WriteRefused
from hostler.kube.events import Recorder
from hostler.kube.kinds import NODE
from hostler.kube.metrics import Metrics
from hostler.kube.records import Metadata, Node
from hostler.kube.writer import Writer
from tests.unit.kube_connection import Here

STATUSES = [200, 500, 403, 409, 200]


async def patched(gates: list[str | None], *, dry_run: bool = False) -> list[Happened]:
    """What a writer reports of one patch of a node after the other; the server answers STATUSES in turn."""
    statuses = iter(STATUSES)

    async def handle(request: web.Request) -> web.Response:
        status = next(statuses)
        return web.json_response(
            {"kind": "Status", "code": status, "message": "No."} if status != 200 else {}, status=status
        )

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    feed = ActionFeed("prod", lambda pod: "", lambda *_: None, lambda: 5.0)
    answers = iter(gates)
    async with Client(Here(f"http://127.0.0.1:{runner.addresses[0][1]}"), timeout=5) as client:
        current: list[str | None] = [None]
        writer = Writer(
            client, "holds", gate=lambda: current[0], budget=WriteBudget(10_000), dry_run=dry_run,
            listener=feed.wrote,
        )  # fmt: skip
        for gate in answers:
            current[0] = gate
            with suppress(ApiError, Unreachable, WriteRefused):
                await writer.patch(NODE, "a", {}, type=Node, why="It is held by ann")
    await runner.cleanup()
    return feed.take()


def test_every_write_is_reported_with_its_result() -> None:
    found = asyncio.run(patched([None, None, None, None, "Paused by ann.", None]))
    assert [one.result for one in found] == ["ok", "500", "403", "refused", "ok"]  # a conflict is no result
    assert {(one.key, one.capability, one.reason) for one in found} == {("node:prod/a", "holds", "PatchNode")}
    assert found[0].sentence == "It is held by ann"
    assert found[3].sentence == "It is held by ann: Paused by ann."


def test_a_dry_run_reports_nothing() -> None:
    assert asyncio.run(patched([None, None], dry_run=True)) == []


def test_an_event_that_tells_a_refusal_is_one() -> None:
    async def story(*, dry_run: bool) -> list[Happened]:
        feed = ActionFeed("prod", lambda pod: "", lambda *_: None, lambda: 5.0)
        async with Client(Here("http://127.0.0.1:9")) as client:
            writer = Writer(client, "fleet", gate=lambda: None, budget=WriteBudget(10_000), dry_run=dry_run)
            recorder = Recorder(writer, "me", Metrics(), listener=feed.refused)
            about = Metadata(name="a", uid="u1")
            recorder.event(NODE, about, "Normal", "Drained", "Maintenance", "It is drained.")
            recorder.event(NODE, about, "Normal", "NoHost", "Maintenance", "No host.", refusing="maintenance")
        return feed.take()

    (found,) = asyncio.run(story(dry_run=False))
    assert (found.key, found.capability, found.reason, found.sentence) == (
        "node:prod/a", "maintenance", "NoHost", "No host.",
    )  # fmt: skip
    assert found.is_refusal
    assert asyncio.run(story(dry_run=True)) == []
