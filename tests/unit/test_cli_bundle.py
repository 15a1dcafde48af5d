"""The logs in a bundle: of every container, and of those that crashed; what has none costs the others nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from hostler.capabilities import BY_NAME, CAPABILITIES, read_settings
from hostler.cli.bundle import gather, logs_of
from hostler.cli.bundle_objects import listings_of
from hostler.explain.wire import VERSION_HEADER
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


def lacking(status: int, said: str, *, on: bool) -> list[str]:
    """What a bundle lacks whose operator has maintenance on or off, where every other path answers with `status`."""

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/v1/status":
            capabilities = [{"name": "maintenance", "enabled": on}]
            return web.json_response({"status": {"capabilities": capabilities}}, headers={VERSION_HEADER: "1"})
        if request.path in ("/version", "/v1/config"):
            return web.json_response({"a": "b"}, headers={VERSION_HEADER: "1"})
        body = {"kind": "Status", "code": status, "reason": said, "message": "no"}
        return web.json_response(body, status=status)

    async def go() -> list[str]:
        async with answering(answer) as client:
            settings = read_settings({"operator": client.connection.server}, {})
            return (await gather(client, settings))[1]

    return asyncio.run(go())


def test_a_bundle_lacks_only_what_should_be_there() -> None:
    always = [
        *(f"kubernetes/{name}.json" for name in ("nodes", "deployments", "pods", "events-here", "events")), "logs.txt",
    ]  # fmt: skip
    may_not_exist = {f"kubernetes/{name}.json" for name in ("fleet", "pauses", "lease", "stopped-vms")}
    asked = [f"operator/{name}.json" for name in ("hosts", "operations", "history")]
    assert lacking(404, "NotFound", on=False) == [*always, *asked]
    assert lacking(404, "NotFound", on=True) == [*always, "operator/maintenance.json", *asked]
    forbidden = set(lacking(403, "Forbidden", on=False))
    assert forbidden == {*always, *may_not_exist, *asked}, "a right that is missing is no excuse"
    assert {"objects/machines.cluster.x-k8s.io.json"} <= set(lacking(403, "Forbidden", on=True)) - forbidden


def test_a_bundle_has_the_kinds_of_what_is_on_and_no_secrets() -> None:
    metal = {listing.resource for listing in listings_of({"metal"}, "h")}
    assert {"baremetalhosts.metal3.io", "metal3machines.infrastructure.cluster.x-k8s.io"} <= metal
    every = listings_of(BY_NAME, "h")
    assert {"agents.agent-install.openshift.io", "certificatesigningrequests.certificates.k8s.io"} <= {
        listing.resource for listing in every
    }
    assert "secrets" not in {listing.resource for listing in every}
    assert len({listing.file for listing in every}) == len(every)
    for one in CAPABILITIES:
        if not one.always:
            assert listings_of({one.name}, "h"), f"{one.name} has objects"
