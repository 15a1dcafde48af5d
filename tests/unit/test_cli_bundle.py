"""The logs in a bundle: of every container, and of those that crashed; what has none costs the others nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from hostler.cli.bundle import logs_of
from tests.unit.answering import answering

PODS = "/api/v1/namespaces/h/pods"


def pod(name: str, *containers: str, **restarts: int) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": one} for one in containers]},
        "status": {"containerStatuses": [{"name": one, "restartCount": times} for one, times in restarts.items()]},
    }


def logs(*pods: dict[str, Any]) -> str:
    async def answer(request: web.Request) -> web.Response:
        if request.path == PODS:
            return web.json_response({"metadata": {}, "items": list(pods)})
        name = request.path.removeprefix(f"{PODS}/").removesuffix("/log")
        if name == "waits":
            return web.json_response({"kind": "Status", "code": 400, "message": "it waits for a node"}, status=400)
        asked = request.query
        return web.Response(text=f"{name} {asked['container']} {asked.get('previous', 'now')} {asked['tailLines']}")

    async def go() -> str:
        async with answering(answer) as client:
            return await logs_of(client, "h")

    return asyncio.run(go())


def test_every_container_is_heard_and_the_one_that_crashed_twice() -> None:
    assert logs(pod("a", "hostler", "proxy", hostler=2, proxy=0)).splitlines() == [
        "==> a, hostler, before it restarted",
        "a hostler true 5000",
        "==> a, hostler",
        "a hostler now 5000",
        "==> a, proxy",
        "a proxy now 5000",
    ]


def test_a_pod_without_a_log_costs_the_others_nothing() -> None:
    said = logs(pod("waits", "hostler"), pod("runs", "hostler", hostler=0))
    assert "(no log: " in said
    assert "it waits for a node" in said
    assert "runs hostler now" in said


def test_no_pod_at_all_is_said() -> None:
    assert logs() == "There is no pod in namespace h: the operator runs elsewhere."
