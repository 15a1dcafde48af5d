"""Whoever may pause can pause, and nothing else: the right is on `pauses`, not on the Fleet with its policies."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hostler.errors import Exit
from hostler.install.rights import Right
from hostler.install.roles import Account
from hostler.sandbox import Sandbox
from tests.real.accounts import NOBODY, charted, kubeconfig_of, new_account, rights_here
from tests.real.conftest import Eventually
from tests.real.helming import CHART, Helm
from tests.real.operating import Running, hostler, operator

MAY_PAUSE = (Right("pauses.hostler.dev", ("create", "delete", "get", "list"), "To pause and to resume."),)
# Whoever has one of these can do what the operator does, or have the operator do it.
MORE = (
    ("patch", "fleets.hostler.dev"), ("update", "fleets.hostler.dev"), ("create", "fleets.hostler.dev"),
    ("patch", "fleets.hostler.dev/status"), ("patch", "deployments.apps"), ("patch", "nodes"),
    ("create", "pods/eviction"), ("get", "secrets"),
)  # fmt: skip
PAUSES = "/apis/hostler.dev/v1alpha1/pauses"


@pytest.fixture(scope="module")
def cluster(sandbox: Sandbox) -> Iterator[None]:
    assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0
    sandbox.kubectl("delete", "fleets,pauses", "--all")
    sandbox.apply({"apiVersion": "hostler.dev/v1alpha1", "kind": "Fleet", "metadata": {"name": "cluster"}, "spec": {}})
    yield
    sandbox.kubectl("delete", "fleets,pauses", "--all")


@pytest.fixture(scope="module")
def running(sandbox: Sandbox, cluster: None, home: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with operator(sandbox, tmp_path_factory.mktemp("operator"), home) as started:
        started.said("leading")
        started.ready()
        yield started


@contextmanager
def person(sandbox: Sandbox, folder: Path, namespace: str, name: str, *rights: Right) -> Iterator[tuple[str, Path]]:
    """An account with exactly these rights: its user name and its kubeconfig."""
    with charted(sandbox, Account(namespace, f"person-{namespace}-{name}", "none"), rights) as user:
        yield user, kubeconfig_of(sandbox, folder, user)


def kubectl(sandbox: Sandbox, kubeconfig: Path, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """kubectl as that person runs it."""
    environment = {**sandbox.kubectl_environment(), "KUBECONFIG": str(kubeconfig)}
    return subprocess.run(
        [sandbox.state.programs["controlplane"], "kubectl", *words],
        input=given, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def paused(sandbox: Sandbox) -> dict[str, str]:
    """The Fleet's condition `Paused`."""
    found = sandbox.get("fleet", "cluster").get("status", {}).get("conditions", [])
    return next((one for one in found if one["type"] == "Paused"), {})


def names(sandbox: Sandbox) -> list[str]:
    return [one["metadata"]["name"] for one in sandbox.read(PAUSES)["items"]]


def test_an_operator_that_cannot_read_pauses_writes_nothing(
    sandbox: Sandbox, cluster: None, namespace: str, tmp_path: Path, eventually: Eventually
) -> None:
    """The kind is there, the right is not: that is unknown, and the status says which right is missing."""
    rights = [one for one in rights_here(sandbox, ()) if one.resource != "pauses.hostler.dev"]
    blind = new_account(namespace, "blind", "blind", NOBODY)
    with (
        charted(sandbox, blind, rights) as user,
        operator(sandbox, tmp_path, namespace, "--lease-name", "blind", user=user) as started,
    ):
        started.said("leading")
        eventually(lambda: paused(sandbox).get("reason") == "PausesForbidden", 60, "the status says why")
        assert paused(sandbox)["status"] == "Unknown"
        assert "`watch` on pauses.hostler.dev are needed" in paused(sandbox)["message"]
        capabilities = sandbox.get("fleet", "cluster")["status"]["capabilities"]
        assert [one["name"] for one in capabilities if one["writes"]] == ["fleet"]


def test_the_right_to_pause_is_the_right_to_pause_only(
    sandbox: Sandbox, running: Running, namespace: str, tmp_path: Path, eventually: Eventually
) -> None:
    with person(sandbox, tmp_path, namespace, "pauser", *MAY_PAUSE) as (user, login):
        allowed = [what for what in MORE if kubectl(sandbox, login, "auth", "can-i", *what).stdout.strip() != "no"]
        assert allowed == []
        attack = {"spec": {"ingress": {"workloads": [{"kind": "Deployment", "namespace": "x", "name": "dns"}]}}}
        refused = kubectl(sandbox, login, "patch", "fleet", "cluster", "--type=merge", "-p", json.dumps(attack))
        assert f'User "{user}" cannot' in refused.stderr

        done = hostler(login, "pause", "--why", "storage is on fire", "--wait", "1")
        assert done.returncode == Exit.UNREACHABLE, "nobody confirmed it to this account"
        assert "cannot get resource" in done.stderr, "it says that this account cannot see the confirmation"
        eventually(lambda: paused(sandbox).get("status") == "True", 60, "the operator says so")
        assert f"(claims to be {user}): storage is on fire" in paused(sandbox)["message"]
        again = hostler(login, "pause", "--why", "flood", "--wait", "0")
        assert (again.returncode, "Paused already by your Pause" in again.stderr) == (0, True)
        assert [one["spec"]["why"] for one in sandbox.read(PAUSES)["items"]] == ["storage is on fire"]

        # Another's is named and stays; --all is the same right.
        sandbox.apply({"apiVersion": "hostler.dev/v1alpha1", "kind": "Pause", "metadata": {"name": "other"}})
        done = hostler(login, "resume", "--wait", "0")
        assert (done.returncode, "Still paused by other: no reason given." in done.stderr) == (0, True), done.stderr
        assert names(sandbox) == ["other"]
        assert "There is no Pause of yours" in hostler(login, "resume", "--wait", "0").stderr
        assert hostler(login, "resume", "--all", "--wait", "0").returncode == 0
        eventually(lambda: paused(sandbox).get("status") == "False", 60, "the operator goes on")


def test_without_the_right_pause_and_resume_are_refused(
    sandbox: Sandbox, running: Running, namespace: str, tmp_path: Path
) -> None:
    sandbox.apply({"apiVersion": "hostler.dev/v1alpha1", "kind": "Pause", "metadata": {"name": "kept"}})
    reads = Right("pauses.hostler.dev", ("get", "list"), "To look.")
    with person(sandbox, tmp_path, namespace, "nobody") as (user, login):
        for words in (("pause", "--why", "x"), ("resume",), ("resume", "--all")):
            done = hostler(login, *words, "--wait", "0")
            assert done.returncode == Exit.REFUSED
            assert f'User "{user}" cannot' in done.stderr
            assert "Ask whoever runs the cluster for that right" in done.stderr
    with person(sandbox, tmp_path, namespace, "reader", reads) as (_, login):
        done = hostler(login, "resume", "--all", "--wait", "0")
        assert done.returncode == Exit.REFUSED
        assert "Could not delete Pause kept: " in done.stderr
        assert "Still paused by kept: no reason given." in done.stderr
    assert names(sandbox) == ["kept"]
    sandbox.kubectl("delete", "pauses", "--all")


def test_kubectl_alone_can_pause_and_resume(
    sandbox: Sandbox, running: Running, namespace: str, tmp_path: Path, eventually: Eventually
) -> None:
    eventually(lambda: paused(sandbox).get("status") == "False", 60, "not paused before")
    manifest = 'apiVersion: hostler.dev/v1alpha1\nkind: Pause\nmetadata: {name: storage}\nspec: {why: "fire"}\n'
    with person(sandbox, tmp_path, namespace, "kubectl", *MAY_PAUSE) as (_, login):
        made = kubectl(sandbox, login, "create", "-f", "-", given=manifest)
        assert made.returncode == 0, made.stderr
        eventually(lambda: paused(sandbox).get("status") == "True", 60, "paused")
        observed = sandbox.get("fleet", "cluster")["status"]["pauses"]
        assert [(one["name"], one["why"]) for one in observed] == [("storage", "fire")]
        table = kubectl(sandbox, login, "get", "pauses").stdout.splitlines()
        assert table[0].split() == ["NAME", "CLAIMS-TO-BE", "WHY", "AGE"]
        assert kubectl(sandbox, login, "delete", "pauses", "--all").returncode == 0
        eventually(lambda: paused(sandbox).get("status") == "False", 60, "not paused any more")


def test_a_pause_in_deletion_pauses_until_it_is_gone(
    sandbox: Sandbox, running: Running, eventually: Eventually
) -> None:
    kept = {"name": "kept", "finalizers": ["example.org/wait"]}
    sandbox.apply({"apiVersion": "hostler.dev/v1alpha1", "kind": "Pause", "metadata": kept})
    try:
        eventually(lambda: paused(sandbox).get("status") == "True", 60, "paused")
        done = hostler(sandbox.kubeconfig, "resume", "--all", "--wait", "0")
        assert "Still paused by kept, which is being deleted: no reason given." in done.stderr
        eventually(lambda: "which is being deleted" in paused(sandbox)["message"], 60, "it is said")
        assert paused(sandbox)["status"] == "True"
    finally:  # else nobody could delete it
        sandbox.kubectl("patch", "pause", "kept", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    eventually(lambda: paused(sandbox).get("status") == "False", 60, "it is gone")


def test_an_upgrade_says_that_an_older_pause_is_gone(
    sandbox: Sandbox, cluster: None, namespace: str, tmp_path: Path, eventually: Eventually
) -> None:
    """The new CRD drops `spec.paused`. While the old one still shows it, the chart's notes and the doctor say so."""

    place = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/paused"
    older = json.dumps([{"op": "add", "path": place, "value": {"type": "boolean"}}])
    sandbox.kubectl("patch", "crd", "fleets.hostler.dev", "--type=json", "-p", older)
    paused_field = ("patch", "fleet", "cluster", "--type=merge", "-p", '{"spec":{"paused":true}}')
    eventually(
        lambda: sandbox.kubectl(*paused_field) and sandbox.get("fleet", "cluster")["spec"].get("paused"),
        60, "the older CRD is served",
    )  # fmt: skip
    found = json.loads(hostler(sandbox.kubeconfig, "doctor", "-o", "json").stdout)
    assert [one["level"] for one in found if "spec.paused: true" in one["why"]] == ["problem"]
    notes = Helm(tmp_path, sandbox)(
        "install", namespace, str(CHART), "-n", namespace, "--dry-run=server", "--take-ownership"
    )
    assert "IT IS NO LONGER PAUSED" in notes
    assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0
    eventually(lambda: "paused" not in sandbox.get("fleet", "cluster")["spec"], 60, "the field is dropped")
