"""The fleet file: what it makes, and what it says when it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from hostler.errors import Complaint, Exit
from hostler.sandbox.expand import waves
from hostler.sandbox.fleet import Fleet, built_in, names, read_fleet


def made(fleet: Fleet) -> list[dict[str, object]]:
    return [one for _, objects in waves(fleet) for one in objects]


def test_the_built_in_fleet_is_what_its_comment_says() -> None:
    fleet = read_fleet("mixed")
    nodes = {node.name: node for node in fleet.each_node()}
    assert sorted(nodes) == [
        *("app-0", "app-1", "cp-0", "cp-1", "cp-2", "gpu-0", "gpu-1", "gpu-2", "metal-0", "metal-1"),
    ]
    inventory = fleet.inventory()
    assert inventory is not None
    vms = {vm["name"]: vm for vm in inventory["datacenters"][0]["vms"]}
    assert [vms[f"gpu-{i}"]["host"] for i in range(3)] == ["esx1", "esx2", "esx3"]


def test_the_built_in_fleet_of_k3s_has_the_labels_that_k3s_writes() -> None:
    assert built_in() == ["k3s", "mixed"]
    nodes = {one["metadata"]["name"]: one for one in made(read_fleet("k3s")) if one["kind"] == "Node"}  # type: ignore[index]
    roles = {
        name: {key: value for key, value in one["metadata"]["labels"].items() if "node-role" in key}  # type: ignore[index]
        for name, one in nodes.items()
    }
    both = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
    assert roles == {"server": dict.fromkeys(both, "true"), "agent-0": {}, "agent-1": {}}


def test_a_node_carries_the_uuid_of_its_vm() -> None:
    fleet = read_fleet("mixed")
    uuids = {vm.name: vm.uuid for _, vm in fleet.each_vm()}
    nodes = {one["metadata"]["name"]: one for one in made(fleet) if one["kind"] == "Node"}  # type: ignore[index]
    assert nodes["gpu-1"]["status"]["nodeInfo"]["systemUUID"] == uuids["gpu-1"]  # type: ignore[index]
    assert nodes["gpu-1"]["spec"]["providerID"] == f"vsphere://{uuids['gpu-1']}"  # type: ignore[index]
    assert "providerID" not in nodes["metal-0"]["spec"]  # type: ignore[operator]


def test_names_are_numbered() -> None:
    assert [name for name, _ in names("a", 1)] == ["a"]
    assert [name for name, _ in names("a", 2)] == ["a-0", "a-1"]
    assert [name for name, _ in names("n{i:03}-x", 2)] == ["n000-x", "n001-x"]


def test_a_stateful_set_finds_its_volumes() -> None:
    claims = [one["metadata"]["name"] for one in made(read_fleet("mixed")) if one["kind"] == "PersistentVolumeClaim"]  # type: ignore[index]
    assert claims == ["data-db-0", "data-db-1"]


def test_bare_metal_comes_with_what_cluster_api_would_make(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(
        "metal: [{name: c, hosts: [{name: 'h{i}', count: 2, labels: {row: a}}], "
        "machines: [{name: m, hostSelector: {row: a}}]}]"
    )
    kinds = [one["kind"] for one in made(read_fleet(str(file)))]
    assert kinds == [
        *("Namespace", "Cluster", "Secret", "Secret", "Secret", "BareMetalHost", "BareMetalHost"),
        *("Machine", "Metal3Cluster", "Metal3Machine"),
    ], "owners come before what they own"


WRONG = {
    "nodes: [{name: a}, {name: b, taints: [{key: k, effect: NoWay}]}]": (
        "nodes[1].taints[0].effect",
        "NoExecute or NoSchedule or PreferNoSchedule",
    ),
    "nodes: [{name: a, cuont: 3}]": ("nodes[0]", "cuont"),
    "nodes: [{name: a, count: many}]": ("nodes[0].count", "int"),
    "nodes: [{name: a, count: 0}]": ("nodes[0].count", "at least 1"),
    "nodes: [{name: A_b}]": ("nodes[0].name", "not a name Kubernetes accepts"),
    "nodes: [{name: a}, {name: a}]": ("nodes[1].name", "two nodes 'a'"),
    "nodes: [{name: a, vm: x}]": ("nodes[0].vm", "no VM 'x'"),
    "nodes: [{labels: {}}]": ("nodes[0]", "name"),
    "workloads: [{kind: Deployment, name: a, node: n}]": ("workloads[0].node", "no node 'n'"),
    "workloads: [{kind: Deplyment, name: a}]": ("workloads[0].kind", "DaemonSet or Deployment or Job"),
    "workloads: [{kind: Deployment, name: a, volumes: [{}]}]": ("workloads[0].volumes", "StatefulSet"),
    "workloads: [{kind: Pod, name: a, priorityClass: p}]": ("workloads[0].priorityClass", "'p'"),
    "pdbs: [{name: a, selector: {}}]": ("pdbs[0]", "minAvailable or maxUnavailable"),
    "volumes: [{name: v, claim: x}]": ("volumes[0].claim", "namespace/name"),
    "metal: [{name: c, hosts: [{name: h}, {name: h}]}]": ("metal[0].hosts[1].name", "two hosts 'h'"),
    "metal: [{name: c, machines: [{name: m, count: 0}]}]": ("metal[0].machines[0].count", "at least 1"),
    "objects: [{kind: ConfigMap}]": ("objects[0]", "apiVersion"),
    "objects: [{apiVersion: v1, kind: ConfigMap, metadata: a}]": ("objects[0].metadata", "every Kubernetes object"),
    "objects: [{apiVersion: 1, kind: ConfigMap, metadata: {}}]": ("objects[0].apiVersion", "every Kubernetes object"),
    "nodes: [{name: a, labels: {since: 2026-02-30}}]": ("not YAML", "day"),
    "vcenters: [{datacenters: [{name: d, clusters: [], vms: [{name: v, host: h}]}]}]": (
        "vcenters[0].datacenters[0].vms[0].host",
        "no host 'h'",
    ),
    "nodes: [": ("not YAML", ""),
    "just a word": ("the top", "object"),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_mistake_is_named_with_its_place(text: str, tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(text)
    with pytest.raises(Complaint) as caught:
        read_fleet(str(file))
    place, word = WRONG[text]
    assert place in caught.value.sentence
    assert word in caught.value.sentence
    assert caught.value.code == Exit.SETTING


def test_a_file_nested_too_deeply_is_no_fleet_and_ends_nobody(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text("[" * 1200 + "]" * 1200)
    with pytest.raises(Complaint, match="is nested too deeply"):
        read_fleet(str(file))


def test_a_missing_file_says_which_fleets_there_are(tmp_path: Path) -> None:
    with pytest.raises(Complaint, match="mixed"):
        read_fleet(str(tmp_path / "none.yaml"))
