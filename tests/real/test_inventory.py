"""The picture of hosts and its history, from the real operator: live, over kills, and while nothing can be stored."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hostler.history.configmaps import ConfigMapHistory
from hostler.history.model import Entry, Limits, What
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.writer import Writer
from hostler.sandbox import Sandbox
from tests.real.conftest import Eventually
from tests.real.mixing import mixed
from tests.real.operating import Running, hostler, operator

MakeNode = Callable[..., str]


@pytest.fixture(scope="module")
def crd(sandbox: Sandbox) -> Iterator[None]:
    assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0
    yield
    sandbox.kubectl("delete", "fleets,pauses", "--all")


def read(running: Running, path: str) -> Any:
    """Over loopback, which needs no token; much quicker than a command."""
    with urllib.request.urlopen(f"{running.url}{path}", timeout=30) as answer:
        return json.load(answer)


def hosts_by_name(running: Running) -> dict[str, Any]:
    rows = read(running, "/v1/hosts")["hosts"]
    assert len({row["host"]["id"] for row in rows}) == len(rows)
    return {row["host"]["name"]: row for row in rows}


def entries_about(running: Running, name: str) -> list[dict[str, Any]]:
    """The oldest first."""
    try:
        found: list[dict[str, Any]] = read(running, f"/v1/history?host={name}")["entries"]
    except urllib.error.HTTPError as error:
        if error.code in (404, 421, 503):  # nothing is known of it, or nothing has been read yet
            return []
        raise
    return found[::-1]


def is_last(running: Running, name: str, state: str) -> bool:
    return states_of(running, name)[-1] == state


def states_of(running: Running, name: str) -> list[str]:
    return [entry["to"] for entry in entries_about(running, name)]


@contextmanager
def paused(sandbox: Sandbox) -> Iterator[None]:
    hostler(sandbox.kubeconfig, "pause", "--why", "a test")
    try:
        yield
    finally:
        hostler(sandbox.kubeconfig, "resume", "--all")


def test_every_node_is_shown_once_and_changes_are_recorded(
    sandbox: Sandbox, crd: None, home: str, tmp_path: Path, make_node: MakeNode, eventually: Eventually
) -> None:
    name = make_node()
    with operator(sandbox, tmp_path, home) as running:
        running.said("leading")
        eventually(lambda: name in hosts_by_name(running), 60, "the node is shown")
        shown = hosts_by_name(running)
        nodes = sandbox.get("nodes")["items"]
        assert set(shown) == {node["metadata"]["name"] for node in nodes}
        assert shown[name]["host"]["state"] == "in service"
        assert shown[name]["safeToStop"]["answer"] == "Yes"
        eventually(lambda: entries_about(running, name), 30, "its first entry is stored")

        hostler(sandbox.kubeconfig, "hold", name, "--why", "a fan is loud", "--holder", "ann")
        eventually(lambda: hosts_by_name(running)[name]["host"]["state"] == "held", 30, "it is held")
        row = hosts_by_name(running)[name]
        assert row["host"]["holders"][0]["name"] == "ann"
        assert row["safeToStop"] == row["safeToStop"] | {"answer": "No", "why": "It is held by ann."}
        hostler(sandbox.kubeconfig, "release", name, "--all")
        eventually(
            lambda: states_of(running, name) == ["in service", "held", "in service"],
            30,
            "both changes are stored",
        )
        told = hostler(sandbox.kubeconfig, "host", name, "--operator", running.url).stdout
        assert told.startswith(f"{name}: in service for ")
        answer = hostler(sandbox.kubeconfig, "host", "nobody", "--operator", running.url)
        assert answer.stderr.startswith('hostler: No host named "nobody" is known here.')


def test_without_an_operator_the_objects_are_joined(sandbox: Sandbox, home: str) -> None:
    answer = hostler(sandbox.kubeconfig, "hosts", "--operator-namespace", home, "-o", "json")
    assert answer.returncode == 0, answer.stderr
    rows = json.loads(answer.stdout)["hosts"]
    assert {row["host"]["name"] for row in rows} == {node["metadata"]["name"] for node in sandbox.get("nodes")["items"]}
    assert all("safeToStop" not in row for row in rows)


def test_while_nothing_may_be_written_entries_wait(
    sandbox: Sandbox, crd: None, home: str, tmp_path: Path, make_node: MakeNode, eventually: Eventually
) -> None:
    name = make_node()
    with operator(sandbox, tmp_path, home) as running:
        running.said("leading")
        eventually(lambda: entries_about(running, name), 60, "its first entry is stored")
        with paused(sandbox):
            before = versions(sandbox, home)
            sandbox.kubectl("cordon", name)
            eventually(lambda: hosts_by_name(running)[name]["host"]["state"] == "held", 30, "it is seen")
            sandbox.kubectl("uncordon", name)
            eventually(lambda: hosts_by_name(running)[name]["host"]["state"] == "in service", 30, "it is seen")
            assert versions(sandbox, home) == before
        eventually(
            lambda: states_of(running, name) == ["in service", "held", "in service"],
            30,
            "what waited is stored",
        )


def versions(sandbox: Sandbox, namespace: str) -> dict[str, str]:
    found = sandbox.get("configmaps", "-n", namespace, "-l", "hostler.dev/history")["items"]
    return {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in found}


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.full)])
def test_over_kills_nothing_is_twice_and_the_last_entry_is_the_state(
    sandbox: Sandbox, crd: None, home: str, tmp_path: Path, make_node: MakeNode, eventually: Eventually, kills: int
) -> None:
    chance = random.Random(kills)
    names = [make_node() for _ in range(3)]
    cordoned = dict.fromkeys(names, False)
    for number in range(kills + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        with operator(sandbox, folder, home) as running:
            running.said("leading")
            eventually(lambda: entries_about(running, names[0]), 60, "it records")
            for _ in range(chance.randrange(1, 6)):
                name = chance.choice(names)
                sandbox.kubectl("uncordon" if cordoned[name] else "cordon", name)
                cordoned[name] = not cordoned[name]
            if number < kills:
                running.process.send_signal(signal.SIGKILL)
                running.process.wait()
                continue
            for name in names:
                state = "held" if cordoned[name] else "in service"
                eventually(partial(is_last, running, name, state), 30, f"the last entry of {name} is its state")
            ids = [entry["id"] for name in names for entry in entries_about(running, name)]
            assert len(set(ids)) == len(ids)
            for name in names:
                found = entries_about(running, name)
                assert all(later["from"] == earlier["to"] for earlier, later in pairwise(found))


def test_every_host_of_a_mixed_fleet_is_shown_once_by_proven_identity(
    sandbox: Sandbox, vcenter: dict[str, Any], crd: None, home: str, tmp_path: Path, eventually: Eventually
) -> None:
    """A dry run only looks. Afterwards the same is shown without it, but for what only vCenter tells."""
    password = tmp_path / "password"
    password.write_text(vcenter["password"])
    flags = (
        "--vcenter-host", f"{vcenter['host']}:{vcenter['port']}", "--vcenter-user", vcenter["user"],
        "--vcenter-password-file", str(password), "--vcenter-ca-bundle", vcenter["ca_bundle"], "--dry-run",
        "--only", "maintenance,metal,reclaim",
    )  # fmt: skip
    told = {"HUB_URL": "https://hub.invalid", "AGENT_IMAGE": "agent:1"}
    with mixed(sandbox) as world, operator(sandbox, tmp_path, home, *flags, told=told) as running:
        eventually(lambda: hosts_by_name(running).get("gpu-0", {}).get("host", {}).get("kind") == "vm", 60, "gpu-0")
        eventually(lambda: "free" in str(hosts_by_name(running)), 60, "bare metal is shown")
        eventually(lambda: hosts_by_name(running)["metal-0"]["host"]["kind"] == "bare-metal", 60, "metal-0 is joined")
        shown = hosts_by_name(running)
        gpu, esxi = shown["gpu-0"], shown["esx1"]
        assert kinds_of(gpu) == ["vm", "node"]
        assert gpu["host"]["where"]["esxi"] in ("esx1", "esx2", "esx3")
        assert esxi["host"]["kind"] == "esxi"
        assert (esxi["safeToStop"]["answer"], esxi["safeToStop"]["reasons"][0]["against"]) == ("No", "RunningVMs")

        check_bare_metal(shown, world.namespace)
        layers = [key for row in shown.values() for key in row["host"]["layers"]]
        assert len(set(layers)) == len(layers)
        nodes = {node["metadata"]["name"] for node in sandbox.get("nodes")["items"]}
        assert {key.rpartition("/")[2] for key in layers if key.startswith("node:")} == nodes

        (claim,) = under_way(running, "claim")
        assert (claim["name"], claim["state"]) == ("waiting", "waiting for a host")
        assert claim["blockedBy"] == [claim["why"]]
        sandbox.maintenance("esx3", "enter")  # which hangs, for its VM with a GPU cannot be moved
        try:
            eventually(lambda: under_way(running, "maintenance"), 60, "the maintenance is under way")
            (entered,) = under_way(running, "maintenance")
            assert (entered["name"], entered["key"], entered["state"]) == (
                "esx3",
                shown["esx3"]["host"]["id"],
                "draining",
            )
            assert shown["gpu-2"]["host"]["id"] in entered["hosts"]
            assert (entered["done"], entered["total"]) == (0, len(entered["hosts"]))
            assert any(why.startswith("gpu-2: ") for why in entered["blockedBy"])
        finally:
            sandbox.maintenance("esx3", "cancel")

        told_hosts = hostler(sandbox.kubeconfig, "hosts", "--kind", "bare-metal", "--operator", running.url).stdout
        assert [line.split()[0] for line in told_hosts.splitlines()] == ["NAME", "doubtful", "edge-1", "metal-0"]

        answer = hostler(sandbox.kubeconfig, "hosts", "--operator-namespace", world.namespace, "-o", "json")
        assert answer.returncode == 0, answer.stderr
        check_bare_metal({row["host"]["name"]: row for row in json.loads(answer.stdout)["hosts"]}, world.namespace)


def under_way(running: Running, kind: str) -> list[dict[str, Any]]:
    return [one for one in read(running, "/v1/operations")["operations"] if one["kind"] == kind]


def kinds_of(row: dict[str, Any]) -> list[str]:
    return [key.partition(":")[0] for key in row["host"]["layers"]]


def check_bare_metal(shown: dict[str, Any], namespace: str) -> None:
    """What is proven is joined; what is not stays apart, with a note."""
    joined, doubtful, free = shown["metal-0"]["host"], shown["doubtful"]["host"], shown["edge-1"]["host"]
    assert (joined["id"], kinds_of(shown["metal-0"])) == (f"bmh:{namespace}/joined", ["bmh", "node"])
    assert (joined["state"], joined["cluster"]) == ("in service", "local")
    assert kinds_of(shown["doubtful"]) == ["bmh"]
    assert "Node metal-1 may be it, without proof" in doubtful["notes"][0]
    assert shown["metal-1"]["host"]["kind"] == "node-only"
    assert (free["id"], kinds_of(shown["edge-1"])) == (f"bmh:{namespace}/free", ["bmh", "agent"])
    assert free["state"] == "available"
    assert kinds_of(shown["edge-2"]) == ["agent"]
    assert "BareMetalHost joined may be it, without proof" in shown["edge-2"]["host"]["notes"][0]


class Unlimited:
    """A budget that never waits."""

    async def take(self) -> None: ...
    def throttled(self, retry_after: float | None) -> None: ...
    def succeeded(self) -> None: ...


def test_what_is_beyond_the_limits_is_dropped_and_the_rest_merged(sandbox: Sandbox, namespace: str) -> None:
    def entries(start: int, number: int, at: float) -> list[Entry]:
        places = range(start, start + number)
        return [Entry(f"1.{place}", at, f"node:p/{place % 5}", What.ACTION) for place in places]

    async def run() -> None:
        async with Client(load(str(sandbox.kubeconfig))) as client:
            writer = Writer(client, "history", gate=lambda: None, budget=Unlimited())
            store = ConfigMapHistory(client, writer, namespace, Limits(days=1, per_key=20, kept_per_key=10))
            await store.append(entries(1, 400, 0.0))
            await store.append(entries(1, 400, 0.0))  # not known whether they arrived: none is stored twice
            assert len(await store.find((), -1.0, 1000)) == 400
            for segment in list(store._segments.values()):  # as if they were full
                await store._close(segment)
            await store.append(entries(401, 25, 86400.0 * 9))
            for segment in [one for one in store._segments.values() if not one.closed]:
                await store._close(segment)
            assert len(versions(sandbox, namespace)) == 2
            assert await store.prune(86400.0 * 9) == 375
            assert len(versions(sandbox, namespace)) == 1
            again = ConfigMapHistory(client, writer, namespace, Limits())
            await again.load()
            kept = await again.find((), -1.0, 1000)
            assert len(kept) == 50
            assert {entry.id for entry in entries(401, 25, 0.0)} <= {entry.id for entry in kept}

    asyncio.run(run())


def test_a_segment_that_cannot_be_read_is_left_alone(sandbox: Sandbox, namespace: str) -> None:
    foreign = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "hostler-history-00000007",
            "namespace": namespace,
            "labels": {"hostler.dev/history": "open"},
        },
        "binaryData": {"0000": "bm90IG91cnM="},
    }
    sandbox.apply(foreign)

    async def run() -> None:
        async with Client(load(str(sandbox.kubeconfig))) as client:
            writer = Writer(client, "history", gate=lambda: None, budget=Unlimited())
            store = ConfigMapHistory(client, writer, namespace, Limits())
            await store.append([Entry("1.1", 1.0, "node:p/a", What.ACTION)])
            assert list(store.unreadable) == ["hostler-history-00000007"]
            assert [entry.id for entry in await store.find((), 0.0, 10)] == ["1.1"]

    asyncio.run(run())
    assert set(versions(sandbox, namespace)) == {"hostler-history-00000007", "hostler-history-00000008"}
