"""Batching on a real socket: a burst comes in few pieces, nothing is lost, and a lone event still wakes us at once."""

from __future__ import annotations

import asyncio

import aiohttp
from aiohttp import web

from hostler.kube.receive_batching import ReceiveBatcher

BURST = 1000


async def stream(request: web.Request) -> web.StreamResponse:
    """A burst of flushed lines, a pause, one lone line, and then silence: the connection stays open."""
    response = web.StreamResponse()
    await response.prepare(request)
    for number in range(BURST):
        await response.write(b"%d\n" % number)
        if number % 10 == 0:
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.3)
    await response.write(b"%d\n" % BURST)
    await asyncio.sleep(30)
    return response


async def read(url: str) -> tuple[list[bytes], int]:
    """Every line up to the lone one, and in how many pieces they came."""
    seen: list[bytes] = []
    pieces = 0
    async with aiohttp.ClientSession() as http, http.get(url) as response:
        batcher, tail = ReceiveBatcher(response), b""
        async for chunk in response.content.iter_any():
            *lines, tail = (tail + chunk).split(b"\n")
            seen += lines
            pieces += 1
            batcher.took(len(lines))
            if len(seen) > BURST:
                return seen, pieces
    raise AssertionError("the stream ended before the lone line")


def test_a_burst_is_taken_in_few_pieces_and_a_lone_line_is_not_held_back() -> None:
    async def story() -> tuple[list[bytes], int]:
        app = web.Application()
        app.router.add_get("/", stream)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            port = runner.addresses[0][1]
            async with asyncio.timeout(20):  # far longer than it takes: a line held back for good would hang here
                return await read(f"http://127.0.0.1:{port}/")
        finally:
            await runner.cleanup()

    seen, pieces = asyncio.run(story())
    assert seen == [b"%d" % number for number in range(BURST + 1)]
    assert pieces < BURST / 10
