"""Machines from nothing: Cluster API's own controllers, metal as their provider, and a real workload cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostler.sandbox import Sandbox
from tests.real.capi_world import CapiWorld, deploy
from tests.real.conftest import Eventually
from tests.real.operating import operator, refused

pytestmark = pytest.mark.xdist_group("sandbox")  # one more at a time beside the shared one


@pytest.fixture
def world(management: Sandbox, workload: Sandbox) -> Iterator[CapiWorld]:
    made = CapiWorld.new(management, workload, f"c-{os.urandom(3).hex()}")
    yield made
    made.end()


def test_a_machine_deployment_of_three_runs_and_goes(
    world: CapiWorld, management: Sandbox, tmp_path: Path, eventually: Eventually
) -> None:
    name = world.name
    with operator(management, tmp_path, name, "--only", "metal") as running:
        world.make_hosts(4)
        deploy(world, 3, eventually)
        nodes, before = world.nodes(), world.boots()
        assert {machine["status"]["nodeRef"]["name"] for machine in world.running()} == {*nodes}
        ids = {machine["spec"]["providerID"] for machine in world.running()}
        assert ids == {node["spec"]["providerID"] for node in nodes.values()}
        host = next(iter(nodes))  # the inspection names a machine after its host
        management.kubectl("annotate", "bmh", host, "-n", name, "reboot.metal3.io=")
        eventually(lambda: world.boots()[host] != before[host], 60, "its node has another boot id")
        assert {**world.boots(), host: before[host]} == before, "no other machine was rebooted"
        described = management.clusterctl("describe", "cluster", name, "-n", name, "--show-conditions", "all")
        assert f"MachineDeployment {name}/{name}" in described
        management.kubectl("scale", "machinedeployment", name, "-n", name, "--replicas=1")
        eventually(lambda: len(world.machines()) == 1 and len(world.nodes()) == 1, 90, "one machine is left")
        world.delete()
        assert world.nodes() == {}
        assert refused(running) == []
