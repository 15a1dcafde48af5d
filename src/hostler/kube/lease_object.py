"""The Lease on the API server: how it is read, and what a candidate writes into it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from hostler.instant import iso_micro
from hostler.kube.client import Client
from hostler.kube.election import RELEASED_SECONDS, Create, Release, Renew, Take, Write
from hostler.kube.errors import NotFound
from hostler.kube.kinds import LEASE
from hostler.kube.records import Lease


class LeaseObject:
    """One Lease, as one candidate reads and writes it. `annotations` are what the holder says about itself."""

    def __init__(
        self, client: Client, name: str, namespace: str, identity: str, duration: int, annotations: Mapping[str, str]
    ) -> None:
        self._client, self._name, self._namespace = client, name, namespace
        self._identity, self._duration, self._annotations = identity, duration, dict(annotations)

    def __str__(self) -> str:
        return f"{self._namespace}/{self._name}"

    async def read(self) -> Lease | None:
        try:
            return await self._client.get(LEASE, self._name, self._namespace, type=Lease)
        except NotFound:
            return None

    async def write(self, action: Write) -> Lease:
        body = self._body(action)
        if isinstance(action, Create):
            body["metadata"] = {"name": self._name, "annotations": self._annotations}
            return await self._client.create(LEASE, body, self._namespace, type=Lease)
        # With the version in it the patch is conditional: the faster replica wins, and we get a 409.
        body["metadata"] = {"resourceVersion": action.version}
        if isinstance(action, Take):
            body["metadata"]["annotations"] = self._annotations
        return await self._client.patch(LEASE, self._name, body, self._namespace, type=Lease)

    def _body(self, action: Write) -> dict[str, Any]:
        at = iso_micro(time.time())
        spec: dict[str, Any] = {"renewTime": at}
        if isinstance(action, Release):
            return {"spec": spec | {"holderIdentity": "", "leaseDurationSeconds": RELEASED_SECONDS}}
        spec |= {"holderIdentity": self._identity, "leaseDurationSeconds": self._duration}
        if not isinstance(action, Renew):
            spec |= {"acquireTime": at, "leaseTransitions": action.transitions}
        return {"spec": spec}
