"""Holds on the real API server: foreign cordons, several holders, people's hands, and many writers at once."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from hostler.errors import Complaint
from hostler.host.holds import HOLDS
from hostler.host.keeper import OVERRIDDEN, UNREADABLE, Keeper, hold, let_go
from hostler.host.maintenance import STATE
from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.controller import Controller
from hostler.kube.events import Recorder
from hostler.kube.kinds import NODE
from hostler.kube.metrics import Metrics
from hostler.kube.records import Node, Object
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from hostler.sandbox import Sandbox
from tests.real.conftest import Eventually

Make = Callable[..., str]


@dataclass
class Hand:
    """A client and a writer of our own."""

    client: Client
    writer: Writer

    async def hold(self, node: str, holder: str, why: str = "test") -> str:
        return (await hold(self.client, self.writer, node, holder, why, time.time, capabilities=())).why

    async def release(self, node: str, who: str, **how: Any) -> str:
        return (await let_go(self.client, self.writer, node, who, **how)).why


@asynccontextmanager
async def at_hand(sandbox: Sandbox) -> AsyncIterator[Hand]:
    async with Client(load(str(sandbox.kubeconfig))) as client:
        budget = WriteBudget(rate=500, burst=500)
        yield Hand(client, Writer(client, "test", gate=lambda: None, budget=budget))
        await asyncio.sleep(0.25)  # as in draining.py: TLS streams say goodbye first


def cordoned(sandbox: Sandbox, node: str) -> bool:
    return bool(sandbox.read(f"/api/v1/nodes/{node}")["spec"].get("unschedulable", False))


def holders(sandbox: Sandbox, node: str) -> list[str]:
    text = sandbox.read(f"/api/v1/nodes/{node}")["metadata"]["annotations"].get(HOLDS, "[]")
    return [one["holder"] for one in json.loads(text)]


def condition(sandbox: Sandbox, node: str, type: str) -> dict[str, Any]:
    found = sandbox.read(f"/api/v1/nodes/{node}")["status"]["conditions"]
    return next((one for one in found if one["type"] == type), {})


def events(sandbox: Sandbox, node: str, reason: str) -> list[str]:
    path = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{node},reason%3D{reason}"
    return [one["message"] for one in sandbox.read(path)["items"]]


def test_a_foreign_cordon_is_kept(sandbox: Sandbox, make_node: Make) -> None:
    mine, theirs = make_node(), make_node()
    sandbox.kubectl("cordon", theirs)

    async def story() -> None:
        async with at_hand(sandbox) as hand:
            for node in (mine, theirs):
                await hand.hold(node, "alice", "disk")
                assert cordoned(sandbox, node)
            assert await hand.release(mine, "alice") == f"alice released {mine}: it is schedulable again"
            assert await hand.release(theirs, "alice") == (
                f"alice released {theirs}: it stays cordoned, because it was so before us"
            )

    asyncio.run(story())
    assert not cordoned(sandbox, mine)
    assert cordoned(sandbox, theirs)
    for node in (mine, theirs):
        assert HOLDS not in sandbox.read(f"/api/v1/nodes/{node}")["metadata"]["annotations"]


def test_two_holders_and_the_last_one_uncordons(sandbox: Sandbox, make_node: Make) -> None:
    node = make_node()

    async def story() -> None:
        async with at_hand(sandbox) as hand:
            await hand.hold(node, "alice", "disk")
            await hand.hold(node, "bob", "fan")
            with pytest.raises(Complaint, match=r"is held by alice \(disk\), bob \(fan\), not by carol"):
                await hand.release(node, "carol")
            assert await hand.release(node, "alice") == f"alice released {node}: still held by bob (fan)"
            assert cordoned(sandbox, node)
            await hand.release(node, "carol", holder="bob")
            assert not cordoned(sandbox, node)
            with pytest.raises(Complaint, match="There is no node no-such-node in this cluster"):
                await hand.hold("no-such-node", "alice")

    asyncio.run(story())


def test_the_seeds_state_is_a_hold(sandbox: Sandbox, make_node: Make) -> None:
    """The seed's controller cordoned this node; a person's hold that comes and goes must not uncordon it."""
    node = make_node(annotations={STATE: "draining"})
    sandbox.kubectl("cordon", node)

    async def story() -> None:
        async with at_hand(sandbox) as hand:
            await hand.hold(node, "alice")
            await hand.release(node, "alice")
            assert cordoned(sandbox, node)
            with pytest.raises(Complaint, match="is in maintenance"):
                await hand.release(node, "alice", everybody=True)

    asyncio.run(story())


def test_a_storm_of_writers_on_one_node(sandbox: Sandbox, make_node: Make) -> None:
    """Everybody writes the same node at once, and others write it too: nothing is lost, and the end is as before."""
    node, people = make_node(), [f"p{number:02}" for number in range(12)]

    async def labels(hand: Hand, stop: asyncio.Event) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            await hand.client.patch(NODE, node, {"metadata": {"labels": {"storm": str(number)}}}, type=Object)

    async def story() -> None:
        async with at_hand(sandbox) as hand:
            stop = asyncio.Event()
            others = asyncio.create_task(labels(hand, stop))
            await asyncio.gather(*(hand.hold(node, person) for person in people))
            assert sorted(holders(sandbox, node)) == people
            assert cordoned(sandbox, node)
            await asyncio.gather(*(hand.release(node, person) for person in people[1:]))
            assert holders(sandbox, node) == people[:1]
            assert cordoned(sandbox, node)
            await hand.release(node, people[0])
            stop.set()
            await others

    asyncio.run(story())
    assert holders(sandbox, node) == []
    assert not cordoned(sandbox, node)


@asynccontextmanager
async def kept(sandbox: Sandbox) -> AsyncIterator[Hand]:
    """The keeper at work as the operator runs it: a watch, a queue, events."""
    async with at_hand(sandbox) as hand:
        metrics = Metrics()
        watch = Watch(hand.client, NODE, Node, metrics=metrics)
        recorder = Recorder(hand.writer, "test", metrics)
        keeper = Keeper(watch, hand.writer, recorder, time.time)
        controller = Controller("holds", keeper.reconcile, metrics=metrics)
        watch.store.listen(lambda key, _, node: controller.queue.add(key) if node and keeper.concerns(node) else None)
        tasks = [asyncio.create_task(work()) for work in (watch.run, controller.run, recorder.run)]
        await asyncio.wait_for(watch.synced.wait(), 90)
        try:
            yield hand
        finally:
            controller.stop()
            await recorder.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def test_uncordoned_by_hand_it_is_cordoned_again_once_and_then_left(
    sandbox: Sandbox, make_node: Make, eventually: Eventually
) -> None:
    node = make_node()

    async def soon(look: Callable[[], Any], what: str) -> None:
        await asyncio.to_thread(eventually, look, 90, what)

    async def story() -> None:
        async with kept(sandbox) as hand:
            await hand.hold(node, "alice", "disk")
            await asyncio.to_thread(sandbox.kubectl, "uncordon", node)
            await soon(lambda: cordoned(sandbox, node), "it is cordoned again")
            await soon(lambda: events(sandbox, node, "CordonedAgain"), "an event says so")
            await asyncio.to_thread(sandbox.kubectl, "uncordon", node)
            await soon(lambda: condition(sandbox, node, OVERRIDDEN).get("status") == "True", "a condition says so")
            assert not cordoned(sandbox, node)
            said = condition(sandbox, node, OVERRIDDEN)["message"]
            assert said.startswith(f"{node} was uncordoned by hand again while held by alice (disk); it is left")
            await soon(lambda: events(sandbox, node, OVERRIDDEN), "an event says so")
            # The cordon is the people's now: theirs stays when the hold goes.
            await asyncio.to_thread(sandbox.kubectl, "cordon", node)
            await hand.release(node, "alice")
            await soon(lambda: condition(sandbox, node, OVERRIDDEN).get("status") == "False", "the condition ends")

    asyncio.run(story())
    assert cordoned(sandbox, node)
    (again,) = events(sandbox, node, "CordonedAgain")
    assert again.startswith(f"{node} was uncordoned by hand while held by alice (disk), and is cordoned again, once.")


def test_a_list_that_cannot_be_read_is_said_and_nothing_is_touched(
    sandbox: Sandbox, make_node: Make, eventually: Eventually
) -> None:
    node = make_node()

    async def story() -> None:
        async with kept(sandbox) as hand:
            await hand.hold(node, "alice", "disk")
            await asyncio.to_thread(sandbox.kubectl, "annotate", "--overwrite", "node", node, f"{HOLDS}=oops")
            look = lambda: condition(sandbox, node, UNREADABLE).get("status") == "True"  # noqa: E731
            await asyncio.to_thread(eventually, look, 90, "a condition says so")
            for everybody in (True, False):
                with pytest.raises(Complaint, match="cannot be read"):
                    await hand.release(node, "alice", everybody=everybody)
            assert cordoned(sandbox, node)

    asyncio.run(story())
