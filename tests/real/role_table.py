"""What each role for people can do with each command (the table of docs/cli.md), and a cluster with work for all."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from hostler.cli.main import app
from hostler.errors import Exit
from hostler.join import ignition
from hostler.metal.names import BLOCK_MOVE
from hostler.platform.csi_driver import BEFORE
from hostler.reclaim.hub.keyring import FIELD
from hostler.reclaim.hub.tokens import Keys
from hostler.sandbox import Sandbox
from hostler.sandbox.build import Silent
from hostler.sandbox.crds import install_crds
from tests.real.arriving import allow_bootstrappers, ask_client, bootstrapper, forget
from tests.real.tls_port import tls_port
from tests.unit.kube_pki import Authority

Json = dict[str, Any]
DRIVER = "csi.vsphere.vmware.com"
YES, PARTLY = "yes", "partly"
# The command, what else is typed, and for each role whether it works; else the right that is missing. Words in capitals
# stand for what `furnished` makes.
TABLE: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("version", "--server", (YES, YES, YES)),
    ("status", "", (YES, YES, YES)),
    ("config", "--running", (YES, YES, YES)),
    ("hosts", "", (YES, YES, YES)),
    ("host", "NODE", (YES, YES, YES)),
    ("operations", "", (YES, YES, YES)),
    ("history show", "", (YES, YES, YES)),
    ("history export", "", (YES, YES, YES)),
    ("explain", "node/NODE", (YES, YES, YES)),
    ("plan", "node/NODE", (YES, YES, YES)),
    ("maintenance status", "", (YES, YES, YES)),
    ("maintenance plan", "esx1", (YES, YES, YES)),
    ("doctor", "", (PARTLY, PARTLY, YES)),
    ("bundle", "--file BUNDLE --partial", (PARTLY, PARTLY, PARTLY)),
    ("hold", "NODE --why x --beyond-ceiling", ("get nodes", YES, YES)),
    ("drain", "NODE --why x --beyond-ceiling", ("get nodes", YES, YES)),
    ("release", "NODE", ("get nodes", YES, YES)),
    ("pause", "--why x --wait 0", ("create pauses.hostler.dev", YES, YES)),
    ("resume", "--all", ("delete pauses.hostler.dev", YES, YES)),
    ("crds", "--apply", (*["patch customresourcedefinitions.apiextensions.k8s.io"] * 2, YES)),
    ("join expect", "role-host-2", (*["create fleets.hostler.dev"] * 2, YES)),
    ("join csrs", "", (*["list certificatesigningrequests.certificates.k8s.io"] * 2, YES)),
    ("join guide", "w-1", (*["get clusterversions.config.openshift.io"] * 2, YES)),
    ("join ignition", "", (*["get secrets"] * 2, YES)),
    (
        "join cloud-init",
        "w-1 --server api.example.org:6443",
        ("create fleets.hostler.dev", "get configmaps", "create secrets"),
    ),
    ("join approve", "CSR --yes", (*["get certificatesigningrequests.certificates.k8s.io"] * 2, YES)),
    ("metal hosts", "-A", (*["list baremetalhosts.metal3.io"] * 2, YES)),
    ("metal capacity", "SPACE/t", (*["get metal3machinetemplates.infrastructure.cluster.x-k8s.io"] * 2, YES)),
    ("metal takeover", "--check", (*["get customresourcedefinitions.apiextensions.k8s.io"] * 2, YES)),
    ("metal withdraw", "--yes", (*["list baremetalhosts.metal3.io"] * 2, YES)),
    ("reclaim status", "-A", (*["list agents.agent-install.openshift.io"] * 2, YES)),
    ("reclaim start", "SPACE/installed --yes", (*["get agents.agent-install.openshift.io"] * 2, YES)),
    ("reclaim cancel", "SPACE/leaving", (*["get agents.agent-install.openshift.io"] * 2, YES)),
    ("reclaim retry", "SPACE/failed", (*["get agents.agent-install.openshift.io"] * 2, YES)),
    ("reclaim token", "SPACE/env", (*["get infraenvs.agent-install.openshift.io"] * 2, YES)),
    ("ingress status", "", (*["list ingresscontrollers.operator.openshift.io"] * 2, YES)),
    ("platform status", "", ("list nodes", "list mutatingadmissionpolicies.admissionregistration.k8s.io", YES)),
    ("platform withdraw", "--yes", (*["list mutatingadmissionpolicybindings.admissionregistration.k8s.io"] * 2, YES)),
    ("platform remove-driver", f"{DRIVER} --yes", (*["get clustercsidrivers.operator.openshift.io"] * 2, YES)),
    ("vcenter show", "", (*["get secrets"] * 2, YES)),
    ("vcenter trust", f"127.0.0.1:1 --sha256 {'ab' * 32} --yes", (*["get secrets"] * 2, YES)),
)
# They ask no cluster, or start what has an account of its own. `join serve` reads what `join ignition` reads,
# `web` what `hosts` reads; `fleet` is another name of `hosts`.
NO_ROLE = (
    "run",
    "provider",
    "fleet",
    "rights",
    "manifests",
    "agent",
    "demo",
    "install",
    "sandbox",
    "join serve",
    "web",
)
REFUSED = re.compile(r'cannot (\w+) resource "([^"]+)" in API group "([^"]*)"')


def outcome(code: int, out: str, err: str) -> str:
    """One cell of the table, from what a command ended with and printed."""
    said = out + err
    missing = REFUSED.search(said)
    if code == Exit.REFUSED and missing is not None:
        verb, resource, group = missing.groups()
        return f"{verb} {resource}.{group}".rstrip(".")
    if code == Exit.OK and "could not be read" not in said:
        return YES
    # `bundle` keeps what it may read. `doctor` ends with 1 when it finds a problem, and here it always does: the
    # account of an operator in a test has another name than the chart's.
    if code == Exit.OK or said.startswith(("LEVEL", "[")):
        return YES if code == Exit.FAILED and missing is None else PARTLY
    return f"{code}: {said}"


def documented_rows() -> list[str]:
    """The table as it stands in docs/cli.md."""
    return [f"| `{command}` | {' | '.join(map(_cell, can))} |" for command, _, can in TABLE]


def _cell(can: str) -> str:
    return can if can in (YES, PARTLY) else f"no: `{can}`"


def commands_of_the_cli() -> set[str]:
    """Every command, with its group."""
    found = set()
    for name, one in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        found |= {f"{name} {part}" for part in one.commands} if hasattr(one, "commands") else {name}
    return found


def _object(api: str, kind: str, name: str, namespace: str = "", spec: Json | None = None, **more: Any) -> Json:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **more.pop("metadata", {})}
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": metadata,
        **({"spec": spec} if spec is not None else {}),
        **more,
    }


@contextmanager
def furnished(sandbox: Sandbox, home: str, namespace: str, node: str, folder: Path) -> Iterator[dict[str, str]]:
    """Something for every command to work on: what stands for the words in capitals of the table."""
    install_crds(sandbox, ("agents", "capi", "metal3", "openshift"), Silent())
    allow_bootstrappers(sandbox)
    forget(sandbox)
    root = Authority("machine config server")
    pair = root.issue("mcs", "127.0.0.1")
    assisted, machines = "agent-install.openshift.io/v1beta1", "openshift-machine-api"
    sandbox.kubectl("create", "namespace", machines, check=False)
    with tls_port(pair.certificate, pair.key, folder) as port:
        pointer = ignition.written(ignition.pointer(f"127.0.0.1:{port}", root.certificate))
        made = [
            _object("v1", "Secret", "worker-user-data-managed", machines,
                    data={"userData": base64.b64encode(pointer).decode()}),
            _object("v1", "Secret", "hostler-reclaim-key", home, stringData={FIELD: Keys.make().decode()}),
            _object("metal3.io/v1alpha1", "BareMetalHost", "host", namespace, {"online": False},
                    metadata={"annotations": {BLOCK_MOVE: ""}}),
            _object("infrastructure.cluster.x-k8s.io/v1beta1", "Metal3MachineTemplate", "t", namespace,
                    {"template": {"spec": {"image": {"url": "http://x/i", "checksum": "0" * 64}}}}),
            _object(assisted, "InfraEnv", "env", namespace, {"pullSecretRef": {"name": "pull"}}),
            *(_object(assisted, "Agent", name, namespace,
                      {"approved": True, "role": "worker",
                       "clusterDeploymentName": {"name": "old", "namespace": namespace}})
              for name in ("installed", "leaving", "failed")),
            _object("operator.openshift.io/v1", "ClusterCSIDriver", DRIVER, "", {"managementState": "Unmanaged"},
                    metadata={"annotations": {BEFORE: "Managed"}}),
        ]  # fmt: skip
        sandbox.apply(*made)
        for name, state in (
            ("installed", "installed"),
            ("leaving", "reclaiming"),
            ("failed", "unbinding-pending-user-action"),
        ):
            status = json.dumps({"status": {"debugInfo": {"state": state}}})
            sandbox.kubectl(
                "patch", "agent", name, "-n", namespace, "--subresource=status", "--type=merge", "-p", status
            )
        csr = ask_client(bootstrapper(sandbox, folder), "role-host")
        try:
            yield {"NODE": node, "CSR": csr, "SPACE": namespace}
        finally:
            for one in made:
                place = ("-n", one["metadata"]["namespace"]) if "namespace" in one["metadata"] else ()
                sandbox.kubectl(
                    "delete", one["kind"], one["metadata"]["name"], *place, "--ignore-not-found", "--wait=false"
                )
            sandbox.kubectl("delete", "clusterrolebinding", "test-node-bootstrapper", "--ignore-not-found")
            sandbox.kubectl("delete", "fleets,pauses", "--all")
            forget(sandbox)
