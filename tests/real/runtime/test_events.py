"""Events as the real API server takes them and as `kubectl` shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.events import Recorder
from hostler.kube.kinds import CONFIG_MAP, EVENT, NODE
from hostler.kube.metrics import Metrics
from hostler.kube.records import Object
from hostler.kube.writer import Writer
from hostler.sandbox import Sandbox


class Stage:
    """A recorder on the real API server."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.metrics = Metrics()
        self.now = 0.0
        writer = Writer(client, "events", gate=lambda: None, budget=WriteBudget(1000, 1000))
        self.recorder = Recorder(writer, "me", self.metrics, clock=lambda: self.now)

    async def flush(self) -> None:
        """Let the recorder write all that is due."""
        self.now += 1000  # every pause between two writes of one series is over
        async with asyncio.timeout(90):
            while self.recorder._waiting:
                await self.recorder._step()

    async def object(self, kind: Any, name: str, namespace: str | None = None) -> Object:
        return await self.client.get(kind, name, namespace, type=Object)


def play(sandbox: Sandbox, story: Callable[[Stage], Awaitable[None]]) -> None:
    async def go() -> None:
        async with Client(load(str(sandbox.layout.kubeconfig), None)) as client:
            await story(Stage(client))

    asyncio.run(go())


def events(sandbox: Sandbox, namespace: str, reason: str) -> list[dict[str, Any]]:
    found = sandbox.read(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
    return [event for event in found if event["reason"] == reason]


def test_repeats_are_one_object_with_a_count(sandbox: Sandbox, namespace: str) -> None:
    sandbox.kubectl("-n", namespace, "create", "configmap", "subject")

    async def story(stage: Stage) -> None:
        subject = (await stage.object(CONFIG_MAP, "subject", namespace)).metadata
        for rounds in (1, 4, 5):
            for _ in range(rounds):
                stage.recorder.event(
                    CONFIG_MAP, subject, "Warning", "Waited", "Wait", "because it must: ü" + "x" * 2000
                )
            await stage.flush()

    play(sandbox, story)
    (event,) = events(sandbox, namespace, "Waited")
    assert event["series"]["count"] == 10
    assert len(event["note"].encode()) <= 1024
    assert event["regarding"]["name"] == "subject"
    shown = sandbox.kubectl("-n", namespace, "describe", "configmap", "subject")
    assert "because it must" in shown
    assert "x10 over" in shown


def test_a_cluster_scoped_object_is_told_about_in_default(sandbox: Sandbox, make_node: Callable[..., str]) -> None:
    node = make_node()

    async def story(stage: Stage) -> None:
        stage.recorder.event(NODE, (await stage.object(NODE, node)).metadata, "Normal", "LookedAt", "Look", "all well")
        await stage.recorder.stop(within=90)

    play(sandbox, story)
    mine = [event for event in events(sandbox, "default", "LookedAt") if event["regarding"]["name"] == node]
    assert len(mine) == 1
    assert "all well" in sandbox.kubectl("describe", "node", node)


def test_an_event_deleted_meanwhile_is_made_anew(sandbox: Sandbox, namespace: str) -> None:
    sandbox.kubectl("-n", namespace, "create", "configmap", "subject")

    async def story(stage: Stage) -> None:
        subject = (await stage.object(CONFIG_MAP, "subject", namespace)).metadata
        stage.recorder.event(CONFIG_MAP, subject, "Normal", "Again", "Do", "it")
        await stage.flush()
        (event,) = await stage.client.list(EVENT, namespace, type=Object)
        await stage.client.delete(EVENT, event.metadata.name, namespace)
        stage.recorder.event(CONFIG_MAP, subject, "Normal", "Again", "Do", "it")
        await stage.flush()

    play(sandbox, story)
    (event,) = events(sandbox, namespace, "Again")
    assert event["series"]["count"] == 2


def test_a_namespace_that_is_gone_costs_a_count_and_nothing_else(sandbox: Sandbox) -> None:
    async def story(stage: Stage) -> None:
        node = (await stage.client.list(NODE, type=Object))[0].metadata

        class Gone:
            name, namespace, uid, resource_version = "x", "no-such-namespace", node.uid, "1"

        stage.recorder.event(CONFIG_MAP, Gone(), "Normal", "Lost", "Lose", "it")
        await stage.flush()
        dropped = stage.metrics.registry.get_sample_value("hostler_events_dropped_total", {"why": "refused"})
        assert dropped == 1

    play(sandbox, story)
