"""Who is expected: hosts of every source, which of them are for this cluster, and what opens a window."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from hostler.apis import capi, openshift
from hostler.apis.assisted import AGENT, INFRA_ENV_LABEL
from hostler.apis.capi import CLUSTER_NAME
from hostler.apis.fleet import ExpectedHost
from hostler.apis.metal3 import BARE_METAL_HOST, METAL3_MACHINE
from hostler.host.facts import Known, Unknown
from hostler.instant import iso
from hostler.join.capability import inventories_of
from hostler.join.invitations import SOURCES, invitations, machines_of
from hostler.join.model import Act, Facts, Use
from hostler.join.observe import clusters_of
from hostler.join.settings import INVENTORIES
from hostler.kube.records import Metadata, Node
from tests.unit.joining import NOW, POLICY, client, facts, failed, invited, judged, node, serving


def made(kind: Any, body: dict[str, Any]) -> Any:
    return kind, msgspec.convert(body, SOURCES[kind])


def test_invitations_of_every_source() -> None:
    start = iso(NOW)
    host = {"metadata": {"name": "w1", "namespace": "m"}, "status": {
        "provisioning": {"state": "provisioning"}, "operationHistory": {"provision": {"start": start}},
        "hardware": {"hostname": "i-claim-to-be-cp-0", "nics": [{"ip": "10.0.0.1"}, {}]},
    }}  # fmt: skip
    idle = {"metadata": {"name": "w2", "namespace": "m"}, "status": {
        "provisioning": {"state": "available"}, "operationHistory": {"provision": {"start": start}}}}  # fmt: skip
    machine = {"metadata": {"name": "m-1", "creationTimestamp": start}, "status": {
        "addresses": [{"type": "Hostname", "address": "W3"}, {"type": "InternalIP", "address": "10.0.0.3"}],
        "nodeRef": {"name": "w3"}}}  # fmt: skip
    agent = {"metadata": {"name": "a"}, "spec": {"approved": True}, "status": {
        "inventory": {"hostname": "W4"}, "progress": {"stageStartTime": start}}}  # fmt: skip
    stranger = {"metadata": {"name": "b"}, "status": {"inventory": {"hostname": "w5"}}}
    found = invitations(
        [made(BARE_METAL_HOST, host), made(BARE_METAL_HOST, idle), made(capi.MACHINE, machine),
         made(AGENT, agent), made(AGENT, stranger)],
        [ExpectedHost(name="w6", since=start, until=iso(NOW + 60)), ExpectedHost(name="w7", since=start, until="")],
    )  # fmt: skip
    assert set(found) == {"w1", "w2", "m-1", "w3", "w4", "w6", "w7"}, "no machine names itself"
    assert found["w1"][0].since == NOW
    assert found["w1"][0].addresses == {"10.0.0.1"}
    assert found["w2"][0].since is None
    assert found["w3"][0].node == found["m-1"][0].node == "w3"
    assert (found["w6"][0].since, found["w6"][0].until) == (NOW, NOW + 60)
    assert found["w7"][0].since is None
    assert machines_of(found, frozenset()) == 4, "of a Machine of Cluster API and an Agent the cluster is not known"


def test_a_metal3machine_of_an_older_version_is_read() -> None:
    """A condition of v1beta1 that is True has no reason."""
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": iso(NOW)}
    body = {"metadata": {"name": "m-1", "creationTimestamp": iso(NOW)}, "status": {
        "addresses": [{"type": "Hostname", "address": "w1"}], "conditions": [condition]}}  # fmt: skip
    assert set(invitations([made(METAL3_MACHINE, body)], [])) == {"m-1", "w1"}


def agent_of(stage: float, *, installed: str = "", since: float = 0.0, state: str = "installing-in-progress") -> Facts:
    conditions = [{"type": "Installed", "status": installed, "lastTransitionTime": iso(since)}] if installed else []
    body = {"metadata": {"name": "a", "creationTimestamp": iso(NOW - 9000)},
            "spec": {"approved": True, "clusterDeploymentName": {"namespace": "hub", "name": "self"}}, "status": {
        "inventory": {"hostname": "worker-1"}, "progress": {"stageStartTime": iso(stage)}, "conditions": conditions,
        "debugInfo": {"state": state},
    }}  # fmt: skip
    return facts(invitations=invitations([made(AGENT, body)], [])["worker-1"], clusters=frozenset({"hub/self"}))


@pytest.mark.parametrize(
    "state",
    ["", "reclaiming", "reclaiming-rebooting", "unbinding-pending-user-action", "discovering-unbound", "known",
     "resetting", "error", "cancelled"],
)  # fmt: skip
def test_only_an_installation_opens_an_agent_s_window(state: str) -> None:
    """A reclaim writes stages with times too; whoever asks then is not a host that is being installed."""
    assert failed(judged(client(), agent_of(NOW - 200, installed="False", since=NOW - 8000, state=state))) == {"window"}


HUB_OBJECTS: dict[str, tuple[Any, dict[str, Any], bool]] = {
    "an Agent of this cluster": (AGENT, {"spec": {
        "approved": True, "hostname": "worker-1", "clusterDeploymentName": {"name": "self"}}}, True),
    "an Agent of another": (AGENT, {"spec": {
        "approved": True, "hostname": "worker-1", "clusterDeploymentName": {"namespace": "x", "name": "self"}}}, False),
    "an Agent of none": (AGENT, {"spec": {"approved": True, "hostname": "worker-1"}}, False),
    "a Machine of this cluster": (capi.MACHINE, {"spec": {"clusterName": "self"}}, True),
    "a Machine of another": (capi.MACHINE, {"spec": {"clusterName": "other"}}, False),
    "a Machine of none": (capi.MACHINE, {}, False),
    "a Machine of OpenShift": (openshift.MACHINE, {}, True),
    "a Metal3Machine of another": (METAL3_MACHINE, {"labels": {CLUSTER_NAME: "other"}}, False),
    "a Metal3Machine of none": (METAL3_MACHINE, {}, False),
    "a host nobody consumes": (BARE_METAL_HOST, {}, True),
    "a host of an Agent": (BARE_METAL_HOST, {"labels": {INFRA_ENV_LABEL: "x"}}, False),
    "a host of OpenShift's": (BARE_METAL_HOST, {"spec": {"consumerRef": {
        "apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine", "name": "m"}}}, True),
    "a host of ours": (BARE_METAL_HOST, {"spec": {"consumerRef": {"kind": "Metal3Machine", "name": "mine"}}}, True),
    "a host of another's": (BARE_METAL_HOST, {"spec": {"consumerRef": {"kind": "Metal3Machine", "name": "no"}}}, False),
    "a host of a stranger": (BARE_METAL_HOST, {"spec": {"consumerRef": {"kind": "Thing", "name": "mine"}}}, False),
}  # fmt: skip


@pytest.mark.parametrize("what", HUB_OBJECTS)
def test_on_a_hub_only_hosts_of_this_cluster_are_expected(what: str) -> None:
    """What is for another cluster, or does not say for which although it must, invites nobody here."""
    kind, body, ours = HUB_OBJECTS[what]
    body = dict(body)
    about = {"name": "worker-1", "namespace": "hub", "labels": body.pop("labels", {}),
             "creationTimestamp": iso(NOW - 600)}  # fmt: skip
    begun = {"state": "provisioning"} if kind == BARE_METAL_HOST else {}
    status = {"provisioning": begun, "operationHistory": {"provision": {"start": iso(NOW - 600)}},
              "progress": {"stageStartTime": iso(NOW - 600)}, "debugInfo": {"state": "installing"}}  # fmt: skip
    mine = {"metadata": {"name": "mine", "namespace": "hub", "labels": {CLUSTER_NAME: "self"}}}
    found = invitations([made(kind, {"metadata": about, "status": status, **body}), made(METAL3_MACHINE, mine)], [])
    this = frozenset({"hub/self"})
    known = dataclasses.replace(facts(invitations=found["worker-1"]), clusters=this)
    verdict = judged(client(), known)
    assert verdict.act is (Act.APPROVE if ours else Act.LEAVE), verdict.why
    assert machines_of(found, this) == (2 if ours else 1)
    if not ours:
        assert failed(verdict) == {"invited"}
        assert "HOSTLER_JOIN_CLUSTERS" in verdict.why
        unread = dataclasses.replace(known, nodes=Unknown("not read yet"))
        assert judged(client(), unread).act is Act.WAIT, "a node might say which cluster this is"


def window_of(*found: Any, name: str = "worker-1") -> float | None:
    invited = invitations(found, [])[name]
    assert len({one.since for one in invited}) == 1
    return invited[0].since


def bare_metal(state: str, began: float, *, waited: float) -> list[Any]:
    """A Machine, its Metal3Machine and the host it got after waiting."""
    about = {"namespace": "m", "creationTimestamp": iso(began - waited)}
    owner = {"kind": "Machine", "apiVersion": "cluster.x-k8s.io/v1beta2", "name": "worker-1", "uid": "u"}
    consumer = {"kind": "Metal3Machine", "namespace": "m", "name": "worker-1"}
    return [
        made(capi.MACHINE, {"metadata": {**about, "name": "worker-1"}, "spec": {"clusterName": "self"}}),
        made(METAL3_MACHINE, {"metadata": {**about, "name": "worker-1", "ownerReferences": [owner]}}),
        made(BARE_METAL_HOST, {"metadata": {"name": "worker-1", "namespace": "m"}, "spec": {"consumerRef": consumer},
             "status": {"provisioning": {"state": state}, "operationHistory": {"provision": {"start": iso(began)}}}}),
    ]  # fmt: skip


def test_a_machine_that_waited_hours_for_its_host_is_let_in() -> None:
    machine, metal, host = bare_metal("provisioned", NOW - 600, waited=3 * 3600)
    assert window_of(machine, metal, host) == NOW - 600
    assert window_of(machine, metal) is None, "it has no host yet, so it cannot ask"
    known = facts(invitations=invitations([machine, metal, host], [])["worker-1"], clusters=frozenset({"m/self"}))
    verdict = judged(client(made=NOW - 60), known)
    assert verdict.act is Act.APPROVE, verdict.why


@pytest.mark.parametrize(
    ("kind", "condition", "since"),
    [
        (capi.MACHINE, {}, -9000),
        (capi.MACHINE, {"type": "BootstrapConfigReady", "status": "False"}, None),
        (capi.MACHINE, {"type": "BootstrapConfigReady", "status": "True"}, -300),
        (capi.MACHINE, {"type": "BootstrapReady", "status": "True"}, -300),
        (openshift.MACHINE, {"type": "InstanceExists", "status": "Unknown"}, None),
        (openshift.MACHINE, {"type": "InstanceExists", "status": "True"}, -300),
        (openshift.MACHINE, {"type": "Drained", "status": "True"}, -9000),
    ],
)
def test_a_machine_is_expected_from_its_provisioning_on(
    kind: Any, condition: dict[str, str], since: float | None
) -> None:
    conditions = [{**condition, "lastTransitionTime": iso(NOW - 300)}] if condition else []
    about = {"name": "worker-1", "namespace": "m", "creationTimestamp": iso(NOW - 9000)}
    one = made(kind, {"metadata": about, "status": {"conditions": conditions}})
    assert window_of(one) == (NOW + since if since is not None else None)
    assert invitations([one], [])["worker-1"][0].renewed == NOW - 9000, "a condition that flips renews nothing"


def test_a_machine_in_a_namespace_of_a_tenant_invites_nobody() -> None:
    """Nor does it change who another Machine of the same name stands for."""

    def in_namespace(namespace: str) -> Any:
        about = {"name": "worker-1", "namespace": namespace, "creationTimestamp": iso(NOW - 600)}
        return made(openshift.MACHINE, {"metadata": about})

    only = {openshift.MACHINE.resource: frozenset({"openshift-machine-api"})}
    found = invitations([in_namespace("tenant")], [], only)
    verdict = judged(client(), facts(invitations=found["worker-1"]))
    assert verdict.act is Act.LEAVE
    assert "HOSTLER_JOIN_INVENTORIES" in verdict.why
    assert machines_of(found, frozenset()) == 0
    both = invitations([in_namespace("tenant"), in_namespace("openshift-machine-api")], [], only)
    assert judged(client(), facts(invitations=both["worker-1"])).act is Act.APPROVE


def test_limiting_one_kind_of_inventory_opens_no_other() -> None:
    machines, hosts = openshift.MACHINE.resource, BARE_METAL_HOST.resource
    only = frozenset({"openshift-machine-api"})
    assert inventories_of(()) == {machines: only}
    assert inventories_of((f"{hosts}=metal",)) == {hosts: frozenset({"metal"}), machines: only}
    assert inventories_of((f"{machines}=*",)) == {}
    assert INVENTORIES.read(f"{machines}=*,{hosts}=a") == (f"{machines}=*", f"{hosts}=a")


def test_a_dns_name_with_a_last_dot_is_the_same_name() -> None:
    addresses = [{"type": "InternalDNS", "address": "Worker-1.Example.org."}]
    about = {"name": "m-1", "namespace": "m", "creationTimestamp": iso(NOW - 600)}
    found = invitations([made(openshift.MACHINE, {"metadata": about, "status": {"addresses": addresses}})], [])
    assert set(found) == {"m-1", "worker-1.example.org"}


def test_one_name_in_two_inventories() -> None:
    """Of one kind it is two hosts, however it is written; of two kinds it may be one, and gets one node."""
    begun = {"progress": {"stageStartTime": iso(NOW - 600)}, "debugInfo": {"state": "installing"}}

    def agent(name: str, hostname: str, cluster: str = "self") -> Any:
        spec = {"approved": True, "hostname": hostname, "clusterDeploymentName": {"name": cluster}}
        return made(AGENT, {"metadata": {"name": name, "namespace": "hub"}, "spec": spec, "status": begun})

    machine = made(
        openshift.MACHINE, {"metadata": {"name": "worker-1", "namespace": "m", "creationTimestamp": iso(NOW - 900)}}
    )
    one, same, elsewhere = agent("a", "worker-1"), agent("b", "Worker-1"), agent("c", "worker-1", "other")
    for found, rules in (([one, same], {"one host"}), ([one, elsewhere], set()), ([one, machine], set())):
        known = facts(invitations=invitations(found, [])["worker-1"], clusters=frozenset({"hub/self"}))
        assert failed(judged(client(), known)) == rules


def test_all_names_of_one_host_are_known_as_such() -> None:
    """A BareMetalHost, the Metal3Machine that consumes it and the Machine that owns that are one host."""
    host, metal, machine = (
        dict[str, Any](metadata={"name": name, "namespace": "m", "creationTimestamp": iso(NOW)})
        for name in ("bmh", "m3", "capi")
    )
    host["spec"] = {"consumerRef": {"kind": "Metal3Machine", "name": "m3"}}
    metal["metadata"]["ownerReferences"] = [{"kind": "Machine", "name": "capi"}]
    machine["status"] = {"addresses": [{"type": "Hostname", "address": "Blade-7"}]}
    alone = {"metadata": {"name": "bmh-2", "namespace": "m"}}
    mapi = {"metadata": {"name": "bmh-3", "namespace": "m"}, "spec": {"consumerRef": {
        "apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine", "name": "o", "namespace": "o"}}}  # fmt: skip
    theirs = {"metadata": {"name": "o", "namespace": "o"}}
    found = invitations(
        [made(BARE_METAL_HOST, host), made(METAL3_MACHINE, metal), made(capi.MACHINE, machine),
         made(BARE_METAL_HOST, alone), made(BARE_METAL_HOST, mapi), made(openshift.MACHINE, theirs)], [],
    )  # fmt: skip
    one = {"bmh", "m3", "capi", "blade-7"}
    assert {name: {name, *those[0].also} for name, those in found.items()} == {
        **dict.fromkeys(one, one), "bmh-2": {"bmh-2"}, "bmh-3": {"bmh-3", "o"}, "o": {"bmh-3", "o"},
    }  # fmt: skip


def test_a_name_that_many_hosts_have_tells_none_from_another() -> None:
    def machine(name: str) -> Any:
        at = [{"type": "Hostname", "address": "localhost"}, {"type": "InternalDNS", "address": f"{name}.internal"}]
        return made(openshift.MACHINE, {"metadata": {"name": name, "namespace": "m"}, "status": {"addresses": at}})

    found = invitations([machine("a"), machine("b")], [])
    assert {name: found[name][0].also for name in ("a", "b")} == {"a": {"a.internal"}, "b": {"b.internal"}}
    known = facts(node("localhost", "10.0.0.9"), invitations=[one for those in found.values() for one in those])
    assert "host is free" not in failed(judged(client("a"), known))


def test_another_cluster_s_host_lends_no_addresses() -> None:
    for cluster, act in (("", Act.APPROVE), ("hub/other", Act.LEAVE), (None, Act.LEAVE)):
        known = facts(node(), invitations=[invited(addresses=frozenset({"10.0.0.9"}), cluster=cluster)])
        assert judged(serving("worker-1", "10.0.0.9"), known).act is act


def test_which_cluster_this_is() -> None:
    """Set by the owner, or written by Cluster API on the control plane; a worker's own annotations say nothing."""
    notes = {"cluster.x-k8s.io/cluster-name": "self", "cluster.x-k8s.io/cluster-namespace": "hub"}
    worker = Node(metadata=Metadata(name="w", annotations=notes))
    labels = {"node-role.kubernetes.io/control-plane": ""}
    master = Node(metadata=Metadata(name="m", annotations=notes, labels=labels))
    policy = dataclasses.replace(POLICY, clusters=frozenset({"set/here"}))
    assert clusters_of([worker, Node(metadata=Metadata(labels=labels))], policy) == {"set/here"}
    assert clusters_of([worker, master], policy) == {"set/here", "hub/self"}


def test_the_next_stage_of_an_installation_lets_nobody_in_once_more() -> None:
    """Its window begins anew with each stage; its one use does not, until it was installed and is so no longer."""
    used: Known[Mapping[str, Use]] = Known({"worker-1": Use("csr-0", "uid-0", NOW - 300)}, NOW)
    installing, anew, done = (
        agent_of(NOW - 200, installed="False", since=NOW - 8000),
        agent_of(NOW - 200, installed="False", since=NOW - 250),
        agent_of(NOW - 200, installed="True", since=NOW - 100),
    )
    assert judged(client(), installing).act is Act.APPROVE
    for known, rule in ((installing, {"single use"}), (agent_of(NOW - 200), {"single use"}), (anew, set())):
        assert failed(judged(client(), dataclasses.replace(known, used=used))) == rule
    assert failed(judged(client(), done)) == {"window"}, "what is installed is not being installed"
    why = judged(client(), dataclasses.replace(installing, used=used)).why
    for what_to_do in ("if it was installed again", "`hostler join approve csr-1`", "`hostler join expect worker-1`"):
        assert what_to_do in why
