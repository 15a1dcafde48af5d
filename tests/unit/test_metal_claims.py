"""Who is woken for which host, and when: a host that failed rests first; what is not taken is offered on."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostler.apis.capi import Cluster, Machine
from hostler.apis.metal3 import BareMetalHost, Metal3Machine, SecretRef
from hostler.apis.metal3_data import Data, DataSpec
from hostler.kube.client import Client
from hostler.kube.errors import Conflict
from hostler.kube.metrics import Metrics
from hostler.kube.records import Metadata
from hostler.kube.writer import Writer
from hostler.metal import names
from hostler.metal.caches import Caches
from hostler.metal.claiming.choose import Policy, Selection, Wish, choose
from hostler.metal.claiming.claims import DEBOUNCE_SECONDS, OUTDATED_SECONDS, Claims
from hostler.metal.claiming.free_hosts import SAMPLES
from hostler.metal.data.controller import Indexes
from hostler.metal.decide import wish_of
from hostler.metal.model import consumer_key
from hostler.selectors import Requirement
from tests.sizes import examples
from tests.unit.metal_tools import toolbox
from tests.unit.nowhere import Nowhere
from tests.unit.test_metal_choose import CLUSTER, HOST_CLAIM, consumer, host


class Room:
    """The caches and the claims over them, with a clock of our own and nobody to talk to."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.woken: list[str] = []
        self.version = 0
        nobody = Client(Nowhere())  # nothing here reads or writes
        self.caches = Caches.make(nobody, Metrics())
        self.claims = Claims(
            toolbox(self.caches, nobody), policy or Policy(), self.woken.append,
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
            BareMetalHost: caches.hosts, Metal3Machine: caches.machines, Machine: caches.capi_machines,
            Cluster: caches.capi_clusters,
        }  # fmt: skip
        watches[type(record)].store.put(known)

    def machine(self, name: str, kind: str = "", annotations: dict[str, str] | None = None, **spec: Any) -> None:
        labels = {names.DEPLOYMENT_NAME: kind} if kind else {}
        owner = {"metadata": {"name": name, "namespace": "n", "labels": labels}, "spec": {"clusterName": "c"}}
        self.put(msgspec.convert(owner, Machine))
        owners = [{"kind": "Machine", "name": name}]
        meta = {"name": name, "namespace": "n", "ownerReferences": owners, "annotations": annotations or {}}
        self.put(msgspec.convert({"metadata": meta, "spec": spec}, Metal3Machine))

    def wish(self, name: str) -> Wish:
        machine = self.caches.machines.store.get(f"n/{name}")
        assert machine is not None
        return wish_of(self.caches.facts(machine))

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


@pytest.mark.parametrize("kept", [{}, {"labels": {names.NODE_REUSE: "md-a"}, "consumer": CLUSTER}])
def test_what_a_machine_left_that_is_gone_is_offered_on(kept: Any) -> None:
    room = Room()
    for name in ("m1", "m2"):
        room.machine(name, "a")
        room.claims.waiting.add(f"n/{name}")
    room.put(host("h", **kept))
    assert room.woken == ["n/m1"]
    room.claims.forget("n/m1")
    assert room.woken == ["n/m1", "n/m2"]


def test_who_goes_on_waiting_leaves_a_host_to_those_behind_it_and_none_is_asked_twice() -> None:
    room = Room()
    for name in ("m1", "m2", "m3"):
        room.machine(name)
        room.claims.waiting.add(f"n/{name}")
    room.put(host("h"))
    for name in ("m1", "m2", "m3", "m3"):
        room.claims.looked(f"n/{name}")
    assert room.woken == ["n/m1", "n/m2", "n/m3"]


def test_who_waits_for_a_kept_host_looks_anew_when_none_is_kept_any_more() -> None:
    room = Room()
    for name, kind in (("m1", "a"), ("m2", "a"), ("other", "b")):
        room.machine(name, kind)
        room.claims.waiting.add(f"n/{name}")
    kept = {"labels": {names.NODE_REUSE: "md-a"}, "consumer": CLUSTER}
    for name in ("h1", "h2"):
        room.put(host(name, "deprovisioning", **kept))
    room.put(host("h1", consumer=consumer("m9")))
    assert room.woken == [], "another one is still kept"
    room.put(host("h2", consumer=consumer("m8")))
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


def test_a_sample_says_the_same_as_all_hosts_when_nothing_is_free() -> None:
    room = Room()
    room.machine("m1")
    room.put(host("h", "provisioning"))
    wish = room.wish("m1")
    assert room.claims.find_host(wish).why == room.claims.choose(wish).why
    room.put(host("free"))
    chosen = room.claims.find_host(wish).host
    assert chosen is not None
    assert chosen.metadata.name == "free"
    room.claims.free.reservations["n/free"] = "n/other"
    assert room.claims.find_host(wish).host is None, "somebody is taking it"


def test_who_is_told_words_that_hosts_have_overtaken_looks_again_and_nobody_else_does() -> None:
    room = Room()
    room.machine("m1")
    room.put(host("h", "provisioning"))
    wish = room.wish("m1")
    first = room.claims.find_host(wish)
    assert "not available yet" in first.why
    kept = room.claims.find_host(wish)
    assert (kept.why, kept.again, first.again) == (first.why, None, None), "kept, and as true as it was"
    room.put(host("x", "provisioning", namespace="another"))
    assert room.claims.find_host(wish) == kept, "hosts of others say nothing about it"
    room.put(host("h", status={"errorType": "power error"}))
    old = room.claims.find_host(wish)
    assert (old.why, old.again) == (first.why, OUTDATED_SECONDS)
    room.pass_time(OUTDATED_SECONDS)
    new = room.claims.find_host(wish)
    assert new.why != old.why
    assert new.again is None, "and then it rests"


def test_the_failure_domain_of_the_machine_comes_before_that_of_its_infrastructure() -> None:
    room = Room()
    room.machine("m1", failureDomain="own")
    assert room.wish("m1").domain == "own"
    owner = {"metadata": {"name": "m1", "namespace": "n"}, "spec": {"clusterName": "c", "failureDomain": "asked"}}
    room.put(msgspec.convert(owner, Machine))
    assert room.wish("m1").domain == "asked"


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
    for number in range(20 * SAMPLES[-1]):
        room.put(host(f"other-{number}"))
    room.put(host("h", labels={"rack": "1"}, status={"errorType": "power error", "errorCount": 1}))
    room.put(host("h", labels={"rack": "1"}, status={"errorCount": 1}))

    def found() -> str:
        chosen = room.claims.find_host(room.wish("m1")).host
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

    room.claims._tools = replace(room.claims._tools, writer=cast(Writer, Slow()))
    wish = room.wish("m2")
    with pytest.raises(Conflict):
        asyncio.run(room.claims.take(room.caches.facts(wish.machine), wish))
    assert found() == "h", "the other did not get it after all"


def test_a_failure_domain_is_preferred_among_more_hosts_than_are_drawn_too() -> None:
    """One of its domain suits among many that do not; elsewhere all would do."""
    room = Room()
    room.machine("m1", failureDomain="near", hostSelector={"matchLabels": {"rack": "1"}})
    for number in range(20 * SAMPLES[-1]):
        room.put(host(f"near-{number}", labels={names.FAILURE_DOMAIN: "near"}))
        room.put(host(f"far-{number}", labels={names.FAILURE_DOMAIN: "far", "rack": "1"}))
    room.put(host("h", labels={names.FAILURE_DOMAIN: "near", "rack": "1"}))
    for _ in range(5):
        chosen = room.claims.find_host(room.wish("m1")).host
        assert chosen is not None
        assert chosen.metadata.name == "h"


SOME_HOSTS: tuple[dict[str, Any], ...] = (
    {"state": "provisioning"}, {"consumer": consumer("x")}, {"consumer": HOST_CLAIM}, {"consumer": CLUSTER},
    {"image": True}, {"status": {"errorType": "power error"}}, {"annotations": {"capm3.metal3.io/unhealthy": ""}},
)  # fmt: skip
KEPT_HOSTS: tuple[dict[str, Any], ...] = (
    {"consumer": CLUSTER}, {"consumer": CLUSTER, "state": "deprovisioning"}, {"consumer": consumer("x")},
    {"consumer": CLUSTER, "status": {"errorType": "power error"}}, {},
)  # fmt: skip


def some_world(dice: random.Random) -> Room:
    """Hosts of every sort, few or more than are sampled; some rest after an error, some are being taken."""
    room = Room(Policy(strict_domains=dice.random() < 0.3))
    racks = {domain: dice.choice((["1"], ["1", "2"], ["2"] * 60 + ["1"])) for domain in ("near", "far", "")}
    domains = dice.choice((["near"], ["near", "far"], ["far"] * 30 + ["near"], [""]))
    kept, busy = dice.choice((0.0, 0.0, 0.05)), dice.choice((0.05, 0.7))
    for number in range(dice.choice((0, 3, 12, 40, 3 * SAMPLES[-1]))):
        domain = dice.choice(domains)
        labels = {"rack": dice.choice(racks[domain]), names.FAILURE_DOMAIN: domain}
        sort = dict(dice.choice(SOME_HOSTS)) if dice.random() < busy else {}
        if dice.random() < kept:
            labels[names.NODE_REUSE] = dice.choice(("md-a", "md-b"))
            sort = dict(dice.choice(KEPT_HOSTS))
        if dice.random() < 0.05:
            room.put(host(f"h{number}", labels=labels, status={"errorType": "power error", "errorCount": 1}))
            sort["status"] = {"errorCount": 1}
        room.put(host(f"h{number}", labels=labels, **sort))
        if dice.random() < 0.05:
            room.claims.free.reservations[f"n/h{number}"] = dice.choice(("n/other", "n/m"))
    named = {names.HOST_ANNOTATION: f"n/h{dice.randrange(4)}"} if dice.random() < 0.2 else {}
    wanted: dict[str, Any] = {"hostSelector": {"matchLabels": {"rack": "1"}}} if dice.random() < 0.6 else {}
    room.machine("m", dice.choice(("", "a")), named, failureDomain=dice.choice(("", "near")), **wanted)
    if dice.random() < 0.1:
        room.put(host("own", "provisioned", consumer=consumer("m")))
    return room


@settings(max_examples=examples(300))
@given(st.randoms(use_true_random=True))
def test_a_sample_leads_to_a_choice_among_all_hosts_and_misses_none(dice: random.Random) -> None:
    room = some_world(dice)
    wish, claims = room.wish("m"), room.claims
    hosts = list(room.caches.hosts.store.by("namespace", "n"))
    drawn: list[int] = []

    def among_all(number: int) -> str:
        """What `choose` says over every host, if the draw gives this number."""

        def pick(of: int) -> int:
            drawn.append(of)
            return number

        found = choose(wish, hosts, claims.policy, claims.around(wish), pick).host
        return found.metadata.name if found is not None else ""

    first = among_all(0)
    choices = drawn[0] if drawn else 1
    for _ in range(3):  # the second time words may be kept
        found = claims.find_host(wish).host
        assert (found is None) == (not first)
        if found is not None:
            at = bisect_left(range(choices), found.metadata.name, key=among_all)
            assert at < choices
            assert among_all(at) == found.metadata.name
        room.put(host("elsewhere", namespace="other"))


def test_what_one_claim_costs_does_not_grow_with_the_hosts() -> None:
    """Counted in labels that were compared, not in time."""

    def looks(number: int) -> int:
        room = Room()
        for one in range(number):
            room.put(host(f"h{one}"))
        room.machine("m")
        wish = room.wish("m")
        looked: list[object] = []

        class Counted(Requirement):
            def holds(self, labels: Mapping[str, str]) -> bool:
                looked.append(labels)
                return True

        counting = replace(wish, requirements=(Counted("anything", "Exists"),))
        assert room.claims.find_host(counting).host is not None
        return len(looked)

    assert looks(3 * SAMPLES[-1]) == looks(30 * SAMPLES[-1]) <= SAMPLES[0]


class Crowd(Room):
    """Machines that look when they are woken and take at once what they are given; nobody looks by a timer."""

    STATES: ClassVar[dict[str, dict[str, Any]]] = {
        "free": {}, "busy": {"state": "provisioning"}, "unhealthy": {"annotations": {"capm3.metal3.io/unhealthy": ""}},
        "rack": {"labels": {"rack": "1"}}, "kept": {"labels": {names.NODE_REUSE: "md-a"}, "consumer": CLUSTER},
        "coming": {"state": "deprovisioning", "labels": {names.NODE_REUSE: "md-a"}, "consumer": CLUSTER},
        "stuck": {
            "state": "deprovisioning", "labels": {names.NODE_REUSE: "md-a"}, "consumer": CLUSTER,
            "status": {"errorType": "provisioning error"},
        },
        "others": {"consumer": consumer("x")},
    }  # fmt: skip
    KINDS: ClassVar[dict[str, dict[str, Any]]] = {
        "any": {},
        "a": {"kind": "a"},
        "picky": {"hostSelector": {"matchLabels": {"rack": "1"}}},
    }

    def __init__(self) -> None:
        super().__init__()
        self.paused = False
        self.caches.hosts.store.listen(self._host_changed)

    def _host_changed(self, _: str, before: BareMetalHost | None, after: BareMetalHost | None) -> None:
        self.woken += [key for one in (before, after) if one is not None and (key := consumer_key(one))]

    def step(self, what: str, number: int, how: str) -> None:
        match what:
            case "host":
                self.put(host(f"h{number}", **self.STATES[how]))
            case "machine":
                name = f"{how}-{number}"
                self.machine(name, **self.KINDS[how])
                self.woken.append(f"n/{name}")
            case "vanish":
                self.version += 1
                self.caches.hosts.store.forget(f"n/h{number}", self.version)
            case "delete":
                self.version += 1
                self.caches.machines.store.forget(f"n/{how}-{number}", self.version)
                self.woken.append(f"n/{how}-{number}")
            case "pause":
                self.paused = not self.paused
                self.woken += list(self.caches.machines.store.keys())

    def look(self) -> None:
        """As the keeper of machines does it."""
        if not self.woken:
            return
        key = self.woken[0]
        self.woken[:] = [one for one in self.woken if one != key]  # it is in the queue once
        machine = self.caches.machines.store.get(key)
        if machine is None:
            self.claims.forget(key)
            return
        if self.paused or self.caches.own_host(machine) is not None:
            self.claims.waiting.remove(key)
        elif (found := self.claims.find_host(self.wish(machine.metadata.name)).host) is None:
            self.claims.waiting.add(key)
        else:
            self.claims.waiting.remove(key)
            self.put(host(found.metadata.name, "provisioning", consumer=consumer(machine.metadata.name)))
        self.claims.looked(key)


# What happens next, the more often the more can go wrong with it: hosts that are free beside kept ones.
STEPS = (*["host"] * 6, *["machine"] * 4, "vanish", *["delete"] * 2, "pause")
STATES = ("free", "free", "busy", "unhealthy", "rack", "kept", "kept", "coming", "coming", "coming", "stuck", "others")
MACHINES = ((1, "a"), (2, "a"), (3, "a"), (1, "any"), (1, "picky"))


@settings(max_examples=examples(300))
@given(st.randoms(use_true_random=True))
def test_whoever_waits_is_woken_for_what_it_can_have_and_nobody_for_ever(dice: random.Random) -> None:
    room = Crowd()
    for _ in range(dice.randint(20, 40)):
        what = dice.choice(STEPS)
        of_machine = what in ("machine", "delete")
        room.step(what, *(dice.choice(MACHINES) if of_machine else (dice.randint(1, 5), dice.choice(STATES))))
        looks = dice.choice((0, 1, 100))
        for _ in range(looks):
            room.look()
        if looks < 100:
            continue  # the next thing happens before everybody has looked
        assert room.woken == [], "they wake each other for ever"
        for machine in room.caches.machines.store if not room.paused else ():
            name, has = machine.metadata.name, room.caches.own_host(machine) is not None
            assert (f"n/{name}" in room.claims.waiting.of("n")) == (not has)
            found = room.claims.choose(room.wish(name)).host
            assert has or found is None, f"{name} waits, and nobody tells it that it can have a host"
