"""Who is woken for which host, and when: a host that failed rests first; what is not taken is offered on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from hostler.kube.client import Client
from hostler.kube.errors import Conflict
from hostler.kube.metrics import Metrics
from hostler.kube.records import Metadata
from hostler.kube.writer import Writer
from hostler.metal.caches import Caches
from hostler.metal.choose import Policy, Selection, Wish
from hostler.metal.claims import DEBOUNCE_SECONDS, OLD_WORDS_SECONDS, Claims
from hostler.metal.data_caches import Indexes
from hostler.metal.data_model import Data, DataSpec
from hostler.metal.free import DRAWS
from hostler.metal.model import Cluster, Host, Machine, Metal3Machine, SecretRef
from tests.unit.test_metal_choose import host


class Room:
    """The caches and the claims over them, with a clock of our own and nobody to talk to."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.woken: list[str] = []
        self.version = 0
        nobody = cast(Client, None)  # nothing here reads or writes
        self.caches = Caches.make(nobody, Metrics())
        self.claims = Claims(
            self.caches, nobody, cast(Writer, None), policy or Policy(), self.woken.append,
            later=lambda seconds, call: self.timers.append((self.now + seconds, call)), clock=lambda: self.now,
            dice=random.Random(1),
        )  # fmt: skip
        self.caches.hosts.store.listen(self.claims.host_changed)

    def put(self, record: Any) -> None:
        self.version += 1
        meta = msgspec.structs.replace(record.metadata, resource_version=str(self.version))
        known = msgspec.structs.replace(record, metadata=meta)
        caches = self.caches
        watches: dict[Any, Any] = {
            Host: caches.hosts, Metal3Machine: caches.machines, Machine: caches.capi_machines,
            Cluster: caches.capi_clusters,
        }  # fmt: skip
        watches[type(record)].store.put(known)

    def machine(self, name: str, **spec: Any) -> None:
        owner = {"metadata": {"name": name, "namespace": "n"}, "spec": {"clusterName": "c"}}
        self.put(msgspec.convert(owner, Machine))
        meta = {"name": name, "namespace": "n", "ownerReferences": [{"kind": "Machine", "name": name}]}
        self.put(msgspec.convert({"metadata": meta, "spec": spec}, Metal3Machine))

    def wish(self, name: str) -> Wish:
        machine = self.caches.machines.store.get(f"n/{name}")
        assert machine is not None
        return self.caches.wish(self.caches.facts(machine))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        due = [call for at, call in self.timers if at <= self.now]
        self.timers = [(at, call) for at, call in self.timers if at > self.now]
        for call in due:
            call()


def test_only_a_host_that_showed_an_error_rests_first() -> None:
    room = Room()
    for name in ("m1", "m2"):
        room.machine(name)
        room.claims.waiting.add(f"n/{name}")
    room.put(host("fine"))
    assert room.woken == ["n/m1"], "at once"
    room.put(host("h", status={"errorType": "power error", "errorCount": 1}))
    room.put(host("h", status={"errorCount": 1}))
    assert room.woken == ["n/m1"], "it looks fine, as a failing host does at each retry"
    room.pass_time(DEBOUNCE_SECONDS / 2)
    room.put(host("h", status={"errorType": "power error", "errorCount": 2}))
    room.put(host("h", status={"errorCount": 2}))
    room.pass_time(DEBOUNCE_SECONDS / 2 + 1)
    assert room.woken == ["n/m1"], "the rest began anew with the second error"
    room.pass_time(DEBOUNCE_SECONDS)
    assert room.woken == ["n/m1", "n/m2"]


def test_a_host_that_was_not_taken_is_offered_on() -> None:
    room = Room()
    for name in ("m1", "m2"):
        room.machine(name)
        room.claims.waiting.add(f"n/{name}")
    room.put(host("h"))
    assert room.woken == ["n/m1"]
    room.claims.waiting.remove("n/m1")  # it went another way
    room.claims.looked("n/m1")
    assert room.woken == ["n/m1", "n/m2"]


def test_a_host_that_gets_the_right_label_wakes_who_waits_for_it() -> None:
    room = Room()
    room.machine("m1", hostSelector={"matchLabels": {"rack": "1"}})
    room.machine("m2", hostSelector={"matchExpressions": [{"key": "x", "operator": "wrong", "values": []}]})
    for name in ("m2", "m1"):
        room.claims.waiting.add(f"n/{name}")
    room.put(host("h"))
    assert room.woken == [], "it suits nobody; a wrong selector is no reason to stop"
    room.put(host("h", labels={"rack": "1"}))
    assert room.woken == ["n/m1"]


def test_quick_and_slow_say_the_same_when_nothing_is_free() -> None:
    room = Room()
    room.machine("m1")
    room.put(host("h", "provisioning"))
    wish = room.wish("m1")
    assert room.claims.quickly(wish).why == room.claims.choose(wish).why
    room.put(host("free"))
    chosen = room.claims.quickly(wish).host
    assert chosen is not None
    assert chosen.metadata.name == "free"
    room.claims.free.reservations["n/free"] = "n/other"
    assert room.claims.quickly(wish).host is None, "somebody is taking it"


def test_who_is_told_words_that_hosts_have_overtaken_looks_again_and_nobody_else_does() -> None:
    room = Room()
    room.machine("m1")
    room.put(host("h", "provisioning"))
    wish = room.wish("m1")
    first = room.claims.quickly(wish)
    assert "not available yet" in first.why
    assert room.claims.quickly(wish) == first, "kept, and as true as it was"
    assert first.again is None
    room.put(host("x", "provisioning", namespace="another"))
    assert room.claims.quickly(wish) == first, "hosts of others say nothing about it"
    room.put(host("h", status={"errorType": "power error"}))
    old = room.claims.quickly(wish)
    assert (old.why, old.again) == (first.why, OLD_WORDS_SECONDS)
    room.pass_time(OLD_WORDS_SECONDS)
    new = room.claims.quickly(wish)
    assert new.why != old.why
    assert new.again is None, "and then it rests"


def test_spread_counts_what_is_used_and_what_is_being_taken() -> None:
    room = Room(Policy(Selection.SPREAD))
    room.machine("m1")
    label = "infrastructure.cluster.x-k8s.io/failure-domain"
    for name, domain in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")):
        room.put(host(name, labels={label: domain}))
    room.claims.free.reservations["n/a1"] = "n/other"
    chosen = room.claims.choose(room.wish("m1")).host
    assert chosen is not None
    assert chosen.metadata.name == "b1"


def test_the_smallest_free_index_is_taken_and_given_back() -> None:
    def data(index: int) -> Data:
        return Data(metadata=Metadata(namespace="n"), spec=DataSpec(index=index, template=SecretRef(name="t")))

    indexes = Indexes()
    for index in (0, 1, 3):
        indexes.changed("", None, data(index))
    assert [indexes.take("n/t") for _ in range(3)] == [2, 4, 5]
    indexes.changed("", data(1), None)
    indexes.give_back("n/t", 4)
    assert [indexes.take("n/t") for _ in range(3)] == [1, 4, 6]
    assert indexes.take("n/other") == 0


def test_a_host_that_can_be_had_again_is_found_though_others_were_just_told_that_there_is_none() -> None:
    """Among more hosts than are drawn, so that words which are kept would hide it."""
    room = Room()
    for name in ("m1", "m2"):
        room.machine(name, hostSelector={"matchLabels": {"rack": "1"}})
    for number in range(20 * DRAWS):
        room.put(host(f"other-{number}"))
    room.put(host("h", labels={"rack": "1"}, status={"errorType": "power error", "errorCount": 1}))
    room.put(host("h", labels={"rack": "1"}, status={"errorCount": 1}))

    def found() -> str:
        chosen = room.claims.quickly(room.wish("m1")).host
        return chosen.metadata.name if chosen is not None else ""

    def waits_a_little() -> None:
        assert [found() for _ in range(5)] == [""] * 5

    waits_a_little()
    room.pass_time(DEBOUNCE_SECONDS - 1)
    waits_a_little()
    room.pass_time(1.1)
    assert found() == "h", "it has calmed down, and nothing else changed"

    class Slow:
        async def patch(self, *_: Any, **__: Any) -> None:
            waits_a_little()
            raise Conflict(409, "Conflict", "somebody was faster")

    room.claims._writer = cast(Writer, Slow())
    wish = room.wish("m2")
    with pytest.raises(Conflict):
        asyncio.run(room.claims.take(room.caches.facts(wish.machine), wish))
    assert found() == "h", "the other did not get it after all"
