"""The API server is killed and stays away for thirty seconds: caches, a leader and a whole operator outlive it.

One outage for all three: it is everybody's API server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.lease import Leadership
from hostler.sandbox import Sandbox
from tests.real.conftest import Eventually
from tests.real.operating import Running, hostler, operator
from tests.real.runtime.test_lease import QUICK
from tests.real.runtime.test_watch import NAMESPACE, churn, following, namespace, settles, two_kinds, untroubled


def test_an_api_server_dead_for_thirty_seconds_is_survived(
    sandbox: Sandbox, home: str, tmp_path: Path, make_node: Callable[..., str], eventually: Eventually
) -> None:
    node = make_node()
    with operator(sandbox, tmp_path, home) as running:
        running.said("leading")
        asyncio.run(outage(sandbox, home, running))
        running.ready()
        assert hostler(sandbox.kubeconfig, "hold", node, "--why", "after the outage").returncode == 0
        sandbox.kubectl("uncordon", node)
        eventually(lambda: sandbox.get("node", node)["spec"].get("unschedulable"), 90, "the operator acts again")
        assert hostler(sandbox.kubeconfig, "release", node).returncode == 0


async def outage(sandbox: Sandbox, space: str, running: Running) -> None:
    async with Client(load(str(sandbox.layout.kubeconfig), None)) as client:
        await namespace(client)
        watches = two_kinds(client)
        leader = Leadership(client, "another", space, identity="first", timing=QUICK)
        async with following(leader, *watches), asyncio.timeout(300):
            for watch in watches:
                await watch.synced.wait()
            await leader.until_held()
            sandbox.kill("kube-apiserver")
            try:
                await leader.until_lost()
                assert "could not be renewed in time" in (leader.gate() or "")
                await asyncio.to_thread(running.said, "not leading")
                await asyncio.sleep(30)
                assert running.process.poll() is None
                assert all(watch.problem for watch in watches), "a dead API server must be said"
            finally:
                await asyncio.to_thread(sandbox.start, "kube-apiserver")
                await asyncio.to_thread(sandbox.wait_ready)
            await churn(client, 60, 20)
            for watch in watches:
                await settles(watch, client, NAMESPACE)
                await untroubled(watch)
            await leader.until_held()
