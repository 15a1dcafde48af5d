"""What a replica answers that has not read the history, over a real socket."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web

from hostler.history.read_api import HistoryReads
from hostler.kube.http import Server
from hostler.kube.metrics import Metrics
from tests.unit.history_world import HistoryWorld

FOLLOWS = "this replica does not lead: the lease is held by pod-2"
READS = "This replica leads and has not read the history yet; ask again in a few seconds."
AWAY = "The history cannot be stored: PostgreSQL does not answer."


@pytest.mark.parametrize(
    ("follows", "trouble", "expected"),
    [
        (FOLLOWS, "", (421, "NotLeading", f"This replica does not answer for the history: {FOLLOWS}.")),
        (None, "", (503, "HistoryUnavailable", READS)),
        (None, AWAY, (503, "HistoryUnavailable", AWAY)),
    ],
    ids=["follower", "leader", "leader whose store is away"],
)
def test_an_unread_history_is_refused_with_the_true_reason(
    follows: str | None, trouble: str, expected: tuple[int, str, str]
) -> None:
    async def admit(_: web.Request) -> None:
        return None

    async def ask() -> tuple[int, str, str]:
        world, server = HistoryWorld(), Server("127.0.0.1", 0, Metrics(), admit=admit)
        HistoryReads(world.store, world.inventory, lambda: (), lambda: trouble, lambda: follows).mount(server)
        await server.start()
        try:
            async with aiohttp.ClientSession() as http, http.get(f"{server.url}/v1/history") as answer:
                refused = await answer.json()
                return answer.status, refused["reason"], refused["message"]
        finally:
            await server.stop()

    assert asyncio.run(ask()) == expected
