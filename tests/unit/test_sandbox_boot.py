"""What a provisioned machine's kubelet would register, and which clusters count as initialized."""

from __future__ import annotations

from typing import Any

import pytest

from hostler.sandbox.hosts.boot import control_plane_objects, kubelet_of, wanted_of
from hostler.sandbox.hosts.control_planes import INITIALIZED, initialized

Json = dict[str, Any]
HOST: Json = {
    "metadata": {"name": "rack-0", "namespace": "metal", "uid": "u-1"},
    "spec": {"bootMACAddress": "02:00:00:00:01:07"},
}
MACHINE: Json = {"metadata": {"name": "m-0", "labels": {}}}
META = {"uuid": "u-1", "providerid": "metal/rack-0/m-0", "local-hostname": "worker-0"}


@pytest.mark.parametrize(
    ("state", "powered", "wanted"),
    [
        ("provisioned", True, "on"),
        ("provisioned", False, "off"),
        ("externally provisioned", True, "on"),
        ("provisioning", True, "empty"),
        ("deprovisioning", True, "empty"),
        ("available", False, "empty"),
    ],
)
def test_only_a_provisioned_machine_with_power_runs(state: str, powered: bool, wanted: str) -> None:
    assert wanted_of({"status": {"poweredOn": powered, "provisioning": {"state": state}}}) == wanted


def test_a_new_host_has_nothing_on_its_disk() -> None:
    assert wanted_of({}) == "empty"


def test_the_node_has_what_the_user_data_asks_for() -> None:
    told = "node-labels: metal3.io/uuid={{ ds.meta_data.uuid }}, provider-id: metal3://{{ ds.meta_data.providerid }}"
    node = kubelet_of(HOST, MACHINE, told, META)
    assert (node.name, node.labels, node.provider_id) == (
        "worker-0",
        {"metal3.io/uuid": "u-1"},
        "metal3://metal/rack-0/m-0",
    )
    assert node.internal_ip == "198.18.1.7"
    assert [one.key for one in node.taints] == ["node.cluster.x-k8s.io/uninitialized"]


def test_without_user_data_the_node_is_known_by_its_name_alone() -> None:
    node = kubelet_of(HOST, MACHINE, "", {})
    assert (node.name, node.labels, node.provider_id, node.roles) == ("rack-0", {}, "", [])


def test_a_machine_of_the_control_plane_says_so() -> None:
    machine = {"metadata": {"name": "m-0", "labels": {"cluster.x-k8s.io/control-plane": ""}}}
    node = kubelet_of(HOST, machine, "", {})
    assert node.roles == ["control-plane"]
    assert "node-role.kubernetes.io/control-plane" in [one.key for one in node.taints]


def test_kubeadm_leaves_its_settings_and_three_static_pods() -> None:
    made = control_plane_objects("rack-0", "127.0.0.1:6443")
    assert [one["metadata"]["name"] for _, one in made] == [
        "kubeadm-config", "kube-apiserver-rack-0", "kube-controller-manager-rack-0", "kube-scheduler-rack-0"
    ]  # fmt: skip
    assert "127.0.0.1:6443" in made[0][1]["data"]["ClusterConfiguration"]


def test_a_given_control_plane_is_initialized_once() -> None:
    paused = {"type": "Paused", "status": "False"}
    cluster: Json = {"spec": {}, "status": {"conditions": [paused, {"type": INITIALIZED, "status": "False"}]}}
    changed = initialized(cluster, "now")
    assert changed is not None
    assert [(one["type"], one["status"]) for one in changed["status"]["conditions"]] == [
        ("Paused", "False"),
        (INITIALIZED, "True"),
    ]
    assert changed["status"]["initialization"] == {"controlPlaneInitialized": True}
    assert initialized(changed, "later") is None


@pytest.mark.parametrize("spec", [{"controlPlaneRef": {"name": "kcp"}}, {"topology": {"classRef": {"name": "c"}}}])
def test_a_cluster_with_a_control_plane_of_its_own_is_left_alone(spec: Json) -> None:
    assert initialized({"spec": spec}, "now") is None
