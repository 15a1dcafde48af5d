"""Two replicas of the operator behind a Service, and people with the roles of the chart who reach them through it.

The pods are kwok's, their address this machine's own: the API server's proxy is the real one, with real RBAC.
"""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from hostler.cli.main import execute
from hostler.explain.callers import AUDIENCE, READER
from hostler.install.people import people_roles
from hostler.sandbox import Sandbox
from hostler.sandbox import http as sandbox_http
from tests.real.conftest import Eventually
from tests.real.operating import Running, environment, kubeconfig_as, operator, own_address

API = "rbac.authorization.k8s.io"
VIEWER, OPERATOR, ADMIN, NOBODY = people = tuple(f"read-api-{one}" for one in ("viewer", "operator", "admin", "nobody"))


@dataclass(frozen=True)
class World:
    """Two replicas behind one Service, and people. `folder` has a kubeconfig for each of them."""

    sandbox: Sandbox
    namespace: str
    folder: Path
    replicas: tuple[Running, Running]

    def cli(self, user: str, *words: str) -> tuple[int, str, str]:
        """The CLI in this process, for it is asked often: exit code, standard output and standard error."""
        out, err, here = io.StringIO(), io.StringIO(), environment(self.folder / f"{user}.kubeconfig")
        with mock.patch.dict(os.environ, here, clear=True), redirect_stdout(out), redirect_stderr(err):
            code = execute([*words, "--operator-namespace", self.namespace])
        return code, out.getvalue(), err.getvalue()

    def token(self, account: str = READER, audience: str = AUDIENCE, namespace: str = "") -> str:
        """Made by an administrator."""
        return request_token(self.sandbox, namespace or self.namespace, account, [audience] if audience else [])

    def leader(self) -> Running:
        """Waits for it: a new lease is waited for once for its whole duration."""
        end = time.monotonic() + 120
        while not (leading := [one for one in self.replicas if _leads(one)]):
            assert time.monotonic() < end, "nobody leads"
            time.sleep(0.2)
        return leading[0]


def _leads(one: Running) -> bool:
    return any(line.get("event") == "leading" for line in one.lines())


def post(sandbox: Sandbox, path: str, spec: dict[str, Any]) -> Any:
    """As an administrator; the status of what was made."""
    tls, port = sandbox_http.trust(sandbox.layout, "admin"), sandbox.state.ports["kube-apiserver"]
    return sandbox_http.ask("The API server", port, "POST", path, {"spec": spec}, tls=tls)["status"]


def request_token(sandbox: Sandbox, namespace: str, account: str, audiences: list[str]) -> str:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    return str(post(sandbox, path, {"audiences": audiences, "expirationSeconds": 600})["token"])


def may(world: World, user: str, verb: str, what: str, name: str = "") -> bool:
    """As the API server itself says it; `what` as in `pods/proxy`, `fleets.hostler.dev`."""
    kind, _, part = what.partition("/")
    resource, _, group = kind.partition(".")
    asked = {"verb": verb, "group": group, "resource": resource, "subresource": part, "name": name}
    spec = {"user": user, "resourceAttributes": {**asked, "namespace": world.namespace}}
    return bool(post(world.sandbox, "/apis/authorization.k8s.io/v1/subjectaccessreviews", spec)["allowed"])


def binding(name: str, role: str, *subjects: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": f"{API}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "subjects": list(subjects), "roleRef": {"apiGroup": API, "kind": "ClusterRole", "name": role},
    }  # fmt: skip


def account(namespace: str, name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}


def user(name: str) -> dict[str, str]:
    return {"kind": "User", "apiGroup": API, "name": name}


def service(namespace: str) -> dict[str, Any]:
    spec = {
        "clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": "hostler"},
        "ports": [{"name": "http", "port": 8080, "targetPort": "http"}],
    }  # fmt: skip
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "hostler", "namespace": namespace},
        "spec": spec,
    }


def pod(namespace: str, name: str, node: str, port: int) -> dict[str, Any]:
    ports = [{"name": "http", "containerPort": port}]
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "hostler"}},
        "spec": {
            "nodeName": node, "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "image": "example.org/none:1", "ports": ports}],
        },
    }  # fmt: skip


@contextmanager
def granted(sandbox: Sandbox, name: str, namespace: str) -> Iterator[None]:
    """The roles of the chart; the viewer has them by way of `view` and no other."""
    made = [
        *people_roles(name, lease="hostler", service="hostler:http"),
        binding(f"{name}-1", "view", user(VIEWER)),
        binding(f"{name}-2", f"{name}-operator", user(OPERATOR)),
        binding(f"{name}-3", f"{name}-admin", user(ADMIN)),
        binding(f"{name}-4", f"{name}-metrics-reader", {
            "kind": "ServiceAccount", "name": "prometheus", "namespace": namespace,
        }),
    ]  # fmt: skip
    sandbox.apply(*made)
    try:
        yield
    finally:
        for one in made:
            sandbox.kubectl("delete", one["kind"], one["metadata"]["name"], "--ignore-not-found", "--wait=false")


@contextmanager
def people_world(
    sandbox: Sandbox, home: str, folder: Path, eventually: Eventually, also: Mapping[str, str] | None = None
) -> Iterator[World]:
    """`also`: further environment variables of both replicas."""
    address = own_address()
    if address is None:
        pytest.skip("this machine has no address but loopback, which the API server's proxy refuses")
    for name in people:
        kubeconfig_as(sandbox, folder, name)
    vcenter = sandbox.vcenter
    told = {
        "VCENTER_HOST": f"{vcenter['host']}:{vcenter['port']}",
        "VCENTER_USER": vcenter["user"],
        "VCENTER_PASSWORD": vcenter["password"],
        **(also or {}),
    }
    sandbox.apply(account(home, READER), account(home, "prometheus"), service(home))
    with ExitStack() as stack:
        stack.enter_context(granted(sandbox, home, home))
        replicas = []
        for name in ("hostler-0", "hostler-1"):
            flags = ("--http-address", f"{address}:0", "--pod-name", name)
            replicas.append(stack.enter_context(operator(sandbox, folder, home, *flags, name=name, told=told)))
        node = next(one["metadata"]["name"] for one in sandbox.read("/api/v1/nodes")["items"])
        for name, running in zip(("hostler-0", "hostler-1"), replicas, strict=True):
            sandbox.apply(pod(home, name, node, int(running.url.rpartition(":")[2])))
        for name in ("hostler-0", "hostler-1"):
            eventually(partial(_runs, sandbox, home, name), 60, "the pod runs")
            ips = json.dumps({"status": {"podIP": address, "podIPs": [{"ip": address}]}})
            sandbox.kubectl("-n", home, "patch", "pod", name, "--subresource=status", "--type=merge", "-p", ips)
        first, second = replicas
        made = World(sandbox, home, folder, (first, second))
        eventually(lambda: made.cli(VIEWER, "config", "--running")[0] == 0, 90, "roles and Service are in force")
        for one in replicas:
            one.ready()
        yield made


def _runs(sandbox: Sandbox, namespace: str, name: str) -> bool:
    return bool(sandbox.get("pod", name, "-n", namespace)["status"].get("phase") == "Running")
