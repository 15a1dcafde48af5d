"""Agents in the picture: their state, which node and BareMetalHost they are, and the reclaims under way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from hostler.apis.assisted import BMH_LABEL, INFRA_ENV_LABEL, Agent
from hostler.inventory.joining import join_layers
from hostler.inventory.model import Host, Layer, LayerKind, mac_mark
from hostler.inventory.nodes import node_layer
from hostler.inventory.states import HostKind, HostState
from hostler.kube.records import Node
from hostler.kube.store import Store
from hostler.reclaim.decide import decide
from hostler.reclaim.decision import Seen
from hostler.reclaim.host_layers import ReclaimSource
from hostler.reclaim.model import State
from tests.unit import reclaim_world as world

UUID = "0c1a9d3e-0001-4000-8000-000000000001"
BOUND = {"clusterDeploymentName": {"namespace": "hub", "name": "edge"}, "hostname": "worker-1"}
WAS = {"cluster_namespace": "hub", "cluster_name": "edge", "node_name": "worker-1"}
AT = "2026-01-01T00:00:00Z"


def agent_of(state: str, *, name: str = UUID, spec: dict[str, Any] | None = None, **status: Any) -> Agent:
    labels = {INFRA_ENV_LABEL: "rack-7", **status.pop("labels", {})}
    about = {"name": name, "namespace": "hub", "uid": f"uid-{name}", "resourceVersion": "1", "labels": labels}
    found = {"debugInfo": {"state": state}, "progress": {"stageStartTime": AT}, **status}
    return msgspec.convert({"metadata": about, "spec": spec or {}, "status": found}, Agent)


def node_of(name: str = "worker-1", uuid: str = UUID, address: str = "") -> Node:
    status = {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"systemUUID": uuid}}
    addresses = [{"type": "InternalIP", "address": address}] if address else []
    body = {"metadata": {"name": name, "resourceVersion": "1"}, "status": {**status, "addresses": addresses}}
    return msgspec.convert(body, Node)


def source_of(*agents: Agent, nodes: tuple[Node, ...] = (), seen: dict[str, Seen] | None = None) -> ReclaimSource:
    store, others = Store[Agent](), Store[Node]()
    for node in nodes:
        others.put(node)
    for agent in agents:
        store.put(agent)
    return ReclaimSource(store, seen or {}, lambda: world.POLICY, others, "prod")


def hosts_of(*agents: Agent, nodes: tuple[Node, ...] = (), others: tuple[Layer, ...] = ()) -> dict[str, Host]:
    layers = [layer for layer in source_of(*agents, nodes=nodes).take().values() if layer is not None]
    return {one.id: one for one in join_layers([*layers, *others, *(node_layer(node, "prod") for node in nodes)])}


ID = f"agent:hub/{UUID}"


@pytest.mark.parametrize(
    ("agent", "state", "why"),
    [
        (agent_of("discovering-unbound"), HostState.DISCOVERED, "Its Agent is discovering-unbound."),
        (agent_of("known-unbound", spec={"approved": True}), HostState.AVAILABLE, "Its Agent is known-unbound."),
        (agent_of("known-unbound"), HostState.DISCOVERED, "Its Agent is known-unbound."),
        (agent_of("known", spec=BOUND), HostState.CLAIMED, "Its Agent is known."),
        (agent_of("installing", spec=BOUND), HostState.PROVISIONING, "Its Agent is installing."),
        (agent_of("installed", spec=BOUND), HostState.PROVISIONED, "It is in its cluster."),
        (agent_of("installed", deprovision_info=WAS), HostState.RECLAIMING, "It is unbound from its cluster."),
        (agent_of("unbinding-pending-user-action"), HostState.FAILED, "It waits for a person."),
        (agent_of("of-a-later-version"), HostState.UNKNOWN, "Its Agent is of-a-later-version."),
    ],
)  # fmt: skip
def test_the_state_of_an_agent(agent: Agent, state: HostState, why: str) -> None:
    shown = hosts_of(agent)[ID]
    assert (shown.kind, shown.state, shown.why) == (HostKind.AGENT, state, why)
    assert (shown.where.namespace, shown.where.infra_env) == ("hub", "rack-7")


def test_a_reclaim_shows_what_was_decided_and_what_comes_next() -> None:
    agent = agent_of(State.RECLAIMING, deprovision_info=WAS)
    host = world.host(State.RECLAIMING, name=UUID, uid=agent.metadata.uid, kept=True, pinned=world.PINNED)
    seen = {f"hub/{UUID}": Seen(host, decide(host, world.POLICY, world.NOW), world.NOW)}
    source = source_of(agent, seen=seen)
    (layer,) = (one for one in source.take().values() if one is not None)
    (line,) = layer.lines
    assert (line.state, line.why) == (HostState.RECLAIMING, "The agent on worker-1 is at work.")
    assert line.next == f"Put the agent on the node of agent/{UUID}: The agent on worker-1 is at work."
    (reclaim,) = source.operations()
    assert (reclaim.state, reclaim.done, reclaim.total, reclaim.blocked_by) == ("reclaiming", 1, 3, ())


def test_a_new_decision_is_shown_though_its_agent_did_not_change() -> None:
    agent = agent_of(State.RECLAIMING, deprovision_info=WAS)
    host = world.host(State.RECLAIMING, name=UUID, uid=agent.metadata.uid)
    seen = {f"hub/{UUID}": Seen(host, decide(host, world.POLICY, world.NOW), world.NOW)}
    source = source_of(agent, seen=seen)
    source.take()
    assert source.take() == {}
    gone = replace(host, spoke=world.spoke(node=world.GONE))
    seen[f"hub/{UUID}"] = Seen(gone, decide(gone, world.POLICY, world.NOW), world.NOW + 1)
    (layer,) = (one for one in source.take().values() if one is not None)
    assert "the cluster does not answer" in layer.lines[0].why


def test_a_refused_reclaim_is_blocked_and_says_why() -> None:
    said = {"type": "Reclaimed", "status": "False", "reason": "BMCManaged", "message": "BareMetalHost x boots it."}
    source = source_of(agent_of(State.PENDING, deprovision_info=WAS, conditions=[said]))
    (reclaim,) = source.operations()
    assert (reclaim.state, reclaim.blocked_by) == (str(State.PENDING), ("BareMetalHost x boots it.",))


def test_a_host_in_its_cluster_is_no_operation() -> None:
    assert list(source_of(agent_of("installed", spec=BOUND)).operations()) == []


def test_the_node_of_an_agent_is_proven_by_name_and_system_uuid() -> None:
    shown = hosts_of(agent_of("installed", spec=BOUND), nodes=(node_of(),))
    assert shown[ID].layers == (ID, "node:prod/worker-1")
    assert shown[ID].state is HostState.IN_SERVICE


@pytest.mark.parametrize(
    ("node", "doubt"),
    [
        (node_of(uuid=""), "only the name agrees"),
        (node_of(uuid="", address="192.0.2.7"), "name and address agree, and no system UUID does"),
        (node_of("other"), ""),
    ],
)
def test_a_node_that_is_not_proven_stays_apart_with_a_doubt(node: Node, doubt: str) -> None:
    inventory = {"interfaces": [{"ipV4Addresses": ["192.0.2.7/24"]}]}
    shown = hosts_of(agent_of("installed", spec=BOUND, inventory=inventory), nodes=(node,))
    assert shown[ID].layers == (ID,)
    assert doubt in " ".join(shown[ID].notes)
    assert bool(shown[ID].notes) is bool(doubt)


def test_the_name_of_a_node_proves_nothing_where_another_agent_has_its_uuid() -> None:
    thief = agent_of("installed", name="thief", spec=BOUND)
    shown = hosts_of(thief, agent_of("known-unbound"), nodes=(node_of(),))
    assert shown["agent:hub/thief"].layers == ("agent:hub/thief",)


def test_a_host_in_discovery_is_no_node_any_more() -> None:
    shown = hosts_of(agent_of("known-unbound", deprovision_info=WAS), nodes=(node_of(),))
    assert shown[ID].layers == (ID,)


@pytest.mark.parametrize(("mac", "together"), [("02:00:00:00:00:AA", True), ("02:00:00:00:00:bb", False), ("", False)])
def test_a_bare_metal_host_is_an_agent_where_label_and_mac_agree(mac: str, *, together: bool) -> None:
    metal = Layer("bmh:hub/h", LayerKind.BARE_METAL, "h", marks=(mac_mark("02:00:00:00:00:aa"),))
    inventory = {"interfaces": [{"macAddress": mac}]}
    agent = agent_of("known-unbound", labels={BMH_LABEL: "h"}, inventory=inventory)
    shown = hosts_of(agent, others=(metal,))
    assert (shown["bmh:hub/h"].layers == ("bmh:hub/h", ID)) is together
    if not together:
        assert "only a label names it" in shown[ID].notes[0]


def test_a_label_that_names_no_host_is_no_doubt() -> None:
    assert hosts_of(agent_of("known-unbound", labels={BMH_LABEL: "gone"}))[ID].notes == ()


def test_an_agent_changes_with_its_node_and_goes_with_its_object() -> None:
    agent = agent_of("installed", spec=BOUND)
    agents, nodes = Store[Agent](), Store[Node]()
    source = ReclaimSource(agents, {}, lambda: None, nodes, "prod")
    woken: list[bool] = []
    source.listen(lambda: woken.append(True))
    agents.put(agent)
    assert [layer.same_as for layer in source.take().values() if layer] == [()]
    nodes.put(node_of())
    assert [layer.same_as for layer in source.take().values() if layer] == [("node:prod/worker-1",)]
    agents.remove(agent)
    assert source.take() == {ID: None}
    assert len(woken) == 3


def test_what_is_shown_of_an_agent_changes_with_another_that_is_the_same_machine() -> None:
    agents, nodes = Store[Agent](), Store[Node]()
    source = ReclaimSource(agents, {}, lambda: None, nodes, "prod")
    nodes.put(node_of())
    agents.put(agent_of("installed", name="thief", spec=BOUND))
    (doubted,) = (layer for layer in source.take().values() if layer)
    assert "only the name agrees" in doubted.doubts[0]
    agents.put(agent_of("known-unbound"))
    assert {layer.key: layer.doubts for layer in source.take().values() if layer} == {"agent:hub/thief": (), ID: ()}
