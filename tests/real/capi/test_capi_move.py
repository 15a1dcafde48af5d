"""`clusterctl move` with the real clusterctl and Cluster API: no host is installed again, nothing of ours stays behind.

Two management clusters, each with a host driver in place of Baremetal Operator. The source's is stopped for each move,
as docs/metal.md says.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from hostler.errors import Complaint
from hostler.sandbox import Sandbox
from tests.real.capi_world import (
    BLOCK_MOVE,
    PAUSED,
    STATUS,
    CapiWorld,
    baremetal_operator_down,
    deploy,
    infrastructure,
    label_definitions,
    one,
    saved_status,
)
from tests.real.conftest import Eventually
from tests.real.metal_world import Json, history
from tests.real.operating import operator, refused

pytestmark = pytest.mark.xdist_group("sandbox")  # one more at a time beside the shared one
METAL = ("--only", "metal")
POOL = {"pools": [{"start": "10.9.5.10", "end": "10.9.5.20"}], "prefix": 24, "gateway": "10.9.5.1", "namePrefix": "ip"}


@dataclass(frozen=True)
class Before:
    """What must be the same after a move."""

    used: dict[str, str]
    ids: dict[str, str]
    boots: dict[str, str]
    since: str  # the version of the target when the move began


@pytest.fixture
def world(management: Sandbox, target: Sandbox, workload: Sandbox) -> Iterator[CapiWorld]:
    for box in (management, target):
        label_definitions(box)
    made = CapiWorld.new(management, workload, f"move-{os.urandom(3).hex()}")
    target.kubectl("create", "namespace", made.name)  # for the operator there, and its lease
    yield made
    target.kubectl("delete", "namespace", made.name, "--wait=false")
    made.end()


def with_data(world: CapiWorld) -> Json:
    """A data template with an address from a pool; what machines need to name it."""
    name = world.name
    pool = {**POOL, "clusterName": name}
    spec = {"clusterName": name, "metaData": {"ipAddressesFromPool": [{"key": "ip", "name": name}]}}
    world.box.apply(
        one("ipam.metal3.io/v1alpha1", "IPPool", name, name, pool),
        one("infrastructure.cluster.x-k8s.io/v1beta2", "Metal3DataTemplate", name, name, spec),
    )
    return {"dataTemplate": {"name": name}}


def ids(world: CapiWorld) -> dict[str, str]:
    return {machine["metadata"]["name"]: machine["spec"]["providerID"] for machine in world.running()}


def before_move(source: CapiWorld, arrived: CapiWorld) -> Before:
    since = arrived.api.get(arrived.hosts_path())["metadata"]["resourceVersion"]
    return Before(source.used(), ids(source), source.boots(), since)


def assert_arrived(
    source: CapiWorld, arrived: CapiWorld, before: Before, eventually: Eventually, *, moved: bool = True
) -> None:
    """Every machine runs on the host that it had, none of which was installed, rebooted or emptied.

    Not `moved`: restored from a copy, so that the source may still be there.
    """
    eventually(lambda: len(arrived.running()) == len(before.ids), 120, "every machine runs where it was moved to")
    eventually(lambda: all(at_work(host) for host in arrived.hosts().values()), 60, "and is kept from the next move")
    assert arrived.used() == before.used
    assert ids(arrived) == before.ids
    assert arrived.boots() == before.boots
    past = history(arrived.api, arrived.hosts_path(), before.since)
    assert {host.get("status", {}).get("provisioning", {}).get("state", "") for host in past} <= {"", "provisioned"}
    assert all(host["status"]["poweredOn"] for host in past if "poweredOn" in host.get("status", {}))
    assert not moved or source.left() == [], "nothing holds anything in the source"


def at_work(host: Json) -> bool:
    annotations = host["metadata"].get("annotations", {})
    return BLOCK_MOVE in annotations and PAUSED not in annotations and STATUS not in annotations


@contextmanager
def clusterctl_move(world: CapiWorld, target: Sandbox, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`clusterctl move`, running."""
    command = [str(world.box.clusterctl_program), "move", "--to-kubeconfig", str(target.kubeconfig), "-n", world.name]
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=world.box.kubectl_environment(), stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for_end(process: subprocess.Popen[bytes], log: Path, seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while process.poll() is None:
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.2)
    assert process.returncode == 0, log.read_text()


def test_a_move_waits_for_the_successor_of_a_killed_operator(
    world: CapiWorld, management: Sandbox, target: Sandbox, tmp_path: Path, eventually: Eventually
) -> None:
    name, log = world.name, tmp_path / "clusterctl.log"
    with (
        operator(management, tmp_path, name, *METAL, name="first") as first,
        operator(target, tmp_path, name, *METAL, name="there") as there,
    ):
        world.make_hosts(2)
        deploy(world, 2, eventually, with_data(world))
        arrived = world.elsewhere(target)
        before = before_move(world, arrived)
        first.kill()
        with baremetal_operator_down(management), clusterctl_move(world, target, log) as moving:
            eventually(lambda: "Move blocked by" in log.read_text(), 60, "clusterctl waits")
            assert management.get("cluster", name, "-n", name)["spec"]["paused"] is True
            assert arrived.hosts() == {}, "nothing is copied while no operator has saved the status"
            assert all(BLOCK_MOVE in host["metadata"]["annotations"] for host in world.hosts().values())
            with operator(management, tmp_path, name, *METAL, name="second") as second:
                wait_for_end(moving, log)
                assert_arrived(world, arrived, before, eventually)
                assert refused(second) == []
        arrived.delete()
        assert arrived.nodes() == {}
        eventually(lambda: {*arrived.states().values()} == {"available"}, 90, "its hosts are free again")
        assert refused(there) == []
        arrived.end()


@pytest.mark.full
def test_a_move_at_rest_installs_nothing_again(
    world: CapiWorld, management: Sandbox, target: Sandbox, tmp_path: Path, eventually: Eventually
) -> None:
    name = world.name
    with (
        operator(management, tmp_path, name, *METAL, name="here"),
        operator(target, tmp_path, name, *METAL, name="there"),
    ):
        world.make_hosts(3)  # one more than is needed: it never had a machine, so it stays
        deploy(world, 2, eventually, with_data(world))
        arrived = world.elsewhere(target)
        before = before_move(world, arrived)
        with baremetal_operator_down(management):
            management.clusterctl("move", "--to-kubeconfig", str(target.kubeconfig), "-n", name)
        (spare,) = world.hosts()
        assert spare not in before.used
        world.api.delete(world.hosts_path(spare))
        eventually(lambda: world.hosts() == {}, 60, "the spare host goes")
        assert_arrived(world, arrived, before, eventually)
        arrived.delete()
        arrived.end()


@pytest.mark.full
def test_a_move_is_refused_in_a_rollout_and_then_ends_well(
    world: CapiWorld, management: Sandbox, target: Sandbox, tmp_path: Path, eventually: Eventually
) -> None:
    name = world.name
    with (
        operator(management, tmp_path, name, *METAL, name="here"),
        operator(target, tmp_path, name, *METAL, name="there"),
    ):
        world.make_hosts(3)
        deploy(world, 3, eventually)
        # No host that comes free can be installed, so the machine that is next has no node for as long as we look.
        management.kubectl("annotate", "bmh", "--all", "-n", name, "sandbox.hostler.dev/fail=provisioning")
        newer = {**infrastructure(name)[1], "metadata": {"name": f"{name}-2", "namespace": name}}
        management.apply(newer)
        change = {
            "replicas": 2, "template": {"spec": {"infrastructureRef": {"name": f"{name}-2"}}},
        }  # fmt: skip
        world.api.patch(world.capi("machinedeployments", name), {"spec": change})
        eventually(lambda: any("nodeRef" not in m.get("status", {}) for m in world.machines()), 90, "a rollout")
        with pytest.raises(Complaint, match="is still provisioning the node"):
            management.clusterctl("move", "--to-kubeconfig", str(target.kubeconfig), "-n", name)
        assert not management.get("cluster", name, "-n", name)["spec"].get("paused")
        assert [host for host in world.hosts().values() if PAUSED in host["metadata"].get("annotations", {})] == []
        arrived = world.elsewhere(target)
        assert arrived.left() == []
        management.kubectl("annotate", "bmh", "--all", "-n", name, "sandbox.hostler.dev/fail-")

        def done() -> bool:
            status = management.get("machinedeployment", name, "-n", name).get("status", {})
            return (status.get("upToDateReplicas"), status.get("replicas"), len(world.running())) == (2, 2, 2)

        eventually(done, 180, "the rollout ends")
        eventually(lambda: len(world.used()) == 2, 90, "and the old hosts are free")
        for free in {*world.hosts()} - {*world.used()}:  # kept for nobody, it need not move
            world.api.delete(world.hosts_path(free))
        eventually(lambda: len(world.hosts()) == 2, 60, "only the hosts of the machines")
        before = before_move(world, arrived)
        with baremetal_operator_down(management):
            management.clusterctl("move", "--to-kubeconfig", str(target.kubeconfig), "-n", name)
        assert_arrived(world, arrived, before, eventually)
        arrived.delete()
        arrived.end()


@pytest.mark.full
def test_a_move_without_an_operator_gives_up_and_is_repeated(
    world: CapiWorld, management: Sandbox, target: Sandbox, tmp_path: Path, eventually: Eventually
) -> None:
    name, log = world.name, tmp_path / "clusterctl.log"
    with operator(target, tmp_path, name, *METAL, name="there"):
        with operator(management, tmp_path, name, *METAL, name="first") as first:
            world.make_hosts(2)
            deploy(world, 2, eventually)
            first.kill()
        arrived = world.elsewhere(target)
        since = world.api.get(world.hosts_path())["metadata"]["resourceVersion"]
        before = before_move(world, arrived)
        with baremetal_operator_down(management):
            with clusterctl_move(world, target, log) as moving:
                assert moving.wait(timeout=540) != 0
            assert "resource is not ready to move" in log.read_text()
            assert management.get("cluster", name, "-n", name)["spec"]["paused"] is True, "it is left so"
            assert arrived.left() == []
            assert history(world.api, world.hosts_path(), since) == [], "no host was written at all"
            # As docs/metal.md says: unpause, start the operator, move again.
            resume = ("patch", "cluster", name, "-n", name, "--type=merge", "-p", '{"spec":{"paused":false}}')
            management.kubectl(*resume)
            with operator(management, tmp_path, name, *METAL, name="second") as second:
                second.said("leading")
                management.clusterctl("move", "--to-kubeconfig", str(target.kubeconfig), "-n", name)
                assert_arrived(world, arrived, before, eventually)
        arrived.delete()
        arrived.end()


@pytest.mark.full
def test_a_cluster_saved_to_a_directory_is_restored_untouched(
    world: CapiWorld, management: Sandbox, target: Sandbox, tmp_path: Path, eventually: Eventually
) -> None:
    name, saved = world.name, tmp_path / "saved"
    saved.mkdir()
    with operator(target, tmp_path, name, *METAL, name="there"):
        with operator(management, tmp_path, name, *METAL, name="here"):
            world.make_hosts(2)
            deploy(world, 2, eventually, with_data(world))
            arrived = world.elsewhere(target)
            before = before_move(world, arrived)
            # clusterctl does not wait for block-move here: paused hosts with their status must be there already.
            management.kubectl("annotate", "metal3machines", "--all", "-n", name, "cluster.x-k8s.io/paused=")
            eventually(
                lambda: all(saved_status(host) and not at_work(host) for host in world.hosts().values()),
                60, "each host has its status with it",
            )  # fmt: skip
            management.clusterctl("move", "--to-directory", str(saved), "-n", name)
        files = sorted(path for path in saved.iterdir() if path.name.startswith("BareMetalHost_"))
        assert len(files) == 2
        assert [path.name for path in files if STATUS not in path.read_text()] == []
        # The source is lost but for Cluster API: two Baremetal Operators must never have the same host.
        with baremetal_operator_down(management):
            target.clusterctl("move", "--from-directory", str(saved), "-n", name)
            eventually(lambda: len(arrived.hosts()) == 2, 60, "restored")
            target.kubectl("annotate", "metal3machines", "--all", "-n", name, "cluster.x-k8s.io/paused-")
            assert_arrived(world, arrived, before, eventually, moved=False)
            arrived.delete()
            world.forget()
        arrived.end()
