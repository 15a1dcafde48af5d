"""A machine that waits looks again every half minute: at the caches, not at the API server, and writes what is new."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.events import Recorder
from hostler.kube.metrics import Metrics
from hostler.kube.queue import Queue
from hostler.kube.writer import Writer
from hostler.metal.controller import WAITING_SECONDS
from hostler.metal.model import Cluster, Host, Machine, Metal3Machine
from hostler.metal.room import MetalRoom
from hostler.settings.metal import SETTINGS
from hostler.settings.resolve import resolve
from tests.unit.test_kube_events import Here
from tests.unit.test_metal_choose import host
from tests.unit.test_metal_decide import IMAGE, cluster, owner
from tests.unit.test_metal_remediation import merged

PATH = "/apis/infrastructure.cluster.x-k8s.io/v1beta2/namespaces/n/metal3machines/m"
MACHINE = {
    "metadata": {
        "name": "m", "namespace": "n", "uid": "u", "resourceVersion": "100", "generation": 1,
        "ownerReferences": [{"kind": "Machine", "name": "m"}],
    },
    "spec": {"image": IMAGE},
}  # fmt: skip


class Waiting:
    """The whole room with caches filled by hand, a clock of its own, and a server that has one machine."""

    def __init__(self) -> None:
        self.now, self.version = 100.0, 1
        self.machine: dict[str, Any] = MACHINE
        self.asked: list[tuple[str, str]] = []  # every request, whatever it is
        self.looks: list[str] = []

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, request.path))
        self.version += 1
        self.machine = merged(self.machine, await request.json())
        self.machine["metadata"]["resourceVersion"] = str(100 + self.version)
        return web.json_response(self.machine)

    @asynccontextmanager
    async def room(self) -> AsyncIterator[MetalRoom]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.serve)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        metrics = Metrics()
        async with Client(Here(f"http://127.0.0.1:{runner.addresses[0][1]}"), timeout=5) as client:
            writer = Writer(client, "metal", gate=lambda: None, budget=WriteBudget(10_000))
            room = MetalRoom(
                client, lambda _: writer, Recorder(writer, "me", metrics), resolve({}, {}, table=SETTINGS),
                metrics=metrics, as_leader=lambda reconcile: reconcile,
            )  # fmt: skip
            machines = room.controllers()[0]
            machines.queue = Queue(clock=lambda: self.now)
            room.claims._clock = lambda: self.now
            look = machines._reconcile

            async def counted(key: str) -> float | None:
                self.looks.append(key)
                return await look(key)

            machines._reconcile = counted
            machines._workers = 1  # then whoever was due before is done
            for watch in room.watches():
                watch.store.synced = True
            room.listen()
            working = asyncio.create_task(machines.run())
            try:
                yield room
            finally:
                machines.stop()
                await working
                await room.close()
        await runner.cleanup()

    async def passes(self, room: MetalRoom, seconds: float) -> int:
        """Time passes, and everything is looked at that is due by then; how often the machine was looked at so far."""
        self.now += seconds
        before = self.looks.count("n/bell")
        room.controllers()[0].queue.add("n/bell")  # who sleeps in real time is woken to see it
        async with asyncio.timeout(60):
            while self.looks.count("n/bell") == before:
                await asyncio.sleep(0.005)
        return self.looks.count("n/m")

    def put(self, room: MetalRoom, record: Host | Machine | Cluster) -> None:
        self.version += 1
        meta = msgspec.structs.replace(record.metadata, resource_version=str(self.version))
        store: Any = {
            Host: room.caches.hosts, Machine: room.caches.capi_machines, Cluster: room.caches.capi_clusters,
        }[type(record)].store  # fmt: skip
        store.put(msgspec.structs.replace(record, metadata=meta))

    def says(self) -> str:
        (condition,) = [one for one in self.machine["status"]["conditions"] if one["type"] == "AssociateBareMetalHost"]
        return str(condition["message"])


def test_a_waiting_machine_looks_again_writes_only_other_words_and_asks_the_api_server_nothing() -> None:
    async def story() -> None:
        world = Waiting()
        async with world.room() as room:
            for record in (owner(), cluster(), host("h", "provisioning")):
                world.put(room, record)
            room.caches.machines.store.put(msgspec.convert(MACHINE, Metal3Machine))
            first = await world.passes(room, 0)
            assert "not available yet" in world.says()
            written = [("PATCH", f"{PATH}/status")]
            assert world.asked == written
            for number in range(1, 11):
                assert await world.passes(room, WAITING_SECONDS - 1) == first + number - 1, "not sooner"
                assert await world.passes(room, 1) == first + number
            assert world.asked == written, "nothing was new, so nothing was written; and what is read is the caches"
            world.put(room, host("h", status={"operationalStatus": "error", "errorType": "power error"}))
            assert await world.passes(room, 0) == first + 10, "a host that is not free wakes nobody"
            assert "not available yet" in world.says()
            await world.passes(room, WAITING_SECONDS)
            assert "some report an error" in world.says(), "the reason of today"
            assert world.asked == written * 2
            await world.passes(room, WAITING_SECONDS)
            await world.passes(room, WAITING_SECONDS)
            assert world.asked == written * 2, "and no more"

    asyncio.run(story())
