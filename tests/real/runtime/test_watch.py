"""The watch cache against the real API server, through a proxy that breaks the connection in every way.

Every story ends the same: what the cache holds is equal to what the API server says, record by record.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hostler.kube import kinds
from hostler.kube.client import Client, How
from hostler.kube.config import load
from hostler.kube.errors import AlreadyExists, ApiError, Unreachable
from hostler.kube.kinds import CONFIG_MAP, NODE, POD, SECRET, Kind
from hostler.kube.lease import Leadership
from hostler.kube.metrics import Metrics
from hostler.kube.records import Object, key_of
from hostler.kube.store import Store
from hostler.kube.watch import Watch
from hostler.sandbox.life import Sandbox
from tests.real.proxy import Proxy

NAMESPACE = "watch-faults"
CLUSTER_ROLE = Kind("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False)
THING = Kind("nowhere.example.com", "v1", "things", "Thing", True)


def answer(status: bytes, body: bytes, more: bytes = b"") -> bytes:
    """What somebody between us and the API server says in its place."""
    return b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b\r\n%b" % (
        status, len(body), more, body,
    )  # fmt: skip


GONE = answer(b"410 Gone", b'{"kind":"Status","reason":"Expired","message":"the token is too old","code":410}')
EMPTY = answer(b"200 OK", b"")
NO_BACKEND = answer(b"404 Not Found", b"default backend - 404")
NO_ROUTE = answer(b"404 Not Found", b"404 page not found\n")  # to the letter what an API server says of no such kind
OLD = answer(b"426 Upgrade Required", b"")  # as Envoy says
BUSY = answer(b"429 Too Many Requests", b"busy", b"Retry-After: nan\r\n")


@asynccontextmanager
async def proxied(sandbox: Sandbox) -> AsyncIterator[tuple[Client, Proxy, Client]]:
    """A client straight to the API server, the proxy, and a client through it."""
    connection = load(str(sandbox.layout.kubeconfig), None)
    credentials = await connection.credentials()
    assert credentials.ssl is not None
    async with Client(connection) as direct:
        await namespace(direct)
        async with Proxy(connection.server, credentials.ssl).serve() as proxy, Client(proxy.connection) as through:
            yield direct, proxy, through


async def namespace(client: Client) -> None:
    try:
        await client.create(kinds.NAMESPACE, {"metadata": {"name": NAMESPACE}}, type=Object)
    except AlreadyExists:
        pass


@asynccontextmanager
async def following(*parts: Watch[Any] | Leadership) -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.create_task(one.run()) for one in parts]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def truth(client: Client, kind: Kind, namespace: str | None) -> dict[str, str]:
    found = await client.list(kind, namespace, type=Object)
    return {key_of(one.metadata): one.metadata.resource_version for one in found}


def held(store: Store[Object]) -> dict[str, str]:
    return {key_of(one.metadata): one.metadata.resource_version for one in store}


async def settles(watch: Watch[Object], client: Client, namespace: str | None, seconds: float = 60) -> None:
    """Wait until the cache equals the truth; a comparison that never holds fails with the difference."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        have, want = held(watch.store), await truth(client, watch.kind, namespace)
        if have == want and watch.store.synced:
            return
        if asyncio.get_running_loop().time() > deadline:
            wrong = {key for key in have.keys() | want.keys() if have.get(key) != want.get(key)}
            pytest.fail(f"{watch.kind.resource}: {len(wrong)} differ after {seconds:g} s, such as {sorted(wrong)[:3]}")
        await asyncio.sleep(0.1)


async def churn(client: Client, rounds: int, names: int, *, pause: float = 0.0) -> None:
    """Create, change and delete ConfigMaps and Secrets at random; outages of the API server are waited out."""
    dice = random.Random(7)
    for _ in range(rounds):
        kind = dice.choice((CONFIG_MAP, SECRET))
        name = f"c{dice.randrange(names)}"
        try:
            await random_write(client, kind, name, dice)
        except Unreachable:
            await asyncio.sleep(0.2)
        except ApiError as error:
            if error.code not in (404, 409, 429, 500, 503, 504, 403):
                raise
        if pause:
            await asyncio.sleep(pause)


async def random_write(client: Client, kind: Kind, name: str, dice: random.Random) -> None:
    body = {"metadata": {"name": name, "labels": {"value": str(dice.randrange(1000))}}}
    match dice.randrange(4):
        case 0:
            await client.create(kind, body, NAMESPACE, type=Object)
        case 1:
            await client.delete(kind, name, NAMESPACE)
        case _:
            await client.patch(kind, name, body, NAMESPACE, type=Object)


def two_kinds(client: Client, *, stall: float = 90.0, streaming: bool = True) -> list[Watch[Object]]:
    return [
        Watch(client, kind, Object, metrics=Metrics(), namespace=NAMESPACE, stall=stall, streaming=streaming)
        for kind in (CONFIG_MAP, SECRET)
    ]


def enough_cuts(proxy: Proxy) -> bool:
    """Each of the two watched collections was cut two hundred times in the middle of an answer."""
    return len(proxy.cuts) == 2 and min(proxy.cuts.values()) >= 200


def test_two_hundred_cuts_at_random_bytes_lose_nothing(sandbox: Sandbox) -> None:
    async def story() -> None:
        async with proxied(sandbox) as (direct, proxy, through):
            dice = random.Random(1)
            proxy.reset = lambda: dice.random() < 0.5
            watches = [watch for _ in range(5) for watch in two_kinds(through)]
            async with following(*watches):
                for watch in watches:
                    await asyncio.wait_for(watch.synced.wait(), 90)
                # From here on every watch dies after a few hundred bytes, in the middle of whatever is on the wire.
                proxy.watch_budget = lambda: dice.randrange(200, 4000)
                proxy.cut_all()
                while not enough_cuts(proxy):
                    await churn(direct, 50, 20)
                proxy.watch_budget = lambda: None
                for watch in watches:
                    await settles(watch, direct, NAMESPACE)

    asyncio.run(story())


def test_a_stalled_connection_is_noticed_and_replaced(sandbox: Sandbox) -> None:
    async def story() -> None:
        async with proxied(sandbox) as (direct, proxy, through):
            watches = two_kinds(through, stall=1.0)
            async with following(*watches):
                for watch in watches:
                    await asyncio.wait_for(watch.synced.wait(), 90)
                before = proxy.connections
                proxy.stalled = True
                await churn(direct, 40, 10)
                async with asyncio.timeout(60):
                    while proxy.connections < before + len(watches):  # it is silent, so they try another
                        await asyncio.sleep(0.05)
                proxy.stalled = False
                for watch in watches:
                    await settles(watch, direct, NAMESPACE)

    asyncio.run(story())


def test_paged_lists_with_delays_and_cuts_end_equal_too(sandbox: Sandbox) -> None:
    async def story() -> None:
        async with proxied(sandbox) as (direct, proxy, through):
            dice = random.Random(2)
            proxy.delay = 0.01
            metrics = Metrics()
            watches = [
                Watch(through, kind, Object, metrics=metrics, namespace=NAMESPACE, streaming=False, page=7)
                for kind in (CONFIG_MAP, SECRET)
            ]
            for number in range(10):
                await apply(direct, f"page{number}", {"metadata": {"name": f"page{number}"}})
            proxy.once["configmaps?limit=7&continue="] = GONE  # between two pages: what was listed begins anew
            async with following(*watches):
                await asyncio.wait_for(watches[0].synced.wait(), 90)
                assert not proxy.once
                assert told_gone(metrics) == {"configmaps"}
                proxy.watch_budget = lambda: dice.randrange(200, 3000)
                await churn(direct, 300, 30)
                proxy.watch_budget = lambda: None
                for watch in watches:
                    await settles(watch, direct, NAMESPACE)

    asyncio.run(story())


@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "pages"])
@pytest.mark.parametrize(
    "spoilt",
    [(b'"metadata":', b'"metadata"?'), (b'"resourceVersion":', b'"resourceWersion":')],
    ids=["no json", "no version"],
)
def test_answers_nobody_can_read_are_survived(sandbox: Sandbox, streaming: bool, spoilt: tuple[bytes, bytes]) -> None:
    async def story() -> None:
        async with proxied(sandbox) as (direct, proxy, through):
            await apply(direct, "whole", {"metadata": {"name": "whole"}})
            proxy.spoilt = spoilt
            watches = two_kinds(through, streaming=streaming)
            async with following(*watches) as tasks:
                await troubled(*watches)
                assert not any(task.done() for task in tasks), "a broken answer must not end the following"
                assert not any(watch.synced.is_set() for watch in watches), "nothing of it is believed"
                proxy.spoilt = None
                proxy.cut_all()
                for watch in watches:
                    await settles(watch, direct, NAMESPACE)
                    await untroubled(watch)
                # The same to a cache that was complete: what it holds is old from now on, and it says so.
                proxy.spoilt = spoilt
                proxy.cut_all()
                await apply(direct, "whole", {"metadata": {"name": "whole", "labels": {"seen": "not-yet"}}})
                await troubled(watches[0])
                heard, asked = watches[0].heard, proxy.requests
                async with asyncio.timeout(60):
                    while proxy.requests < asked + 3:  # it goes on trying
                        await asyncio.sleep(0.02)
                assert watches[0].heard == heard, "an answer nobody can read confirms nothing"
                proxy.spoilt = None
                for watch in watches:
                    await settles(watch, direct, NAMESPACE)

    asyncio.run(story())


async def troubled(*watches: Watch[Any], by: str = "") -> None:
    async with asyncio.timeout(60):
        while not all(watch.problem and by in watch.problem for watch in watches):
            await asyncio.sleep(0.02)


async def untroubled(watch: Watch[Any]) -> None:
    async with asyncio.timeout(60):
        while watch.problem:
            await asyncio.sleep(0.02)


def test_what_stands_before_the_api_server_is_not_taken_for_it(sandbox: Sandbox) -> None:
    """A load balancer without a backend says that there is nothing, or says nothing at all; neither empties a cache."""

    async def story() -> None:
        async with proxied(sandbox) as (direct, proxy, through):
            await apply(direct, "whole", {"metadata": {"name": "whole"}})
            core, grouped, absent = watches = [
                Watch(through, kind, Object, metrics=Metrics(), namespace=None)
                for kind in (CONFIG_MAP, CLUSTER_ROLE, THING)
            ]
            async with following(*watches) as tasks:
                for watch in watches:
                    await asyncio.wait_for(watch.synced.wait(), 90)
                assert (core.absent, grouped.absent, absent.absent) == (False, False, True)
                assert absent.not_in_step() is None, "a kind that is not installed is knowledge"
                for instead, core_says, grouped_says in (
                    (NO_BACKEND, "is not the API server: default", "is not the API server: default"),
                    (NO_ROUTE, "is not the API server: 404", "not a whole API server"),
                    (BUSY, "busy", "busy"),
                ):
                    proxy.instead = instead
                    proxy.cut_all()
                    await troubled(core, by=core_says)
                    await troubled(grouped, by=grouped_says)
                    assert core.store.get(f"{NAMESPACE}/whole") is not None
                    assert len(grouped.store)
                    assert (core.absent, grouped.absent) == (False, False)
                proxy.instead = None
                for watch in (core, grouped):
                    await untroubled(watch)
                # A watch that ends at once, in good order, is no reason to come straight back for ever.
                proxy.instead = EMPTY
                proxy.cut_all()
                before = proxy.connections
                await asyncio.sleep(1.5)
                assert proxy.connections - before < 100
                proxy.instead = None
                assert not any(task.done() for task in tasks)
                await settles(core, direct, None)

    asyncio.run(story())


def test_who_stands_before_the_api_server_need_not_speak_the_old_http(sandbox: Sandbox) -> None:
    async def story() -> None:
        async with proxied(sandbox) as (direct, proxy, through):
            await apply(direct, "whole", {"metadata": {"name": "whole"}})
            for refused in ("HTTP/1.0", "HTTP/1.1"):  # and back: what is asked for is never given up
                proxy.always = {refused: OLD}
                proxy.cut_all()
                watch = Watch(through, CONFIG_MAP, Object, metrics=Metrics(), namespace=NAMESPACE)
                async with following(watch):
                    await asyncio.wait_for(watch.synced.wait(), 90)
                    await settles(watch, direct, NAMESPACE)

    asyncio.run(story())


def told_gone(metrics: Metrics) -> set[str]:
    """The kinds whose watch was answered 410."""
    return {
        sample.labels["kind"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "hostler_watch_restarts_total" and sample.labels["why"] == "gone" and sample.value
    }


def test_compaction_gives_410_and_the_cache_lists_again(sandbox: Sandbox) -> None:
    async def story() -> None:
        async with proxied(sandbox) as (direct, proxy, through):
            metrics = Metrics()
            watches = [
                Watch(through, kind, Object, metrics=metrics, namespace=None, stall=5.0)
                for kind in (CONFIG_MAP, SECRET, NODE, POD)
            ]
            async with following(*watches):
                for watch in watches:
                    await asyncio.wait_for(watch.synced.wait(), 90)
                proxy.refusing = True
                proxy.cut_all()
                await churn(direct, 60, 20)
                await asyncio.to_thread(sandbox.compact_etcd)
                proxy.refusing = False
                # A cache may equal the truth before its watch is back: wait until each was told 410, then compare.
                async with asyncio.timeout(90):
                    while told_gone(metrics) != {watch.kind.resource for watch in watches}:
                        await asyncio.sleep(0.1)
                for watch in watches:
                    await settles(watch, direct, None)

    asyncio.run(story())


def test_memory_does_not_grow_over_many_broken_listings(sandbox: Sandbox) -> None:
    """After a warm-up, three hundred listings cut half-way leave no more memory behind than thirty did."""

    async def story() -> None:
        async with proxied(sandbox) as (direct, proxy, through):
            for number in range(150):
                body = {"metadata": {"name": f"m{number}"}, "data": {"x": "y" * 2000}}
                await apply(direct, f"m{number}", body)
            dice = random.Random(3)
            proxy.watch_budget = lambda: dice.randrange(10_000, 300_000)
            watches = two_kinds(through)

            async def listings(cuts: int) -> int:
                """Fresh watches again and again until the proxy has cut this often; then the memory in use."""
                until = proxy.cuts.total() + cuts
                while proxy.cuts.total() < until:
                    async with following(*(watch for _ in range(5) for watch in two_kinds(through))):
                        await asyncio.sleep(0.5)
                gc.collect()
                return resident_kib()

            first = await listings(30)
            last = await listings(300)
            assert last - first < 8 * 1024, f"grew from {first} to {last} KiB"
            proxy.watch_budget = lambda: None
            async with following(*watches):
                for watch in watches:
                    await settles(watch, direct, NAMESPACE)

    asyncio.run(story())


async def apply(client: Client, name: str, body: Mapping[str, object]) -> None:
    await client.patch(CONFIG_MAP, name, body, NAMESPACE, type=Object, how=How.APPLY, force=True)


def resident_kib() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def test_an_object_that_does_not_decode_is_counted_and_named_and_the_rest_goes_on(sandbox: Sandbox) -> None:
    class Odd(Object, frozen=True):
        """A record that cannot read every ConfigMap: `data.size` must be a number here."""

        data: dict[str, int] = {}  # noqa: RUF012 (msgspec copies it)

    async def story() -> None:
        async with proxied(sandbox) as (direct, _, through):
            metrics = Metrics()
            watch = Watch(through, CONFIG_MAP, Odd, metrics=metrics, namespace=NAMESPACE, labels="odd=yes")
            labels = {"odd": "yes"}
            await apply(direct, "odd-bad", {"metadata": {"name": "odd-bad", "labels": labels}, "data": {"size": "x"}})
            await apply(direct, "odd-good", {"metadata": {"name": "odd-good", "labels": labels}})
            async with following(watch):
                await asyncio.wait_for(watch.synced.wait(), 90)
                assert list(watch.store.keys()) == [f"{NAMESPACE}/odd-good"]
                assert list(watch.store.unreadable) == [f"{NAMESPACE}/odd-bad"]
                assert "int" in watch.store.unreadable[f"{NAMESPACE}/odd-bad"]
                text = metrics.text().decode()
                assert 'hostler_decode_failures_total{kind="configmaps"} 1.0' in text
                assert 'hostler_objects_unreadable{kind="configmaps"} 1.0' in text
                await direct.delete(CONFIG_MAP, "odd-bad", NAMESPACE)
                async with asyncio.timeout(60):
                    while watch.store.unreadable:
                        await asyncio.sleep(0.05)
                assert 'hostler_objects_unreadable{kind="configmaps"} 0.0' in metrics.text().decode()

    asyncio.run(story())
