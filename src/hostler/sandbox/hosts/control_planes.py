"""Plays the control plane of clusters that were given one: another sandbox, by `hostler sandbox workload`.

Cluster API asks a control plane provider whether the control plane is initialized, and takes stand-alone control plane
machines where there is none. Such a cluster has neither, so its condition is set here; Cluster API keeps it.
"""

from __future__ import annotations

import asyncio
import copy
import datetime
from collections.abc import Coroutine, Mapping
from typing import Any

import aiohttp
import msgspec

from hostler.sandbox.follow import follow, say
from hostler.sandbox.hosts.model import Json

CLUSTERS = "/apis/cluster.x-k8s.io/v1beta2"
INITIALIZED = "ControlPlaneInitialized"


def initialized(cluster: Json, now: str) -> Json | None:
    """The cluster with its control plane initialized; None: it is already, or somebody else says so. Pure."""
    if cluster["spec"].get("controlPlaneRef") or cluster["spec"].get("topology"):
        return None
    conditions = (cluster.get("status") or {}).get("conditions") or []
    if any(one["type"] == INITIALIZED and one["status"] == "True" for one in conditions):
        return None
    changed = copy.deepcopy(cluster)
    status = changed.setdefault("status", {})
    status.setdefault("initialization", {})["controlPlaneInitialized"] = True
    condition = {
        "type": INITIALIZED, "status": "True", "reason": "GivenBySandbox", "lastTransitionTime": now,
        "message": "The control plane is another sandbox",
    }  # fmt: skip
    status["conditions"] = [*(one for one in conditions if one["type"] != INITIALIZED), condition]
    return changed


class ControlPlanes:
    """Every cluster that has a sandbox for its control plane."""

    def __init__(self, session: aiohttp.ClientSession, given: Mapping[str, str]) -> None:
        self._session, self._given = session, given
        self._clusters: dict[str, Json] = {}
        self._wake = asyncio.Event()

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        return [follow(self._session, f"{CLUSTERS}/clusters", dict, self._listed, self._changed), self._work()]

    def wake(self) -> None:
        self._wake.set()

    def _listed(self, clusters: list[Json]) -> None:
        self._clusters = {f"{one['metadata']['namespace']}/{one['metadata']['name']}": one for one in clusters}
        self.wake()

    def _changed(self, what: str, cluster: Json) -> None:
        key = f"{cluster['metadata']['namespace']}/{cluster['metadata']['name']}"
        if what == "DELETED":
            self._clusters.pop(key, None)
        else:
            self._clusters[key] = cluster
        self.wake()

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            for key in self._given.keys() & self._clusters.keys():
                try:
                    await self._look(key, self._clusters[key])
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    say(f"cluster {key} could not be written: {error!r}; trying again")
                    asyncio.get_running_loop().call_later(0.5, self.wake)

    async def _look(self, key: str, cluster: Json) -> None:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        changed = initialized(cluster, now)
        if changed is None:
            return
        meta = cluster["metadata"]
        path = f"{CLUSTERS}/namespaces/{meta['namespace']}/clusters/{meta['name']}/status"
        async with self._session.put(path, data=msgspec.json.encode(changed)) as answer:
            if answer.status == 200:
                say(f"the control plane of cluster {key} is {self._given[key]}")
            elif answer.status not in (404, 409):  # somebody was faster: the watch will tell
                answer.raise_for_status()
