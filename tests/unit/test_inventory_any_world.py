"""Whatever is missing or contradictory among real objects, no host disappears and none is shown twice."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from hostler.apis.assisted import BMH_LABEL, Agent
from hostler.apis.capi import CLUSTER_NAME, CLUSTER_NAMESPACE, Machine
from hostler.apis.metal3 import BareMetalHost, Metal3Machine
from hostler.inventory.model import Layer
from hostler.inventory.nodes import node_layer
from hostler.inventory.picture import Picture
from hostler.inventory.sources import Source, StoreSource
from hostler.kube.records import HasMetadata, Node
from hostler.kube.store import Store
from hostler.metal import names
from hostler.metal.caches import Caches
from hostler.metal.host_layers import MetalSource
from hostler.reclaim.host_layers import ReclaimSource
from tests.sizes import examples
from tests.unit.metal_course import CONSUMER, NOW, Course, dry_keepers, host_body, machine_body

R = TypeVar("R", bound=HasMetadata)
UUIDS = ("0c1a9d3e-0001-4000-8000-000000000001", "0c1a9d3e-0002-4000-8000-000000000002")
NAMES, MACHINES = ("h1", "h2"), ("m1", "m2")
IDS = ("", *(f"metal3://n/{host}/{machine}" for host in NAMES for machine in MACHINES))
MACS = ("", "02:00:00:00:00:01", "02:00:00:00:00:02")
STATES = ("", "inspecting", "available", "provisioning", "provisioned", "deprovisioning", "nonsense")
AGENT_STATES = ("", "known-unbound", "installed", "reclaiming", "unbinding-pending-user-action", "nonsense")
Json = dict[str, Any]
maybe = st.sampled_from
Objects = dict[tuple[type[Any], str], Any]


def usual(draw: st.DrawFn, value: Any, *others: Any) -> Any:
    """Mostly what fits the rest of the world, so that hosts are joined often; else anything."""
    return value if draw(st.integers(0, 3)) else draw(maybe([value, *others]))


def id_of(name: str) -> str:
    """The provider ID of the node of this host, or of this machine's host."""
    return f"metal3://n/h{name[-1]}/m{name[-1]}"


@st.composite
def bare_metal_hosts(draw: st.DrawFn, name: str) -> BareMetalHost:
    body = host_body(name, draw(maybe(STATES)), spec={"bootMACAddress": usual(draw, MACS[int(name[-1])], *MACS)})
    body["status"]["errorType"] = usual(draw, "", "power management error")
    if machine := usual(draw, f"m{name[-1]}", "", *MACHINES, "gone"):
        body["spec"]["consumerRef"] = CONSUMER | {"name": machine, "namespace": usual(draw, "n", "other")}
    return msgspec.convert(body, BareMetalHost)


@st.composite
def metal3_machines(draw: st.DrawFn, name: str) -> Metal3Machine:
    host = usual(draw, f"h{name[-1]}", *NAMES)
    about: Json = {"name": name, "annotations": {names.HOST_ANNOTATION: f"n/{host}"}}
    if usual(draw, "", "gone"):
        about["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    body = machine_body(**about)
    body["metadata"]["ownerReferences"] = [{"kind": "Machine", "name": usual(draw, name, *MACHINES)}]
    body["spec"]["providerID"] = usual(draw, id_of(name), *IDS)
    body["status"] = {"initialization": {"provisioned": draw(st.booleans())}}
    return msgspec.convert(body, Metal3Machine)


@st.composite
def machines(draw: st.DrawFn, name: str) -> Machine:
    spec = {"clusterName": usual(draw, "c", "d"), "providerID": usual(draw, id_of(name), *IDS)}
    status = {"nodeRef": {"name": usual(draw, f"h{name[-1]}", "", *NAMES)}}
    about = {"name": name, "namespace": "n", "resourceVersion": "1"}
    return msgspec.convert({"metadata": about, "spec": spec, "status": status}, Machine)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    about: Json = {"name": name, "resourceVersion": "1"}
    if draw(st.booleans()):
        about["labels"] = {"node-role.kubernetes.io/control-plane": ""}
        about["annotations"] = {CLUSTER_NAME: "c", CLUSTER_NAMESPACE: "n"}
    status = {"nodeInfo": {"systemUUID": usual(draw, UUIDS[int(name[-1]) - 1], "", *UUIDS)}}
    spec = {"providerID": usual(draw, id_of(name), *IDS)}
    return msgspec.convert({"metadata": about, "spec": spec, "status": status}, Node)


@st.composite
def agents(draw: st.DrawFn, name: str) -> Agent:
    number = UUIDS.index(name) + 1
    labels = {BMH_LABEL: label} if (label := usual(draw, f"h{number}", "", *NAMES, "gone")) else {}
    about = {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1", "labels": labels}
    spec: Json = {"hostname": usual(draw, f"h{number}", "", *NAMES)}
    if draw(st.booleans()):
        spec["clusterDeploymentName"] = {"name": "edge"}
    status: Json = {
        "debugInfo": {"state": draw(maybe(AGENT_STATES))},
        "inventory": {"interfaces": [{"macAddress": usual(draw, MACS[number], *MACS)}]},
    }
    if draw(st.booleans()):
        status["deprovision_info"] = {"cluster_namespace": "n", "cluster_name": "e", "node_name": f"h{number}"}
    return msgspec.convert({"metadata": about, "spec": spec, "status": status}, Agent)


MADE: dict[type[Any], tuple[Any, tuple[str, ...]]] = {
    BareMetalHost: (bare_metal_hosts, NAMES),
    Metal3Machine: (metal3_machines, MACHINES),
    Machine: (machines, MACHINES),
    Node: (nodes, NAMES),
    Agent: (agents, UUIDS),
}


@st.composite
def courses(draw: st.DrawFn) -> list[Objects]:
    """Any of these objects, each there or not; then one after the other changes, comes or goes."""
    places = [(record, name) for record, (_, called) in MADE.items() for name in called]
    worlds: list[Objects] = [{at: draw(MADE[at[0]][0](at[1])) for at in places if draw(st.integers(0, 3))}]
    for at in draw(st.lists(maybe(places), max_size=6)):
        after = {known: one for known, one in worlds[-1].items() if known != at}
        if draw(st.integers(0, 3)):
            after[at] = draw(MADE[at[0]][0](at[1]))
        worlds.append(after)
    return worlds


@dataclass
class Fleet:
    """The real sources over these objects."""

    caches: Caches
    metal: MetalSource
    reclaim: ReclaimSource
    nodes: Store[Node]
    agents: Store[Agent]
    version: int = 1
    there: dict[tuple[type[Any], str], Any] = field(default_factory=dict)

    def sources(self) -> tuple[Source, ...]:
        return StoreSource(self.nodes, lambda name: f"node:prod/{name}", shown_node), self.metal, self.reclaim

    def become(self, world: Objects) -> None:
        stores: dict[type[Any], Store[Any]] = {
            BareMetalHost: self.caches.hosts.store, Metal3Machine: self.caches.machines.store,
            Machine: self.caches.capi_machines.store, Node: self.nodes, Agent: self.agents,
        }  # fmt: skip
        for at, known in self.there.items():
            if at not in world:
                stores[at[0]].remove(self._newer(known))
        for at, one in world.items():
            if self.there.get(at) is not one:
                stores[at[0]].put(self._newer(one))
        self.there = dict(world)

    def _newer(self, one: Any) -> Any:
        self.version += 1
        about = msgspec.structs.replace(one.metadata, resource_version=str(self.version))
        return msgspec.structs.replace(one, metadata=about)


def shown_node(node: Node) -> Layer:
    return node_layer(node, "prod")


def expected_keys(world: Objects) -> list[str]:
    """Every BareMetalHost, Agent and Node."""
    kinds: dict[Any, str] = {BareMetalHost: "bmh:n/", Agent: "agent:n/", Node: "node:prod/"}
    return sorted(f"{kinds[record]}{name}" for record, name in world if record in kinds)


def check(picture: Picture, world: Objects) -> None:
    hosts = list(picture.hosts.values())
    assert sorted(key for host in hosts for key in host.layers) == expected_keys(world)
    for host in hosts:
        kinds = [key.partition(":")[0] for key in host.layers]
        assert len(set(kinds)) == len(kinds)
        assert host.why


@settings(max_examples=examples(60), deadline=None)
@given(courses())
def test_every_object_is_in_one_host_however_the_world_changes(steps: list[Objects]) -> None:
    """And a picture that followed every change equals one made of the last world alone."""

    async def run() -> None:
        async with dry_keepers(Course(machine_body(), {})) as (keeper, remediator):
            caches, nodes, agents = keeper.caches, Store[Node](), Store[Agent]()
            for store in (caches.machines.store, caches.capi_machines.store):
                for record in store:
                    store.remove(record)  # type: ignore[arg-type]

            def fleet() -> Fleet:
                metal = MetalSource(keeper, remediator, nodes, Store(), "prod", lambda: NOW)
                return Fleet(caches, metal, ReclaimSource(agents, {}, lambda: None, nodes, "prod"), nodes, agents)

            followed = fleet()
            sources, picture = followed.sources(), Picture("boot")
            for world in steps:
                followed.become(world)
                for source in sources:
                    picture.update(source.take())
                check(picture, world)
                claims = [one.id for source in sources for one in source.operations()]
                assert len(set(claims)) == len(claims)
            afresh = Picture("boot")
            for source in fleet().sources():
                afresh.update(source.take())
            assert afresh.hosts == picture.hosts

    asyncio.run(run())
