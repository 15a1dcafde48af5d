"""Which objects metal looks after, by namespace and by label."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from hostler.apis.capi import Cluster
from hostler.apis.metal3 import BareMetalHost, Metal3Machine
from hostler.apis.metal3_data import Data, DataClaim, DataTemplate
from hostler.kube.client import Client
from hostler.kube.metrics import Metrics
from hostler.kube.namespaced_watch import NamespacedWatch
from hostler.kube.records import Metadata
from hostler.metal.caches import Caches, DataCaches
from hostler.metal.capability import Scoped
from hostler.metal.scope import WATCH_FILTER, Scope
from tests.unit.nowhere import Nowhere

MINE = {WATCH_FILTER: "mine"}
GROUP = "infrastructure.cluster.x-k8s.io/v1beta2"


@pytest.mark.parametrize(
    ("scope", "labels", "words"),
    [
        (Scope(), {}, ""),
        (Scope(namespaces=("n",)), {}, ""),
        (Scope(namespaces=("a", "b")), {}, "HOSTLER_METAL_NAMESPACES is a and b"),
        (Scope(watch_filter="mine"), MINE, ""),
        (Scope(watch_filter="mine"), {}, f"lacks label {WATCH_FILTER}=mine"),
        (Scope(watch_filter="mine"), {WATCH_FILTER: "yours"}, f"has label {WATCH_FILTER}=yours"),
        (Scope(("a",), "mine"), MINE, "Namespace n is out of scope"),
    ],
)
def test_an_object_outside_says_why(scope: Scope, labels: dict[str, str], words: str) -> None:
    why = scope.why_outside(Metadata(name="x", namespace="n", labels=labels))
    assert words in why
    assert bool(why) is bool(words)


class Room:
    """Caches with a watch filter, and objects in them."""

    def __init__(self, client: Client, scope: Scope) -> None:
        metrics = Metrics()
        self.caches, self.data = Caches.make(client, metrics, scope), DataCaches.make(client, metrics, scope)
        self.scoped = Scoped(self.caches, self.data)
        self._version = 0

    def meta(self, name: str, **more: Any) -> dict[str, Any]:
        self._version += 1
        return {"name": name, "namespace": "n", "resourceVersion": str(self._version), **more}

    def host(self, *, consumer: str = "", **meta: Any) -> None:
        spec = {"consumerRef": {"apiVersion": GROUP, "kind": "Metal3Machine", "name": consumer, "namespace": "n"}}
        body = {"metadata": self.meta("h", **meta), "spec": spec if consumer else {}}
        self.caches.hosts.store.put(msgspec.convert(body, BareMetalHost))

    def machine(self, **meta: Any) -> None:
        self.caches.machines.store.put(msgspec.convert({"metadata": self.meta("m", **meta)}, Metal3Machine))

    def claim(self, **meta: Any) -> None:
        owner = {"apiVersion": GROUP, "kind": "Metal3Machine", "name": "m", "uid": "u"}
        body = {"metadata": self.meta("m", ownerReferences=[owner], **meta)}
        self.data.claims.store.put(msgspec.convert(body, DataClaim))


@asynccontextmanager
async def room(scope: Scope) -> AsyncIterator[Room]:
    async with Client(Nowhere()) as client:
        yield Room(client, scope)


def in_room(work: Callable[[Room], None], scope: Scope | None = None) -> None:
    async def run() -> None:
        async with room(scope or Scope(watch_filter="mine")) as made:
            work(made)

    asyncio.run(run())


def test_a_machine_counts_by_its_own_label() -> None:
    def work(made: Room) -> None:
        outside = made.scoped.by_label(made.caches.machines.store)
        assert outside("n/m") == "", "one that is gone is forgotten by whoever knew it"
        made.machine()
        assert "lacks label" in outside("n/m")
        made.machine(labels=MINE)
        assert outside("n/m") == ""

    in_room(work)


def test_a_host_counts_by_its_machine_else_by_its_cluster() -> None:
    def work(made: Room) -> None:
        made.host(consumer="m", labels=MINE)
        made.machine()
        assert "lacks label" in made.scoped.host("n/h"), "the machine of another provider has it"
        made.machine(labels=MINE)
        made.host(consumer="m")
        assert made.scoped.host("n/h") == ""
        made.host()
        assert "lacks label" in made.scoped.host("n/h")
        made.host(labels={"cluster.x-k8s.io/cluster-name": "c"})
        cluster = {"metadata": made.meta("c", labels=MINE)}
        made.caches.capi_clusters.store.put(msgspec.convert(cluster, Cluster))
        assert made.scoped.host("n/h") == "", "it is kept for the next machine of that Cluster"

    in_room(work)


def test_data_counts_with_the_machine_it_is_for() -> None:
    def work(made: Room) -> None:
        made.machine()
        made.claim()
        spec = {"claim": {"name": "m", "namespace": "n"}}
        made.data.datas.store.put(msgspec.convert({"metadata": made.meta("t-0"), "spec": spec}, Data))
        made.data.templates.store.put(msgspec.convert({"metadata": made.meta("t")}, DataTemplate))
        for key in ("claim:n/m", "data:n/t-0", "template:n/t"):
            assert "lacks label" in made.scoped.data(key), key
        made.machine(labels=MINE)  # as the Go provider left them: the label is on the machine alone
        assert made.scoped.data("claim:n/m") == made.scoped.data("data:n/t-0") == ""

    in_room(work)


def test_nothing_is_reconciled_out_of_scope() -> None:
    async def run() -> None:
        looked: list[str] = []

        async def look(key: str) -> float | None:
            looked.append(key)
            return 1.0

        async with room(Scope(watch_filter="mine")) as made:
            only = made.scoped.only(look, made.scoped.by_label(made.caches.machines.store))
            made.machine()
            assert await only("n/m") is None
            made.machine(labels=MINE)
            assert await only("n/m") == 1.0
            assert looked == ["n/m"]
        async with room(Scope()) as made:
            assert made.scoped.only(look, made.scoped.host) is look

    asyncio.run(run())


def test_each_kind_is_followed_in_the_namespaces_alone() -> None:
    def work(made: Room) -> None:
        for watch in (*made.caches.all(), *made.data.all()):
            assert isinstance(watch, NamespacedWatch)
            assert len(watch.parts) == 2

    in_room(work, Scope(namespaces=("a", "b")))
