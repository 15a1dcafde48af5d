"""What Cluster API does to machines in their life: roll-outs, health checks, topologies, failure domains."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostler.sandbox import Sandbox
from hostler.sandbox.power import POWER
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
    deploy,
    infrastructure,
    machine_deployment,
    one,
)
from tests.real.conftest import Eventually
from tests.real.metal_world import Json
from tests.real.operating import operator, refused

pytestmark = [pytest.mark.xdist_group("sandbox"), pytest.mark.full]
METAL = ("--only", "metal")
UNHEALTHY = "capm3.metal3.io/unhealthy"
DOMAIN = f"{GROUP}/failure-domain"
# One machine goes before the next comes: the host that it leaves is the only one that is free.
ONE_AFTER_THE_OTHER = {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}


@pytest.fixture
def world(management: Sandbox, workload: Sandbox) -> Iterator[CapiWorld]:
    made = CapiWorld.new(management, workload, f"c-{os.urandom(3).hex()}")
    yield made
    made.end()


def roll_out(world: CapiWorld, **template: Any) -> None:
    """The MachineDeployment gets another template, as one does to change an image."""
    newer = f"{world.name}-2"
    change = {**infrastructure(world.name, **template)[1], "metadata": {"name": newer, "namespace": world.name}}
    world.box.apply(change)
    spec = {"template": {"spec": {"infrastructureRef": {"name": newer}}}}
    world.api.patch(world.capi("machinedeployments", world.name), {"spec": spec})


def rolled_out(world: CapiWorld, replicas: int, before: set[str]) -> bool:
    now = {machine["metadata"]["name"] for machine in world.running()}
    return len(now) == replicas == len(world.machines()) and not now & before


@pytest.mark.parametrize("reuse", [True, False], ids=["with node reuse", "without"])
def test_a_rolling_update_replaces_every_machine(
    world: CapiWorld, management: Sandbox, tmp_path: Path, eventually: Eventually, reuse: bool
) -> None:
    with operator(management, tmp_path, world.name, *METAL) as running:
        world.make_hosts(3)
        name = world.name
        rollout = {"rollout": ONE_AFTER_THE_OTHER} if reuse else {}
        management.apply(
            cluster(name, name), *infrastructure(name, nodeReuse=reuse), *machine_deployment(name, 2, **rollout)
        )
        eventually(lambda: len(world.running()) == 2, 120, "two machines run")
        before, hosts = {machine["metadata"]["name"] for machine in world.running()}, {*world.used()}
        roll_out(world, nodeReuse=reuse)
        eventually(lambda: rolled_out(world, 2, before), 240, "two others run")
        eventually(lambda: len(world.used()) == 2, 90, "on two hosts")
        if reuse:
            assert {*world.used()} == hosts, "each host was kept for the machine that came next"
        world.delete()
        eventually(lambda: {*world.states().values()} == {"available"}, 90, "every host is free in the end")
        assert refused(running) == []


def test_a_control_plane_rolls_out_with_the_operator_killed(
    world: CapiWorld, management: Sandbox, workload: Sandbox, tmp_path: Path, eventually: Eventually
) -> None:
    name = world.name
    reference = {"apiGroup": CONTROL_PLANE, "kind": "KubeadmControlPlane", "name": name}

    def plane() -> Json:
        status: Json = management.get("kubeadmcontrolplane", name, "-n", name).get("status", {})
        return status

    with operator(management, tmp_path, name, *METAL, name="first") as first:
        world.make_hosts(4)
        made = control_plane(workload, name, replicas=3)
        management.apply(cluster(name, name, controlPlaneRef=reference), *infrastructure(name), made)
        eventually(lambda: plane().get("readyReplicas") == 3, 360, "three machines of the control plane")
        before = {machine["metadata"]["name"] for machine in world.machines()}
        newer = {**infrastructure(name)[1], "metadata": {"name": f"{name}-2", "namespace": name}}
        management.apply(newer, control_plane(workload, name, replicas=3, template=f"{name}-2"))
        eventually(lambda: len(world.machines()) == 4, 120, "the first new machine")
        first.process.kill()
        first.process.wait()
    with operator(management, tmp_path, name, *METAL, name="second") as second:
        eventually(lambda: rolled_out(world, 3, before) and plane().get("readyReplicas") == 3, 480, "all are new")
        described = management.clusterctl("describe", "cluster", name, "-n", name)
        assert f"KubeadmControlPlane {name}/{name}" in described or f"KubeadmControlPlane/{name}" in described
        eventually(lambda: len(world.used()) == 3, 90, "the fourth host is free")
        world.delete()
        assert refused(second) == []


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


def with_health_check(world: CapiWorld, eventually: Eventually) -> None:
    name = world.name
    remedy = {"strategy": {"type": "Reboot", "retryLimit": 1, "timeoutSeconds": 30}}
    world.box.apply(
        one(INFRA, "Metal3RemediationTemplate", name, name, {"template": {"spec": remedy}}),
        one(CAPI, "MachineHealthCheck", name, name, {
            "clusterName": name, "selector": {"matchLabels": {"nodepool": name}},
            "checks": {"unhealthyNodeConditions": [{"type": "Ready", "status": "Unknown", "timeoutSeconds": 1}]},
            "remediation": {"templateRef": {"apiVersion": INFRA, "kind": "Metal3RemediationTemplate", "name": name}},
        }),
    )  # fmt: skip
    deploy(world, 2, eventually)


def fall_silent(world: CapiWorld, node: str) -> None:
    world.workload.kubectl("annotate", "node", node, f"{POWER}=off", "--overwrite")


def test_a_silent_node_is_rebooted_and_is_well_again(
    world: CapiWorld, management: Sandbox, tmp_path: Path, eventually: Eventually
) -> None:
    with operator(management, tmp_path, world.name, *METAL) as running:
        world.make_hosts(2)
        with_health_check(world, eventually)
        before, machines = world.boots(), {machine["metadata"]["name"] for machine in world.machines()}
        node = min(before)
        fall_silent(world, node)
        eventually(lambda: world.api.items(world.metal("metal3remediations")), 150, "the health check asks for it")
        eventually(lambda: world.boots()[node] != before[node], 150, "the host was rebooted")
        eventually(lambda: not world.api.items(world.metal("metal3remediations")), 150, "and nothing more is asked for")
        assert {machine["metadata"]["name"] for machine in world.running()} == machines
        assert {**world.boots(), node: before[node]} == before
        assert refused(running) == []
        world.delete()


def test_a_node_that_stays_silent_is_replaced(
    world: CapiWorld, management: Sandbox, tmp_path: Path, eventually: Eventually
) -> None:
    with operator(management, tmp_path, world.name, *METAL) as running:
        world.make_hosts(3)
        with_health_check(world, eventually)
        machines = {machine["metadata"]["name"]: machine for machine in world.running()}
        victim, machine = min(machines.items())
        node = machine["status"]["nodeRef"]["name"]
        host = next(host for host, name in world.used().items() if name == machine["spec"]["infrastructureRef"]["name"])

        def replaced() -> bool:
            left = {each["metadata"]["name"] for each in world.machines()}
            if victim in left and node in world.nodes():
                fall_silent(world, node)  # whatever power it gets, it never comes up
            return victim not in left and len(world.running()) == 2

        eventually(replaced, 420, "another machine runs in its place")
        assert UNHEALTHY in world.hosts()[host]["metadata"]["annotations"], "nobody is given that host"
        assert host not in world.used()
        assert refused(running) == []
        world.delete()


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
