"""Nodes that want to come in: requests with real keys, made by real users of the API server."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hostler.join.model import CLIENT, SERVING, SIGNING_REQUEST
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.errors import ServerError
from hostler.kube.records import Object
from hostler.sandbox import Sandbox
from tests.real.accounts import kubeconfig_with
from tests.real.operating import kubeconfig_as
from tests.unit.joining import ACCOUNT, CLIENT_USAGES, SERVING_USAGES, names_of, pem


def allow_bootstrappers(box: Sandbox) -> None:
    """What lets a bootstrapper make requests; approving is nobody's right by that."""
    box.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "test-node-bootstrapper"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-bootstrapper",
            },
            "subjects": [
                {"kind": "ServiceAccount", "name": "node-bootstrapper",
                 "namespace": "openshift-machine-config-operator"},
                {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:bootstrappers"},
                {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "mallory"},
            ],
        }
    )  # fmt: skip


def with_token(box: Sandbox, folder: Path, token: str) -> Path:
    """A kubeconfig with nothing but a bootstrap token."""
    return kubeconfig_with(box.kubeconfig, folder / f"token-{os.urandom(3).hex()}.kubeconfig", token)


def bootstrapper(box: Sandbox, folder: Path) -> Path:
    """The OpenShift bootstrapper; the API server gives a service account exactly its three groups."""
    return kubeconfig_as(box, folder, ACCOUNT)


def kubelet(box: Sandbox, folder: Path, node: str) -> Path:
    return kubeconfig_as(box, folder, f"system:node:{node}", "system:nodes")


def body(request: bytes, signer: str = CLIENT, usages: Sequence[str] = CLIENT_USAGES, name: str = "") -> dict[str, Any]:
    return {
        "metadata": {"name": name or f"csr-{os.urandom(5).hex()}"},
        "spec": {"request": base64.b64encode(request).decode(), "signerName": signer, "usages": list(usages)},
    }


def ask(kubeconfig: Path, *bodies: dict[str, Any]) -> list[str]:
    """Make these requests as that user; their names."""

    async def work() -> list[str]:
        async with Client(load(str(kubeconfig), None)) as client:
            limit = asyncio.Semaphore(32)

            async def one(given: dict[str, Any]) -> str:
                async with limit:
                    await client.create(SIGNING_REQUEST, given, type=Object)
                return str(given["metadata"]["name"])

            return list(await asyncio.gather(*(one(given) for given in bodies)))

    return asyncio.run(work())


def ask_client(kubeconfig: Path, node: str, **more: Any) -> str:
    return ask(kubeconfig, body(pem(node, **more)))[0]


def ask_serving(kubeconfig: Path, node: str, *sans: str, **more: Any) -> str:
    return ask(kubeconfig, body(pem(node, sans=names_of(*sans), **more), SERVING, SERVING_USAGES))[0]


def request(box: Sandbox, name: str) -> dict[str, Any]:
    return box.read(f"/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}")


def approved(box: Sandbox, name: str) -> bool:
    return any(one["type"] == "Approved" for one in request(box, name).get("status", {}).get("conditions", []))


def signed(box: Sandbox, name: str) -> bytes:
    """The certificate the real signer made, or nothing yet."""
    return base64.b64decode(request(box, name).get("status", {}).get("certificate", ""))


def forget(box: Sandbox, names: Iterable[str] = (), *, but: str = "") -> None:
    """These requests are gone; without any named, all of them (`but` one)."""
    those = list(names)
    if those:
        box.kubectl("delete", "csr", *those, "--ignore-not-found", "--wait=false")
        return

    async def work() -> None:
        async with Client(load(str(box.kubeconfig), None)) as client:
            select = {"fieldSelector": f"metadata.name!={but}"} if but else {}
            for _ in range(20):
                try:
                    await client.request("DELETE", SIGNING_REQUEST.path(), params=select, timeout=120)
                except ServerError as error:
                    if "Timeout" not in str(error):
                        raise
                    continue  # thousands take longer than the API server gives one request; what is gone is gone
                return
            raise AssertionError("the requests are still there after twenty attempts")

    asyncio.run(work())
