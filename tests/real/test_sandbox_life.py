"""A sandbox's parts can be killed, frozen and brought back one by one; nothing else on the machine is touched."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any

import pytest

from hostler.errors import Complaint
from hostler.sandbox import Sandbox, http
from tests.real.conftest import Eventually


def test_every_part_is_alive_and_says_what_it_costs(sandbox: Sandbox) -> None:
    parts = sandbox.status()
    assert {part.name for part in parts} >= {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
    assert all(part.alive and part.rss > 1_000_000 for part in parts)


def test_files_are_for_their_owner_only(sandbox: Sandbox) -> None:
    assert sandbox.layout.root.stat().st_mode & 0o077 == 0
    theirs = ("govcsim", "kubectl-cache")  # kubectl gives its cache a mode of its own; the folder above is ours alone
    found = (path for path in sandbox.layout.root.rglob("*") if not any(name in str(path) for name in theirs))
    made = [path for path in found if not path.is_dir()]
    assert {sandbox.kubeconfig, sandbox.layout.state, sandbox.layout.audit_log} < {*made}
    for path in made:
        with suppress(FileNotFoundError):  # etcd renames its own
            assert path.stat().st_mode & 0o077 == 0, path


def test_the_api_server_is_the_version_it_was_built_from(sandbox: Sandbox) -> None:
    version = json.loads(sandbox.kubectl("version", "-o", "json"))
    assert version["serverVersion"]["gitVersion"] == version["clientVersion"]["gitVersion"] == "v1.37.1"


def test_up_on_a_running_sandbox_changes_nothing(sandbox: Sandbox) -> None:
    before = {part.name: part.pid for part in sandbox.status()}
    again = Sandbox.up(sandbox.layout.root, sandbox.state.options)
    assert again.news == "The sandbox runs already."
    assert {part.name: part.pid for part in again.status()} == before


def test_a_killed_api_server_comes_back_on_the_same_port_with_its_data(sandbox: Sandbox, namespace: str) -> None:
    sandbox.kill("kube-apiserver", signal.SIGKILL)
    assert not sandbox.alive("kube-apiserver")
    sandbox.start("kube-apiserver")
    sandbox.wait_ready()
    assert sandbox.get("namespace", namespace)["metadata"]["name"] == namespace


def test_compaction_makes_old_versions_gone(sandbox: Sandbox, namespace: str) -> None:
    old = sandbox.get("namespace", namespace)["metadata"]["resourceVersion"]
    sandbox.kubectl("label", "namespace", namespace, "touched=yes")
    sandbox.compact_etcd()
    tls, port = http.trust(sandbox.layout, "admin"), sandbox.state.ports["kube-apiserver"]
    for path in ("/api/v1/namespaces", "/api/v1/nodes", "/api/v1/pods"):
        _, answer = http.call(port, "GET", f"{path}?watch=1&resourceVersion={old}&timeoutSeconds=5", tls=tls)
        assert json.loads(answer.splitlines()[0])["object"]["code"] == 410, path


def test_writes_and_leases_are_in_the_audit_log(sandbox: Sandbox, namespace: str, eventually: Eventually) -> None:
    def seen() -> bool:
        kinds = {(event["verb"], event["objectRef"]["resource"]) for event in sandbox.audit()}
        return {("create", "namespaces"), ("update", "leases")} <= kinds

    eventually(seen, what="a created namespace and a renewed lease in the audit log")


def test_a_recycled_pid_is_never_taken_for_a_part(sandbox: Sandbox) -> None:
    """The record says our own pid, but another start time: it is not the part, and must not be signalled."""
    part = sandbox.state.parts["kube-scheduler"]
    impostor = type(part)(pid=os.getpid(), started=part.started)
    assert not impostor.alive
    assert not impostor.signal(signal.SIGKILL)


def test_strangers_without_a_certificate_are_not_let_in(sandbox: Sandbox) -> None:
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{sandbox.server}/api/v1/secrets", context=http.trust(sandbox.layout))


@pytest.mark.parametrize(
    "asked",
    [
        ("node", "cp-0"),
        ("no", "cp-0"),
        ("serviceaccount", "default", "-n", "kube-system"),
        ("sa", "-n", "kube-system", "default"),
        ("priorityclasses.scheduling.k8s.io", "system-node-critical"),
        ("namespaces,priorityclasses", "-l", "nobody=wears-it"),
    ],
    ids=" ".join,
)
def test_what_is_read_without_kubectl_is_what_kubectl_reads(sandbox: Sandbox, asked: tuple[str, ...]) -> None:
    def lasting(found: dict[str, Any]) -> object:
        meta = found["metadata"]
        return found["kind"], found["apiVersion"], meta.get("name"), meta.get("uid"), found.get("items")

    assert lasting(sandbox.get(*asked)) == lasting(json.loads(sandbox.kubectl("get", *asked, "-o", "json")))


def test_lists_and_what_is_not_there_are_read_as_by_kubectl(sandbox: Sandbox) -> None:
    def names(found: dict[str, Any]) -> list[str]:
        return [one["metadata"]["name"] for one in found["items"]]

    for asked in (("roles", "-A"), ("nodes", "-l", "kubernetes.io/hostname=cp-0"), ("cm", "-n", "kube-system")):
        assert names(sandbox.get(*asked)) == names(json.loads(sandbox.kubectl("get", *asked, "-o", "json")))
    for missing in ("node/nowhere", "unicorns/one"):
        with pytest.raises(Complaint, match=r"not found|have a resource type"):
            sandbox.get(*missing.split("/"))
