"""Hosts go over to Hostler, back again, and to another management cluster: none is installed once more or deleted."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hostler.errors import Exit
from hostler.sandbox import Sandbox
from hostler.sandbox.load import create
from tests.real.conftest import Eventually
from tests.real.metal_moving import BLOCK_MOVE, MOVE_HIERARCHY, Move
from tests.real.metal_world import (
    INFRA,
    READY,
    Json,
    World,
    available,
    driver,
    history,
    home,
    owned_by,
)
from tests.real.operating import Running, hostler, operator, refused

MakeNode = Callable[..., str]
NOBODY = "http://127.0.0.1:9"
PAUSED = "baremetalhost.metal3.io/paused"
OLD = "infrastructure.cluster.x-k8s.io/v1beta1"
GROUP = "infrastructure.cluster.x-k8s.io"
IMAGE = {"url": "http://images.invalid/before.qcow2", "checksum": "abc", "checksumType": "md5"}


@pytest.fixture
def world(sandbox: Sandbox, definitions: None, namespace: str) -> Iterator[World]:
    made = World(sandbox, namespace)
    made.make_kubeconfig()
    yield made
    made.scrub()


def of(kind: str, one: Json, *, version: str = INFRA, controller: bool = False) -> Json:
    meta = one["metadata"]
    found = {"apiVersion": version, "kind": kind, "name": meta["name"], "uid": meta["uid"]}
    return {**found, "controller": True} if controller else found


def left_by_the_go_provider(world: World, machine: str, host: str, index: int, node: str, *, before_1_14: bool) -> None:
    """A machine that is Ready, with its host and data, as the Go provider writes them; nobody runs meanwhile."""
    namespace, api = world.namespace, world.api
    uid, made = world.host(host)["metadata"]["uid"], world.machine(machine)
    meta: Json = {"labels": {"cluster.x-k8s.io/cluster-name": "c1"}}
    if before_1_14:
        meta["ownerReferences"] = [of("Metal3Machine", made, version=OLD, controller=True)]
    else:
        meta["annotations"] = {BLOCK_MOVE: ""}
    consumer = {"apiVersion": OLD, "kind": "Metal3Machine", "name": machine, "namespace": namespace}
    secret = {"name": f"{machine}-metadata", "namespace": namespace}
    spec = {"consumerRef": consumer, "image": IMAGE, "metaData": secret, "online": True,
            "userData": {"name": f"{machine}-bootstrap", "namespace": namespace}}  # fmt: skip
    api.patch(world.hosts_path(host), {"metadata": meta, "spec": spec})
    provider = f"metal3://{uid}" if before_1_14 else f"metal3://{namespace}/{host}/{machine}"
    api.patch(f"/api/v1/nodes/{node}", {"spec": {"providerID": provider}})
    named = {
        "annotations": {"metal3.io/BareMetalHost": f"{namespace}/{host}"},
        "finalizers": [f"metal3machine.{GROUP}"],
    }
    api.patch(world.metal("metal3machines", machine), {"metadata": named, "spec": {"providerID": provider}})
    labels = {"cluster.x-k8s.io/cluster-name": "c1"}
    reference, data = {"name": "t", "namespace": namespace}, f"t-{index}"
    world.make(
        INFRA, "Metal3DataClaim", machine, {"template": reference}, labels=labels,
        ownerReferences=[of("Metal3Machine", made, controller=True)],
        finalizers=[f"metal3machine.{GROUP}", f"metal3dataclaim.{GROUP}"],
    )  # fmt: skip
    template = api.get(world.metal("metal3datatemplates", "t"))
    claim = api.get(world.metal("metal3dataclaims", machine))
    world.make(
        INFRA, "Metal3Data", data, {
            "index": index, "template": reference, "claim": {"name": machine, "namespace": namespace},
            "metaData": secret,
        },
        labels=labels, finalizers=[f"metal3dataclaim.{GROUP}", f"metal3data.{GROUP}"],
        ownerReferences=[
            of("Metal3DataTemplate", template, controller=True), of("Metal3DataClaim", claim),
            of("Metal3Machine", made),
        ],
    )  # fmt: skip
    rendered = {"name": data, "namespace": namespace}
    owner = of("Metal3Data", api.get(world.metal("metal3datas", data)), controller=True)
    create(world.box, [{
        "apiVersion": "v1", "kind": "Secret", "type": f"{GROUP}/secret", "stringData": {"metaData": "before"},
        "metadata": {**secret, "ownerReferences": [owner]},
    }])  # fmt: skip
    api.patch(f"{world.metal('metal3datas', data)}/status", {"status": {"ready": True}})
    api.patch(f"{world.metal('metal3dataclaims', machine)}/status", {"status": {"renderedData": rendered}})
    status = {"initialization": {"provisioned": True}, "renderedData": rendered, "metaData": secret}
    api.patch(f"{world.metal('metal3machines', machine)}/status", {"status": status})


def terminating(world: World) -> list[str]:
    kinds = ("metal3machines", "metal3dataclaims", "metal3datas", "metal3datatemplates", "metal3clusters")
    paths = [world.hosts_path(), *map(world.metal, kinds)]
    found = [one for path in paths for one in world.api.items(path)]
    return [one["metadata"]["name"] for one in found if "deletionTimestamp" in one["metadata"]]


def test_a_take_over_from_the_go_provider_and_the_way_back_touch_no_host(
    world: World, sandbox: Sandbox, account: str, eventually: Eventually, make_node: MakeNode, tmp_path: Path
) -> None:
    with driver(sandbox, tmp_path):
        world.make_hosts("h1", "h2")
        available(world, eventually, "h1", "h2")
        spec = {"dataTemplate": {"name": "t", "namespace": world.namespace}}
        world.make_machines("m1", "m2", spec=spec)
        world.make_data_template("t", {"metaData": {"strings": [{"key": "text", "value": "yes"}]}})
        done = {"metadata": {"finalizers": [f"metal3datatemplate.{GROUP}"]}}
        world.api.patch(world.metal("metal3datatemplates", "t"), done)
        for number, (machine, host) in enumerate((("m1", "h1"), ("m2", "h2"))):
            node = make_node(labels={"metal3.io/uuid": world.host(host)["metadata"]["uid"]})
            left_by_the_go_provider(world, machine, host, number, node, before_1_14=machine == "m1")
        eventually(lambda: world.state("h1") == world.state("h2") == "provisioned", 60, "provisioned")
        eventually(lambda: world.host("h1")["status"]["poweredOn"], 60, "on")
        since = world.api.get(world.hosts_path())["metadata"]["resourceVersion"]
        before = world.host("h1")["spec"]
        with operator(sandbox, tmp_path, home(account), "--only", "metal", user=account) as running:
            running.said("leading")
            eventually(lambda: all(ours(world, name) for name in ("h1", "h2")), 60, "blocked, labelled, owned by none")
            eventually(lambda: ready(world, "m1", "m2"), 60, "Ready as before")
            # What the Go provider made goes with its machine, and the next machine gets the index.
            world.api.delete(world.metal("metal3machines", "m2"))
            eventually(lambda: not world.machine("m2"), 60, "the machine goes")
            eventually(lambda: not world.api.get(world.metal("metal3datas", "t-1")), 60, "and so does its data")
            eventually(lambda: not world.api.get(world.metal("metal3dataclaims", "m2")), 60, "and its claim")
            world.make_machines("m3", spec=spec)
            eventually(lambda: world.api.get(world.metal("metal3datas", "t-1")), 60, "the index is given again")
            assert terminating(world) == []
            label_for_clusterctl(sandbox, running)
            assert refused(running) == []
        # Back again. Nobody keeps the annotation up to date any more.
        named = hostler(sandbox.kubeconfig, "doctor", "--operator", NOBODY, "--output", "json")
        assert any(
            f"{world.namespace}/h1" in one["why"] and "metal withdraw" in one["fix"] for one in json.loads(named.stdout)
        )
        words = ("metal", "withdraw", "--yes", "--operator", NOBODY, "--output", "json")
        world.api.patch(world.capi("clusters", "c1"), {"spec": {"paused": True}})
        told = hostler(sandbox.kubeconfig, *words)
        assert (told.returncode, told.stdout) == (Exit.REFUSED, ""), told
        assert "installed once more" in told.stderr
        world.api.patch(world.capi("clusters", "c1"), {"spec": {"paused": False}})
        told = hostler(sandbox.kubeconfig, *words)
        assert f"baremetalhost/{world.namespace}/h1 loses annotation {BLOCK_MOVE}" in json.loads(told.stdout)["done"], (
            told
        )
        assert "do not run `clusterctl move`" in told.stderr
        assert BLOCK_MOVE not in world.host("h1")["metadata"].get("annotations", {})
        # A provider that knows of no owner lets the machine go; Kubernetes deletes what the machine owns.
        _, likewise = owned_by(world, "m1")
        world.api.delete(world.metal("metal3machines", "m1"))
        world.api.patch(world.metal("metal3machines", "m1"), {"metadata": {"finalizers": None}})
        eventually(lambda: not world.api.get(likewise), 60, "what the machine owned is gone")
        assert world.host("h1")["spec"] == before
        past = [one for one in history(world.api, world.hosts_path(), since) if one["metadata"]["name"] == "h1"]
        assert {one["status"]["provisioning"]["state"] for one in past} == {"provisioned"}
        assert all(one["status"]["poweredOn"] and "deletionTimestamp" not in one["metadata"] for one in past)


def label_for_clusterctl(sandbox: Sandbox, running: Running) -> None:
    """As the doctor says: without the label clusterctl leaves the hosts behind."""
    told = hostler(sandbox.kubeconfig, "doctor", "--operator", running.url, "--output", "json")
    (fix,) = [one["fix"] for one in json.loads(told.stdout) if one["what"] == "clusterctl move"]
    for command in fix.split("; "):
        sandbox.kubectl(*command.split()[1:])
    found = sandbox.get("crd", "baremetalhosts.metal3.io")
    assert found["metadata"]["labels"]["clusterctl.cluster.x-k8s.io"] == ""


def ready(world: World, *machines: str, condition: str = "Ready") -> bool:
    return all(world.condition(name, condition).get("status") == "True" for name in machines)


def ours(world: World, host: str) -> bool:
    meta = world.host(host)["metadata"]
    marked = BLOCK_MOVE in meta.get("annotations", {}) and MOVE_HIERARCHY in meta["labels"]
    return marked and not meta.get("ownerReferences")


@contextmanager
def baremetal_operator_is_down(folder: Path) -> Iterator[None]:
    """As docs/metal.md wants it in the source of a move: it would deprovision a host that loses its pause there."""
    pid = int((folder / READY).read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


POOL = {"pools": [{"start": "10.9.7.10", "end": "10.9.7.20"}], "prefix": 24, "gateway": "10.9.7.1"}


def test_a_move_with_a_change_of_leader_in_its_middle_installs_nothing_again(
    world: World, sandbox: Sandbox, account: str, eventually: Eventually, make_node: MakeNode, tmp_path: Path
) -> None:
    there = f"{world.namespace}-b"
    sandbox.kubectl("create", "namespace", there)
    with (
        driver(sandbox, tmp_path),
        operator(sandbox, tmp_path, home(account), "--only", "metal", user=account) as first,
    ):
        first.said("leading")
        move_and_look(world, sandbox, first, account, there, eventually, make_node, tmp_path)
    sandbox.kubectl("delete", "namespace", there, "--wait=false")


def move_and_look(
    world: World, sandbox: Sandbox, first: Running, account: str, there: str, eventually: Eventually,
    make_node: MakeNode, tmp_path: Path,
) -> None:  # fmt: skip
    world.make_pool("pool", POOL)
    world.make_data_template("t", {"metaData": {"ipAddressesFromPool": [{"key": "ip", "name": "pool"}]}})
    world.make_hosts("h1", "h2")
    available(world, eventually, "h1", "h2")
    for host in ("h1", "h2"):
        make_node(labels={"metal3.io/uuid": world.host(host)["metadata"]["uid"]})
    spec = {"dataTemplate": {"name": "t", "namespace": world.namespace}}
    world.make_machines("m1", "m2", spec=spec)
    eventually(lambda: world.host_of("m1") and world.host_of("m2"), 60, "claimed")
    hosts = {name: world.host_of(name) for name in ("m1", "m2")}
    eventually(lambda: ready(world, *hosts), 60, "Ready")
    eventually(lambda: all(world.host(host)["status"]["poweredOn"] for host in hosts.values()), 60, "on")
    providers = {name: world.machine(name)["spec"]["providerID"] for name in hosts}
    secrets = {name: world.api.get(world.core("secrets", f"{name}-metadata"))["data"] for name in hosts}
    move = Move(world, there)
    first.process.kill()
    first.process.wait()
    move.pause()
    assert sorted(move.blocked_by()) == sorted(f"baremetalhosts/{host}" for host in hosts.values())
    flags = ("--only", "metal")
    with operator(sandbox, tmp_path, home(account), *flags, user=account, name="second") as second:
        eventually(lambda: not move.blocked_by(), 60, "its successor makes the hosts ready to move")
        since = world.api.get(world.hosts_path())["metadata"]["resourceVersion"]
        with baremetal_operator_is_down(tmp_path):
            move.copy()
            move.delete_source()
            assert move.left() == [], "nothing holds it, no finalizer of ours either"
        move.go_on()
        arrived = World(sandbox, there, moved=True)
        eventually(lambda: ready(arrived, *hosts), 60, "Ready")
        eventually(lambda: ready(arrived, *hosts, condition="Metal3DataReady"), 60, "with their data")
        eventually(lambda: all(ours(arrived, host) for host in hosts.values()), 60, "kept from the next move")
        for name, host in hosts.items():
            assert arrived.machine(name)["spec"]["providerID"] == providers[name], "its node has it still"
            assert arrived.api.get(arrived.core("secrets", f"{name}-metadata"))["data"] == secrets[name]
            assert PAUSED not in arrived.host(host)["metadata"]["annotations"]
            assert arrived.host_of(name) == host
        past = history(world.api, arrived.hosts_path(), since)
        states = {one["status"]["provisioning"]["state"] for one in past if one.get("status")}
        assert states == {"provisioned"}, "no host was installed or emptied"
        assert refused(second) == []
    arrived.scrub()
