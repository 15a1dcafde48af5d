"""A MachineHealthCheck of the real Cluster API with a Metal3RemediationTemplate: rebooted, and at last replaced."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hostler.sandbox import Sandbox
from tests.real.capi_world import (
    CAPI,
    INFRA,
    CapiWorld,
    deploy,
    one,
)
from tests.real.conftest import Eventually
from tests.real.metal_remedies import UNHEALTHY, falls_ill, over_time
from tests.real.metal_world import Api, Json, history
from tests.real.operating import operator, refused

pytestmark = [pytest.mark.xdist_group("sandbox"), pytest.mark.full]
# A person's wish at the host, beside which no remediation brings it back on: its power supply is dead, so to speak.
DEAD = "reboot.metal3.io/dead"


@pytest.fixture
def world(management: Sandbox, workload: Sandbox) -> Iterator[CapiWorld]:
    made = CapiWorld.new(management, workload, f"c-{os.urandom(3).hex()}")
    yield made
    made.end()


def health_check(name: str) -> list[Json]:
    """As our cluster templates have it, but without the patience for a real machine."""
    strategy = {"type": "Reboot", "retryLimit": 1, "timeoutSeconds": 100}
    unready = {"type": "Ready", "status": "Unknown", "timeoutSeconds": 1}
    template = {"apiVersion": INFRA, "kind": "Metal3RemediationTemplate", "name": name}
    return [
        one(INFRA, "Metal3RemediationTemplate", name, name, {"template": {"spec": {"strategy": strategy}}}),
        one(CAPI, "MachineHealthCheck", name, name, {
            "clusterName": name, "selector": {"matchLabels": {"nodepool": name}},
            "checks": {"unhealthyNodeConditions": [unready]}, "remediation": {"templateRef": template},
        }),
    ]  # fmt: skip


def remediation(world: CapiWorld, machine: str) -> tuple[str, int]:
    """Its phase and how often it was tried again; two nothings: there is none."""
    status = world.api.get(world.metal("metal3remediations", machine)).get("status", {})
    return status.get("phase", ""), status.get("retryCount", 0)


def test_an_unhealthy_machine_is_rebooted_and_one_that_stays_so_is_replaced(
    world: CapiWorld, management: Sandbox, workload: Sandbox, tmp_path: Path, eventually: Eventually
) -> None:
    name = world.name
    with operator(management, tmp_path, name, "--only", "metal") as running, closing(Api(workload)) as nodes:
        world.make_hosts(3)
        deploy(world, 2, eventually)
        management.apply(*health_check(name))
        used, boots = world.used(), world.boots()
        since = world.api.get(world.hosts_path())["metadata"]["resourceVersion"]
        ill, well = sorted(used)  # a node has the name of its host here
        machine_of = {each["status"]["nodeRef"]["name"]: each["metadata"]["name"] for each in world.running()}
        machine = machine_of[ill]

        falls_ill(nodes, eventually, ill)
        eventually(lambda: remediation(world, machine)[0], 60, "Cluster API makes a remediation")
        eventually(lambda: world.boots()[ill] != boots[ill], 90, "its host is rebooted")
        eventually(lambda: remediation(world, machine) == ("", 0), 90, "the health check ends the remediation")
        assert world.used() == used, "each machine has kept its host"
        past = [host for host in history(world.api, world.hosts_path(), since) if host["metadata"]["name"] in used]
        assert {host["status"]["provisioning"]["state"] for host in past} == {"provisioned"}, "nothing was installed"
        assert {host["metadata"]["name"] for host in past if not host["status"]["poweredOn"]} == {ill}

        management.kubectl("annotate", "bmh", ill, "-n", name, f"{DEAD}=")
        falls_ill(nodes, eventually, ill)
        eventually(lambda: remediation(world, machine) == ("Waiting", 0), 90, "it is asked to boot")
        over_time(world, machine)
        eventually(lambda: remediation(world, machine) == ("Waiting", 1), 90, "and once more")
        over_time(world, machine)
        eventually(lambda: UNHEALTHY in world.hosts()[ill]["metadata"]["annotations"], 90, "the host is marked")
        eventually(lambda: machine not in {each["metadata"]["name"] for each in world.machines()}, 120, "deleted")
        eventually(lambda: len(world.running()) == 2, 120, "another machine runs in its place")
        assert {*world.used()} == {*world.hosts()} - {ill}
        assert world.boots()[well] == boots[well], "the healthy machine was left alone"
        assert world.api.items(world.metal("metal3remediations")) == []
        world.delete()
        assert refused(running) == []
