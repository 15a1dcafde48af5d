"""What viewers of the page cost: bytes while nothing changes, CPU and time of one change. For bench.inventory."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable

from aiohttp import web

from hostler.inventory.service import InventoryService
from hostler.kube.http import Server
from hostler.kube.metrics import Metrics
from hostler.web.stream import HostStream

VIEWERS, IDLE_SECONDS = 50, 45.0


async def watch_stream(service: InventoryService, change: Callable[[int], None]) -> tuple[float, float, float]:
    """Of 50 viewers: bytes a second that one gets while nothing changes, and ms of CPU and ms until the last has it
    of one change."""

    async def admit(_: web.Request) -> None:
        return None

    server = Server("127.0.0.1", 0, Metrics(), admit=admit)
    stream = HostStream(service, lambda: (), lambda: None, admit)
    stream.mount(server)
    await server.start()
    running = asyncio.create_task(stream.run())
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    got, arrived, viewers = [0] * VIEWERS, [0.0] * VIEWERS, []

    async def follow(number: int) -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET /v1/hosts/stream HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        try:
            while piece := await reader.read(1 << 20):
                got[number] += len(piece)
                arrived[number] = time.perf_counter()
        finally:
            writer.close()

    try:
        for number in range(VIEWERS):
            viewers.append(asyncio.create_task(follow(number)))
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)  # until each has the whole picture
        before = sum(got)
        await asyncio.sleep(IDLE_SECONDS)
        idle = (sum(got) - before) / VIEWERS / IDLE_SECONDS
        spent, took = [], []
        for number in range(20):
            arrived[:] = [0.0] * VIEWERS
            cpu, began = time.process_time(), time.perf_counter()
            change(number)
            while not all(arrived):
                await asyncio.sleep(0.005)
            took.append((max(arrived) - began) * 1e3)
            spent.append((time.process_time() - cpu) * 1e3)
            await asyncio.sleep(0.3)
    finally:
        for task in (*viewers, running):
            task.cancel()
        await asyncio.gather(*viewers, running, return_exceptions=True)
        await server.stop()
    return idle, statistics.median(spent), statistics.median(took)
