"""What a person's own drain may do: nothing on what it does not know."""

from __future__ import annotations

import asyncio

import pytest

from hostler.cli.drain import Asked, Standing
from hostler.fleet.model import Fleet
from hostler.host.holds import Patch, place
from hostler.kube.client import Client
from hostler.kube.kinds import FLEET, NODE
from hostler.kube.metrics import Metrics
from hostler.kube.records import Metadata, Node, NodeSpec
from hostler.kube.watch import FRESH_SECONDS, Watch
from tests.unit.nowhere import Nowhere


@pytest.mark.parametrize(
    ("silent", "may"), [(None, "nothing was heard of it"), (1.0, ""), (FRESH_SECONDS + 1, "nothing was heard of it")]
)
def test_a_node_nobody_has_heard_of_for_long_may_not_be_ours_any_more(silent: float | None, may: str) -> None:
    """Somebody may have released it since: then evicting goes on for ever, as the scheduler sends new pods."""
    asked = Asked("w1", "x", 60.0, beyond_ceiling=False, even_if_paused=True, dry_run=False)
    plain = Node(metadata=Metadata(name="w1", resource_version="1"))
    held = place(plain, "me", "x", 0.0)
    assert isinstance(held, Patch)
    notes = held.body["metadata"]["annotations"]

    async def run() -> str | None:
        metrics = Metrics()
        async with Client(Nowhere()) as client:
            node = Watch(client, NODE, Node, metrics=metrics, clock=lambda: 1000.0)
            fleet = Watch(client, FLEET, Fleet, metrics=metrics)
            metadata = Metadata(name="w1", resource_version="2", annotations=notes)
            node.store.put(Node(metadata=metadata, spec=NodeSpec(unschedulable=True)))
            if silent is not None:
                node.heard = 1000.0 - silent
            return Standing(node, fleet).refusal(asked, "me")

    said = asyncio.run(run())
    assert (said is None) == (may == "")
    assert may in (said or "")
