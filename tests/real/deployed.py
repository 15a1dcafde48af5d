"""A provider's manager as a process, with all that its Deployment gives the container: kwok only plays containers.

Its webhooks are asked at a port of loopback, because nothing answers behind the Service of pods that are played.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
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


def senders(sandbox: Sandbox, provider: str) -> Iterator[tuple[Json, list[Json]]]:
    """What sends requests to the webhooks of this provider, by its label, with its `clientConfig`s."""
    for path in (
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    ):
        listed = sandbox.read(path)
        for one in listed["items"]:
            webhooks = one.get("webhooks") or [one.get("spec", {}).get("conversion", {}).get("webhook") or {}]
            clients = [each["clientConfig"] for each in webhooks if "clientConfig" in each]
            ours = one["metadata"].get("labels", {}).get("cluster.x-k8s.io/provider", "") == provider
            if clients and ours:
                kind = listed["kind"].removesuffix("List")
                yield {**one, "apiVersion": listed["apiVersion"], "kind": kind}, clients


def send_to_loopback(sandbox: Sandbox, provider: str, port: int) -> Json:
    """The requests of a provider's webhooks to this port; the Service to which they went."""
    changed, service = [], Json()
    for one, clients in senders(sandbox, provider):
        for client in clients:
            service = client.pop("service")
            client["url"] = f"https://127.0.0.1:{port}{service['path']}"
        changed.append(one)
    assert changed, f"{provider} has no webhooks"
    _replace(sandbox, changed)
    return service


def send_to_service(sandbox: Sandbox, provider: str, service: Json) -> None:
    """As clusterctl left them: it would add the Service to a URL, and the API server wants one of the two."""
    changed = []
    for one, clients in senders(sandbox, provider):
        for client in clients:
            client["service"] = {**service, "path": "/" + client.pop("url").rpartition("/")[2]}
        changed.append(one)
    if changed:
        _replace(sandbox, changed)


def _replace(sandbox: Sandbox, changed: list[Json]) -> None:
    sandbox.kubectl("replace", "-f", "-", input="\n---\n".join(json.dumps(one) for one in changed))


def is_trusted(sandbox: Sandbox, provider: str) -> bool:
    """Whether the CA of the webhooks is wherever requests come from."""
    return all(client.get("caBundle") for _, clients in senders(sandbox, provider) for client in clients)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def run_in_place_of(sandbox: Sandbox, provider: str, namespace: str, name: str, folder: Path) -> Iterator[Running]:
    """The operator of this Deployment: its account, its arguments, its environment. Its webhooks answer."""
    deployment = sandbox.get("deployment.apps", name, "-n", namespace)
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    user = f"system:serviceaccount:{namespace}:{account}"
    kubeconfig, log = kubeconfig_of(sandbox, folder, user), folder / "operator.log"
    port = free_port()
    service = send_to_loopback(sandbox, provider, port)
    told = environment(kubeconfig) | variables_of(sandbox, deployment) | INSTEAD
    told["HOSTLER_METAL_WEBHOOKS_ADDRESS"] = f"127.0.0.1:{port}"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "hostler", *manager_of(deployment)["args"]],
            stdout=out, stderr=out, env=told, cwd=folder,
        )  # fmt: skip
    running = Running(process, log, user)
    try:
        running.ready()
        end = time.monotonic() + 60
        while not is_trusted(sandbox, provider):
            assert time.monotonic() < end, "the CA of the webhooks is not filled in"
            time.sleep(0.1)
        yield running
        running.stop()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        send_to_service(sandbox, provider, service)
