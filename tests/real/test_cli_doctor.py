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

import yaml

from hostler.errors import Exit
from hostler.host.maintenance import STATE
from hostler.install.grants import rights_for
from hostler.install.reviews import missing_rights
from hostler.install.roles import Account
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.events import CONTROLLER
from hostler.sandbox import Sandbox
from tests.real.conftest import Eventually
from tests.real.operating import environment, hostler, operator

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


def mended(found: list[dict[str, Any]]) -> bool:
    """Whatever is amiss says what mends it."""
    return all(one["fix"] for one in found if one["level"] != "ok")


def test_what_is_amiss_is_found_here_and_by_the_operator(
    sandbox: Sandbox,
    make_node: MakeNode,
    vcenter: dict[str, Any],
    namespace: str,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    """The operator has a vCenter that is not there and a label that is nowhere; we have others."""
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
    away = {"VCENTER_HOST": "127.0.0.1:9", "VCENTER_USER": "ada", "VCENTER_PASSWORD": "hunter22"}

    def settled() -> list[dict[str, Any]]:
        code, found = doctor(sandbox, "--operator", running.url, **login)
        return found if (code, [level for level, _ in about(found, "operator")]) == (Exit.FAILED, ["ok"]) else []

    with operator(sandbox, tmp_path, namespace, told={**away, "GPU_NODE_LABEL": "nobody/has=it"}) as running:
        running.said("leading")
        found = eventually(settled, 90, "an operator that leads, and is well but for its vCenter")
    assert [level for level, _ in about(found, f"node/{left}")] == ["problem", "problem"]
    assert about(found, f"vCenter {login['VCENTER_HOST']}") == [("ok", "Connected, with every privilege.")]
    ((level, why),) = about(found, "vCenter 127.0.0.1:9, for the operator")
    assert (level, "127.0.0.1:9" in why) == ("problem", True)
    ((level, why),) = about(found, "GPU_NODE_LABEL")
    assert (level, "nobody/has=it" in why) == ("problem", True)
    assert mended(found)

    further = tmp_path / "vcenters.yaml"
    further.write_text(yaml.safe_dump({"vcenters": [{"host": "127.0.0.1:9", "user": "ada", "password": "hunter22"}]}))
    ours = {**login, "VCENTER_PASSWORD": "wrong", "VCENTERS_FILE": str(further)}
    _, found = doctor(sandbox, "--operator", "http://127.0.0.1:9", **ours)
    assert "No operator answers" in about(found, "operator")[0][1]
    ((level, why),) = about(found, "maintenance")
    assert (level, f"node/{begun} (powered-off)" in why) == ("problem", True)
    level, why = about(found, f"vCenter {login['VCENTER_HOST']}")[0]
    assert (level, "refuses our user or password" in why) == ("problem", True)
    level, why = about(found, "vCenter 127.0.0.1:9")[0]
    assert (level, "cannot be reached" in why) == ("problem", True)
    assert about(found, "GPU_NODE_LABEL")[0][0] == "ok", "the sandbox's fleet has GPU workers"
    assert mended(found)

    _, found = doctor(sandbox, "--operator", "http://127.0.0.1:9", **away, VCENTER_PASSWORD_FILE="/nowhere")
    ((level, why),) = about(found, "vCenter settings of this machine")
    assert (level, "/nowhere cannot be read" in why) == ("problem", True)
    assert about(found, "Kubernetes")[0][0] == "ok", "wrong settings hide nothing else"


def test_a_bundle_has_everything_but_the_secrets(
    sandbox: Sandbox,
    make_node: MakeNode,
    vcenter: dict[str, Any],
    namespace: str,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    node, secret = make_node(), vcenter["password"]
    notes = {
        "example.com/note": f"the password is {secret}",
        "example.com/file": yaml.safe_dump(KUBECONFIG),
        "example.com/told": json.dumps({"args": ["--token=t-secret-1"], "password": "t-secret-2 of more words"}),
        "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"env": [{"name": "A", "value": "t-secret-3"}]}),
    }
    patch = json.dumps({"metadata": {"annotations": notes}})
    sandbox.kubectl("patch", "node", node, "--type=merge", "-p", patch)
    sandbox.apply(event_of(node, f"vCenter was told {json.dumps(secret)} and token=t-secret-4"))
    file, login = tmp_path / "bundle.tar.gz", tmp_path / "password"
    login.write_text(secret + "\n")
    env = {
        **environment(sandbox.kubeconfig),
        "VCENTER_HOST": f"{vcenter['host']}:{vcenter['port']}",
        "VCENTER_USER": vcenter["user"],
        "VCENTER_PASSWORD_FILE": str(login),
    }
    with operator(sandbox, tmp_path, namespace) as running:
        running.said("leading")
        held = [sys.executable, "-m", "hostler", "hold", node, "--why", "to tell of it"]
        assert subprocess.run(held, env=env, capture_output=True).returncode == 0
        sandbox.kubectl("uncordon", node)
        told = f"/apis/events.k8s.io/v1/events?fieldSelector=regarding.name%3D{node},reason%3DCordonedAgain"
        eventually(lambda: sandbox.read(told)["items"], what="an Event of the operator")
        words = ["bundle", "--file", str(file), "--operator", running.url, "--operator-namespace", namespace]
        done = subprocess.run([sys.executable, "-m", "hostler", *words], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        again = subprocess.run([sys.executable, "-m", "hostler", *words], env=env, capture_output=True, text=True)
        assert again.returncode == Exit.REFUSED
    sandbox.kubectl("delete", "event", f"{node}.told")
    assert file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as archive:
        parts = {one.name.partition("/")[2]: archive.extractfile(one).read().decode() for one in archive}  # type: ignore[union-attr]
    assert node in parts["kubernetes/nodes.json"]
    assert node in {one["regarding"]["name"] for one in json.loads(parts["kubernetes/events.json"])["items"]}
    assert json.loads(parts["operator/status.json"])["leads"] is True
    assert {"operator/hosts.json", "operator/operations.json", "operator/history.json"} <= set(parts)
    assert "maintenance is off" in parts["operator/maintenance.json.missing"], "what could not be had says why"
    assert "vCenter was told" in parts["kubernetes/events.json"]
    assert not [name for name, text in parts.items() if secret in text or "t-secret-" in text]


KUBECONFIG = {
    "users": [
        {
            "name": "ada",
            "user": {
                "client-key-data": "t-secret-5",
                "exec": {"command": "login", "env": [{"name": "LOGIN_TOKEN", "value": "t-secret-6"}]},
            },
        }
    ]
}


def event_of(node: str, message: str) -> dict[str, Any]:
    """As an operator might have written it, had it known no better."""
    return {
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": f"{node}.told", "namespace": "default"},
        "regarding": {"kind": "Node", "name": node}, "reason": "Told", "note": message, "type": "Normal",
        "action": "Tell", "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": CONTROLLER,
        "reportingInstance": "test",
    }  # fmt: skip


def test_what_only_openshift_wants_is_not_missed_elsewhere(
    sandbox: Sandbox, namespace: str, eventually: Eventually
) -> None:
    """Among it the right to delete hosts, which is granted nowhere else. The roles are those of `hostler rights`."""
    who = Account(namespace, f"hostler-{namespace}")

    async def missing() -> tuple[str, ...]:
        async with Client(load(str(sandbox.kubeconfig))) as client:
            return await missing_rights(client, who, rights_for(["metal"]))

    words = ("--only", "metal", "--operator-namespace", namespace, "--account", who.name, "-o", "yaml")
    made = hostler(sandbox.kubeconfig, "rights", *words)
    assert made.returncode == 0, made.stderr
    assert asyncio.run(missing()) != ()
    sandbox.kubectl("apply", "-f", "-", input=made.stdout)
    try:
        eventually(lambda: asyncio.run(missing()) == (), what="the roles are in force, and nothing is missed")
    finally:
        sandbox.kubectl("delete", "-f", "-", "--ignore-not-found", input=made.stdout)
