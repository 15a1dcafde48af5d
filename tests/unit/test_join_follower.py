"""Following a spoke: what of all spokes fits into memory, and what is explained about an unusable kubeconfig."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from hostler.apis.capi import CLUSTER
from hostler.apis.fleet import Fleet
from hostler.join.spoke_follower import MOST_KEPT, MOST_NODES, NODE_BYTES, Follower, Hub, Standing
from hostler.join.spokes import Spoke, trim_node
from hostler.join.status import SpokeMetrics
from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.clusters import Clusters
from hostler.kube.events import Recorder
from hostler.kube.kinds import FLEET
from hostler.kube.memory_shares import Shares, WeighedStore, size_of
from hostler.kube.metrics import Metrics
from hostler.kube.records import CONTROL_PLANE, Node
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from tests.unit.answering import answering
from tests.unit.joining import POLICY

IMAGES = [{"names": [f"registry.example/app-{number}@sha256:{'0' * 64}"], "sizeBytes": 1} for number in range(120)]


def node(name: str, version: int = 1, **labels: str) -> dict[str, Any]:
    """A Node as large as they are: most of it is the list of images."""
    known = {f"example.org/label-{number}": "value" * 8 for number in range(30)}
    condition = {"type": "Ready", "status": "True", "message": "kubelet is posting ready status" * 4}
    addresses = [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": name}]
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), "labels": known | labels,
                     "annotations": {"example.org/long": "x" * 4096}},
        "status": {"addresses": addresses, "conditions": [condition] * 6, "images": IMAGES},
    }  # fmt: skip


def line(type: str, body: Mapping[str, Any]) -> bytes:
    return json.dumps({"type": type, "object": body}).encode() + b"\n"


class World:
    """A hub with kubeconfig Secrets, and the spokes they lead to, all on one port."""

    def __init__(self, nodes: Mapping[str, int], kubeconfigs: Mapping[str, str] | None = None) -> None:
        self.nodes, self.kubeconfigs = nodes, kubeconfigs or {}
        self.port = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.port = request.url.port or 0
        if "/secrets/" in request.path:
            return self._secret(request.path.rpartition("/")[2])
        spoke = request.path.split("/")[1]
        response = web.StreamResponse()
        await response.prepare(request)
        if request.path.endswith("/nodes"):
            for number in range(self.nodes[spoke]):
                await response.write(line("ADDED", node(f"node-{number}", number + 1)))
        end = {"resourceVersion": "1000000", "annotations": {"k8s.io/initial-events-end": "true"}}
        await response.write(line("BOOKMARK", {"metadata": end}))
        await asyncio.sleep(60)
        return response

    def _secret(self, name: str) -> web.Response:
        if name == "unread":
            said = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcd is away"}
            return web.json_response(said, status=500)
        known = json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}/{name}"}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        })  # fmt: skip
        text = self.kubeconfigs.get(name, known)
        data = {"value": base64.b64encode(text.encode()).decode()}
        return web.json_response({"metadata": {"name": name, "namespace": "t"}, "data": data})


def follow(world: World, *names: str, most: int = MOST_KEPT) -> list[Follower]:
    """Follow these spokes until each stands somewhere; the followers afterwards."""

    async def run() -> list[Follower]:
        async with answering(world.answer) as client:
            hub = hub_of(client, most)
            followers = [Follower(Spoke(CLUSTER, "t", one, "uid", one), hub, lambda: None) for one in names]
            tasks = [asyncio.create_task(one.run()) for one in followers]
            try:
                async with asyncio.timeout(120):
                    while any(one.standing is Standing.CONNECTING for one in followers):
                        await asyncio.sleep(0.02)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await hub.clusters.close()
            return followers

    return asyncio.run(run())


def hub_of(client: Client, most: int) -> Hub:
    metrics = Metrics()
    writer = Writer(client, "join", gate=lambda: None, budget=WriteBudget(100), dry_run=True)
    fleet: Watch[Fleet] = Watch(client, FLEET, Fleet, metrics=metrics)
    fleet.absent = True
    return Hub(
        Clusters(client), {}, fleet, POLICY, lambda _: writer, lambda one: one, Recorder(writer, "me", metrics),
        metrics, Metrics(), SpokeMetrics(metrics), Shares(most),
    )  # fmt: skip


def test_a_spoke_with_thousands_of_nodes_is_followed() -> None:
    (follower,) = follow(World({"large": 3000}), "large")
    assert follower.standing is Standing.FOLLOWED


def test_as_many_nodes_fit_as_are_promised() -> None:
    body = json.dumps(node("node-1")).encode()
    assert len(body) > 15_000, "a small node would prove nothing"
    assert MOST_NODES * len(body) < NODE_BYTES
    assert MOST_NODES * size_of(trim_node(msgspec.json.decode(body, type=Node))) < MOST_KEPT // 4


def test_the_largest_spoke_is_dropped_and_the_others_stay() -> None:
    followers = follow(World({"small": 20, "large": 2000, "tiny": 1}), "small", "large", "tiny", most=1 << 20)
    standings = {one.spoke.name: one.standing for one in followers}
    assert standings == {"small": Standing.FOLLOWED, "large": Standing.NO_ROOM, "tiny": Standing.FOLLOWED}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60)), max_size=40))
def test_all_shares_together_never_pass_the_limit(adds: list[tuple[int, int]]) -> None:
    shares, dropped = Shares(100), list[int]()
    held = {number: shares.open(lambda number=number: dropped.append(number)) for number in range(6)}  # type: ignore[misc]
    for number, size in adds:
        before = set(dropped)
        held[number].add(size)
        assert shares.total == sum(one.size for name, one in held.items() if name not in dropped) <= 100
        for gone in set(dropped) - before:
            assert all(held[gone].size >= one.size for name, one in held.items() if name not in dropped)


def test_a_store_counts_what_it_keeps() -> None:
    store: WeighedStore[Node] = WeighedStore()
    large = msgspec.convert(node("node-1", 5), Node)
    store.put(large)
    store.put(large)
    assert store.size == size_of(large) > 4096
    store.begin_sync()
    store.put(msgspec.convert(node("node-1", 3), Node))
    assert store.size == 2 * size_of(large), "an older version is kept until the listing ends"
    store.end_sync(9)
    store.unread("node-1", 10, "why")
    assert size_of("node-1") < store.size < 4096


def test_what_the_rules_read_of_a_node_is_kept() -> None:
    found = trim_node(msgspec.convert(node("node-1", 7, **{CONTROL_PLANE[0]: "true"}), Node))
    assert (found.metadata.name, found.metadata.uid, found.metadata.resource_version) == ("node-1", "uid-node-1", "7")
    assert set(found.metadata.labels) == {CONTROL_PLANE[0]}
    assert [one.address for one in found.status.addresses] == ["10.0.0.1", "node-1"]


@pytest.mark.parametrize(
    "text", ["current-context: PASSWORD", "- PASSWORD", "users: [{name: PASSWORD, user: {exec: 1}}]"]
)
def test_no_text_of_a_kubeconfig_is_explained(text: str) -> None:
    (follower,) = follow(World({}, {"wrong": text}), "wrong")
    assert follower.standing is Standing.NO_KUBECONFIG
    assert "PASSWORD" not in follower.why
    assert "cannot be used; the operator's log says why" in follower.why


def test_a_kubeconfig_that_cannot_be_read_is_not_wrong() -> None:
    (follower,) = follow(World({}), "unread")
    assert follower.standing is Standing.KUBECONFIG_UNREAD
