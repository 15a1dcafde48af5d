"""Checks of vSphere nodes from one bulk read, and the four conditions that follow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostler.drain.observe import claims_of
from hostler.host.conditions import Status
from hostler.host.facts import Fact, Known, Unknown
from hostler.host.platform import classify
from hostler.instant import iso
from hostler.kube.records import Metadata, Node, NodeInfo, NodeSpec, NodeStatus, Pod
from hostler.platform.conditions import PATIENCE_SECONDS, Seen, decide_conditions
from hostler.platform.model import CheckRound, NodeCheck, PlacedNode, Result, Scope, State
from hostler.platform.node_checks import (
    Machine,
    hardware_of,
    in_no_vcenter,
    judge_nodes,
    next_look,
    nodes_to_check,
    spelled,
    uuids_of,
    version_of,
)
from hostler.platform.observe import is_stuck
from tests.unit.test_platform_scope import GRACE, NOW, TARGET, daemon_set

UUID = "42100fe1-0a04-9eb7-1b73-9a3d4578b557"


def vm(name: str, uuid: str = UUID, *, age: float = 9999.0, os: str = "linux", provider: bool = True) -> PlacedNode:
    node = Node(
        metadata=Metadata(
            name=name, creation_timestamp=iso(NOW - age), labels={"node.openshift.io/platform-type": "vsphere"}
        ),
        spec=NodeSpec(provider_id=f"vsphere://{uuid}" if provider else ""),
        status=NodeStatus(node_info=NodeInfo(operating_system=os)),
    )
    return PlacedNode(node, classify(node, NOW, GRACE))


def machine(
    uuid: str = UUID, hardware: str = "vmx-19", esxi: str = "8.0.3", name: str = "vm", moref: str = ""
) -> Machine:
    return Machine(spelled(uuid), name, hardware, esxi, "vc", moref or f"id-of-{name}")


def answered(*machines: Machine) -> dict[str, Fact[Any]]:
    return {"vc": Known(machines, NOW)}


def result(answers: dict[str, Fact[Any]], one: PlacedNode | None = None, before: CheckRound | None = None) -> Result:
    made = judge_nodes([one or vm("a")], answers, before or CheckRound(), NOW, GRACE)
    return made.results["a"].result


def test_a_node_that_claims_anothers_vm_is_not_checked_by_it() -> None:
    """By UUID and name it is `vm`; the other has nothing but the UUID. Of two that have no more, neither passes."""
    made = judge_nodes([vm("vm"), vm("liar")], answered(machine()), CheckRound(), NOW, GRACE)
    assert {name: one.result for name, one in made.results.items()} == {
        "vm": Result.PASSED,
        "liar": Result.CONTESTED,
    }
    assert made.results["liar"].why.startswith("more than one node claims VM vm: ")
    assert "stronger evidence" in made.results["liar"].why
    made = judge_nodes([vm("a"), vm("liar")], answered(machine()), CheckRound(), NOW, GRACE)
    assert {one.result for one in made.results.values()} == {Result.CONTESTED}
    by_guest = answered(replace(machine(), guest="a.example.com"))
    made = judge_nodes([vm("a"), vm("liar")], by_guest, CheckRound(), NOW, GRACE)
    assert {name: one.result for name, one in made.results.items()} == {"a": Result.PASSED, "liar": Result.CONTESTED}


@pytest.mark.parametrize(
    ("machines", "expected"),
    [
        ([machine()], Result.PASSED),
        ([machine("e10f1042-040a-b79e-1b73-9a3d4578b557")], Result.PASSED),  # the other byte order
        ([], Result.NOT_FOUND),
        ([machine(), machine(name="twin")], Result.AMBIGUOUS),
        ([machine(hardware="vmx-15")], Result.PASSED),
        ([machine(hardware="vmx-14")], Result.HARDWARE),
        ([machine(hardware="odd")], Result.UNKNOWN),
        ([machine(esxi="6.7.0")], Result.ESXI),
        ([machine(esxi="6.7.3")], Result.ESXI_BLOCKS),
        ([machine(esxi="7.0.1")], Result.ESXI_BLOCKS),
        ([machine(esxi="7.0.2")], Result.PASSED),
        ([machine(esxi="10.0")], Result.PASSED),
        ([machine(esxi="")], Result.UNKNOWN),
    ],
)
def test_each_result(machines: list[Machine], expected: Result) -> None:
    assert result(answered(*machines)) is expected


def test_a_young_node_and_one_without_uuid() -> None:
    assert result(answered(), vm("a", age=10)) is Result.YOUNG
    assert result(answered(), vm("a", provider=False)) is Result.NOT_FOUND


def test_a_silent_vcenter_keeps_the_last_answer_and_says_since_when() -> None:
    first = judge_nodes(
        [vm("a"), vm("b", "4237aaaa-0000-0000-0000-000000000001")], answered(machine()), CheckRound(), NOW, GRACE
    )
    assert (first.results["a"].result, first.results["b"].result) == (Result.PASSED, Result.NOT_FOUND)
    silent: dict[str, Fact[Any]] = {"vc": Unknown("no route")}
    second = judge_nodes([vm("a"), vm("b", "4237aaaa-0000-0000-0000-000000000001")], silent, first, NOW + 60, GRACE)
    assert second.results == first.results
    assert (second.at, second.unknown_since) == (NOW, NOW + 60)
    third = judge_nodes([vm("a")], silent, second, NOW + 120, GRACE)
    assert third.unknown_since == NOW + 60
    assert result(silent) is Result.UNKNOWN, "nothing was known before"
    assert result({**answered(), "vc2": Unknown("no route")}) is Result.UNKNOWN, "it may be in the silent one"
    assert result({**answered(machine()), "vc2": Unknown("no route")}) is Result.PASSED


def test_only_linux_nodes_of_vsphere_are_checked_and_asked_for_in_one_go() -> None:
    nodes = [vm("a"), vm("w", os="windows"), PlacedNode(Node(), classify(Node(), NOW, GRACE))]
    assert [one.name for one in nodes_to_check(nodes)] == ["a"]
    assert uuids_of(nodes[:1]) == {spelled(UUID)}


def test_when_to_look_again() -> None:
    passed = CheckRound({"a": NodeCheck(Result.PASSED, "")}, NOW)
    failed = CheckRound({"a": NodeCheck(Result.NOT_FOUND, "")}, NOW)
    assert next_look(passed, 0) == 3600
    assert [next_look(failed, number) for number in (1, 2, 3, 9, 99)] == [60, 120, 240, 3600, 3600]


def test_in_no_vcenter_needs_every_answer() -> None:
    node = vm("a").node
    assert in_no_vcenter(node, answered()) == Known(True, NOW)
    assert in_no_vcenter(node, answered(machine())) == Known(False, NOW)
    assert isinstance(in_no_vcenter(node, {**answered(), "vc2": Unknown("x")}), Unknown)
    assert isinstance(in_no_vcenter(node, {}), Unknown)
    assert isinstance(in_no_vcenter(Node(), answered()), Unknown)


@given(st.text(max_size=12))
def test_versions_are_read_or_not(text: str) -> None:
    assert version_of(text) is None or text[:1].isdecimal() or text != text.strip()
    assert hardware_of(text) is None or "vmx-" in text
    assert version_of("7.0.2.0") == (7, 0, 2)


# -- conditions

IN_PLACE = Scope(TARGET, State.IN_PLACE, "so it is")


def test_copies_with_one_name_and_one_uuid_are_two_vms() -> None:
    assert result(answered(machine(moref="vm-1"), machine(moref="vm-2"))) is Result.AMBIGUOUS


READY = daemon_set(desiredNumberScheduled=2, updatedNumberScheduled=2, numberAvailable=2)
STUCK = daemon_set(desiredNumberScheduled=2, updatedNumberScheduled=2, numberAvailable=1)
KEY = f"{TARGET.namespace}/{TARGET.name}"


def conditions(**more: Any) -> dict[str, tuple[Status, str]]:
    known = {"scopes": [(IN_PLACE, READY)], "round": CheckRound(at=NOW), "to_check": 1, "way": "policy"}
    made, _ = decide_conditions(Seen(**{**known, **more}), NOW)
    return {one.type: (one.status, one.reason) for one in made}


def checks(**results: Result) -> CheckRound:
    return CheckRound({name: NodeCheck(one, "") for name, one in results.items()}, NOW)


ALL_WELL = {
    "Available": (Status.TRUE, "AsExpected"), "Progressing": (Status.FALSE, "RolledOut"),
    "Degraded": (Status.FALSE, "AsExpected"), "Upgradeable": (Status.TRUE, "AsExpected"),
    "PodsStranded": (Status.FALSE, "AsExpected"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "differs"),
    [
        ({}, {}),
        ({"scopes": []}, {"Available": (Status.TRUE, "NothingScoped")}),
        ({"scopes": [(IN_PLACE, STUCK)]}, {"Progressing": (Status.TRUE, "RollingOut")}),
        (
            {"scopes": [(IN_PLACE, STUCK)], "since": {KEY: NOW - PATIENCE_SECONDS}},
            {"Progressing": (Status.TRUE, "RollingOut"), "Degraded": (Status.TRUE, "RollOutStuck")},
        ),
        (
            {"scopes": [(IN_PLACE, daemon_set(desiredNumberScheduled=1, updatedNumberScheduled=1))]},
            {"Available": (Status.FALSE, "NoPods"), "Progressing": (Status.TRUE, "RollingOut")},
        ),
        (
            {"scopes": [(Scope(TARGET, State.WRITE, "x"), READY)]},
            {"Progressing": (Status.TRUE, "RuleBeingWritten")},
        ),
        ({"scopes": [(Scope(TARGET, State.FIGHT, "x"), READY)]}, {"Degraded": (Status.TRUE, "Fight")}),
        ({"scopes": [(Scope(TARGET, State.HELD_BACK, "x"), READY)]}, {"Degraded": (Status.TRUE, "RuleHeldBack")}),
        (
            {"scopes": [(Scope(TARGET, State.IN_PLACE, "x", losing=("vm-1",)), READY)]},
            {"Degraded": (Status.TRUE, "PlatformNodeWithoutLabel")},
        ),
        (
            {"scopes": [(Scope(TARGET, State.IN_PLACE, "x", nowhere=True), READY)]},
            {"Degraded": (Status.TRUE, "NoEligibleNode")},
        ),
        (
            {"scopes": [(Scope(TARGET, State.HELD_BACK, "x", young=("vm-1",)), READY)]},
            {"Progressing": (Status.TRUE, "WaitingForLabels")},
        ),
        (
            {"scopes": [(Scope(TARGET, State.HELD_BACK, "x", losing=("vm-0",), young=("vm-1",)), READY)]},
            {"Degraded": (Status.TRUE, "RuleHeldBack")},
        ),
        ({"scopes": [(Scope(TARGET, State.IN_PLACE, "x", young=("vm-1",)), READY)]}, {}),
        ({"scopes": [(Scope(TARGET, State.UNREADABLE, "x"), None)]}, {"Available": (Status.UNKNOWN, "Unreadable")}),
        (
            {"round": checks(a=Result.NOT_FOUND)},
            {"Degraded": (Status.TRUE, "VMNotFound"), "Upgradeable": (Status.FALSE, "VMNotFound")},
        ),
        (
            {"round": checks(a=Result.HARDWARE), "scopes": []},
            {"Available": (Status.TRUE, "NothingScoped"), "Upgradeable": (Status.FALSE, "HardwareTooOld")},
        ),
        ({"round": checks(a=Result.ESXI_BLOCKS)}, {"Upgradeable": (Status.FALSE, "ESXiBlocksUpgrade")}),
        ({"round": checks(a=Result.YOUNG)}, {"Upgradeable": (Status.UNKNOWN, "NotChecked")}),
        ({"round": CheckRound(unknown="gone", unknown_since=NOW)}, {"Upgradeable": (Status.UNKNOWN, "NotChecked")}),
        ({"round": CheckRound(unknown="gone", unknown_since=NOW), "to_check": 0}, {}),
        ({"foreign": ["bm"]}, {}),
        (
            {"foreign": ["bm"], "strict": True},
            {"Degraded": (Status.TRUE, "ForeignNodes"), "Upgradeable": (Status.FALSE, "ForeignNodes")},
        ),
        ({"stranded": ["web/db-0"]}, {"PodsStranded": (Status.TRUE, "DriverMissing")}),
    ],
)
def test_the_conditions(facts: dict[str, Any], differs: dict[str, Any]) -> None:
    assert conditions(**facts) == {**ALL_WELL, **differs}


def test_all_failing_nodes_are_named_and_the_message_is_bounded_and_stable() -> None:
    many = {f"node-{number:04d}": Result.NOT_FOUND for number in range(2000)}
    made, _ = decide_conditions(Seen([(IN_PLACE, READY)], checks(z=Result.ESXI, **many), 2001, "policy"), NOW)
    said = next(one.message for one in made if one.type == "Degraded")
    assert "node-0000, node-0001" in said
    assert "and 1995 more" in said
    assert "ESXi below 6.7.3: z" in said
    assert len(said) <= 1024


def test_patience_is_waited_for() -> None:
    _, wake = decide_conditions(Seen([(IN_PLACE, STUCK)], CheckRound(), 0, "x", since={KEY: NOW - 100}), NOW)
    assert wake == PATIENCE_SECONDS - 100
    _, wake = decide_conditions(Seen([(IN_PLACE, STUCK)], CheckRound(), 0, "x"), NOW)
    assert wake == PATIENCE_SECONDS  # a lag that is seen for the first time


def test_a_claim_that_lives_with_its_pod_counts_too() -> None:
    pod = msgspec.convert(
        {"metadata": {"name": "db-0", "namespace": "web"}, "spec": {"volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "b", "ephemeral": {}},
            {"name": "c", "emptyDir": {}}]}}, Pod,
    )  # fmt: skip
    assert list(claims_of(pod)) == ["data", "db-0-b"]
    assert is_stuck(pod), "it is not ready"
