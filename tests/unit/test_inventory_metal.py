"""BareMetalHosts in the picture: their state, who decides, which node they are, and the claims under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from hostler.apis import capi, openshift
from hostler.apis.capi import Machine
from hostler.apis.metal3 import METAL3_MACHINE, BareMetalHost
from hostler.inventory.joining import join_layers
from hostler.inventory.model import Host
from hostler.inventory.nodes import node_layer
from hostler.inventory.sources import RecordedAs
from hostler.inventory.states import HostKind, HostState
from hostler.kube.kinds import NODE
from hostler.kube.records import Node
from hostler.kube.store import Store
from hostler.metal import names
from hostler.metal.host_layers import MetalSource
from tests.unit.metal_course import Course, dry_source, host_body, machine_body

ID = "metal3://n/h/m"


def node_body(name: str = "w", provider_id: str = ID, **more: Any) -> dict[str, Any]:
    """A worker of cluster n/c, as its control plane calls it."""
    ready = [{"type": "Ready", "status": "True"}]
    about = {"name": name, "resourceVersion": "1", **more}
    return {"metadata": about, "spec": {"providerID": provider_id}, "status": {"conditions": ready}}


CONTROL_PLANE = node_body(
    "cp", "", labels={"node-role.kubernetes.io/control-plane": ""},
    annotations={capi.CLUSTER_NAME: "c", capi.CLUSTER_NAMESPACE: "n"},
)  # fmt: skip


def owner_of(node: str, provider_id: str = ID, cluster: str = "c") -> Machine:
    body = {
        "metadata": {"name": "m", "namespace": "n", "resourceVersion": "2"},
        "spec": {"clusterName": cluster, "providerID": provider_id, "bootstrap": {"dataSecretName": "boot"}},
        "status": {"nodeRef": {"name": node}},
    }
    return msgspec.convert(body, Machine)


def settled_machine(**more: Any) -> dict[str, Any]:
    machine = machine_body(annotations={names.HOST_ANNOTATION: "n/h"}, **more)
    machine["spec"]["providerID"] = ID
    machine["status"]["initialization"] = {"provisioned": True}
    return machine


def course(machine: dict[str, Any], *hosts: dict[str, Any]) -> Course:
    return Course(machine, {one["metadata"]["name"]: one for one in hosts})


def hosts_of(
    world: Course,
    *nodes: dict[str, Any],
    owner: Machine | None = None,
    of_openshift: openshift.Machine | None = None,
    then: Callable[[MetalSource], object] = id,
) -> dict[str, Host]:
    """The hosts that are shown, by id."""

    async def look() -> dict[str, Host]:
        store = Store[Node]()
        for one in nodes:
            store.put(msgspec.convert(one, Node))
        async with dry_source(world, store, owner, of_openshift) as source:
            layers = [layer for layer in source.take().values() if layer is not None]
            then(source)
            return {host.id: host for host in join_layers([*layers, *(node_layer(one, "prod") for one in store)])}

    return asyncio.run(look())


BROKEN: dict[str, Any] = {"operationalStatus": "error", "errorType": "power", "errorMessage": "no"}
MINE: dict[str, Any] = {"mine": True, "spec": {"image": {"url": "x"}, "online": True}}


@pytest.mark.parametrize(
    ("host", "machine", "state", "why"),
    [
        (host_body("h"), machine_body(), HostState.AVAILABLE, "It is free."),
        (host_body("h", "inspecting"), machine_body(), HostState.DISCOVERED, "Host h is inspecting."),
        (
            host_body("h", meta={"annotations": {names.PAUSED: "ann"}}), machine_body(),
            HostState.HELD, "It is unavailable: it is paused by ann.",
        ),
        (
            host_body("h", "inspecting", status=BROKEN),
            machine_body(), HostState.FAILED, "Host h reports power: no",
        ),
        (host_body("h", mine=True), machine_body(), HostState.CLAIMED, "Host h is available."),
        (host_body("h", "provisioning", **MINE), machine_body(), HostState.PROVISIONING, "Host h is provisioning."),
        (
            host_body("h", "provisioned", **MINE), machine_body(), HostState.JOINING,
            "Host h is provisioned; its node is being looked for.",
        ),
        (
            host_body("h", "provisioned", **MINE), settled_machine(), HostState.PROVISIONED,
            "Host h is provisioned and the machine is ready.",
        ),
        (
            host_body("h", "deprovisioning", mine=True),
            settled_machine(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["x"]),
            HostState.DEPROVISIONING, "Host h is being emptied; the machine waits until it is free.",
        ),
    ],
)  # fmt: skip
def test_the_state_of_a_host_is_what_is_decided_about_it(
    host: dict[str, Any], machine: dict[str, Any], state: HostState, why: str
) -> None:
    shown = hosts_of(course(machine, host))["bmh:n/h"]
    assert (shown.kind, shown.state, shown.why) == (HostKind.BARE_METAL, state, why)


def test_a_broken_bmc_is_a_problem_and_no_failure_of_a_node() -> None:
    shown = hosts_of(course(settled_machine(), host_body("h", "provisioned", **MINE, status=BROKEN)))["bmh:n/h"]
    assert shown.state is HostState.PROVISIONED
    assert shown.problems == ("Host h reports power: no",)


def test_what_comes_next_is_the_first_step_of_the_plan() -> None:
    shown = hosts_of(course(machine_body(), host_body("h", "provisioning", **MINE)))["bmh:n/h"]
    assert shown.next.startswith("Patch metal3machine/m:")
    assert shown.mid_steps == ("metal: Host h is provisioning.",)


def test_a_machine_of_this_cluster_names_the_node_a_host_is() -> None:
    world = course(settled_machine(), host_body("h", "provisioned", **MINE))
    shown = hosts_of(world, node_body(), CONTROL_PLANE, owner=owner_of("w"))
    assert shown["bmh:n/h"].layers == ("bmh:n/h", "node:prod/w")
    assert (shown["bmh:n/h"].name, shown["bmh:n/h"].cluster, shown["bmh:n/h"].state) == ("w", "prod", "in service")


@pytest.mark.parametrize(
    ("nodes", "owner", "doubt"),
    [
        ((node_body(provider_id="metal3://n/o/x"), CONTROL_PLANE), owner_of("w"), "the node has another provider ID"),
        ((node_body(), CONTROL_PLANE), owner_of("w", "metal3://n/other/m"), "have different provider IDs"),
        ((node_body(), CONTROL_PLANE), owner_of(""), "no Machine of this cluster names that node"),
        ((node_body(), node_body("thief"), CONTROL_PLANE), owner_of("w"), "Node thief has its provider ID too"),
        ((node_body(),), owner_of("w"), "no Machine of this cluster names that node"),
    ],
)  # fmt: skip
def test_a_node_that_is_not_proven_stays_apart_with_a_doubt(
    nodes: tuple[dict[str, Any], ...], owner: Machine, doubt: str
) -> None:
    """The last one is a hub: nothing says that the cluster of the Machine is this one."""
    world = course(settled_machine(), host_body("h", "provisioned", **MINE))
    shown = hosts_of(world, *nodes, owner=owner)
    assert shown["bmh:n/h"].layers == ("bmh:n/h",)
    assert doubt in " ".join(shown["bmh:n/h"].notes)


def openshift_body(name: str = "h", **about: Any) -> dict[str, Any]:
    """A host that OpenShift's Machine `w-0` has."""
    consumer = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine", "name": "w-0",
                "namespace": "openshift-machine-api"}  # fmt: skip
    return host_body(name, "provisioned", spec={"consumerRef": {**consumer, **about}, "image": {"url": "x"}})


def openshift_machine(*, host: str = "n/h", node: str = "w", provider_id: str = "") -> openshift.Machine:
    about = {"name": "w-0", "namespace": "openshift-machine-api", "resourceVersion": "3",
             "annotations": {names.HOST_ANNOTATION: host}}  # fmt: skip
    body = {"metadata": about, "spec": {"providerID": provider_id}, "status": {"nodeRef": {"name": node}}}
    return msgspec.convert(body, openshift.Machine)


OPENSHIFT_ID = "baremetalhost:///n/h/uid-h"


@pytest.mark.parametrize("provider_id", ["", OPENSHIFT_ID])
def test_an_openshift_machine_names_the_node_a_host_is(provider_id: str) -> None:
    machine = openshift_machine(provider_id=provider_id)
    shown = hosts_of(course(machine_body(), openshift_body()), node_body("w", OPENSHIFT_ID), of_openshift=machine)
    assert list(shown) == ["bmh:n/h"]
    host = shown["bmh:n/h"]
    assert (host.layers, host.cluster, host.node) == (("bmh:n/h", "node:prod/w"), "prod", "w")
    assert (host.state, host.notes) == (HostState.IN_SERVICE, ())


@pytest.mark.parametrize(
    ("machine", "doubt"),
    [
        (openshift_machine(host="n/other"), "Machine w-0, its consumer, does not name it"),
        (openshift_machine(provider_id="baremetalhost:///n/o/u"), "the node has another provider ID than its Machine"),
    ],
)
def test_a_node_that_openshift_does_not_prove_stays_apart(machine: openshift.Machine, doubt: str) -> None:
    shown = hosts_of(course(machine_body(), openshift_body()), node_body("w", OPENSHIFT_ID), of_openshift=machine)
    assert shown["bmh:n/h"].layers == ("bmh:n/h",)
    assert shown["bmh:n/h"].notes == (f"Node w may be it, without proof: {doubt}.",)
    assert shown["node:prod/w"].layers == ("node:prod/w",)


@pytest.mark.parametrize("about", [{"namespace": "n"}, {"apiVersion": "cluster.x-k8s.io/v1beta2"}])
def test_another_consumer_is_no_machine_of_openshift(about: dict[str, str]) -> None:
    world = course(machine_body(), openshift_body(**about))
    shown = hosts_of(world, node_body("w", OPENSHIFT_ID), of_openshift=openshift_machine())
    assert (shown["bmh:n/h"].layers, shown["bmh:n/h"].notes) == (("bmh:n/h",), ())


def test_a_host_changes_with_its_openshift_machine() -> None:
    async def look() -> None:
        store = Store[Node]()
        store.put(msgspec.convert(node_body("w", OPENSHIFT_ID), Node))
        async with dry_source(course(machine_body(), openshift_body()), store) as source:
            (layer,) = source.take().values()
            assert layer is not None
            assert (layer.same_as, layer.doubts) == ((), ())
            source._openshift.put(openshift_machine())
            (layer,) = source.take().values()
            assert layer is not None
            assert layer.same_as == ("node:prod/w",)
            store.remove(msgspec.convert(node_body("w", OPENSHIFT_ID, resourceVersion="9"), Node))
            (layer,) = source.take().values()
            assert layer is not None
            assert layer.same_as == ()

    asyncio.run(look())


def test_a_node_of_a_workload_cluster_is_named_and_not_joined() -> None:
    world = course(settled_machine(), host_body("h", "provisioned", **MINE))
    shown = hosts_of(world, node_body("w", ""), owner=owner_of("w"))
    assert (shown["bmh:n/h"].cluster, shown["bmh:n/h"].node, shown["bmh:n/h"].notes) == ("n/c", "w", ())


@pytest.mark.parametrize(
    ("hosts", "state", "done", "blocked"),
    [
        ((), "waiting for a host", 0, True),
        ((host_body("h", mine=True),), "claimed", 1, False),
        ((host_body("h", "provisioning", **MINE),), "provisioning", 2, False),
        ((host_body("h", "provisioned", **MINE),), "joining", 3, False),
        ((host_body("h", "provisioning", **MINE, status={"operationalStatus": "error"}),), "failed", 1, True),
    ],
)
def test_a_claim_is_an_operation_until_its_node_is_up(
    hosts: tuple[dict[str, Any], ...], state: str, done: int, blocked: bool
) -> None:
    def judge(source: MetalSource) -> None:
        (claim,) = source.operations()
        assert (claim.name, claim.state, claim.done, claim.total) == ("m", state, done, 4)
        assert bool(claim.blocked_by) is blocked

    hosts_of(course(machine_body(), *hosts), then=judge)


@pytest.mark.parametrize(
    ("machine", "hosts", "about"),
    [
        (machine_body(), (host_body("h"),), RecordedAs("m3m:n/m", "claim/n/m")),
        (machine_body(), (host_body("h", mine=True),), RecordedAs("bmh:n/h", "claim/n/m")),
        (settled_machine(), (host_body("h", "provisioned", **MINE),), RecordedAs("bmh:n/h")),
    ],
    ids=["without a host", "claimed", "settled"],
)
def test_a_write_to_a_machine_is_recorded_about_its_host(
    machine: dict[str, Any], hosts: tuple[dict[str, Any], ...], about: RecordedAs
) -> None:
    def judge(source: MetalSource) -> None:
        assert source.recorded_as(METAL3_MACHINE, "n", "m") == about
        assert source.recorded_as(METAL3_MACHINE, "n", "gone") == RecordedAs("m3m:n/gone")
        assert source.recorded_as(NODE, "", "m") is None

    shown = hosts_of(course(machine, *hosts), then=judge)["bmh:n/h"]

    def judge_keys(source: MetalSource) -> None:
        assert source.history_keys(shown) == (("m3m:n/m",) if about.key == "bmh:n/h" else ())

    hosts_of(course(machine, *hosts), then=judge_keys)


def test_a_machine_that_has_settled_is_no_operation() -> None:
    def judge(source: MetalSource) -> None:
        assert list(source.operations()) == []

    hosts_of(course(settled_machine(), host_body("h", "provisioned", **MINE)), then=judge)


def test_a_host_changes_with_its_machine_and_with_the_node() -> None:
    world = course(settled_machine(), host_body("h", "provisioned", **MINE))

    async def look() -> None:
        store = Store[Node]()
        async with dry_source(world, store, owner_of("w")) as source:
            source.take()
            woken: list[bool] = []
            source.listen(lambda: woken.append(True))
            assert source.take() == {}
            store.put(msgspec.convert(CONTROL_PLANE, Node))
            store.put(msgspec.convert(node_body(), Node))
            (layer,) = source.take().values()
            assert layer is not None
            assert layer.same_as == ("node:prod/w",)
            assert woken
            store.remove(msgspec.convert(node_body(resourceVersion="9"), Node))
            (layer,) = source.take().values()
            assert layer is not None
            assert layer.same_as == ()

    asyncio.run(look())


def test_a_second_host_of_one_machine_changes_what_is_shown_of_the_first() -> None:
    world = course(machine_body(), host_body("h", mine=True))

    async def look() -> None:
        async with dry_source(world, Store[Node]()) as source:
            source.take()
            second = msgspec.convert(host_body("h2", mine=True), BareMetalHost)
            source._caches.hosts.store.put(second)
            assert set(source.take()) == {"bmh:n/h", "bmh:n/h2"}

    asyncio.run(look())
