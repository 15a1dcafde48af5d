"""Nobody expects a host in the name of another user, and a tenant's Machine lets nobody in."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostler.errors import Complaint
from hostler.install.admission import EXPECTED_HOSTS
from hostler.install.rights import Right
from hostler.instant import iso
from hostler.kube.kinds import FLEET as FLEET_KIND
from hostler.sandbox import Sandbox
from hostler.sandbox.build import Silent
from hostler.sandbox.crds import install_crds
from tests.real.accounts import charted, kubeconfig_of, new_account
from tests.real.admitting import admission_policies, patch
from tests.real.arriving import allow_bootstrappers, approved, ask_client, bootstrapper, forget
from tests.real.conftest import Eventually
from tests.real.operating import hostler, operator

FLEET_WRITER = (Right("fleets.hostler.dev", ("get", "patch"), "All that this account may do."),)
TENANT = (Right("machines.machine.openshift.io", ("create", "get"), "In its own namespace.", "@own"),)
ALICE = "alice@example.org"
NOW = time.time()
FLEET: dict[str, Any] = {"apiVersion": "hostler.dev/v1alpha1", "kind": "Fleet", "metadata": {"name": "cluster"}}


@pytest.fixture
def fleet(sandbox: Sandbox) -> Iterator[None]:
    assert hostler(sandbox.kubeconfig, "crds", "--apply").returncode == 0
    sandbox.kubectl("delete", "fleet", "--all", "--ignore-not-found")
    sandbox.apply(FLEET)
    yield
    sandbox.kubectl("delete", "fleet", "--all", "--ignore-not-found")


def entry(name: str, by: str, since: float | None = None) -> dict[str, Any]:
    """An expected host; its time begins in a moment unless `since` says otherwise."""
    began = time.time() + 1 if since is None else since
    said = {"name": name, "since": iso(began), "until": iso(NOW + 3600)}
    return {**said, "by": by} if by else said


def expect(login: Path, *entries: dict[str, Any]) -> str:
    """Exactly these hosts are expected: `patched`, or the refusal."""
    return patch(login, FLEET_KIND, "cluster", {"spec": {"join": {"expected": list(entries)}}})


def refusal_of(sandbox: Sandbox, *words: str) -> str:
    """What kubectl says when it is refused; empty: it was not."""
    try:
        sandbox.kubectl(*words)
    except Complaint as refused:
        return str(refused)
    return ""


def test_nobody_expects_a_host_in_anothers_name(
    sandbox: Sandbox, fleet: None, namespace: str, tmp_path: Path, eventually: Eventually
) -> None:
    with charted(sandbox, new_account(namespace, kind="fleet-writer"), FLEET_WRITER) as me:
        login = kubeconfig_of(sandbox, tmp_path, me)
        # Without the policy the name is what its writer claims, and shown as that.
        many = [entry(f"old-{number:04d}", ALICE, since=NOW - 60) for number in range(999)]
        typed = json.dumps({"spec": {"join": {"expected": many}}})
        words = ("--kubeconfig", str(login), "patch", "fleet", "cluster", "--type=merge", "-p", typed)
        assert "patched" in sandbox.kubectl(*words)
        assert f"claims to be {ALICE}" in hostler(sandbox.kubeconfig, "join", "expect").stdout
        with admission_policies(sandbox):
            said = f"by of an entry of spec.join.expected must be the user who writes it: {me}"
            evil = json.dumps({"spec": {"join": {"expected": [many[0], entry("evil", ALICE)]}}})
            # A dry run: until the policy is in force, the attempt would replace the entries from before.
            tried = (*words[:-1], evil, "--dry-run=server")
            eventually(lambda: said in refusal_of(sandbox, *tried), 60, "refused")
            # Entries from before stay, however many. To take some of others away claims nothing.
            mine = entry("mine", me)
            assert expect(login, *many[1:], mine) == "patched", "within the cost that the API server allows"
            assert expect(login, many[1], mine) == "patched"
            for forged in (entry("evil", ""), entry("evil", me.upper()), {**many[1], "until": iso(NOW + 7200)},
                           {**many[1], "name": "evil"}, {**many[1], "addresses": ["192.0.2.1"]}):  # fmt: skip
                assert said in expect(login, forged, mine)
            assert patch(login, FLEET_KIND, "cluster", {"spec": {"maxUnavailable": 3}}) == "patched"
            assert hostler(sandbox.kubeconfig, "join", "expect", "by-admin").returncode == 0
            listed = json.loads(hostler(sandbox.kubeconfig, "join", "expect", "-o", "json").stdout)
            found = {one["name"]: (one["by"], one["byProven"]) for one in listed}
            assert (found[many[1]["name"]], found["mine"]) == ((ALICE, False), (me, True))
            assert found["by-admin"][1]
            # A whole new Fleet is judged as well.
            sandbox.kubectl("delete", "fleet", "cluster")
            with pytest.raises(Complaint, match=EXPECTED_HOSTS.name):
                sandbox.apply({**FLEET, "spec": {"join": {"expected": [entry("evil", ALICE)]}}})


def test_a_machine_of_a_tenant_lets_nobody_in(
    sandbox: Sandbox, fleet: None, namespace: str, tmp_path: Path, eventually: Eventually
) -> None:
    install_crds(sandbox, ("openshift",), Silent())
    allow_bootstrappers(sandbox)
    forget(sandbox)
    name = f"evil-{os.urandom(4).hex()}"
    machine = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine", "metadata": {"name": name}, "spec": {}}
    with (
        charted(sandbox, new_account(namespace, kind="tenant"), TENANT) as tenant,
        operator(sandbox, tmp_path, namespace, "--only", "join") as running,
    ):
        login = ("--kubeconfig", str(kubeconfig_of(sandbox, tmp_path, tenant)))
        for resource in ("certificatesigningrequests/approval", "nodes", "fleets.hostler.dev"):
            assert sandbox.kubectl(*login, "auth", "can-i", "update", resource, check=False).strip() == "no"
        running.ready()
        made = ("create", "-n", namespace, "-f", "-")
        assert "created" in sandbox.kubectl(*login, *made, input=json.dumps(machine))
        csr = ask_client(bootstrapper(sandbox, tmp_path), name)
        words = ("explain", f"csr/{csr}", "--operator", running.url)
        eventually(
            lambda: "HOSTLER_JOIN_INVENTORIES" in hostler(sandbox.kubeconfig, *words).stdout, 60, "left, and why"
        )
        assert not approved(sandbox, csr)
    sandbox.kubectl("delete", "clusterrolebinding", "test-node-bootstrapper", "--ignore-not-found")
    forget(sandbox)
