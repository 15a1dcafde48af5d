"""Remediation as pure decisions: off, out of service, on again, retried, given up; interrupted at every write."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from hostler.apis import capi
from hostler.apis.capi import Cluster, Machine
from hostler.apis.metal3 import BareMetalHost, Metal3Cluster, Metal3Machine
from hostler.host.maintenance import OUT_OF_SERVICE
from hostler.instant import iso
from hostler.kube.records import Node
from hostler.metal import names
from hostler.metal.claiming.refusal import Refusal, Refused, why_not_free
from hostler.metal.clusters import cluster_change
from hostler.metal.model import Said, Write
from hostler.metal.nodes import label_change, read_prefixes, select_labels
from hostler.metal.remediation.decide import LOOK_SECONDS, count_from_step, decide_remediation, is_off
from hostler.metal.remediation.model import (
    FAILED,
    GIVEN_UP,
    RUNNING,
    WAITING,
    NodeOut,
    Remediation,
    RemediationFacts,
    Step,
    taint_patch,
)
from hostler.ship.machines import NEW, REMEDIATION

API = "infrastructure.cluster.x-k8s.io/v1beta2"
CONSUMER = {"apiVersion": API, "kind": "Metal3Machine", "name": "m", "namespace": "n"}
OFF = f"{names.REMEDIATION_POWER_OFF}u1"
NOW = 1_000_000.0


def merged(body: Any, patch: Any) -> Any:
    """A JSON merge patch, as the API server does it."""
    if not isinstance(patch, dict):
        return patch
    found = dict(body) if isinstance(body, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found


class Rack:
    """One machine on one host: writes take effect, the host follows its annotations, the node its host."""

    def __init__(self, *, retry_limit: int = 1, heals: bool = True, node: bool = True) -> None:
        meta = {"name": "r", "namespace": "n", "uid": "u1", "resourceVersion": "1"}
        strategy = {"type": "Reboot", "retryLimit": retry_limit, "timeoutSeconds": 600}
        self.remediation: dict[str, Any] = {"metadata": meta, "spec": {"strategy": strategy}}
        self.host: dict[str, Any] = {
            "metadata": {"name": "h", "namespace": "n", "resourceVersion": "1", "annotations": {}},
            "spec": {"online": True, "consumerRef": CONSUMER},
            "status": {"operationalStatus": "OK", "poweredOn": True, "provisioning": {"state": "provisioned"}},
        }
        self.node: dict[str, Any] | None = {"metadata": {"name": "w1", "resourceVersion": "1"}} if node else None
        self.machine: dict[str, Any] = {"metadata": {"name": "m", "namespace": "n"}}
        self.heals, self.now, self.writes, self.reboots = heals, NOW, 0, 0
        self.pods: tuple[str, ...] = ("pod web/a",)
        self.sticks = False  # what is on the node never leaves it
        self.events: list[str] = []
        self.moves: set[tuple[str, str]] = set()  # from phase to phase

    @property
    def phase(self) -> str:
        return str(self.remediation.get("status", {}).get("phase", ""))

    @property
    def tainted(self) -> bool:
        taints = (self.node or {}).get("spec", {}).get("taints", [])
        return any(one["key"] == OUT_OF_SERVICE for one in taints)

    def facts(self) -> RemediationFacts:
        host = msgspec.convert(self.host, BareMetalHost)
        held = (host,) if OFF in host.metadata.annotations else ()
        cluster = msgspec.convert({"metadata": {"name": "c", "namespace": "n"}}, Cluster)
        return RemediationFacts(
            msgspec.convert(self.remediation, Remediation), msgspec.convert(self.machine, Machine),
            msgspec.convert({"metadata": {"name": "m", "namespace": "n"}}, Metal3Machine), cluster, host, held,
        )  # fmt: skip

    def seen(self) -> NodeOut:
        if self.node is None:
            return NodeOut()
        return NodeOut(msgspec.convert(self.node, Node), self.pods if self.tainted else ())

    def step(self, die_after: int = 99) -> Step:
        """One look; the process dies after so many of its writes."""
        facts = self.facts()
        step = decide_remediation(facts, self.now)
        if step.look:
            facts = replace(facts, node=self.seen())
            step = decide_remediation(facts, self.now)
        assert not step.look, "asked once, it is enough"
        left = die_after
        if step.taint is not None and left:
            left -= 1
            assert self.node is not None
            assert not step.taint or not self.host["status"]["poweredOn"], "out of service only while it is off"
            self.writes += 1
            self.node = merged(self.node, taint_patch(msgspec.convert(self.node, Node), facts.remediation, step.taint))
            self.node["metadata"]["resourceVersion"] = "1"
        for write in step.writes[:left]:
            self.write(write)
        self.events += [step.event] if step.event else []
        return step

    def taint(self, by: str = "u1") -> None:
        """Its node is out of service, by this remediation or by somebody else."""
        taints = [{"key": OUT_OF_SERVICE, "effect": "NoExecute"}, {"key": "x"}]
        marks = {names.TAINTED_BY: by} if by else {}
        self.node = merged(self.node, {"metadata": {"annotations": marks}, "spec": {"taints": taints}})

    def ready(self, status: str = "True") -> None:
        """What its kubelet says."""
        self.node = merged(self.node, {"status": {"conditions": [{"type": "Ready", "status": status}]}})

    def write(self, write: Write) -> None:
        self.writes += 1
        if phase := write.body.get("status", {}).get("phase"):
            self.moves.add((self.phase, phase))
        attribute = {"BareMetalHost": "host", "Metal3Remediation": "remediation", "Machine": "machine"}[write.kind.kind]
        setattr(self, attribute, merged(getattr(self, attribute), write.body))

    def pass_time(self) -> None:
        """What happens by itself: Baremetal Operator, the node, the clock."""
        off = OFF in self.host["metadata"].get("annotations", {})
        if self.host["status"]["poweredOn"] and off:
            self.reboots += 1
        assert off or not (self.tainted and self.pods), "its volumes would be torn off a host that is on"
        self.host["status"]["poweredOn"] = not off
        if self.tainted and not self.sticks:
            self.pods = ()
        self.now += 30

    def run(self, looks: int = 200, die: bool = False) -> None:
        for number in range(looks):
            if self.remediation["metadata"].get("deletionTimestamp"):
                break
            self.step(number % 3 if die else 99)
            self.pass_time()
            finalized = names.REMEDIATION_FINALIZER in self.remediation["metadata"].get("finalizers", [])
            if self.phase == WAITING and self.heals and not finalized and self.host["status"]["poweredOn"]:
                self.remediation["metadata"]["deletionTimestamp"] = "now"  # the health check is content


@pytest.mark.parametrize("die", [False, True])
@pytest.mark.parametrize("node", [False, True])
def test_a_host_is_rebooted_and_its_node_comes_back(die: bool, node: bool) -> None:
    rack = Rack(node=node)
    rack.run(die=die)
    assert rack.reboots == 1
    assert not rack.tainted
    assert OFF not in rack.host["metadata"]["annotations"]
    assert not rack.remediation["metadata"].get("finalizers")
    assert names.UNHEALTHY[0] not in rack.host["metadata"]["annotations"]


@pytest.mark.parametrize("die", [False, True])
@pytest.mark.parametrize("limit", [1, 3])
def test_a_node_that_does_not_come_back_is_given_up_after_the_last_retry(die: bool, limit: int) -> None:
    rack = Rack(retry_limit=limit, heals=False)
    rack.run(looks=400, die=die)
    assert rack.phase == GIVEN_UP
    assert rack.reboots == limit + 1
    assert rack.remediation["status"]["retryCount"] == limit
    assert rack.host["metadata"]["annotations"][names.UNHEALTHY[0]] == "capm3/UnhealthyNode"
    assert OFF not in rack.host["metadata"]["annotations"], "a host that is given up is not kept off"
    (condition,) = rack.machine["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("OwnerRemediated", "False")


def test_the_mark_comes_before_the_owner_is_told() -> None:
    rack = Rack(heals=False)
    rack.run(looks=30)
    rack.now += 10_000
    kinds = [write.kind.kind for write in rack.step(0).writes]
    while "Machine" not in kinds:
        rack.step()
        rack.pass_time()
        rack.now += 10_000
        kinds = [write.kind.kind for write in rack.step(0).writes]
    assert kinds == ["BareMetalHost", "Machine", "Metal3Remediation"]


def running(rack: Rack, phase: str = RUNNING, asked: bool = True) -> None:
    """In the middle of it: finalizer and annotation written."""
    rack.remediation["metadata"]["finalizers"] = [names.REMEDIATION_FINALIZER]
    rack.remediation["status"] = {"phase": phase, "lastRemediated": iso(rack.now)}
    if asked:
        rack.host["metadata"]["annotations"][OFF] = "{}"


@pytest.mark.parametrize(
    "status",
    [
        {"poweredOn": True},
        {"poweredOn": False, "errorType": "power management error", "operationalStatus": "error"},
        {"poweredOn": False, "provisioning": {"state": "provisioning"}},
        {"poweredOn": False, "provisioning": {"state": ""}},
    ],
)
def test_a_node_is_not_put_out_of_service_while_its_host_may_be_on(status: dict[str, Any]) -> None:
    rack = Rack()
    running(rack)
    rack.host["status"] |= status
    assert not is_off(msgspec.convert(rack.host, BareMetalHost))
    facts = replace(rack.facts(), node=rack.seen())
    step = decide_remediation(facts, rack.now)
    assert step.taint is None
    assert step.writes == ()
    assert 0 < (step.wake or 0) <= 600, "it looks again when the time of this attempt is over"


def test_what_is_left_on_the_node_is_waited_for_and_named() -> None:
    rack = Rack()
    running(rack)
    rack.host["status"]["poweredOn"] = False
    assert rack.step().taint is True
    step = rack.step()
    assert "pod web/a" in step.why
    assert step.writes == ()
    rack.pods = ()
    assert "powered on again" in rack.step().why
    assert rack.phase == WAITING


def test_a_cluster_that_does_not_answer_is_waited_for_a_minute_only() -> None:
    rack = Rack()
    running(rack)
    rack.host["status"]["poweredOn"] = False
    unknown = replace(rack.facts(), node=NodeOut(why="nobody answers."))
    assert decide_remediation(unknown, rack.now + 10).writes == ()
    step = decide_remediation(unknown, rack.now + 61)
    assert step.taint is None
    assert [write.kind.kind for write in step.writes] == ["Metal3Remediation", "BareMetalHost"]


def test_a_host_that_does_not_go_off_costs_a_retry() -> None:
    rack = Rack(retry_limit=1)
    running(rack)
    rack.now += 601
    assert rack.step().event == "Retrying"
    assert rack.remediation["status"]["retryCount"] == 1
    rack.now += 601
    assert rack.step().event == "HostUnhealthy"
    assert rack.phase == GIVEN_UP
    assert not rack.tainted


@pytest.mark.parametrize(("annotation", "says"), [(names.PAUSED, "is paused by me"), (names.DETACHED, "is detached")])
def test_a_host_that_somebody_holds_is_left_alone_for_as_long_as_that(annotation: str, says: str) -> None:
    rack = Rack()
    running(rack)
    rack.host["metadata"]["annotations"][annotation] = "me"
    rack.now += 10_000
    step = rack.step()
    assert says in step.why
    assert step.writes == ()


def test_a_host_switched_off_by_somebody_is_not_rebooted() -> None:
    rack = Rack()
    rack.host["spec"]["online"] = False
    assert "switched off" in rack.step().why
    assert rack.phase == FAILED
    writes = rack.writes
    rack.step()
    assert rack.writes == writes


def test_phases_follow_each_other_as_they_are_drawn() -> None:
    moves: set[tuple[str, str]] = set()
    for stuck in (False, True):  # a host that does not go off never comes to wait
        rack = Rack(heals=False)
        if stuck:
            rack.host["status"]["errorType"] = "power management error"
        rack.run()
        assert rack.phase == GIVEN_UP
        moves |= rack.moves
    for phase in ("", RUNNING, WAITING):
        rack = Rack()
        while rack.phase != phase:
            rack.step()
            rack.pass_time()
        rack.host["spec"]["online"] = False
        rack.step()
        moves |= rack.moves
    drawn = {(source, one.target) for one in REMEDIATION for source in one.sources}
    assert {(before or NEW, after) for before, after in moves} == drawn


@pytest.mark.parametrize("phase", ["", RUNNING, WAITING, GIVEN_UP, FAILED])
@pytest.mark.parametrize("off", [False, True])
def test_deleted_at_any_point_it_leaves_nothing_behind(phase: str, off: bool) -> None:
    rack = Rack()
    running(rack, phase)
    rack.host["status"]["poweredOn"] = not off
    rack.taint()
    rack.remediation["metadata"]["deletionTimestamp"] = "now"
    rack.step()
    assert OFF not in rack.host["metadata"]["annotations"]
    assert not rack.remediation["metadata"]["finalizers"]
    assert rack.node is not None
    assert [one["key"] for one in rack.node["spec"]["taints"]] == ["x"]
    assert names.TAINTED_BY not in rack.node["metadata"]["annotations"]


def test_the_remediation_of_a_machine_that_is_gone_frees_the_host_that_it_held() -> None:
    rack = Rack()
    running(rack)
    rack.remediation["metadata"]["deletionTimestamp"] = "now"
    orphan = replace(rack.facts(), owner=None, machine=None, host=None)
    host, finalizer = decide_remediation(orphan, rack.now).writes
    assert host.body == {"metadata": {"annotations": {OFF: None}}}
    assert finalizer.body == {"metadata": {"finalizers": []}}


def test_a_host_whose_machine_goes_is_not_kept_off_for_the_next() -> None:
    rack = Rack()
    running(rack)
    assert why_not_free(msgspec.convert(rack.host, BareMetalHost)) == Refusal(Refused.POWERED_OFF)
    rack.machine["metadata"]["deletionTimestamp"] = "now"
    rack.step()
    assert OFF not in rack.host["metadata"]["annotations"]
    assert rack.phase == RUNNING
    assert rack.step().writes == ()


def test_deleted_while_its_cluster_does_not_answer_the_host_goes_on_and_the_node_is_waited_for() -> None:
    rack = Rack()
    running(rack)
    rack.remediation["metadata"]["deletionTimestamp"] = "now"
    step = decide_remediation(replace(rack.facts(), node=NodeOut(why="nobody answers.")), rack.now)
    assert [write.kind.kind for write in step.writes] == ["BareMetalHost"]
    assert step.wake


def test_paused_nothing_is_done() -> None:
    rack = Rack()
    rack.remediation["metadata"]["annotations"] = {capi.PAUSED: ""}
    assert rack.step().writes == ()
    cluster = msgspec.convert({"metadata": {"name": "c"}, "spec": {"paused": True}}, Cluster)
    assert decide_remediation(replace(Rack().facts(), cluster=cluster), NOW).writes == ()


@pytest.mark.parametrize("missing", [{"owner": None}, {"machine": None}, {"host": None}])
def test_what_is_not_there_is_waited_for(missing: dict[str, Any]) -> None:
    step = decide_remediation(replace(Rack().facts(), **missing), NOW)
    assert step.writes == ()
    assert step.why.endswith(".")


@pytest.mark.parametrize("strategy", [{}, {"type": ""}])
def test_a_remediation_without_a_strategy_reboots(strategy: dict[str, Any]) -> None:
    rack = Rack()
    rack.remediation["spec"]["strategy"] = strategy
    assert rack.step().writes


def test_an_unknown_strategy_is_said() -> None:
    rack = Rack()
    rack.remediation["spec"]["strategy"] = {"type": "Pray"}
    step = rack.step()
    assert step.event == "UnknownStrategy"
    assert step.writes == ()


# -- what must not happen


@pytest.mark.parametrize("limit", [0, 1])
@pytest.mark.parametrize("kept", [False, True])
def test_a_node_that_is_ready_is_not_rebooted_when_the_time_is_over(limit: int, kept: bool) -> None:
    """The Cluster was paused for longer than an attempt takes, or a person held the host."""
    rack = Rack(retry_limit=limit)
    running(rack, WAITING, asked=False)
    if kept:
        rack.taint()
    else:
        rack.remediation["metadata"]["finalizers"] = []
    rack.ready()
    rack.now += 10_000
    for _ in range(3):
        assert rack.step().wake == LOOK_SECONDS
    assert (rack.phase, rack.remediation["status"].get("retryCount", 0)) == (WAITING, 0)
    assert rack.host["metadata"]["annotations"] == {}
    assert not rack.tainted
    assert not rack.remediation["metadata"]["finalizers"], "it may go at any time"
    rack.ready("Unknown")
    assert rack.step().event == ("Retrying" if limit else "HostUnhealthy")


def test_the_node_of_a_cluster_that_does_not_answer_is_waited_for_before_it_is_rebooted_again() -> None:
    rack = Rack()
    running(rack, WAITING, asked=False)
    silent = replace(rack.facts(), node=NodeOut(why="nobody answers.", silent=59.0))
    step = decide_remediation(silent, rack.now + 10_000)
    assert (step.writes, step.wake) == ((), LOOK_SECONDS)
    silent = replace(rack.facts(), node=NodeOut(why="nobody answers.", silent=61.0))
    assert decide_remediation(silent, rack.now + 10_000).event == "Retrying", "its API server may be on this host"


@pytest.mark.parametrize("ready", [False, True])
def test_paused_before_it_was_powered_off_it_begins_anew_or_not_at_all(ready: bool) -> None:
    rack = Rack()
    running(rack, asked=False)
    rack.now += 10_000
    if ready:
        rack.ready()
        step = rack.step()
        assert (step.writes, step.wake) == ((), LOOK_SECONDS)
        return
    rack.run()
    assert rack.reboots == 1
    assert "Retrying" not in rack.events, "nothing had been tried"


@pytest.mark.parametrize("limit", [0, 1])
def test_a_clock_set_forward_neither_reboots_a_host_again_nor_gives_it_up(limit: int) -> None:
    rack = Rack(retry_limit=limit)
    running(rack, WAITING, asked=False)
    rack.ready("Unknown")
    rack.now += 10_000
    set_at = rack.now

    def step() -> Step:
        facts = replace(rack.facts(), node=rack.seen())
        return decide_remediation(replace(facts, remediation=count_from_step(facts.remediation, set_at)), rack.now)

    assert step().event not in ("Retrying", "HostUnhealthy"), "the host had no time to come up"
    rack.now += 590
    assert step().event not in ("Retrying", "HostUnhealthy")
    rack.now += 10
    assert step().event == ("Retrying" if limit else "HostUnhealthy")


def test_a_clock_set_before_an_attempt_does_not_touch_it() -> None:
    rack = Rack()
    running(rack, WAITING, asked=False)
    facts = rack.facts()
    assert count_from_step(facts.remediation, rack.now - 700) == facts.remediation
    assert count_from_step(msgspec.convert(Rack().remediation, Remediation), rack.now).status.last_remediated == ""


def test_a_host_that_is_powered_on_late_has_time_to_come_up() -> None:
    rack = Rack()
    running(rack)
    rack.host["status"]["poweredOn"] = False
    rack.now += 590
    assert rack.step().event == "PoweringOn"
    rack.pass_time()
    assert rack.phase == WAITING
    assert rack.remediation["status"]["lastRemediated"] == iso(rack.now - 30)
    assert rack.step().event == "Rebooted"


@pytest.mark.parametrize("phase", [RUNNING, WAITING, GIVEN_UP])
def test_a_host_switched_off_in_the_middle_is_not_kept_off_nor_its_node_out_of_service(phase: str) -> None:
    rack = Rack()
    running(rack, phase)
    rack.taint()
    rack.host["status"]["poweredOn"] = False
    rack.host["spec"]["online"] = False
    rack.step()
    rack.step()
    assert rack.phase == (GIVEN_UP if phase == GIVEN_UP else FAILED)
    assert OFF not in rack.host["metadata"]["annotations"]
    out = rack.tainted
    assert out, "it is off"
    rack.host["spec"]["online"] = True
    assert rack.step().writes == ()
    rack.host["status"]["poweredOn"] = True
    rack.step()
    assert not rack.tainted
    assert not rack.remediation["metadata"]["finalizers"]
    writes = rack.writes
    rack.step()
    assert rack.writes == writes


def test_an_annotation_left_by_a_failed_remediation_is_taken_away() -> None:
    rack = Rack()
    running(rack, FAILED)
    rack.step()
    assert OFF not in rack.host["metadata"]["annotations"]


def test_a_host_that_only_says_it_is_off_is_not_put_out_of_service() -> None:
    rack = Rack()
    running(rack)
    rack.host["status"]["poweredOn"] = False
    for late in (0, 10_000):
        stale = replace(rack.facts(), fresh=False, node=rack.seen())
        step = decide_remediation(stale, rack.now + late)
        assert (step.taint, step.writes, step.wake) == (None, (), LOOK_SECONDS)


@pytest.mark.parametrize("die", [False, True])
def test_a_volume_that_never_leaves_costs_half_of_the_time_and_not_the_reboot(die: bool) -> None:
    rack = Rack(retry_limit=0)
    rack.sticks = True
    rack.run(die=die)
    assert rack.reboots == 1
    assert rack.now - NOW < 600
    assert not rack.tainted
    assert names.UNHEALTHY[0] not in rack.host["metadata"]["annotations"]


@pytest.mark.parametrize("by", ["", "another"])
@pytest.mark.parametrize("die", [False, True])
def test_a_taint_of_somebody_else_stays(by: str, die: bool) -> None:
    rack = Rack()
    rack.taint(by)
    rack.pods = ()
    rack.run(die=die)
    assert rack.reboots == 1
    assert rack.tainted
    rack.step()
    assert rack.tainted, "nor is it taken away with the remediation"


@pytest.mark.parametrize("phase", [RUNNING, WAITING])
@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("off", [False, True])
def test_what_has_no_time_left_is_not_looked_at_without_a_pause(phase: str, asked: bool, off: bool) -> None:
    rack = Rack()
    running(rack, phase, asked)
    rack.host["status"]["poweredOn"] = not off
    rack.now += 10_000
    for _ in range(2):  # as in a dry run: nothing is written, and nothing moves
        wake = rack.step(0).wake
        assert wake is None or wake >= LOOK_SECONDS


# -- labels of hosts on nodes


def test_only_differences_of_the_named_prefixes_are_written() -> None:
    prefixes = read_prefixes(" rack.example.org, ,room.example.org")
    wanted = select_labels(
        prefixes, {"rack.example.org/row": "2", "room.example.org/a": "b", "other": "x", "o.org/x": "1"}
    )
    assert wanted == {"rack.example.org/row": "2", "room.example.org/a": "b"}
    has = {"rack.example.org/row": "1", "rack.example.org/old": "1", "room.example.org/a": "b", "o.org/y": "1"}
    change = label_change(prefixes, wanted, has)
    assert change == {"rack.example.org/row": "2", "rack.example.org/old": None}
    assert label_change(prefixes, wanted, {**wanted, "o.org/y": "1"}) == {}
    with pytest.raises(ValueError, match="no prefix of a label"):
        read_prefixes("Not_A_Prefix")


def test_a_wrong_prefix_is_said_on_the_cluster_until_it_is_mended_and_a_right_one_is_not() -> None:
    def change(asked: str, said: Any = ()) -> dict[str, Any]:
        meta = {"name": "c", "namespace": "n", "annotations": {names.LABEL_PREFIXES: asked} if asked else {}}
        cluster = msgspec.convert({"metadata": meta, "status": {"conditions": said}}, Metal3Cluster)
        return dict(cluster_change(cluster, Said(names.READY, True, "Ready"), NOW).get("status", {}))

    def synced(status: dict[str, Any]) -> list[dict[str, Any]]:
        return [one for one in status["conditions"] if one["type"] == names.LABELS_SYNCED]

    for fine in ("", "rack.example.org"):
        assert synced(change(fine)) == []
    wrong = change("rack.example.org,Not_A_Prefix")
    (said,) = synced(wrong)
    assert (said["status"], said["reason"]) == ("False", "WrongPrefix")
    assert "names 'Not_A_Prefix', which is no prefix of a label" in said["message"]
    assert "conditions" not in change("rack.example.org,Not_A_Prefix", wrong["conditions"]), "a second look"
    for mended in ("", "rack.example.org"):
        (after,) = synced(change(mended, wrong["conditions"]))
        assert (after["status"], after["message"]) == ("True", "")
