"""The operator as a process: the Fleet's status, and what the CLI learns from it, in every way it can be reached."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hostler.errors import Exit
from hostler.explain.callers import READER
from hostler.sandbox import Sandbox
from tests.real.auditing import who
from tests.real.conftest import Eventually
from tests.real.operating import Running, hostler, kubeconfig_as, operator

MakeNode = Callable[..., str]


@pytest.fixture(scope="module")
def crd(sandbox: Sandbox) -> None:
    assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0


@pytest.fixture
def fleet(sandbox: Sandbox, crd: None) -> Iterator[None]:
    """An empty Fleet; none afterwards."""
    sandbox.kubectl("delete", "fleets,pauses", "--all")
    sandbox.apply({"apiVersion": "hostler.dev/v1alpha1", "kind": "Fleet", "metadata": {"name": "cluster"}, "spec": {}})
    yield
    sandbox.kubectl("delete", "fleets,pauses", "--all")


@pytest.fixture(scope="module")
def at_work(sandbox: Sandbox, crd: None, home: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with operator(sandbox, tmp_path_factory.mktemp("operator"), home) as started:
        started.said("leading")
        yield started


@pytest.fixture
def running(at_work: Running, fleet: None) -> Running:
    """One operator for all tests of this file, each with a Fleet of its own."""
    return at_work


def conditions(sandbox: Sandbox) -> dict[str, str]:
    status = sandbox.get("fleet", "cluster").get("status", {})
    return {one["type"]: one["status"] for one in status.get("conditions", [])}


def test_the_status_follows_what_is_the_case_and_is_not_written_without_a_reason(
    sandbox: Sandbox, running: Running, make_node: MakeNode, eventually: Eventually
) -> None:
    wanted = {"Ready": "True", "Paused": "False", "IncumbentFound": "False", "CeilingReached": "False"}
    eventually(lambda: conditions(sandbox) == wanted, 60, "all is well")
    name = make_node()
    hostler(sandbox.kubeconfig, "hold", name, "--why", "x")

    def counts() -> Any:
        return sandbox.get("fleet", "cluster")["status"]["counts"]

    eventually(lambda: counts()["held"] >= 1, 60, "the held node is counted")
    held = counts()["held"]
    hostler(sandbox.kubeconfig, "release", name)
    eventually(lambda: counts()["held"] < held, 60, "the released node is not")

    def version() -> Any:
        return sandbox.get("fleet", "cluster")["metadata"]["resourceVersion"]

    def unmoved() -> bool:
        """By a node that only beats. Nodes that other tests left may still go, and are counted."""
        before = version()
        sandbox.kubectl("annotate", "--overwrite", "node", name, f"example.org/beat={time.monotonic()}")
        time.sleep(1)
        return bool(version() == before)

    eventually(unmoved, 60, "a status that stays")
    status = sandbox.get("fleet", "cluster")
    assert status["status"]["leader"].startswith(running_host())
    capabilities = {one["name"]: one for one in status["status"]["capabilities"]}
    assert capabilities["holds"]["writes"] is True
    assert (capabilities["metal"]["enabled"], capabilities["metal"]["writes"]) == (False, False)


def running_host() -> str:
    return socket.gethostname()


def test_the_ceiling_of_the_fleet_wins_and_is_shown(sandbox: Sandbox, running: Running, eventually: Eventually) -> None:
    sandbox.kubectl("patch", "fleet", "cluster", "--type=merge", "-p", '{"spec":{"maxUnavailable":1}}')

    def shown() -> bool:
        fleet = sandbox.get("fleet", "cluster")
        status = fleet.get("status", {})
        same = status.get("observedGeneration") == fleet["metadata"]["generation"]
        return bool(same and status.get("counts", {}).get("ceiling") == 1)

    eventually(shown, 60, "the Fleet's ceiling")


def test_pause_is_confirmed_by_the_operator_and_said_everywhere(
    sandbox: Sandbox, running: Running, eventually: Eventually
) -> None:
    eventually(lambda: conditions(sandbox).get("Ready") == "True", 60, "ready")
    done = hostler(sandbox.kubeconfig, "pause", "--why", "fire", "--wait", "30")
    assert "has stopped writing" in done.stderr
    assert (conditions(sandbox)["Paused"], conditions(sandbox)["Ready"]) == ("True", "False")
    status = hostler(sandbox.kubeconfig, "status", "--operator", running.url)
    assert "(claims to be sandbox-admin): fire." in status.stdout
    explained = hostler(sandbox.kubeconfig, "explain", "node/nope", "--operator", running.url)
    assert explained.returncode == Exit.REFUSED
    again = hostler(sandbox.kubeconfig, "pause", "--why", "flood", "--wait", "30")
    assert "Paused already by your Pause sandbox-admin-" in again.stderr
    assert "has stopped writing" in again.stderr
    done = hostler(sandbox.kubeconfig, "resume", "--wait", "30")
    assert "writes again where it may" in done.stderr
    eventually(lambda: conditions(sandbox)["Ready"] == "True", 60, "ready again")


def test_a_pause_outlives_the_fleet_object(sandbox: Sandbox, running: Running) -> None:
    hostler(sandbox.kubeconfig, "pause", "--why", "fire", "--wait", "30")
    sandbox.kubectl("delete", "fleet", "cluster")
    paused = hostler(sandbox.kubeconfig, "pause", "--why", "again", "--wait", "30")
    assert "has stopped writing" in paused.stderr, "an empty Fleet is created for the confirmation"
    assert conditions(sandbox)["Paused"] == "True"


def test_status_config_explain_and_plan_by_url(
    sandbox: Sandbox, running: Running, make_node: MakeNode, eventually: Eventually
) -> None:
    name = make_node()
    running.ready()
    at = ("--operator", running.url)
    status = json.loads(hostler(sandbox.kubeconfig, "status", *at, "-o", "json").stdout)
    assert status["leads"] is True
    config = hostler(sandbox.kubeconfig, "config", "--running", *at)
    assert "flag --http-address" in config.stdout
    eventually(
        lambda: hostler(sandbox.kubeconfig, "explain", f"node/{name}", *at).returncode == 0, 60, "it has seen the node"
    )
    explained = hostler(sandbox.kubeconfig, "explain", f"node/{name}", *at)
    assert explained.returncode == 0, explained.stderr
    assert explained.stdout.startswith(f"node/{name}")
    assert "platform: " in explained.stdout
    answer = json.loads(hostler(sandbox.kubeconfig, "explain", f"node/{name}", *at, "-o", "json").stdout)
    assert {"platform", "holds"} <= {one["capability"] for one in answer["explanations"]}
    assert hostler(sandbox.kubeconfig, "plan", f"node/{name}", *at).returncode == 0
    unknown = hostler(sandbox.kubeconfig, "explain", "cow/bella", *at)
    assert unknown.returncode == Exit.REFUSED
    assert "What can be explained: node" in unknown.stderr


def test_an_operator_outside_the_cluster_says_where_it_is(sandbox: Sandbox, running: Running, home: str) -> None:
    done = hostler(sandbox.kubeconfig, "status", "--operator-namespace", home)
    assert done.returncode == Exit.UNREACHABLE
    assert "The operator runs outside the cluster, as a process on" in done.stderr
    assert "It listens only on its own machine" in done.stderr
    assert f"Use: --operator {running.url}" in done.stderr


def lease(namespace: str, holder: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "hostler", "namespace": namespace, "annotations": {"hostler.dev/service": "elsewhere"}},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
    }


def reach(namespace: str, user: str, *rules: dict[str, Any]) -> list[dict[str, Any]]:
    about = {"name": f"r-{user}", "namespace": namespace}
    api = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": about, "rules": list(rules)},
        {
            "apiVersion": f"{api}/v1",
            "kind": "RoleBinding",
            "metadata": about,
            "subjects": [{"apiGroup": api, "kind": "User", "name": user}],
            "roleRef": {"apiGroup": api, "kind": "Role", "name": about["name"]},
        },
    ]


READ_LEASE = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}
BRING_TOKEN = {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]}


def test_every_way_in_which_the_leader_cannot_be_reached_has_its_sentence(
    sandbox: Sandbox, namespace: str, tmp_path: Path, eventually: Eventually
) -> None:
    def status(kubeconfig: Path = sandbox.kubeconfig) -> str:
        done = hostler(kubeconfig, "config", "--running", "--operator-namespace", namespace)
        assert done.returncode in (Exit.UNREACHABLE, Exit.REFUSED), done.stderr
        assert done.stdout == ""
        return done.stderr

    assert f"There is no ServiceAccount {namespace}/{READER}" in status()
    about = {"name": READER, "namespace": namespace}
    sandbox.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about})
    nowhere = f"the API server cannot reach a pod of Service {namespace}"
    assert f"No operator has run here: there is no lease {namespace}/hostler, and {nowhere}/hostler" in status()
    stranger = kubeconfig_as(sandbox, tmp_path, "stranger")
    assert 'Ask for "get" on "leases.coordination.k8s.io"' in status(stranger)
    sandbox.apply(lease(namespace, ""))
    assert f"the lease {namespace}/hostler is free, and {nowhere}/elsewhere" in status()
    sandbox.apply(lease(namespace, "pod-1_aaaa"))
    assert f"The API server cannot reach a pod of Service {namespace}/elsewhere" in status()
    sandbox.apply(*reach(namespace, "reader", READ_LEASE))
    reader = kubeconfig_as(sandbox, tmp_path, "reader")
    eventually(lambda: 'Ask for "create" on "serviceaccounts/token"' in status(reader), 60, "it may read leases")
    sandbox.apply(*reach(namespace, "reader", READ_LEASE, BRING_TOKEN))
    wanted = 'Ask for "get" on "services/proxy" of elsewhere:http'
    eventually(lambda: wanted in status(reader), 60, "the right to ask for a token is in force")


def test_a_dry_run_writes_nothing_anywhere(
    sandbox: Sandbox, fleet: None, namespace: str, tmp_path: Path, eventually: Eventually
) -> None:
    with operator(sandbox, tmp_path, namespace, "--dry-run") as dry:
        eventually(
            lambda: any(line.get("event") == "would write" for line in dry.lines()), 60, "it says what it would do"
        )
    writes = [one for one in _of(sandbox, dry.user) if one["verb"] not in ("get", "list", "watch")]
    # Who am I is asked by creating a SelfSubjectReview, which is stored nowhere.
    assert {one["objectRef"]["resource"] for one in writes} <= {"selfsubjectreviews"}


def _of(sandbox: Sandbox, user: str) -> list[dict[str, Any]]:
    return [one for one in sandbox.audit(user) if who(one) == user]


def test_a_cluster_without_the_crd_is_served_all_the_same(
    sandbox: Sandbox, namespace: str, tmp_path: Path, eventually: Eventually
) -> None:
    sandbox.kubectl("delete", "crd", "fleets.hostler.dev", "pauses.hostler.dev", "--ignore-not-found")
    with operator(sandbox, tmp_path, namespace) as bare:
        bare.said("leading")

        def answer() -> dict[str, Any]:
            done = hostler(sandbox.kubeconfig, "status", "--operator", bare.url, "-o", "json")
            found: dict[str, Any] = json.loads(done.stdout)
            return found

        bare.ready()
        eventually(lambda: not answer()["paused"], 60, "it is known that nothing is paused")
        assert "does not have the kind Pause" in answer()["pause"]
        assert answer()["status"]["counts"]["nodes"] > 0
    hostler(sandbox.kubeconfig, "crds", "--apply")
