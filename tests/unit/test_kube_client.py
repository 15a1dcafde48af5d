"""What is asked for in the old HTTP, where somebody in between does not speak it."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web

from hostler.kube.client import Client
from hostler.kube.errors import ApiError, Unreachable
from tests.unit.answering import answering

WATCHES = 6  # an operator has no fewer


async def watched(client: Client) -> bool:
    """Whether one watch was answered."""
    try:
        limit = aiohttp.ClientTimeout(total=10)
        async with client.stream("GET", "/api/v1/nodes", timeout=limit, endless=True) as response:
            return response.status == 200
    except (ApiError, Unreachable):
        return False


@pytest.mark.parametrize("hangs_up", [False, True])
def test_watches_refused_together_are_all_answered_the_second_time(hangs_up: bool) -> None:
    async def story() -> tuple[list[bool], list[bool]]:
        together = asyncio.Barrier(WATCHES)

        async def answer(request: web.Request) -> web.StreamResponse:
            if request.version == aiohttp.HttpVersion11:
                return web.Response(text="{}")
            await together.wait()
            if hangs_up:
                assert request.transport is not None
                request.transport.abort()
            return web.Response(status=426)  # as Envoy says

        async with answering(answer) as client:
            first = await asyncio.gather(*(watched(client) for _ in range(WATCHES)))
            return first, await asyncio.gather(*(watched(client) for _ in range(WATCHES)))

    first, second = asyncio.run(story())
    assert first == [False] * WATCHES
    assert second == [True] * WATCHES
