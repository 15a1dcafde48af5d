"""What metal leaves on hosts: what `withdraw` would do, when it refuses, and what the doctor reports."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from hostler.apis import capi
from hostler.apis.metal3 import BareMetalHost
from hostler.errors import Complaint, Exit
from hostler.explain.doctor import Level
from hostler.host.facts import Fact, Known, Unknown
from hostler.metal import names
from hostler.metal.migration.leftovers import TRIES, Leftovers, leftover_findings, refuse_mid_move, take_back
from tests.unit.answering import answering
from tests.unit.test_cli import hostler

GROUP = "infrastructure.cluster.x-k8s.io"
OWNER = {"apiVersion": f"{GROUP}/v1beta1", "kind": "Metal3Machine", "name": "m1", "uid": "u", "controller": True}
OTHER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"}
LABEL = "kubectl label crd baremetalhosts.metal3.io clusterctl.cluster.x-k8s.io="
NONE: Fact[tuple[str, ...]] = Known((), 0.0)


def host(name: str, *owners: Mapping[str, object], blocked: bool = True) -> BareMetalHost:
    annotations = {names.BLOCK_MOVE: ""} if blocked else {}
    meta = {"name": name, "namespace": "n", "annotations": annotations, "ownerReferences": list(owners)}
    return msgspec.convert({"metadata": meta}, BareMetalHost)


def test_what_would_be_taken_off_is_listed_per_host() -> None:
    both, owned = host("h1", OWNER, OTHER), host("h0", OWNER, blocked=False)
    assert Leftovers((both, host("h2")), (both, owned)).steps() == [
        "baremetalhost/n/h0 loses owner reference to Metal3Machine m1",
        f"baremetalhost/n/h1 loses annotation {names.BLOCK_MOVE} and owner reference to Metal3Machine m1",
        f"baremetalhost/n/h2 loses annotation {names.BLOCK_MOVE}",
    ]


def test_a_host_that_clusterctl_may_wait_for_is_not_let_go() -> None:
    with pytest.raises(Complaint, match=r"waiting for n/h1 \(Cluster n/c\)"):
        refuse_mid_move(Leftovers((host("h1"),), moving=("n/h1 (Cluster n/c)",)))
    refuse_mid_move(Leftovers((host("h1"),)))


@pytest.mark.parametrize(
    ("left", "labels", "on", "says"),
    [
        (Known(Leftovers((host("h1"),)), 0.0), NONE, Known(False, 0.0), "waits for ever: n/h1."),
        (Known(Leftovers((host("h1"),)), 0.0), NONE, Unknown("no operator"), "Cannot tell whether an operator still"),
        (Known(Leftovers((host("h1"),)), 0.0), NONE, Known(True, 0.0), ""),
        (Known(Leftovers((), (host("h1", OWNER),)), 0.0), NONE, Known(False, 0.0), "after its machine: n/h1."),
        (Known(Leftovers((), (host("h1", OWNER),)), 0.0), NONE, Known(True, 0.0), ""),
        (Known(Leftovers(), 0.0), NONE, Known(False, 0.0), ""),
        (Unknown("forbidden"), NONE, Known(False, 0.0), "could not be read: forbidden"),
        (Known(Leftovers(), 0.0), Known((LABEL,), 0.0), Known(True, 0.0), "leave hosts behind"),
        (Known(Leftovers(), 0.0), Known((LABEL,), 0.0), Known(False, 0.0), ""),
        (Known(Leftovers(), 0.0), Unknown("forbidden"), Known(True, 0.0), "takes hosts along: forbidden"),
    ],
)
def test_the_doctor_names_hosts_left_behind_now_and_after_a_move(
    left: Fact[Leftovers], labels: Fact[tuple[str, ...]], on: Fact[bool], says: str
) -> None:
    found = list(leftover_findings(left, labels, on=on))
    assert [one.level for one in found] == ([Level.WARNING] if says else [])
    assert all(says in one.why and one.fix for one in found)


class Server:
    """Hosts and one Cluster `n/c`, as an API server has them; `races` writes of another party come before ours."""

    def __init__(self, *names_: str, races: int = 0, paused: bool = False) -> None:
        self.races, self.paused, self.asked = races, paused, list[str]()
        self.hosts = {name: self.host(name) for name in names_}

    def host(self, name: str) -> dict[str, Any]:
        meta = {
            "name": name, "namespace": "n", "resourceVersion": "5", "labels": {capi.CLUSTER_NAME: "c"},
            "annotations": {names.BLOCK_MOVE: ""}, "ownerReferences": [OWNER, OTHER],
        }  # fmt: skip
        return {"metadata": meta}

    async def answer(self, request: web.Request) -> web.Response:
        name = request.path.rpartition("/")[2]
        self.asked.append(f"{request.method} {name}")
        if "/baremetalhosts" not in request.path:
            about = {"name": "c", "namespace": "n"}
            return web.json_response({"metadata": about, "spec": {"paused": self.paused}, "items": []})
        if name == "baremetalhosts":
            return web.json_response({"items": list(self.hosts.values())})
        if name not in self.hosts:
            return web.json_response({"kind": "Status", "reason": "NotFound", "code": 404}, status=404)
        meta = self.hosts[name]["metadata"]
        if request.method == "PATCH":
            if self.races:
                self.races -= 1
                meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1)
            change = (await request.json())["metadata"]
            if change.pop("resourceVersion") != meta["resourceVersion"]:
                return web.json_response({"kind": "Status", "reason": "Conflict", "code": 409}, status=409)
            meta["annotations"] = {}
            meta["ownerReferences"] = change["ownerReferences"] or []
        return web.json_response(self.hosts[name])

    def freed(self) -> list[str]:
        return [name for name, one in self.hosts.items() if not one["metadata"]["annotations"]]

    def take_back(self, *found: BareMetalHost) -> str:
        """What the command complains of; empty: nothing."""

        async def run() -> None:
            async with answering(self.answer) as client:
                await take_back(client, Leftovers(found, found))

        try:
            asyncio.run(run())
        except Complaint as complaint:
            return f"{complaint.code.name}: {complaint.sentence}"
        return ""


def test_a_host_that_changes_meanwhile_is_read_again_and_one_that_is_gone_needs_nothing() -> None:
    server = Server("h1", "h3", races=2)
    assert server.take_back(*(host(name, OWNER, OTHER) for name in ("h1", "h2", "h3"))) == ""
    assert server.freed() == ["h1", "h3"]
    assert [one["metadata"]["ownerReferences"] for one in server.hosts.values()] == [[OTHER], [OTHER]]


def test_a_host_that_cannot_be_freed_does_not_keep_the_others_from_it_and_is_reported() -> None:
    server = Server("h1", "h2", races=TRIES)
    why = server.take_back(host("h1", OWNER), host("h2", OWNER))
    assert why == "REFUSED: 1 host done; 1 host left as before: n/h1: it was changed by another party 5 times in a row."
    assert server.freed() == ["h2"]


def test_a_host_whose_cluster_was_paused_meanwhile_is_left_as_it_is() -> None:
    server = Server("h1", paused=True)
    assert "n/h1: its Cluster c is paused" in server.take_back(host("h1", OWNER))
    assert server.freed() == []
    assert server.asked == ["GET h1", "GET c"]


def test_withdraw_warns_of_a_move_while_no_provider_runs(tmp_path: Path) -> None:
    server = Server("h1")

    async def run() -> subprocess.CompletedProcess[str]:
        async with answering(server.answer) as client:
            config = {
                "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
                "clusters": [{"name": "x", "cluster": {"server": client.connection.server}}],
                "users": [{"name": "x", "user": {"token": "t"}}],
            }  # fmt: skip
            (tmp_path / "kubeconfig").write_text(json.dumps(config))
            words = ["metal", "withdraw", "--yes", "--operator", "http://127.0.0.1:9"]
            words += ["--kubeconfig", str(tmp_path / "kubeconfig")]
            return await asyncio.to_thread(hostler, *words, home=tmp_path)

    told = asyncio.run(run())
    assert told.returncode == Exit.OK, told.stderr
    assert server.freed() == ["h1"]
    assert "do not run `clusterctl move`" in told.stderr
    assert f"take the label {names.MOVE_HIERARCHY} off" in told.stderr
