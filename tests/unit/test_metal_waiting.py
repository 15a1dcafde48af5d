"""A machine that waits looks again every half minute: at the caches, not at the API server, and writes what is new."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web

from hostler.apis import capi
from hostler.apis.capi import Cluster, Machine
from hostler.apis.metal3 import BareMetalHost, Metal3Machine
from hostler.capabilities import read_settings
from hostler.kube.client import Client
from hostler.kube.queue import Queue
from hostler.metal import names
from hostler.metal.capability import MetalCapability
from hostler.metal.decide import WAITING_SECONDS
from tests.sharing import share
from tests.unit.kube_connection import Here
from tests.unit.test_metal_choose import CLUSTER, host
from tests.unit.test_metal_decide import IMAGE, cluster, owner
from tests.unit.test_metal_remediation import merged

PATH = "/apis/infrastructure.cluster.x-k8s.io/v1beta2/namespaces/n/metal3machines/m"
HOSTS = "/apis/metal3.io/v1alpha1/namespaces/n/baremetalhosts"
HOST = f"{HOSTS}/h"
SAID = ("PATCH", f"{PATH}/status")
META = {
    "name": "m", "namespace": "n", "uid": "u", "resourceVersion": "1", "generation": 1,
    "ownerReferences": [{"kind": "Machine", "name": "m"}], "labels": {capi.CLUSTER_NAME: "c"},
}  # fmt: skip


class Waiting:
    """All of metal with caches filled by hand, a clock of its own, and a server that has one machine and one host."""

    def __init__(self) -> None:
        self.now, self.version = 100.0, 1
        self.objects: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str]] = []  # every request, whatever it is
        self.looks: list[str] = []

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, request.path))
        path = request.path.removesuffix("/status")
        if path not in self.objects:
            return web.json_response({"kind": "Status", "reason": "NotFound"}, status=404)
        if request.method == "GET":
            return web.json_response(self.objects[path])
        patch = await request.json()
        known = self.objects[path]["metadata"]["resourceVersion"]
        if patch.get("metadata", {}).get("resourceVersion", known) != known:
            return web.json_response({"kind": "Status", "reason": "Conflict"}, status=409)
        self.objects[path] = merged(self.objects[path], patch)
        return web.json_response(self._versioned(path))

    def _versioned(self, path: str) -> dict[str, Any]:
        self.version += 1
        self.objects[path]["metadata"]["resourceVersion"] = str(self.version)
        return self.objects[path]

    @asynccontextmanager
    async def metal(self) -> AsyncIterator[MetalCapability]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.serve)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with Client(Here(f"http://127.0.0.1:{runner.addresses[0][1]}"), timeout=60) as client:
            metal = MetalCapability(share(client, ["metal"], read_settings({}, {})))
            machines = metal.controllers["metal machines"]
            machines.queue = Queue(clock=lambda: self.now)
            metal.claims._clock = lambda: self.now
            look = machines._reconcile

            async def counted(key: str) -> float | None:
                self.looks.append(key)
                assert len(self.looks) < 500, "it is looked at all the time, and nothing else gets its turn"
                return await look(key)

            machines._reconcile = counted
            machines._workers = 1  # then whoever was due before is done
            for watch in metal.watches():
                watch.store.synced = True
            metal.listen()
            working = asyncio.create_task(machines.run())
            try:
                yield metal
            finally:
                machines.stop()
                await working
                await metal.close()
        await runner.cleanup()

    async def passes(self, metal: MetalCapability, seconds: float) -> int:
        """Time passes, and everything is looked at that is due by then; how often the machine was looked at so far."""
        self.now += seconds
        before = self.looks.count("n/bell")
        metal.controllers["metal machines"].queue.add("n/bell")  # who sleeps in real time is woken to see it
        async with asyncio.timeout(60):
            while self.looks.count("n/bell") == before:
                await asyncio.sleep(0.005)
        return self.looks.count("n/m")

    def put(self, metal: MetalCapability, record: BareMetalHost | Machine | Cluster | Metal3Machine) -> None:
        """The watch has brought it."""
        caches, paths = metal.caches, {BareMetalHost: f"{HOSTS}/{record.metadata.name}", Metal3Machine: PATH}
        watches: dict[Any, Any] = {
            BareMetalHost: caches.hosts, Machine: caches.capi_machines, Cluster: caches.capi_clusters,
            Metal3Machine: caches.machines,
        }  # fmt: skip
        path = paths.get(type(record), "nobody asks for it")
        self.objects[path] = msgspec.to_builtins(record)
        watches[type(record)].store.put(msgspec.convert(self._versioned(path), type(record)))

    def machine(self, metal: MetalCapability, **spec: Any) -> None:
        theirs = msgspec.structs.replace(owner().metadata, labels={names.DEPLOYMENT_NAME: "a"})
        for record in (msgspec.structs.replace(owner(), metadata=theirs), cluster()):
            self.put(metal, record)
        self.put(metal, msgspec.convert({"metadata": META, "spec": {"image": IMAGE, **spec}}, Metal3Machine))

    def consumer(self, name: str = "h") -> str:
        return ((self.objects[f"{HOSTS}/{name}"]["spec"].get("consumerRef") or {}).get("name")) or ""

    def says(self) -> str:
        told = self.objects[PATH]["status"]["conditions"]
        (condition,) = [one for one in told if one["type"] == "AssociateBareMetalHost"]
        return str(condition["message"])


def test_a_waiting_machine_looks_again_writes_only_other_words_and_asks_the_api_server_nothing() -> None:
    async def story() -> None:
        world = Waiting()
        async with world.metal() as metal:
            world.put(metal, host("h", "provisioning"))
            world.machine(metal)
            first = await world.passes(metal, 0)
            assert "not available yet" in world.says()
            assert world.asked == [SAID]
            for number in range(1, 11):
                assert await world.passes(metal, WAITING_SECONDS - 1) == first + number - 1, "not sooner"
                assert await world.passes(metal, 1) == first + number
            assert world.asked == [SAID], "nothing was new, so nothing was written; and what is read is the caches"
            world.put(metal, host("h", status={"operationalStatus": "error", "errorType": "power error"}))
            assert await world.passes(metal, 0) == first + 10, "a host that is not free wakes nobody"
            assert "not available yet" in world.says()
            await world.passes(metal, WAITING_SECONDS)
            assert "some report an error" in world.says(), "the reason of today"
            assert world.asked == [SAID] * 2
            await world.passes(metal, WAITING_SECONDS)
            await world.passes(metal, WAITING_SECONDS)
            assert world.asked == [SAID] * 2, "and no more"

    asyncio.run(story())


def test_a_host_that_becomes_available_is_claimed_with_no_time_passing() -> None:
    async def story() -> None:
        world = Waiting()
        async with world.metal() as metal:
            world.put(metal, host("h", "provisioning"))
            world.machine(metal)
            before = await world.passes(metal, 0)
            world.put(metal, host("h"))
            assert await world.passes(metal, 0) > before, "woken, and not by a timer"
            assert world.consumer() == "m"
            assert world.objects[HOST]["spec"]["image"] == IMAGE
            assert world.objects[PATH]["metadata"]["annotations"] == {"metal3.io/BareMetalHost": "n/h"}
            assert world.asked[:3] == [SAID, ("PATCH", PATH), ("PATCH", HOST)], "the intent before the claim"

    asyncio.run(story())


def test_a_host_that_vanishes_between_the_choice_and_the_claim_is_forgotten_for_another() -> None:
    async def story() -> None:
        world = Waiting()
        async with world.metal() as metal:
            world.put(metal, host("h"))
            del world.objects[HOST]  # and the watch has not told it yet
            world.machine(metal)
            await world.passes(metal, 0)
            assert world.asked[:2] == [("PATCH", PATH), ("PATCH", HOST)]
            assert world.objects[PATH]["metadata"]["annotations"] == {"metal3.io/BareMetalHost": "n/h"}
            metal.caches.hosts.store.forget("n/h", 99)
            world.put(metal, host("h2"))
            for _ in range(3):  # a look that is under way still fails, and comes back a little later
                await world.passes(metal, 1)
            assert world.consumer("h2") == "m"
            assert ("GET", HOST) in world.asked, "what was named before is known to be gone, and not only not seen"

    asyncio.run(story())


def test_a_machine_that_waits_for_its_kept_host_is_not_woken_again_and_again_by_another_that_is_free() -> None:
    async def story() -> None:
        world = Waiting()
        async with world.metal() as metal:
            world.put(metal, host("kept", "deprovisioning", labels={names.NODE_REUSE: "md-a"}, consumer=CLUSTER))
            world.machine(metal)
            first = await world.passes(metal, 0)
            assert "reserved for md-a: kept" in world.says()
            world.put(metal, host("h"))
            assert await world.passes(metal, 0) <= first + 1
            assert world.consumer() == ""
            world.put(metal, host("kept", labels={names.NODE_REUSE: "md-a"}, consumer=CLUSTER))
            await world.passes(metal, 0)
            assert world.consumer("kept") == "m"

    asyncio.run(story())


def test_a_machine_of_a_paused_cluster_is_not_woken_by_hosts_and_gets_one_when_that_ends() -> None:
    async def story() -> None:
        world = Waiting()
        async with world.metal() as metal:
            world.put(metal, host("h", "provisioning"))
            world.machine(metal)
            await world.passes(metal, 0)
            world.put(metal, cluster(paused=True))
            first = await world.passes(metal, 0)
            world.put(metal, host("h"))
            assert await world.passes(metal, 0) == first
            assert world.consumer() == ""
            world.put(metal, cluster())
            await world.passes(metal, 0)
            assert world.consumer() == "m"

    asyncio.run(story())


def test_a_machine_without_its_clusters_label_follows_the_cluster_that_its_machine_names() -> None:
    async def story() -> None:
        world = Waiting()
        async with world.metal() as metal:
            world.put(metal, host("h"))
            bare = {name: value for name, value in META.items() if name != "labels"}
            for record in (owner(), cluster(ready=False)):
                world.put(metal, record)
            world.put(metal, msgspec.convert({"metadata": bare, "spec": {"image": IMAGE}}, Metal3Machine))
            await world.passes(metal, 0)
            assert "infrastructure of Cluster c" in world.says()
            world.put(metal, cluster())
            await world.passes(metal, 0)
            assert world.consumer() == "m"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"image": {"url": "http://x/os.raw"}}, "no checksum"),
        ({"image": {}}, "nothing to provision"),
        ({"userData": {"name": "x", "namespace": "other"}}, "in namespace other"),
        ({"dataTemplate": {"name": "x", "namespace": "other"}}, "in namespace other"),
        ({"hostSelector": {"matchExpressions": [{"key": "k", "operator": "near"}]}}, "operator 'near'"),
        ({"hostSelector": {"matchLabels": {"rack": "9"}}}, "do not meet the selector"),
    ],
)
def test_what_is_wrong_is_said_once_and_no_reason_to_look_all_the_time(spec: dict[str, Any], says: str) -> None:
    async def story() -> None:
        world = Waiting()
        async with world.metal() as metal:
            world.put(metal, host("h"))
            world.machine(metal, **spec)
            looks = await world.passes(metal, 0)
            assert says in world.says()
            for _ in range(10):
                assert await world.passes(metal, (WAITING_SECONDS - 1) / 10) == looks
            await world.passes(metal, 10 * WAITING_SECONDS)
            assert world.asked == [SAID], "once; and the free host was left alone"

    asyncio.run(story())
