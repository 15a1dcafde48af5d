"""From the Go provider in mid-flight and back again, with the real Cluster API beside: no host is touched."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostler.errors import Exit
from hostler.sandbox import Sandbox
from tests.real.capi_world import BLOCK_MOVE, CapiWorld, cluster, infrastructure, machine_deployment, one
from tests.real.conftest import Eventually
from tests.real.go_provider import GoProvider
from tests.real.metal_world import Json, history
from tests.real.operating import hostler, operator, refused

pytestmark = pytest.mark.xdist_group("sandbox")  # one more at a time beside the shared one
NOBODY = "http://127.0.0.1:9"
DATA = "infrastructure.cluster.x-k8s.io/v1beta2"


@pytest.fixture
def world(management: Sandbox, workload: Sandbox) -> Iterator[CapiWorld]:
    made = CapiWorld.new(management, workload, f"over-{os.urandom(3).hex()}")
    yield made
    made.end()


def checked(box: Sandbox, *words: str) -> tuple[int, list[Json]]:
    done = hostler(box.kubeconfig, "metal", "takeover", "--check", "--output", "json", *words)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def mid_flight(world: CapiWorld, management: Sandbox, eventually: Eventually) -> dict[str, str]:
    """Four machines, each at another point of its life; the host of each by what it is doing."""
    name, provider = world.name, GoProvider(world)
    world.make_hosts(5)
    spec = {"clusterName": name, "metaData": {"strings": [{"key": "written", "value": "anew"}]}}
    management.apply(
        cluster(name, name), one(DATA, "Metal3DataTemplate", name, name, spec),
        *infrastructure(name, {"dataTemplate": {"name": name}}), *machine_deployment(name, 4),
    )  # fmt: skip
    eventually(lambda: {*world.states().values()} == {"available"}, 90, "five hosts are available")
    provider.prepare_cluster()

    def prepared() -> list[str]:
        found = world.machines()
        ready = [one for one in found if one["spec"]["bootstrap"].get("dataSecretName")]
        return sorted(one["spec"]["infrastructureRef"]["name"] for one in ready) if len(ready) == 4 else []

    old, new, leaving, waiting = eventually(prepared, 90, "Cluster API has made four machines with bootstrap data")
    for number, (machine, host) in enumerate(((old, "rack-0"), (leaving, "rack-1"))):
        provider.claim_host(machine, host, before_1_14=machine == old)
        provider.render_data(machine, name, number)
        provider.provision(machine, host)
    eventually(lambda: _node(world, "rack-0") and _node(world, "rack-1"), 90, "two nodes join")
    for machine, host in ((old, "rack-0"), (leaving, "rack-1")):
        provider.finish(machine, host, _node(world, host), before_1_14=machine == old)
    eventually(lambda: len(world.running()) == 2, 90, "two machines run under the Go provider")
    owner = next(one for one in world.machines() if one["spec"]["infrastructureRef"]["name"] == leaving)
    chosen = {"metadata": {"annotations": {"cluster.x-k8s.io/delete-machine": ""}}}
    world.api.patch(world.capi("machines", owner["metadata"]["name"]), chosen)
    management.kubectl("scale", "machinedeployment", name, "-n", name, "--replicas=3")
    path = world.metal("metal3machines", leaving)
    eventually(lambda: "deletionTimestamp" in world.api.get(path)["metadata"], 90, "one machine is being deleted")
    provider.begin_release(leaving, "rack-1")
    provider.claim_host(new, "rack-2", before_1_14=False)
    provider.render_data(new, name, 2)
    provider.provision(new, "rack-2")
    provider.adopt_machine(waiting)
    return {"old": old, "new": new, "leaving": leaving, "waiting": waiting}


def owned(world: CapiWorld) -> list[str]:
    """Hosts that Kubernetes would delete after their machine."""
    return [name for name, host in world.hosts().items() if host["metadata"].get("ownerReferences")]


def _node(world: CapiWorld, host: str) -> str:
    uid = world.hosts()[host]["metadata"]["uid"]
    found = world.workload.read(f"/api/v1/nodes?labelSelector=metal3.io/uuid={uid}")["items"]
    return str(found[0]["metadata"]["name"]) if found else ""


def test_a_take_over_in_mid_flight_and_back_touches_no_host(
    world: CapiWorld, management: Sandbox, tmp_path: Path, eventually: Eventually
) -> None:
    machines = mid_flight(world, management, eventually)
    since = world.api.get(world.hosts_path())["metadata"]["resourceVersion"]
    boot = world.workload.get("node", "rack-0")["status"]["nodeInfo"]["bootID"]
    code, lines = checked(management, "--metal-namespaces", world.name)
    assert code == Exit.OK, lines
    told = {(one["effect"], one["what"].rpartition("/")[2]): one["why"] for one in lines}
    assert "ownerReferences" in told["write", "rack-0"]
    assert "A host is chosen" in told["write", machines["waiting"]]
    assert not [one for one in lines if one["effect"] == "judged"], lines
    with operator(management, tmp_path, world.name, "--only", "metal") as running:
        eventually(lambda: len(world.running()) == 3, 120, "three machines run, each by its own way")
        eventually(lambda: machines["leaving"] not in world.used().values(), 60, "the fourth let go of its host")
        eventually(lambda: world.terminating() == [], 60, "nothing is left half deleted")
        assert len(world.used()) == 3
        assert world.used()["rack-0"] == machines["old"]
        assert world.used()["rack-2"] == machines["new"]
        hosts = world.hosts().values()
        eventually(
            lambda: all("ownerReferences" not in one["metadata"] for one in world.hosts().values()), 60, "owners"
        )
        assert refused(running) == []
        assert hosts
    # What is installed stays installed, and nobody switched it off.
    past = [one for one in history(world.api, world.hosts_path(), since) if one["metadata"]["name"] == "rack-0"]
    assert {one["status"]["provisioning"]["state"] for one in past} == {"provisioned"}
    assert world.workload.get("node", "rack-0")["status"]["nodeInfo"]["bootID"] == boot
    and_back_again(world, management)
    with operator(management, tmp_path, world.name, "--only", "metal", name="second"):
        world.delete()
        eventually(lambda: world.used() == {}, 90, "every host is free in the end")


def and_back_again(world: CapiWorld, management: Sandbox) -> None:
    """`hostler metal withdraw`: what the next provider finds is what the last one left, but for our marks."""
    before = {name: one["spec"] for name, one in world.hosts().items()}
    version = world.api.get(world.hosts_path())["metadata"]["resourceVersion"]
    done = hostler(management.kubeconfig, "metal", "withdraw", "--yes", "--operator", NOBODY, "--output", "json")
    assert done.returncode == Exit.OK, done.stderr
    assert len([line for line in json.loads(done.stdout)["done"] if f"/{world.name}/" in line]) == 3
    hosts = world.hosts()
    assert {name: one["spec"] for name, one in hosts.items()} == before
    assert [name for name, one in hosts.items() if BLOCK_MOVE in one["metadata"].get("annotations", {})] == []
    assert owned(world) == []
    assert world.terminating() == []
    assert len(world.running()) == 3
    past = history(world.api, world.hosts_path(), version)
    assert {host["status"]["provisioning"]["state"] for host in past} <= {"provisioned", "available"}
