"""The admission policies of `hostler manifests` on the sandbox, while a test needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hostler.install.admission import POLICIES
from hostler.install.manifests import Wanted, list_manifests
from hostler.install.roles import Account
from hostler.kube.client import Client
from hostler.kube.config import load
from hostler.kube.errors import ApiError
from hostler.kube.kinds import Kind
from hostler.kube.records import Object
from hostler.sandbox import Sandbox

BOTH = "validatingadmissionpolicy,validatingadmissionpolicybinding"


def policy_manifests() -> list[dict[str, Any]]:
    made = list_manifests(Wanted(Account("hostler"), "hostler:test"))
    return [one for one in made if one["kind"].startswith("ValidatingAdmission")]


@contextmanager
def admission_policies(sandbox: Sandbox) -> Iterator[None]:
    """In the cluster, though it takes the API server a moment to follow them; gone afterwards."""
    sandbox.apply(*policy_manifests())
    try:
        yield
    finally:
        sandbox.kubectl("delete", BOTH, *(one.name for one in POLICIES), "--ignore-not-found")


def patch(login: Path, kind: Kind, name: str, body: dict[str, Any], subresource: str | None = None) -> str:
    """A merge patch that reads nothing first, as kubelets and operators send it: `patched`, or the refusal."""

    async def send() -> str:
        async with Client(load(str(login))) as client:
            try:
                await client.patch(kind, name, body, subresource=subresource, type=Object)
            except ApiError as refused:
                return str(refused)
            return "patched"

    return asyncio.run(send())
