"""`HOSTLER_METAL_NAMESPACES` and `HOSTLER_METAL_WATCH_FILTER`: what is out of scope is not touched, and it says why."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostler.sandbox import Sandbox
from tests.real.conftest import Eventually
from tests.real.metal_moving import BLOCK_MOVE
from tests.real.metal_world import INFRA, IPAM, Json, World
from tests.real.operating import denied, hostler, operator, refused

FILTER = {"cluster.x-k8s.io/watch-filter": "ours"}
DATA = {"metaData": {"ipAddressesFromPool": [{"key": "ip", "name": "pool"}]}}
POOL = {"pools": [{"start": "10.9.6.10", "end": "10.9.6.20"}], "prefix": 24}


@pytest.fixture
def worlds(sandbox: Sandbox, definitions: None, namespace: str) -> Iterator[tuple[World, World]]:
    """Two namespaces; the second one is nobody's business."""
    there = f"{namespace}-elsewhere"
    sandbox.kubectl("create", "namespace", there)
    made = World(sandbox, namespace), World(sandbox, there)
    yield made
    for world in made:
        world.scrub()
    sandbox.kubectl("delete", "namespace", there, "--wait=false")


def versions(world: World) -> dict[str, str]:
    """Every object of metal in this namespace, by kind and name, as it was last written."""
    paths = [world.hosts_path(), *map(world.metal, ("metal3machines", "metal3clusters", "metal3dataclaims"))]
    found: list[Json] = [one for path in paths for one in world.api.items(path)]
    return {f"{one['kind']}/{one['metadata']['name']}": one["metadata"]["resourceVersion"] for one in found}


def why(sandbox: Sandbox, url: str, what: str, command: str = "explain") -> str:
    done = hostler(sandbox.kubeconfig, command, what, "--operator", url, "--output", "json")
    assert done.returncode == 0, done.stderr
    return json.dumps(json.loads(done.stdout))


def test_what_is_out_of_scope_is_not_touched_and_says_why(
    worlds: tuple[World, World], sandbox: Sandbox, eventually: Eventually, tmp_path: Path
) -> None:
    here, elsewhere = worlds
    home = f"scope-{os.urandom(4).hex()}"
    sandbox.kubectl("create", "namespace", home)
    for world in worlds:
        world.make_hosts("h1", "h2", ready=True)
        world.make_machines("theirs")
    here.make_pool("pool", POOL)
    here.make_data_template("t", DATA)
    before = versions(here), versions(elsewhere)
    # Two namespaces, one of which is empty: each is followed by itself, with rights there and nowhere else.
    scope = ("--metal-namespaces", f"{here.namespace},{home}", "--metal-watch-filter", "ours")
    with operator(sandbox, tmp_path, home, "--only", "metal", *scope) as running:
        running.ready()
        template = {"name": "t", "namespace": here.namespace}
        here.make_machines("ours", labels=FILTER, spec={"dataTemplate": template})
        eventually(lambda: here.host_of("ours"), 60, "the labelled machine gets a host")
        claims = f"{IPAM}/namespaces/{here.namespace}/ipclaims"
        eventually(lambda: here.api.items(claims), 60, "an address is claimed for it")
        data = map(here.metal, ("metal3datas", "metal3dataclaims"))
        made = [one for path in (claims, *data) for one in here.api.items(path)]
        assert len(made) == 3
        assert all(one["metadata"]["labels"].items() >= FILTER.items() for one in made), "in scope themselves"
        # Whoever is given the label is looked at without a restart.
        here.api.patch(here.metal("metal3clusters", "c1"), {"metadata": {"labels": FILTER}})
        cluster = here.metal("metal3clusters", "c1")
        eventually(lambda: here.api.get(cluster).get("status"), 60, "the cluster that is in scope now")
        assert "lacks label" in why(sandbox, running.url, f"metal3machine/{here.namespace}/theirs")
        assert "lacks label" in why(sandbox, running.url, f"metal3machine/{here.namespace}/theirs", "plan")
        for what in ("metal3machine", "baremetalhost"):
            name = f"{what}/{elsewhere.namespace}/{'theirs' if what == 'metal3machine' else 'h1'}"
            assert "HOSTLER_METAL_NAMESPACES" in why(sandbox, running.url, name)
        assert versions(elsewhere) == before[1]
        assert versions(here)["Metal3Machine/theirs"] == before[0]["Metal3Machine/theirs"]
        host = here.host_of("ours")
        assert versions(here)[f"BareMetalHost/{host}"] != before[0][f"BareMetalHost/{host}"]
        # It was not allowed to look elsewhere, and never tried to.
        assert refused(running) == []
        assert denied(sandbox, running.user) == []
        asked = [one["requestURI"] for one in sandbox.audit(running.user) if "metal3" in one["requestURI"]]
        assert asked
        assert [one for one in asked if "/namespaces/" not in one and "/customresourcedefinitions/" not in one] == []
        blocked_by_others(here, elsewhere, spare="h1" if host == "h2" else "h2")
    words = ("metal", "withdraw", "--yes", "--operator", "http://127.0.0.1:9", "--output", "json", *scope)
    withdrawn = hostler(sandbox.kubeconfig, *words)
    assert withdrawn.returncode == 0, withdrawn.stderr
    (line,) = json.loads(withdrawn.stdout)["done"]
    assert line.startswith(f"baremetalhost/{here.namespace}/{host} loses")
    sandbox.kubectl("delete", "namespace", home, "--wait=false")


def blocked_by_others(here: World, elsewhere: World, spare: str) -> None:
    """Hosts that other operators keep from being moved: in another namespace, and by a machine without the label."""
    mark = {"metadata": {"annotations": {BLOCK_MOVE: ""}}}
    consumer = {"apiVersion": INFRA, "kind": "Metal3Machine", "name": "theirs", "namespace": here.namespace}
    elsewhere.api.patch(elsewhere.hosts_path("h1"), mark)
    here.api.patch(here.hosts_path(spare), {**mark, "spec": {"consumerRef": consumer}})
