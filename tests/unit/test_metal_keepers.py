"""What the keepers of metal remember between two looks: a host's power, what was told, who leads; whose a Secret is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any, cast

import msgspec
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from hostler.apis import capi
from hostler.apis.capi import ControlPlane, Machine, MachineSet
from hostler.apis.metal3 import BareMetalHost, BmcSecret, Metal3Machine, Metal3MachineTemplate
from hostler.explain.registry import UnknownName
from hostler.instant import iso
from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.errors import Conflict
from hostler.kube.events import Recorder
from hostler.kube.metrics import Metrics
from hostler.kube.writer import Writer
from hostler.metal import names
from hostler.metal.claiming.claims import DEBOUNCE_SECONDS
from hostler.metal.claiming.reservations import ReservedHostReconciler, why_left
from hostler.metal.controller import MachineReconciler
from hostler.metal.data.controller import DataReconciler
from hostler.metal.data.decide import RenderedSecret, why_not_ours
from hostler.metal.decide import why_no_host
from hostler.metal.explain import MetalExplainers
from hostler.metal.model import Step
from hostler.metal.nodes import NodeFinder
from hostler.metal.release import decide_release
from hostler.metal.remediation.controller import RemediationReconciler
from hostler.metal.remediation.decide import LOOK_SECONDS, decide_remediation
from hostler.metal.remediation.model import RUNNING, Remediation
from hostler.metal.toolbox import Toolbox
from tests.unit.answering import answering
from tests.unit.kube_connection import Here
from tests.unit.metal_tools import toolbox
from tests.unit.test_metal_claims import Room
from tests.unit.test_metal_decide import IMAGE, cluster, kept, owner
from tests.unit.test_metal_remediation import CONSUMER, NOW, OFF

FAILING: dict[str, Any] = {"operationalStatus": "error", "errorType": "power management error", "errorCount": 1}
FINE: dict[str, Any] = {"operationalStatus": "OK", "errorType": "", "errorCount": 1}


class Ward(Room):
    """One machine on one host, its remediation under way, and a remediator that only says what it would do."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        for watch in self.caches.all():
            watch.store.synced = True
        metrics, self.client = Metrics(), client
        self.writer = writer = Writer(client, "metal", gate=lambda: None, budget=WriteBudget(100), dry_run=True)
        self.recorder = Recorder(writer, "me", metrics)
        tools = toolbox(self.caches, client, writer, recorder=self.recorder, clock=lambda: NOW + self.now)
        self.remediator = RemediationReconciler(tools, shaky=self.claims.shaky, ticks=lambda: self.now)
        self.caches.hosts.store.listen(lambda _, before, after: self.remediator.power.host_changed(before, after))
        self.caches.remediations.store.put(self.remediation(self.now))
        self.machine("m")

    def remediation(self, began: float) -> Remediation:
        self.version += 1
        meta = {
            "name": "r", "namespace": "n", "uid": "u1", "resourceVersion": str(self.version),
            "ownerReferences": [{"kind": "Machine", "name": "m"}], "finalizers": [names.REMEDIATION_FINALIZER],
        }  # fmt: skip
        status = {"phase": RUNNING, "lastRemediated": iso(NOW + began)}
        strategy = {"strategy": {"type": "Reboot", "retryLimit": 1, "timeoutSeconds": 600}}
        return msgspec.convert({"metadata": meta, "spec": strategy, "status": status}, Remediation)

    def host(self, *, on: bool, asked: bool = True, **status: Any) -> None:
        known = {"operationalStatus": "OK", "poweredOn": on, "provisioning": {"state": "provisioned"}, **status}
        meta = {"name": "h", "namespace": "n", "annotations": {OFF: "{}"} if asked else {}}
        spec = {"online": True, "consumerRef": CONSUMER}
        self.put(msgspec.convert({"metadata": meta, "spec": spec, "status": known}, BareMetalHost))

    def tools(self, *, dry_run: bool = True, metrics: Metrics | None = None) -> Toolbox:
        writer = self.writer
        if not dry_run:
            writer = Writer(self.client, "metal", gate=lambda: None, budget=WriteBudget(100), metrics=Metrics())
        return toolbox(self.caches, self.client, writer, recorder=self.recorder, metrics=metrics)

    def keeper(
        self, *, fast_track: bool = False, dry_run: bool = True, metrics: Metrics | None = None
    ) -> MachineReconciler:
        tools = self.tools(dry_run=dry_run, metrics=metrics)
        data = DataReconciler(tools)
        nodes = NodeFinder(tools.clusters, tools.writer_for)
        return MachineReconciler(tools, self.claims, data, nodes, fast_track=fast_track)

    def fresh(self) -> bool:
        found = self.caches.remediations.store.get("n/r")
        assert found is not None
        return self.remediator.facts(found).fresh

    def told(self) -> int:
        return sum(series.count for series in self.recorder._known.values())


@asynccontextmanager
async def ward() -> AsyncIterator[Ward]:
    async with Client(Here("http://127.0.0.1:9"), timeout=5) as client:  # nobody is there, and nobody is asked
        yield Ward(client)


def test_a_host_is_believed_to_be_off_when_it_was_seen_going_off_or_stays_so() -> None:
    async def run() -> None:
        async with ward() as room:
            room.host(on=True, asked=False)
            room.host(on=True)
            assert not room.fresh()
            room.host(on=False)
            assert room.fresh(), "it was asked, and went off"
            room.host(on=False, asked=False)
            room.host(on=False)
            assert not room.fresh(), "it said so before it was asked"
            room.pass_time(DEBOUNCE_SECONDS / 2)
            room.host(on=False)
            assert not room.fresh(), "a change of something else says nothing of its power"
            room.pass_time(DEBOUNCE_SECONDS)
            assert room.fresh()

    asyncio.run(run())


def test_a_host_between_two_errors_is_not_believed_to_be_off() -> None:
    async def run() -> None:
        async with ward() as room:
            room.host(on=True)
            room.pass_time(100)
            room.host(on=True, **FAILING)
            room.host(on=False, **FINE)
            assert not room.fresh(), "a failing host looks fine for a moment at each retry"
            room.pass_time(DEBOUNCE_SECONDS + 1)
            assert room.fresh()

    asyncio.run(run())


def test_a_dry_run_says_it_once_and_rests_between_its_looks() -> None:
    async def run() -> None:
        async with ward() as room:
            room.host(on=True, asked=False)
            for _ in range(3):
                wake = await room.remediator.reconcile("n/r")
                assert (wake or 0) >= LOOK_SECONDS
            assert room.told() == 1
            room.remediator.forget("n/r")
            await room.remediator.reconcile("n/r")
            assert room.told() == 2, "of another remediation of its name"
            room.pass_time(10_000)
            for _ in range(3):
                wake = await room.remediator.reconcile("n/r")
                assert wake is None or wake >= LOOK_SECONDS

    asyncio.run(run())


def test_the_second_of_two_replicas_has_no_machines_that_wait() -> None:
    async def run() -> None:
        async with ward() as room:
            metrics = Metrics()
            keeper = room.keeper(metrics=metrics)

            def waiting() -> float | None:
                return metrics.registry.get_sample_value("hostler_metal_waiting")

            room.claims.waiting.add("n/m2")
            keeper.led(True)
            assert waiting() == 1
            keeper.led(False)
            assert waiting() == 0
            await keeper.reconcile("n/m")  # a look that was under way when the lease went
            assert waiting() == 0
            keeper.led(True)
            assert waiting() == 1

    asyncio.run(run())


def test_a_host_that_cannot_be_read_is_not_left_off() -> None:
    """It may carry the annotation that keeps it off: nothing is ended on a host that is neither there nor absent."""

    async def run() -> None:
        async with ward() as room:
            room.host(on=False)
            meta = {"name": "m", "namespace": "n", "annotations": {names.HOST_ANNOTATION: "n/h"}}
            owned = {**meta, "ownerReferences": [{"kind": "Machine", "name": "m"}]}
            room.put(msgspec.convert({"metadata": owned}, Metal3Machine))
            going = room.remediation(room.now)
            gone = msgspec.structs.replace(going.metadata, deletion_timestamp="now")
            room.caches.remediations.store.put(msgspec.structs.replace(going, metadata=gone))
            room.caches.hosts.store.unread("n/h", 99, "spec.online is a string")
            found = room.caches.remediations.store.get("n/r")
            assert found is not None
            step = decide_remediation(room.remediator.facts(found), NOW)
            assert step.writes == ()
            assert "cannot be read" in step.why
            assert await room.remediator.reconcile("n/r") == 60
            keeper = room.keeper()
            assert await keeper.reconcile("n/m") == 60

    asyncio.run(run())


def test_a_host_of_another_namespace_is_neither_touched_nor_forgotten() -> None:
    """Another provider may have given it to the machine: it runs on for as long as it names this machine."""

    async def run(taken: bool, status: Any) -> tuple[Ward, MachineReconciler]:
        async with ward() as room:
            consumer = CONSUMER if taken else {**CONSUMER, "name": "x"}
            there = {"metadata": {"name": "h", "namespace": "other"}, "spec": {"consumerRef": consumer}}
            room.put(msgspec.convert(there, BareMetalHost))
            meta = {
                "name": "m", "namespace": "n", "annotations": {names.HOST_ANNOTATION: "other/h"},
                "ownerReferences": [{"kind": "Machine", "name": "m"}], "finalizers": [names.MACHINE_FINALIZER],
            }  # fmt: skip
            spec = {"image": IMAGE, **status.get("spec", {})}
            room.put(msgspec.convert({"metadata": meta, **status, "spec": spec}, Metal3Machine))
            for record in (owner(), cluster()):
                room.put(record)
            keeper = room.keeper()
            machine = room.caches.machines.store.get("n/m")
            assert machine is not None
            await room.claims._still_out("other/h", machine)
            return room, keeper

    settled = {"spec": {"providerID": "metal3://x"}, "status": {"initialization": {"provisioned": True}}}
    for taken, status, says in (
        (True, {}, "Host other/h is in another namespace, so it is not touched, and still has this machine"),
        (True, settled, "Host other/h is in another namespace, so it is not touched, and still has this machine"),
        (False, settled, "Host other/h is in another namespace, so it is not touched; delete the Machine"),
        (False, {}, ""),
    ):
        room, keeper = asyncio.run(run(taken, status))
        machine = room.caches.machines.store.get("n/m")
        assert machine is not None
        facts = keeper.facts(machine)
        lost = why_no_host(facts)
        assert says in (lost.message if lost is not None else "")
        assert (lost is None) == (not says)
        explained = MetalExplainers(keeper, room.remediator, lambda: None, lambda: NOW).machine("n/m")
        assert explained is not None
        assert (says or "no host") in explained.outcome, "and not that it is given another"
        release = decide_release(facts)
        assert bool(release.writes) == (not taken), "it is let go only when no host is left behind"
        assert bool(release.wake) == taken


@pytest.mark.parametrize("state", ["provisioned", "deprovisioning", "available"])
@pytest.mark.parametrize("fast_track", [True, False])
@pytest.mark.parametrize("clear", [True, False])
def test_explain_shows_the_writes_that_the_operator_makes_at_release(state: str, fast_track: bool, clear: bool) -> None:
    """The host was emptied but for its power; whether the BMC secret still has the cluster's label differs."""

    async def run() -> None:
        async with ward() as room:
            label = {capi.CLUSTER_NAME: "c"}
            moving = {"annotations": {names.BLOCK_MOVE: ""}, "labels": {**label, names.MOVE_HIERARCHY: ""}}
            meta: dict[str, Any] = {"name": "h", "namespace": "n", **moving}
            spec = {
                "online": True, "automatedCleaningMode": "metadata", "consumerRef": CONSUMER,
                "bmc": {"credentialsName": "bmc"},
            }  # fmt: skip
            status = {"provisioning": {"state": state}}
            room.put(msgspec.convert({"metadata": meta, "spec": spec, "status": status}, BareMetalHost))
            secret = {"name": "bmc", "namespace": "n", "resourceVersion": "1", "labels": {} if clear else label}
            room.caches.secrets.store.put(msgspec.convert({"metadata": secret}, BmcSecret))
            gone = {
                "name": "m", "namespace": "n", "deletionTimestamp": iso(NOW), "finalizers": [names.MACHINE_FINALIZER],
                "ownerReferences": [{"kind": "Machine", "name": "m"}],
            }  # fmt: skip
            room.put(msgspec.convert({"metadata": gone, "spec": {"image": IMAGE}}, Metal3Machine))
            for record in (owner(), cluster()):
                room.put(record)
            keeper = room.keeper(fast_track=fast_track)
            explained = MetalExplainers(keeper, room.remediator, lambda: None, lambda: NOW).machine("n/m")
            assert explained is not None
            with capture_logs() as lines:
                await keeper.reconcile("n/m")
            written = [(one["verb"], one["kind"].lower(), one["why"]) for one in lines if one["event"] == "would write"]
            shown = [(one.verb, one.target.partition("/")[0], one.why) for one in explained.actions]
            assert shown == [one for one in written if one[2] != explained.outcome], "but for its own status"
            expected = set() if fast_track and state != "available" else {"baremetalhost"}
            if state == "available":
                expected |= {"metal3machine"} if clear else {"metal3machine", "secret"}
            assert {one[1] for one in shown} == expected

    asyncio.run(run())


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("secret", ["", "c", None])
@pytest.mark.parametrize("state", ["available", "provisioning"])
def test_explain_shows_the_writes_that_the_operator_makes(named: bool, secret: str | None, state: str) -> None:
    """A machine that has its host: whether it names it, whose the BMC secret is and how far the host is differ."""

    async def run() -> None:
        async with ward() as room:
            spec = {"consumerRef": CONSUMER, "bmc": {"credentialsName": "bmc"}}
            status = {"provisioning": {"state": state}}
            room.put(
                msgspec.convert(
                    {"metadata": {"name": "h", "namespace": "n"}, "spec": spec, "status": status}, BareMetalHost
                )
            )
            if secret is not None:
                labels = {capi.CLUSTER_NAME: secret} if secret else {}
                about = {"name": "bmc", "namespace": "n", "resourceVersion": "1", "labels": labels}
                room.caches.secrets.store.put(msgspec.convert({"metadata": about}, BmcSecret))
            own = {"annotations": {names.HOST_ANNOTATION: "n/h"}, "finalizers": [names.MACHINE_FINALIZER]}
            meta = {"name": "m", "namespace": "n", "ownerReferences": [{"kind": "Machine", "name": "m"}]}
            room.put(
                msgspec.convert(
                    {"metadata": {**meta, **(own if named else {})}, "spec": {"image": IMAGE}}, Metal3Machine
                )
            )
            for record in (owner(), cluster()):
                room.put(record)
            keeper = room.keeper()
            explained = MetalExplainers(keeper, room.remediator, lambda: None, lambda: NOW).machine("n/m")
            assert explained is not None
            with capture_logs() as lines:
                await keeper.reconcile("n/m")
            written = [(one["verb"], one["kind"].lower(), one["why"]) for one in lines if one["event"] == "would write"]
            shown = [(one.verb, one.target.partition("/")[0], one.why) for one in explained.actions]
            assert shown == [one for one in written if one[2] != explained.outcome], "but for its own status"
            kinds = [one[1] for one in shown]
            assert ("metal3machine" in kinds, "secret" in kinds) == (not named, secret != "c")
            assert "baremetalhost" in kinds

    asyncio.run(run())


@pytest.mark.parametrize(
    ("step", "changes"),
    [
        (Step.MOVED, {"meta": {"annotations": {names.DELETE_FOR_MOVE: ""}}, "paused": True}),
        (Step.PAUSED, {"paused": True, "meta": {"deletionTimestamp": iso(NOW)}}),
        (Step.RELEASE, {"meta": {"deletionTimestamp": iso(NOW)}}),
        (Step.KEEP, {"mine": True}),
        (Step.CLAIM, {}),
        (Step.WAIT, {"meta": {"ownerReferences": []}}),
    ],
)
def test_the_first_question_that_applies_decides_the_step(step: Step, changes: dict[str, Any]) -> None:
    async def run() -> None:
        async with ward() as room:
            meta = {"name": "m", "namespace": "n", "ownerReferences": [{"kind": "Machine", "name": "m"}]}
            machine = {"metadata": {**meta, **changes.get("meta", {})}, "spec": {"image": IMAGE}}
            spec = {"consumerRef": CONSUMER} if changes.get("mine") else {}
            room.put(msgspec.convert({"metadata": {"name": "h", "namespace": "n"}, "spec": spec}, BareMetalHost))
            room.put(msgspec.convert(machine, Metal3Machine))
            found = cluster()
            spec_of_cluster = msgspec.structs.replace(found.spec, paused=bool(changes.get("paused")))
            for record in (owner(), msgspec.structs.replace(found, spec=spec_of_cluster)):
                room.put(record)
            kept = room.caches.machines.store.get("n/m")
            assert kept is not None
            assert room.keeper().decide(room.caches.facts(kept)).step is step

    asyncio.run(run())


@pytest.mark.parametrize("when", ["before", "first write", "never", "gone"])
def test_our_pause_is_taken_back_only_from_a_host_that_clusterctl_waits_for(when: str) -> None:
    """`clusterctl move` pauses the Cluster, then copies each host that does not carry block-move, at any moment."""
    asked: list[str] = []
    server: dict[str, Any] = {
        "metadata": {
            "name": "h", "namespace": "n", "resourceVersion": "50",
            "annotations": {names.PAUSED: names.OUR_PAUSE, names.STATUS_ANNOTATION: "{}"},
        },
        "spec": {"consumerRef": CONSUMER, "image": IMAGE}, "status": {"provisioning": {"state": "provisioned"}},
    }  # fmt: skip
    state = {"paused": when == "before"}

    async def answer(request: web.Request) -> web.Response:
        kind, meta = request.path.split("/")[-2], server["metadata"]
        asked.append(f"{request.method} {kind}")
        if request.method == "PATCH":
            # clusterctl in this very moment, before the write arrives: it copies what is not blocked.
            state["paused"] |= when == "first write"
            if state["paused"] and names.BLOCK_MOVE not in meta["annotations"]:
                assert {names.PAUSED, names.STATUS_ANNOTATION} <= set(meta["annotations"])
            change = (await request.json())["metadata"]
            assert change["resourceVersion"] == meta["resourceVersion"], "each write holds for one version"
            both = {**meta["annotations"], **change["annotations"]}
            meta["annotations"] = {key: value for key, value in both.items() if value is not None}
            meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1)
            if names.PAUSED not in meta["annotations"]:
                assert asked[-2:] == ["GET clusters", "PATCH baremetalhosts"], (
                    "the Cluster was read once it was blocked"
                )
                assert len(asked) == 3
        if kind == "baremetalhosts":
            return web.json_response(server)
        if when == "gone":
            return web.json_response({"kind": "Status", "reason": "NotFound", "code": 404}, status=404)
        about = {"name": "c", "namespace": "n", "resourceVersion": "99"}
        return web.json_response({"metadata": about, "spec": {"paused": state["paused"]}})

    async def run() -> None:
        async with answering(answer) as client:
            room = Ward(client)
            room.version = 49
            room.put(msgspec.convert(server, BareMetalHost))
            for record in (owner(), cluster()):
                room.put(record)
            keeper = room.keeper(dry_run=False)
            machine = room.caches.machines.store.get("n/m")
            assert machine is not None
            paused = when in ("before", "first write")
            with nullcontext() if when == "never" else pytest.raises(Conflict, match=r"is (paused|gone) by now"):
                facts = keeper.facts(machine)
                facts = await keeper._unpause(facts, keeper.decide(facts).unpause)
                assert facts.host is not None
                assert names.PAUSED not in facts.host.metadata.annotations
            if paused:
                assert room.caches.paused("n", "c"), "and the next look knows"

    asyncio.run(run())
    left = set(server["metadata"]["annotations"])
    if when == "never":
        assert asked == ["PATCH baremetalhosts", "GET clusters", "PATCH baremetalhosts"]
        assert names.BLOCK_MOVE in left
    elif when == "gone":
        assert asked == ["PATCH baremetalhosts", "GET clusters"], "the next look sees no Cluster and lets it move"
    else:
        assert left == {names.PAUSED, names.STATUS_ANNOTATION}, "paused, with its status, and free to move"


def test_a_host_that_is_gone_is_not_healthy() -> None:
    written: list[dict[str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        assert (request.method, request.path.rpartition("/")[2]) == ("PATCH", "status")
        written.append(await request.json())
        return web.json_response({"metadata": {"name": "m", "namespace": "n", "resourceVersion": "98"}})

    async def run() -> None:
        async with answering(answer) as client:
            room = Ward(client)
            room.machine("m", annotations={names.HOST_ANNOTATION: "n/h"}, providerID="metal3://n/h/m", image=IMAGE)
            for record in (owner(), cluster()):
                room.put(record)
            await room.keeper(dry_run=False).reconcile("n/m")

    asyncio.run(run())
    (body,) = written
    told = {one["type"]: (one["status"], one["reason"]) for one in body["status"]["conditions"]}
    assert told[names.ASSOCIATED] == told[names.HEALTHY] == told[names.READY] == ("False", "HostLost")


def test_a_host_is_kept_from_moving_before_its_cluster_is_asked_for_the_node() -> None:
    """A cluster that does not answer may take half a minute; a move could begin in that time."""
    asked: list[str] = []
    mine = {"name": "h", "namespace": "n", "resourceVersion": "50"}
    body = {"metadata": mine, "spec": {"consumerRef": CONSUMER, "image": IMAGE}, "status": {
        "operationalStatus": "OK", "provisioning": {"state": "provisioned"},
    }}  # fmt: skip

    async def answer(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {request.path.rpartition('/')[2]}")
        if request.method == "PATCH" and request.path.endswith("baremetalhosts/h"):
            meta = {**mine, "resourceVersion": "99", **(await request.json())["metadata"]}
            return web.json_response({**body, "metadata": meta | {"resourceVersion": "99"}})
        if request.method == "PATCH":
            return web.json_response({"metadata": {"name": "m", "namespace": "n", "resourceVersion": "98"}})
        return web.json_response({"kind": "Status", "reason": "NotFound", "code": 404}, status=404)

    async def run() -> None:
        async with answering(answer) as client:
            room = Ward(client)
            for record in (owner(), cluster(), msgspec.convert(body, BareMetalHost)):
                room.put(record)
            await room.keeper(dry_run=False).reconcile("n/m")

    asyncio.run(run())
    assert asked.count("PATCH h") == 1, asked
    assert asked.index("PATCH h") < asked.index("GET c-kubeconfig"), asked


def test_a_name_that_several_have_or_that_cannot_be_read_is_not_one_that_nobody_has() -> None:
    async def run() -> None:
        async with ward() as room:
            explained = MetalExplainers(cast(MachineReconciler, room), room.remediator, lambda: None, lambda: NOW).host
            for namespace, name in (("n", "h"), ("other", "h"), ("n", "alone")):
                room.put(msgspec.convert({"metadata": {"name": name, "namespace": namespace}}, BareMetalHost))
            assert explained("alone") is not None
            assert explained("other/h") is not None
            assert explained("nobody") is None
            with pytest.raises(UnknownName, match='Several are named "h"; say NAMESPACE/NAME: n/h and other/h'):
                explained("h")
            room.caches.hosts.store.unread("n/h", 99, "spec.online is a string")
            with pytest.raises(UnknownName, match='"n/h" is there and cannot be read'):
                explained("n/h")

    asyncio.run(run())


def test_the_template_of_a_machine_is_found_without_its_annotation_too() -> None:
    """Cluster API leaves the annotation out at times; the owner of the Machine names the template as well."""

    def record(kind: type[Any], spec: Any, **meta: Any) -> Any:
        return msgspec.convert({"metadata": {"namespace": "n", "resourceVersion": "5", **meta}, "spec": spec}, kind)

    def cloned(name: str, kind: str = "Metal3MachineTemplate") -> dict[str, Any]:
        return {"spec": {"infrastructureRef": {"kind": kind, "name": name}}}

    async def run() -> None:
        async with ward() as room:
            caches = room.caches
            for name in ("workers", "control", "annotated"):
                caches.templates.store.put(record(Metal3MachineTemplate, {"nodeReuse": True}, name=name))
            caches.machine_sets.store.put(record(MachineSet, {"template": cloned("workers")}, name="md-1"))
            caches.machine_sets.store.put(record(MachineSet, {"template": cloned("workers", "Other")}, name="md-2"))
            caches.control_planes.store.put(record(ControlPlane, {"machineTemplate": cloned("control")}, name="kcp"))

            def template(kind: str, owner: str, **annotations: str) -> str:
                found = caches.template_of(
                    record(Metal3Machine, {}, name="m", annotations=annotations),
                    record(Machine, {}, name="m", ownerReferences=[{"kind": kind, "name": owner}]),
                )
                return found.metadata.name if found is not None else ""

            assert template("MachineSet", "md-1") == "workers"
            assert template("KubeadmControlPlane", "kcp") == "control"
            assert template("MachineSet", "md-1", **{names.CLONED_FROM: "annotated"}) == "annotated"
            assert template("MachineSet", "md-2") == "", "of another provider"
            assert template("MachineSet", "gone") == ""
            assert template("RKE2ControlPlane", "kcp") == ""

    asyncio.run(run())


def test_a_kept_host_is_not_freed_while_it_cannot_be_read_for_whom_it_is_kept() -> None:
    async def run() -> None:
        async with ward() as room:
            keeper = ReservedHostReconciler(room.tools())
            room.put(cluster())

            def why(label: str) -> str:
                freed = keeper.decide(kept(label))
                return freed.write.why if freed is not None else ""

            assert why("md-a") == "MachineDeployment a is gone"
            room.caches.deployments.store.unread("other/a", 98, "its labels are a string")
            assert why("md-a") == "MachineDeployment a is gone"
            for store in (room.caches.deployments.store, room.caches.capi_clusters.store):
                store.unread("n/x", 99, "spec.paused is a string")
                assert why("md-a") == ""
                store.forget("n/x", 100)
            assert why("md-a") == "MachineDeployment a is gone"

    asyncio.run(run())


def test_a_kept_host_whose_machine_was_removed_by_force_waits_for_nobody() -> None:
    """Else its successor would wait for it for ever, with other hosts free beside it."""

    def why(room: Ward, state: str = "available", **spec: Any) -> str:
        meta = {"name": "h", "namespace": "n", "labels": {names.NODE_REUSE: "md-a", capi.CLUSTER_NAME: "c"}}
        body = {"metadata": meta, "spec": {"consumerRef": {**CONSUMER, "name": "gone"}, **spec}}
        found = msgspec.convert({**body, "status": {"provisioning": {"state": state}}}, BareMetalHost)
        return why_left(ReservedHostReconciler(room.tools()).facts(found))

    async def run() -> None:
        async with ward() as room:
            assert why(room) == "", "where its Cluster is not known it may be on its way from elsewhere"
            room.put(cluster(paused=True))
            assert why(room) == ""
            room.put(cluster())
            assert why(room) == "Metal3Machine n/gone is gone"
            assert why(room, "deprovisioning") == "", "not before it is empty"
            assert why(room, image={"url": "x"}) == ""
            assert why(room, consumerRef=CONSUMER) == "", "that one is there"
            assert why(room, consumerRef={**CONSUMER, "apiVersion": "example.org/v1"}) == "", "not ours to know"
            room.caches.machines.store.unread("n/gone", 99, "spec.image is a string")
            assert why(room) == "", "it may be there after all"

    asyncio.run(run())


@pytest.mark.parametrize(
    ("type", "owners", "says"),
    [
        (names.SECRET_TYPE, [], ""),
        (names.SECRET_TYPE, [{"kind": "Metal3Data", "name": "another-0"}], ""),
        ("Opaque", [], "its type is Opaque"),
        ("Opaque", [{"kind": "Metal3Data", "name": "t-0"}], "its type is Opaque"),
        (names.SECRET_TYPE, [{"kind": "Deployment", "name": "web"}], "it belongs to Deployment web"),
    ],
)
def test_only_a_secret_that_we_have_made_is_written_anew(type: str, owners: list[dict[str, str]], says: str) -> None:
    secret = {"metadata": {"name": "m-metadata", "ownerReferences": owners}, "type": type}
    assert why_not_ours(msgspec.convert(secret, RenderedSecret)) == says


def test_words_that_thousands_of_records_have_in_common_are_kept_once() -> None:
    """At 3,000 machines and hosts that is 6 MiB less; times and names, of which there is no end, are not kept so."""
    owner = {"apiVersion": "x/v1", "kind": "Owner", "name": "o", "uid": "u"}
    meta = {"name": "a", "namespace": "many-hosts", "finalizers": ["example.org/one"], "ownerReferences": [owner]}
    image = {"url": "http://images.invalid/os.raw", "checksum": "0123456789abcdef"}
    told = {"type": "SomeType", "status": "True", "reason": "SomeReason", "lastTransitionTime": "2026-11-16T14:00:00Z"}
    host = {"metadata": meta, "spec": {"image": image, "consumerRef": CONSUMER}}
    machine = {"metadata": meta, "spec": {"image": image}, "status": {"conditions": [told]}}
    one, two = (msgspec.json.decode(msgspec.json.encode(host), type=BareMetalHost) for _ in range(2))
    assert one.metadata.namespace is two.metadata.namespace
    assert one.metadata.finalizers[0] is two.metadata.finalizers[0]
    assert one.metadata.owner_references[0].kind is two.metadata.owner_references[0].kind
    assert one.spec.image is not None
    assert two.spec.image is not None
    assert one.spec.image.url is two.spec.image.url
    assert one == two
    his, hers = (msgspec.json.decode(msgspec.json.encode(machine), type=Metal3Machine) for _ in range(2))
    assert his.metadata.namespace is one.metadata.namespace
    assert his.spec.image.url is one.spec.image.url
    assert his.status.conditions[0].reason is hers.status.conditions[0].reason
    assert his.status.conditions[0].last_transition_time is not hers.status.conditions[0].last_transition_time
