"""`hostler doctor` on a real cluster, operator and vCenter: what is left behind is found, and in order is said so."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostler.errors import Exit
from hostler.fleet.reviews import missing_rights
from hostler.fleet.rights import rights_for
from hostler.fleet.roles import Account
from hostler.host.maintenance import STATE
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.sandbox import Sandbox
from tests.real.conftest import Eventually
from tests.real.operating import account_for, environment, operator, take_rights_back

MakeNode = Callable[..., str]
TAINT = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"


def doctor(sandbox: Sandbox, *words: str, **env: str) -> tuple[int, list[dict[str, Any]]]:
    command = [sys.executable, "-m", "hostler", "doctor", "-o", "json", *words]
    done = subprocess.run(
        command, env={**environment(sandbox.kubeconfig), **env}, capture_output=True, text=True, timeout=120
    )
    return done.returncode, json.loads(done.stdout)


def about(found: list[dict[str, Any]], what: str) -> list[tuple[str, str]]:
    return [(one["level"], one["why"]) for one in found if one["what"] == what]


def test_what_is_left_behind_is_found_and_a_vcenter_is_asked(
    sandbox: Sandbox, make_node: MakeNode, vcenter: dict[str, Any], namespace: str, tmp_path: Path
) -> None:
    left, login = make_node(), {
        "VCENTER_HOST": f"{vcenter['host']}:{vcenter['port']}",
        "VCENTER_USER": vcenter["user"],
        "VCENTER_PASSWORD": vcenter["password"],
        "VCENTER_CA_BUNDLE": vcenter["ca_bundle"],
    }  # fmt: skip
    sandbox.kubectl("taint", "node", left, TAINT)
    sandbox.kubectl("annotate", "node", left, "hostler.dev/holds=not json")
    begun = make_node()
    sandbox.kubectl("annotate", "node", begun, f"{STATE}=powered-off")
    with operator(sandbox, tmp_path, namespace) as running:
        running.said("leading")
        code, found = doctor(sandbox, "--operator", running.url, **login)
    assert code == Exit.FAILED
    assert [level for level, _ in about(found, f"node/{left}")] == ["problem", "problem"]
    assert [level for level, _ in about(found, "operator")] == ["ok"]
    assert about(found, f"vCenter {login['VCENTER_HOST']}") == [("ok", "Connected, with every privilege.")]
    assert about(found, "GPU_NODE_LABEL")[0][0] == "ok", "the sandbox's fleet has GPU workers"

    _, found = doctor(sandbox, "--operator", "http://127.0.0.1:9", **{**login, "VCENTER_PASSWORD": "wrong"})
    assert "No operator answers" in about(found, "operator")[0][1]
    ((level, why),) = about(found, "maintenance")
    assert (level, f"node/{begun} (powered-off)" in why) == ("problem", True)
    level, why = about(found, f"vCenter {login['VCENTER_HOST']}")[0]
    assert (level, "refuses our user or password" in why) == ("problem", True)


def test_a_bundle_has_everything_but_the_secrets(
    sandbox: Sandbox,
    make_node: MakeNode,
    vcenter: dict[str, Any],
    namespace: str,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    node = make_node()
    sandbox.kubectl("annotate", "node", node, f"example.com/note=the password is {vcenter['password']}")
    file = tmp_path / "bundle.tar.gz"
    env = {
        **environment(sandbox.kubeconfig),
        "VCENTER_HOST": f"{vcenter['host']}:{vcenter['port']}",
        "VCENTER_USER": vcenter["user"],
        "VCENTER_PASSWORD": vcenter["password"],
    }
    with operator(sandbox, tmp_path, namespace) as running:
        running.said("leading")
        held = [sys.executable, "-m", "hostler", "hold", node, "--why", "to tell of it"]
        assert subprocess.run(held, env=env, capture_output=True).returncode == 0
        sandbox.kubectl("uncordon", node)
        told = f"/apis/events.k8s.io/v1/events?fieldSelector=regarding.name%3D{node},reason%3DCordonedAgain"
        eventually(lambda: sandbox.read(told)["items"], what="an Event of the operator")
        words = ["bundle", "--file", str(file), "--operator", running.url, "--namespace", namespace]
        done = subprocess.run([sys.executable, "-m", "hostler", *words], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        again = subprocess.run([sys.executable, "-m", "hostler", *words], env=env, capture_output=True, text=True)
        assert again.returncode == Exit.REFUSED
    assert file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as archive:
        parts = {one.name.partition("/")[2]: archive.extractfile(one).read().decode() for one in archive}  # type: ignore[union-attr]
    assert node in parts["kubernetes/nodes.json"]
    assert node in {one["regarding"]["name"] for one in json.loads(parts["kubernetes/events.json"])["items"]}
    assert json.loads(parts["operator/status.json"])["leads"] is True
    assert "maintenance is off" in parts["operator/maintenance.json.missing"], "what could not be had says why"
    assert not any(vcenter["password"] in text for text in parts.values())


def test_what_only_openshift_wants_is_not_missed_elsewhere(sandbox: Sandbox, namespace: str) -> None:
    """Among it the right to delete hosts, which is granted nowhere else."""

    async def missing() -> tuple[str, ...]:
        async with Client(load(str(sandbox.kubeconfig))) as client:
            return await missing_rights(client, Account(namespace, f"hostler-{namespace}"), rights_for(["metal"]))

    account_for(sandbox, namespace, "metal")
    try:
        assert asyncio.run(missing()) == ()
    finally:
        take_rights_back(sandbox, namespace)
