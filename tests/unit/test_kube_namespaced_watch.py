"""One store over several namespaces: complete when all of them are, each at a version of its own."""

from __future__ import annotations

import asyncio

from hostler.kube.client import Client
from hostler.kube.kinds import POD
from hostler.kube.metrics import Metrics
from hostler.kube.namespaced_watch import NamespacedWatch, UnionStore
from hostler.kube.records import Pod, PodMetadata, PodSpec
from tests.unit.nowhere import Nowhere


def pod(key: str, version: int, node: str = "n1") -> Pod:
    namespace, _, name = key.partition("/")
    metadata = PodMetadata(name=name, namespace=namespace, resource_version=str(version))
    return Pod(metadata=metadata, spec=PodSpec(node_name=node))


def union() -> UnionStore[Pod]:
    return UnionStore(("a", "b"), {"node": lambda one: (one.spec.node_name,)})


def list_into(store: UnionStore[Pod], namespace: str, *pods: Pod, version: int) -> None:
    part = store.parts[namespace]
    part.begin_sync()
    for one in pods:
        part.put(one)
    assert part.end_sync(version)


def test_it_is_complete_when_every_namespace_is() -> None:
    store = union()
    list_into(store, "a", pod("a/p", 5), version=5)
    seen = [store.synced]
    list_into(store, "b", version=9)
    assert [*seen, store.synced] == [False, True]
    assert store.version == 9


def test_a_listing_of_one_namespace_drops_nothing_of_another() -> None:
    store = union()
    list_into(store, "a", pod("a/p", 5), version=5)
    list_into(store, "b", pod("b/p", 8), pod("b/q", 7), version=9)
    list_into(store, "b", pod("b/p", 8), version=12)
    assert {*store.keys()} == {"a/p", "b/p"}
    assert store.keys_by("node", "n1") == {"a/p", "b/p"}


def test_listeners_hear_of_every_namespace() -> None:
    store, heard = union(), list[tuple[str, bool]]()
    store.listen(lambda key, _, after: heard.append((key, after is not None)))
    list_into(store, "a", pod("a/p", 5), version=5)
    list_into(store, "b", pod("b/p", 6), version=6)
    store.parts["a"].remove(pod("a/p", 7))
    assert heard == [("a/p", True), ("b/p", True), ("a/p", False)]
    assert store.get("a/p") is None


def test_our_write_shows_though_another_namespace_is_further() -> None:
    store = union()
    list_into(store, "a", pod("a/p", 5), version=5)
    list_into(store, "b", version=100)
    store.overlay(pod("a/p", 50, "n2"))
    store.parts["a"].put(pod("a/p", 49))
    assert store.keys_by("node", "n2") == {"a/p"}, "and the late event changes nothing"


def test_a_write_elsewhere_is_not_shown() -> None:
    store = union()
    store.overlay(pod("c/p", 5))
    assert len(store) == 0


def test_an_unreadable_object_is_named_until_it_can_be_read() -> None:
    store = union()
    list_into(store, "a", pod("a/p", 5), version=5)
    store.parts["a"].unread("a/p", 6, "broken")
    assert store.unreadable == {"a/p": "broken"}
    assert store.get("a/p") is None
    store.parts["a"].put(pod("a/p", 7))
    assert store.unreadable == {}
    store.parts["b"].unread("b/q", 8, "broken")
    store.parts["b"].forget("b/q", 9)
    assert store.unreadable == {}


def test_its_age_and_its_problem_are_those_of_the_worst_namespace() -> None:
    async def look() -> None:
        async with Client(Nowhere()) as client:
            watch = NamespacedWatch(client, POD, Pod, ("a", "b"), metrics=Metrics())
            first, second = watch.parts
            assert watch.age() is None
            first.heard = first._clock() - 50
            assert watch.age() is None, "the other was never confirmed"
            second.heard = second._clock()
            assert (watch.age() or 0) >= 50
            second.problem = "may not watch pods"
            assert watch.problem == "may not watch pods"
            assert watch.not_in_step() is not None

    asyncio.run(look())
