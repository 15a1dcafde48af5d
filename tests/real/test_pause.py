"""The stop button under load: every write of every capability ends within a second, by the audit log."""

from __future__ import annotations

import asyncio
import contextlib
import urllib.request
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from hostler.cli.pause_objects import create_pause, delete_pauses
from hostler.host.holds import HOLDS, Hold, write
from hostler.install.apply import install
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.kinds import NODE
from hostler.kube.records import Node
from hostler.sandbox import Sandbox
from tests.real.auditing import who
from tests.real.conftest import Eventually
from tests.real.operating import Running, operator

NODES = 6
ALLOWED_SECONDS = 1.0
# What goes on: the lease, and the one status that says that it is paused.
GOES_ON = {("leases", None), ("fleets", "status")}


@pytest.fixture
def fleet(sandbox: Sandbox) -> Iterator[None]:
    async def ready() -> None:
        async with Client(load(str(sandbox.kubeconfig))) as client:
            await install(client)

    asyncio.run(ready())
    sandbox.kubectl("delete", "fleets,pauses", "--all")
    yield
    sandbox.kubectl("delete", "fleets,pauses", "--all")


@pytest.fixture
def running(sandbox: Sandbox, fleet: None, namespace: str, tmp_path: Path) -> Iterator[Running]:
    with operator(sandbox, tmp_path, namespace, "--max-unavailable", "100%") as started:
        started.said("leading")
        yield started


async def uncordon_for_ever(client: Client, nodes: list[str]) -> None:
    """Somebody uncordons held nodes again and again, under ever new holds: the operator has to cordon each again."""
    for number in range(1_000_000):
        for name in nodes:
            hold = Hold(f"test-{number}", "it is held", "2026-01-01T00:00:00Z", cordoned_before=False)
            body = {"metadata": {"annotations": {HOLDS: write((hold,))}}, "spec": {"unschedulable": None}}
            await client.patch(NODE, name, body, type=Node)
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def busy(client: Client, nodes: list[str]) -> Any:
    task = asyncio.create_task(uncordon_for_ever(client, nodes))
    yield
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def when(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def writes(sandbox: Sandbox, user: str) -> list[dict[str, Any]]:
    """What the operator sent that changes something, as the API server saw it."""
    return [
        one
        for one in sandbox.audit(user)
        if who(one) == user
        and one["verb"] not in ("get", "list", "watch")
        and one["stage"] == "ResponseComplete"
        and (one["objectRef"]["resource"], one["objectRef"].get("subresource")) not in GOES_ON
    ]


def lag(running: Running) -> float:
    """How long the machine has let the operator wait for its turn, at worst: a busy one is not its fault."""
    with urllib.request.urlopen(f"{running.url}/metrics", timeout=60) as page:
        lines = page.read().decode().splitlines()
    return max(float(line.split()[1]) for line in lines if line.startswith("hostler_loop_lag_worst_seconds "))


def test_every_write_stops_within_a_second_and_comes_back(
    sandbox: Sandbox, running: Running, make_node: Callable[..., str], eventually: Eventually
) -> None:
    nodes = [make_node() for _ in range(NODES)]

    async def story() -> tuple[str, str, float]:
        async with Client(load(str(sandbox.kubeconfig))) as client, busy(client, nodes):
            await asyncio.to_thread(eventually, lambda: len(writes(sandbox, running.user)) > 20, 60, "it is at work")
            pressed = await create_pause(client, why="test", wait=30)
            await asyncio.sleep(4)  # the load goes on; this is the silence that is measured below
            waited = await asyncio.to_thread(lag, running)
            lifted = await delete_pauses(client, every=False, wait=30)
            count = len(writes(sandbox, running.user))
            await asyncio.to_thread(eventually, lambda: len(writes(sandbox, running.user)) > count + 5, 60, "again")
            return pressed.why, lifted.why, waited

    pressed, lifted, waited = asyncio.run(story())
    assert "has stopped writing" in pressed
    assert "writes again" in lifted
    button = [
        one
        for one in sandbox.audit("pauses")
        if one["objectRef"].get("resource") == "pauses"
        and one["verb"] in ("create", "delete")
        and one["stage"] == "ResponseComplete"
        and one["responseStatus"]["code"] < 300
    ]
    # From the answer to the press until the lift arrives: the operator may hear of it before its answer is logged.
    down, up = when(button[-2]["stageTimestamp"]), when(button[-1]["requestReceivedTimestamp"])
    between = [when(one["requestReceivedTimestamp"]) - down for one in writes(sandbox, running.user)]
    late = sorted(after for after in between if ALLOWED_SECONDS + waited < after < up - down)
    assert late == []
    # So that this test can fail: there were writes right before, and there are again after.
    assert any(-10.0 < after <= 0 for after in between)
    assert any(after > up - down for after in between)
