"""A KubeadmControlPlane of the real Cluster API: from one machine to three, and replaced by two operators in turn."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostler.sandbox import Sandbox
from tests.real.capi_world import CONTROL_PLANE, CapiWorld, cluster, control_plane, infrastructure
from tests.real.conftest import Eventually
from tests.real.metal_world import consumer, history
from tests.real.operating import operator, refused

pytestmark = [pytest.mark.xdist_group("sandbox"), pytest.mark.full]
METAL = ("--only", "metal")


@pytest.fixture
def world(management: Sandbox, workload: Sandbox) -> Iterator[CapiWorld]:
    made = CapiWorld.new(management, workload, f"c-{os.urandom(3).hex()}")
    yield made
    made.end()


def replicas(world: CapiWorld) -> tuple[int, int, int]:
    """Of the control plane: there, ready, up to date."""
    status = world.box.get("kubeadmcontrolplane", world.name, "-n", world.name).get("status", {})
    there, ready, current = (int(status.get(f"{which}eplicas", 0)) for which in ("r", "readyR", "upToDateR"))
    return there, ready, current


def roll_out(world: CapiWorld) -> None:
    """The control plane gets another template, as one does to change an image."""
    newer = f"{world.name}-2"
    world.box.apply({**infrastructure(world.name)[1], "metadata": {"name": newer, "namespace": world.name}})
    spec = {"machineTemplate": {"spec": {"infrastructureRef": {"name": newer}}}}
    path = f"/apis/{CONTROL_PLANE}/v1beta2/namespaces/{world.name}/kubeadmcontrolplanes/{world.name}"
    world.api.patch(path, {"spec": spec})


def test_a_control_plane_grows_to_three_and_is_replaced_though_the_operator_is_killed(
    world: CapiWorld, management: Sandbox, workload: Sandbox, tmp_path: Path, eventually: Eventually
) -> None:
    name = world.name
    reference = {"apiGroup": CONTROL_PLANE, "kind": "KubeadmControlPlane", "name": name}
    with operator(management, tmp_path, name, *METAL, name="first") as first:
        world.make_hosts(4)
        management.apply(
            cluster(name, name, controlPlaneRef=reference), *infrastructure(name), control_plane(workload, name)
        )
        eventually(lambda: replicas(world) == (1, 1, 1), 120, "the first machine of the control plane")
        management.kubectl("scale", "kubeadmcontrolplane", name, "-n", name, "--replicas=3")
        eventually(lambda: replicas(world) == (3, 3, 3), 240, "all three machines of the control plane")
        before = {*world.used().values()}
        since = world.api.get(world.hosts_path())["metadata"]["resourceVersion"]
        roll_out(world)
        eventually(lambda: "provisioning" in world.states().values(), 90, "the first of the next is being installed")
        first.kill()
    with operator(management, tmp_path, name, *METAL, name="second") as second:
        eventually(lambda: replicas(world) == (3, 3, 3) and not before & {*world.used().values()}, 360, "replaced")
        eventually(lambda: len(world.used()) == 3, 90, "the old hosts are let go of")
        past = history(world.api, world.hosts_path(), since)
        owned = {(host["metadata"]["name"], consumer(host)) for host in past if consumer(host)}
        machines = [machine for _, machine in owned]
        assert sorted(machines) == sorted({*machines}), "no machine ever had two hosts"
        assert len({*machines} - before) == 3, "none was made in vain"
        management.clusterctl("describe", "cluster", name, "-n", name)
        world.delete()
        eventually(lambda: {*world.states().values()} == {"available"}, 90, "every host is free in the end")
        configmaps = "/api/v1/namespaces/kube-system/configmaps?fieldSelector=metadata.name=kubeadm-config"
        eventually(lambda: not workload.read(configmaps)["items"], 60, "the next cluster begins with init")
        assert refused(second) == []
