"""Other ways in which Cluster API makes machines: a topology, failure domains."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostler.sandbox import Sandbox
from tests.real.capi_world import (
    BOOTSTRAP,
    CAPI,
    CONTROL_PLANE,
    GROUP,
    IMAGE,
    INFRA,
    REGISTRATION,
    CapiWorld,
    cluster,
    control_plane,
    infrastructure,
    machine_deployment,
    one,
)
from tests.real.conftest import Eventually
from tests.real.metal_world import Json
from tests.real.operating import operator, refused

pytestmark = [pytest.mark.xdist_group("sandbox"), pytest.mark.full]
METAL = ("--only", "metal")
DOMAIN = f"{GROUP}/failure-domain"


@pytest.fixture
def world(management: Sandbox, workload: Sandbox) -> Iterator[CapiWorld]:
    made = CapiWorld.new(management, workload, f"c-{os.urandom(3).hex()}")
    yield made
    made.end()


def test_a_topology_from_a_cluster_class_runs(
    world: CapiWorld, management: Sandbox, workload: Sandbox, tmp_path: Path, eventually: Eventually
) -> None:
    name = world.name
    whole = control_plane(workload, name)["spec"]
    plane = {"template": {"spec": {"kubeadmConfigSpec": whole["kubeadmConfigSpec"]}}}
    endpoint = {"controlPlaneEndpoint": {"host": "127.0.0.1", "port": 6443}}
    joining = {"template": {"spec": {"joinConfiguration": {"nodeRegistration": REGISTRATION}}}}

    def template(version: str, kind: str) -> Json:
        return {"templateRef": {"apiVersion": version, "kind": kind, "name": name}}

    machines = template(INFRA, "Metal3MachineTemplate")
    classes = one(CAPI, "ClusterClass", name, name, {
        "infrastructure": template(INFRA, "Metal3ClusterTemplate"),
        "controlPlane": {
            **template(f"{CONTROL_PLANE}/v1beta2", "KubeadmControlPlaneTemplate"), "machineInfrastructure": machines,
            "metadata": whole["machineTemplate"]["metadata"],
        },
        "workers": {"machineDeployments": [{
            "class": "worker", "infrastructure": machines,
            "bootstrap": template(f"{BOOTSTRAP}/v1beta2", "KubeadmConfigTemplate"),
        }]},
    })  # fmt: skip
    topology = {
        "classRef": {"name": name}, "version": "v1.37.1", "controlPlane": {"replicas": 1},
        "workers": {"machineDeployments": [{"class": "worker", "name": "md", "replicas": 1}]},
    }  # fmt: skip
    with operator(management, tmp_path, name, *METAL) as running:
        world.make_hosts(2)
        management.apply(
            one(INFRA, "Metal3ClusterTemplate", name, name, {"template": {"spec": endpoint}}),
            one(INFRA, "Metal3MachineTemplate", name, name, {"template": {"spec": {"image": IMAGE}}}),
            one(f"{BOOTSTRAP}/v1beta2", "KubeadmConfigTemplate", name, name, joining),
            one(f"{CONTROL_PLANE}/v1beta2", "KubeadmControlPlaneTemplate", name, name, plane),
            classes,
            one(CAPI, "Cluster", name, name, {"topology": topology}),
        )
        eventually(lambda: len(world.running()) == 2, 240, "a control plane machine and a worker")
        made = world.api.items(world.metal("metal3clusters"))
        assert [each["spec"]["controlPlaneEndpoint"]["host"] for each in made] == ["127.0.0.1"]
        world.delete()
        assert refused(running) == []


def test_machines_go_to_hosts_of_their_failure_domain(
    world: CapiWorld, management: Sandbox, tmp_path: Path, eventually: Eventually
) -> None:
    name = world.name
    with operator(management, tmp_path, name, *METAL, "--metal-strict-failure-domains") as running:
        world.make_hosts(4)
        for number in range(4):
            label = {"metadata": {"labels": {DOMAIN: "b" if number % 2 else "a"}}}
            world.api.patch(world.hosts_path(f"rack-{number}"), label)
        metal, template = infrastructure(name)
        metal["spec"]["failureDomains"] = [{"name": "a", "controlPlane": True}, {"name": "b"}]
        bootstrap, deployment = machine_deployment(name, 2)
        deployment["spec"]["template"]["spec"]["failureDomain"] = "b"
        management.apply(cluster(name, name), metal, template, bootstrap, deployment)
        eventually(lambda: len(world.running()) == 2, 120, "two machines run")
        assert {*world.used()} == {"rack-1", "rack-3"}
        found = management.get("cluster", name, "-n", name)["status"]["failureDomains"]
        assert {each["name"] for each in found} == {"a", "b"}
        world.delete()
        assert refused(running) == []
