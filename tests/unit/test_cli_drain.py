"""What a person's own drain may do: nothing on what it does not know."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from hostler.capabilities import read_settings
from hostler.cli.drain import Asked, Standing, drain_nodes
from hostler.host.holds import Patch, place
from hostler.kube.client import Client
from hostler.kube.kinds import NODE
from hostler.kube.metrics import Metrics
from hostler.kube.records import Metadata, Node, NodeSpec
from hostler.kube.watch import FRESH_SECONDS, Watch
from tests.unit.answering import answering
from tests.unit.nowhere import Nowhere


@pytest.mark.parametrize(
    ("silent", "may"), [(None, "nothing was heard of it"), (1.0, ""), (FRESH_SECONDS + 1, "nothing was heard of it")]
)
def test_a_node_nobody_has_heard_of_for_long_may_not_be_ours_any_more(silent: float | None, may: str) -> None:
    """Somebody may have released it since: then evicting goes on for ever, as the scheduler sends new pods."""
    plain = Node(metadata=Metadata(name="w1", resource_version="1"))
    held = place(plain, "me", "x", 0.0)
    assert isinstance(held, Patch)
    notes = held.body["metadata"]["annotations"]

    async def run() -> str | None:
        metrics = Metrics()
        async with Client(Nowhere()) as client:
            node = Watch(client, NODE, Node, metrics=metrics, clock=lambda: 1000.0)
            metadata = Metadata(name="w1", resource_version="2", annotations=notes)
            node.store.put(Node(metadata=metadata, spec=NodeSpec(unschedulable=True)))
            if silent is not None:
                node.heard = 1000.0 - silent
            return Standing(node, None).refusal("w1", "me")

    said = asyncio.run(run())
    assert (said is None) == (may == "")
    assert may in (said or "")


def test_ended_while_the_hold_is_on_its_way_it_says_that_the_node_may_be_held(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = Asked("x", 60.0, beyond_ceiling=True, even_if_paused=True, dry_run=False)

    async def run() -> None:
        written = asyncio.Event()

        async def answer(request: web.Request) -> web.StreamResponse:
            if request.method == "PATCH":
                written.set()
                await asyncio.Event().wait()
            return web.json_response({"metadata": {"name": "w1", "resourceVersion": "1"}})

        async with answering(answer) as client:
            draining = asyncio.create_task(drain_nodes(client, ("w1",), asked, read_settings({}, {}), live=False))
            await written.wait()
            draining.cancel()
            with pytest.raises(asyncio.CancelledError):
                await draining

    asyncio.run(run())
    assert "w1 may be held by now: to put it back into service: hostler release w1" in capsys.readouterr().err
