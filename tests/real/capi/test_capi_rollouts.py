"""A rolling update of a MachineDeployment, with node reuse and without."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostler.sandbox import Sandbox
from tests.real.capi_world import (
    CapiWorld,
    cluster,
    infrastructure,
    machine_deployment,
)
from tests.real.conftest import Eventually
from tests.real.operating import operator, refused

pytestmark = [pytest.mark.xdist_group("sandbox"), pytest.mark.full]
METAL = ("--only", "metal")
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
