"""Which node of a workload cluster a machine is: by its provider id first, which a move leaves as it was."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import msgspec
import pytest
from aiohttp import web

from hostler.apis.metal3 import BareMetalHost, Metal3Machine
from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.clusters import Clusters
from hostler.kube.metrics import Metrics
from hostler.kube.records import Node
from hostler.kube.writer import Writer
from hostler.metal.model import NodeSeen
from hostler.metal.nodes import NodeFinder, find_node
from tests.unit.answering import answering

NOW, BEFORE, OLD = "metal3://n/h/m", "metal3://hu", "metal3://there/h/m"


def node(name: str, provider: str = "", uid: str = "") -> Node:
    labels = {"metal3.io/uuid": uid} if uid else {}
    return msgspec.convert({"metadata": {"name": name, "labels": labels}, "spec": {"providerID": provider}}, Node)


def look(*nodes: Node, provider: str = "", hostname: str = "", cloud: bool = False) -> str:
    """The name of the node, or the sentence why there is none."""
    machine = {"metadata": {"name": "m", "namespace": "n"}, "spec": {"providerID": provider}}
    status: dict[str, Any] = {"hardware": {"hostname": hostname}} if hostname else {}
    host = msgspec.convert({"metadata": {"name": "h", "namespace": "n", "uid": "hu"}, "status": status}, BareMetalHost)
    found = find_node(nodes, msgspec.convert(machine, Metal3Machine), host, cloud_provider=cloud)
    return found if isinstance(found, str) else found.metadata.name


@pytest.mark.parametrize(
    ("nodes", "how", "expected"),
    [
        # The machine has one: exactly that, whatever the label of the host from before says.
        ((node("a", OLD, "old"), node("b", NOW, "hu")), {"provider": OLD}, "a"),
        ((node("a", OLD, "old"),), {"provider": OLD, "cloud": True}, "a"),
        ((node("b", NOW), node("c", "", "old")), {"provider": OLD}, f"no node with provider id {OLD} has come up yet."),
        ((node("b", NOW, "hu"),), {"provider": OLD}, "which is not this machine's"),
        ((node("a", OLD), node("b", OLD)), {"provider": OLD}, f"several nodes carry provider id {OLD}: a, b."),
        ((node("a", "", "hu"),), {"provider": OLD}, "a"),
        # It has none: the one it would get, of this form or the older one.
        ((node("a", NOW), node("b", "", "hu")), {}, "a"),
        ((node("a", BEFORE, "hu"),), {}, "a"),
        ((node("a", NOW), node("b", NOW)), {"cloud": True}, f"several nodes carry provider id {NOW}: a, b."),
        # Then by label, then by name, then the cloud provider is waited for.
        ((node("a", "", "hu"), node("h")), {"hostname": "h"}, "a"),
        ((node("a", "", "hu"), node("b", "", "hu")), {}, "several nodes carry label metal3.io/uuid=hu: a, b."),
        ((node("a", "aws:///x", "hu"),), {}, "node a carries provider id 'aws:///x', which is not this machine's."),
        ((node("h"),), {"hostname": "h"}, "h"),
        ((node("h", "", "other"),), {"hostname": "h"}, "no node with label metal3.io/uuid=hu has come up yet."),
        ((node("h"),), {"hostname": "h", "cloud": True}, "no node with label metal3.io/uuid=hu has come up yet."),
        ((node("a", "", "hu"),), {"cloud": True}, "the cloud provider has not given node a its provider id yet."),
        ((), {}, "no node with label metal3.io/uuid=hu has come up yet."),
    ],
)
def test_which_node_a_machine_is(nodes: tuple[Node, ...], how: dict[str, Any], expected: str) -> None:
    found = look(*nodes, **how)
    assert found == expected or (" " in expected and expected in found), found


def look_together(status: int, machines: int) -> tuple[list[NodeSeen], list[str]]:
    """What so many machines of one cluster see at the same moment, and what was asked for that."""
    asked: list[str] = []
    found = {"items": [{"metadata": {"name": "a"}, "spec": {"providerID": NOW}}]}

    async def answer(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {request.path}")
        if request.path.endswith("/secrets/c-kubeconfig"):
            cluster = {"server": f"http://{request.host}"}
            config = {
                "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
                "clusters": [{"name": "x", "cluster": cluster}], "users": [{"name": "x", "user": {"token": "t"}}],
            }  # fmt: skip
            value = base64.b64encode(json.dumps(config).encode()).decode()
            return web.json_response({"metadata": {"resourceVersion": "1"}, "data": {"value": value}})
        if status != 200:
            return web.json_response({"kind": "Status", "message": "not yours", "code": status}, status=status)
        return web.json_response(found)

    def writer_for(client: Client) -> Writer:
        return Writer(client, "metal", gate=lambda: None, budget=WriteBudget(9, 9), metrics=Metrics())

    async def run() -> list[NodeSeen]:
        async with answering(answer) as client:
            clusters = Clusters(client)
            nodes = NodeFinder(clusters, writer_for)
            machine = msgspec.convert({"metadata": {"name": "m", "namespace": "n"}}, Metal3Machine)
            host = msgspec.convert({"metadata": {"name": "h", "namespace": "n", "uid": "hu"}}, BareMetalHost)
            looks = [nodes.find(machine, host, "c", cloud_provider=False) for _ in range(machines)]
            try:
                return await asyncio.gather(*looks)
            finally:
                await clusters.close()

    return asyncio.run(run()), asked


def test_machines_that_look_at_the_same_moment_share_one_list() -> None:
    """A thousand machines that come up must not have a thousand lists of a thousand nodes made."""
    seen, asked = look_together(200, 20)
    assert seen == [NodeSeen("a", NOW)] * 20
    assert asked.count("GET /api/v1/nodes") == 1, asked


def test_machines_of_a_cluster_that_does_not_answer_share_the_failure() -> None:
    """One after the other they would wait for as many timeouts, and machines of other clusters behind them."""
    seen, asked = look_together(403, 20)
    why = "it answered HTTP 403 (the user of the kubeconfig may not do this)"
    assert seen == [NodeSeen(why=f"its cluster could not be asked for the node: {why}.")] * 20, "in our own words"
    assert asked.count("GET /api/v1/nodes") == 1, asked
