"""The forecast of a machine's course: its first writes are the operator's, and its end is the end that comes."""

from __future__ import annotations

import asyncio
import copy
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from hostler.apis.metal3 import BareMetalHost
from hostler.apis.metal3_data import DataClaim
from hostler.explain.registry import Explanation
from hostler.kube.records import Metadata
from hostler.metal import names
from hostler.metal.explain import explain_forecast
from hostler.metal.model import ClaimSeen, NodeSeen, Rendered, Write
from hostler.metal.simulate import Forecast, Rules, simulate_machine
from tests.sizes import examples
from tests.unit.metal_course import CONSUMER, IMAGE, NOW, POLICY, Course, dry_keeper, host_body, machine_body

LEAVING = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [names.MACHINE_FINALIZER]}


def forecast(course: Course) -> Forecast:
    return simulate_machine(course.facts(), course.records(), Rules(POLICY), NOW)


def planned(course: Course) -> Explanation:
    return explain_forecast(forecast(course), "")


def steps(plan: Explanation) -> list[str]:
    return [f"{one.verb} {one.target}: {one.why}" for one in plan.actions]


def test_a_machine_is_given_a_host_that_is_installed_and_becomes_its_node() -> None:
    plan = planned(Course(machine_body(), {"h": host_body("h")}))
    assert steps(plan) == [
        "patch metal3machine/m: it is to get host n/h",
        "patch baremetalhost/h: claimed for Metal3Machine n/m",
        "patch secret/bmc-h: the BMC of host h belongs to this cluster",
        "wait for Baremetal Operator: host h becomes provisioning",
        "wait for Baremetal Operator: host h becomes provisioned",
        "wait for node: the node of host h comes up",
        "patch metal3machine/m: its node is h",
        "report Ready metal3machine/m: Provisioned",
    ]
    assert plan.outcome == "Host h was chosen (ordered). In the end: Host h is provisioned and the machine is ready."


def test_a_machine_that_is_deleted_leaves_its_host_empty_and_free() -> None:
    mine = host_body("h", "provisioned", mine=True, spec={"online": True, "image": IMAGE})
    course = Course(machine_body(**LEAVING), {"h": mine}, secret_cluster="")
    plan = planned(course)
    assert steps(plan) == [
        "patch baremetalhost/h: Metal3Machine m is being deleted",
        "wait for Baremetal Operator: host h becomes deprovisioning",
        "wait for Baremetal Operator: host h becomes available",
        "patch baremetalhost/h: it is free of Metal3Machine m",
        "patch metal3machine/m: its host is free",
    ]
    assert plan.outcome.endswith("In the end the machine is gone.")
    (host,) = forecast(course).hosts
    assert (host.spec.consumer_ref, host.spec.image, host.state) == (None, None, "available")


def test_a_host_that_is_not_the_machine_s_is_disowned_once() -> None:
    """Another controller's finalizer keeps the machine, and the forecast comes to rest all the same."""
    owner = {"apiVersion": CONSUMER["apiVersion"], "kind": "Metal3Machine", "name": "m", "uid": "u"}
    leaving = {**LEAVING, "finalizers": [names.MACHINE_FINALIZER, "example.org/other"]}
    found = forecast(Course(machine_body(**leaving), {"h": host_body("h", meta={"ownerReferences": [owner]})}))
    assert [one.kind.kind for one in found.events if isinstance(one, Write)] == ["BareMetalHost", "Metal3Machine"]
    assert not found.gone


@pytest.mark.parametrize(
    ("hosts", "spec", "says"),
    [
        ([], {}, "There is no host in this namespace."),
        ([host_body("h", "inspecting")], {}, "No host is available now: some are not available yet."),
        ([host_body("h")], {"hostSelector": {"matchLabels": {"not a name": ""}}},
         "It gets no host: hostSelector: 'not a name' is no label name."),
    ],
)  # fmt: skip
def test_a_machine_that_gets_no_host_only_says_why(hosts: list[Any], spec: dict[str, Any], says: str) -> None:
    machine = machine_body()
    machine["spec"] |= spec
    plan = planned(Course(machine, {one["metadata"]["name"]: one for one in hosts}))
    assert (plan.outcome, plan.actions) == (says, ())


def test_a_host_with_an_error_is_waited_for_without_an_end() -> None:
    broken = {"operationalStatus": "error", "errorType": "provisioning error", "errorMessage": "no"}
    mine = host_body("h", "provisioning", mine=True, spec={"online": True, "image": IMAGE}, status=broken)
    found = forecast(Course(machine_body(finalizers=[names.MACHINE_FINALIZER]), {"h": mine}))
    assert found.last.why == "Host h reports provisioning error: no"
    assert found.facts.host is not None
    assert found.facts.host.state == "provisioning"


def test_data_that_is_not_rendered_yet_comes_before_the_image() -> None:
    course = Course(machine_body(), {"h": host_body("h", mine=True)})

    facts = replace(course.facts(), rendered=Rendered(False, "its data is being rendered.", "m-0"))
    found = simulate_machine(facts, course.records(), Rules(POLICY), NOW)
    told = steps(explain_forecast(found, ""))
    data, installed = (next(i for i, one in enumerate(told) if word in one) for word in ("Metal3Data", "provisioned"))
    assert data < installed


def test_data_is_claimed_with_the_host_and_let_go_with_the_machine() -> None:
    course = Course(machine_body(finalizers=[names.MACHINE_FINALIZER]), {"h": host_body("h", mine=True)})
    course.machine["spec"]["dataTemplate"] = {"name": "t"}
    asked = replace(course.facts(), rendered=Rendered(False), data_claim=ClaimSeen())
    told = steps(explain_forecast(simulate_machine(asked, course.records(), Rules(POLICY), NOW), ""))
    assert told.count("create metal3dataclaim/m: data for Metal3Machine m") == 1
    course.machine["metadata"] |= LEAVING
    claim = DataClaim(metadata=Metadata(name="m", namespace="n", uid="cu"))
    going = replace(course.facts(), data_claim=ClaimSeen(claim))
    told = steps(explain_forecast(simulate_machine(going, course.records(), Rules(POLICY), NOW), ""))
    assert told[0] == "delete metal3dataclaim/m: Metal3Machine m goes"
    assert told.count(told[0]) == 1


# -- random worlds

states = st.sampled_from(["available", "available", "inspecting", "provisioned", "provisioning", "deprovisioning"])


@st.composite
def courses(draw: st.DrawFn) -> Course:
    """A machine without a host, with one in any state, or on its way out; other hosts free, busy or of no use."""
    hosts = {}
    mine = draw(st.sampled_from(["", "a", "b"]))
    for name in draw(st.sampled_from(["a", "ab", "abc"])):
        state = draw(states) if name == mine else draw(st.sampled_from(["available", "inspecting"]))
        online = draw(st.booleans())
        spec: dict[str, Any] = {"online": online}
        if name == mine and state in ("provisioned", "provisioning"):
            spec = {"online": True, "image": IMAGE}
        meta: dict[str, Any] = {"labels": draw(st.sampled_from([{}, {"rack": "1"}]))}
        if draw(st.booleans()):
            meta["annotations"] = {names.BLOCK_MOVE: ""}
        hosts[name] = host_body(name, state, mine=name == mine, spec=spec, meta=meta)
    about: dict[str, Any] = {}
    if draw(st.booleans()):
        about["finalizers"] = [names.MACHINE_FINALIZER]
        if draw(st.booleans()):
            about["annotations"] = {names.HOST_ANNOTATION: f"n/{draw(st.sampled_from('ab'))}"}
        if draw(st.booleans()):
            about |= LEAVING
    machine = machine_body(**about)
    if draw(st.booleans()):
        machine["spec"]["hostSelector"] = {"matchLabels": {"rack": "1"}}
    return Course(machine, hosts, draw(st.sampled_from([None, "", "c"])))


def told(write: Write) -> tuple[str, str, str]:
    return write.kind.kind, f"{write.namespace}/{write.name}", write.why


@settings(max_examples=examples(200))
@given(course=courses())
def test_the_first_writes_of_a_plan_are_the_operator_s(course: Course) -> None:
    host = course.facts().host if course.facts().associated else None
    if host is None:  # else the operator reads the host afresh first, from an API server
        course.machine["metadata"].pop("annotations", None)
    elif host.state == "provisioned":
        course.node = NodeSeen(why="its cluster cannot be asked for the node: ")  # and is not, in a unit test

    async def run() -> list[tuple[str, str, str]]:
        async with dry_keeper(course) as keeper:
            with capture_logs() as lines:
                await keeper.reconcile("n/m")
            return [(one["kind"], one["name"], one["why"]) for one in lines if one["event"] == "would write"]

    found = forecast(course)
    expected = [told(one) for one in found.events[: found.begins] if isinstance(one, Write)]
    written = asyncio.run(run())
    assert written[:1] == expected[:1]
    statuses = {one.why for one in found.events[: found.begins] if isinstance(one, Write) and one.subresource}
    assert [one for one in expected if one[2] not in statuses] == written[: len(expected) - len(statuses)]


def end_of(host: BareMetalHost) -> tuple[object, ...]:
    spec = host.spec
    return host.state, spec.consumer_ref, spec.image, spec.online, host.metadata.labels, host.metadata.annotations


@settings(max_examples=examples(200))
@given(course=courses(), dice=st.randoms(use_true_random=False))
def test_a_course_ends_as_it_was_forecast(course: Course, dice: random.Random) -> None:
    """Whoever is faster, the operator or Baremetal Operator."""
    for name, one in course.hosts.items():  # one that is nobody's may become free meanwhile, which nobody forecasts
        if one["status"]["provisioning"]["state"] == "inspecting" and not one["spec"].get("consumerRef"):
            one["metadata"]["labels"] = {"infrastructure.cluster.x-k8s.io/node-reuse": f"md-{name}"}
    found = forecast(copy.deepcopy(course))
    course.run(dice)
    assert course.gone == found.gone
    own = [one for one in found.hosts if one.spec.consumer_ref is not None]
    really = {one.metadata.name: one for one in course.records()}
    assert {one.metadata.name for one in own} == {n for n, one in really.items() if one.spec.consumer_ref is not None}
    for host in found.hosts:
        if host.state != "inspecting":
            assert end_of(really[host.metadata.name]) == end_of(host)
    if not course.gone:
        now, then = course.facts().machine, found.facts.machine
        assert now.spec.provider_id == then.spec.provider_id
        assert {(one.type, one.status, one.reason) for one in now.status.conditions} == {
            (one.type, one.status, one.reason) for one in then.status.conditions
        }
