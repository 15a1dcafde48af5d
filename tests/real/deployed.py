"""What a Deployment says its container is run with, for a process in its place: kwok only plays containers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hostler.sandbox import Sandbox
from tests.real.accounts import kubeconfig_of
from tests.real.operating import Running, environment

Json = dict[str, Any]
# What differs from the pod: any free port of loopback, and a lease that is not waited for.
INSTEAD = {
    "HOSTLER_HTTP_ADDRESS": "127.0.0.1:0",
    "HOSTLER_LEASE_DURATION_SECONDS": "4",
    "HOSTLER_LEASE_RENEW_SECONDS": "2.5",
    "HOSTLER_LEASE_RETRY_SECONDS": "0.5",
}


def manager_of(deployment: Json) -> Json:
    """The container by which clusterctl knows a provider's controller."""
    containers = deployment["spec"]["template"]["spec"]["containers"]
    (manager,) = [one for one in containers if one["name"] == "manager"]
    return dict(manager)


def variables_of(sandbox: Sandbox, deployment: Json) -> dict[str, str]:
    """The environment of the container, as the kubelet would make it."""
    namespace, container = deployment["metadata"]["namespace"], manager_of(deployment)
    fields = {"metadata.namespace": namespace, "metadata.name": "in-place-of-a-pod", "spec.nodeName": ""}
    found: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        found |= sandbox.get("configmap", source["configMapRef"]["name"], "-n", namespace)["data"]
    for one in container["env"]:
        found[one["name"]] = one["value"] if "value" in one else fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
    return {name: value for name, value in found.items() if value}


@contextmanager
def run_in_place_of(sandbox: Sandbox, namespace: str, name: str, folder: Path) -> Iterator[Running]:
    """The operator of this Deployment as a process: its account, its arguments, its environment."""
    deployment = sandbox.get("deployment.apps", name, "-n", namespace)
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    user = f"system:serviceaccount:{namespace}:{account}"
    kubeconfig, log = kubeconfig_of(sandbox, folder, user), folder / "operator.log"
    told = environment(kubeconfig) | variables_of(sandbox, deployment) | INSTEAD
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "hostler", *manager_of(deployment)["args"]],
            stdout=out, stderr=out, env=told, cwd=folder,
        )  # fmt: skip
    running = Running(process, log, user)
    try:
        yield running
        running.stop()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
