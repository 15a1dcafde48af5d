"""What every reconciler of metal works with, and the writes that several of them make."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hostler.apis.metal3 import OwnedMetadata
from hostler.instant import Instant
from hostler.kube.cache import Cache
from hostler.kube.client import Client, How
from hostler.kube.clusters import Clusters
from hostler.kube.errors import AlreadyExists, NotFound
from hostler.kube.events import Recorder
from hostler.kube.kinds import Kind
from hostler.kube.metrics import Metrics
from hostler.kube.records import Metadata, Object
from hostler.kube.writer import Writer
from hostler.metal.caches import Caches, DataCaches
from hostler.metal.model import Write


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Made once by the capability. `writer_for`: the same budget for a workload cluster, whose client is given."""

    caches: Caches
    data: DataCaches
    client: Client
    writer: Writer
    recorder: Recorder
    metrics: Metrics
    clusters: Clusters
    writer_for: Callable[[Client], Writer]
    clock: Callable[[], Instant] = time.time

    async def send(self, write: Write) -> Any:
        """One decided write; what the object is now, or None in a dry run. The cache of its kind shows it at once."""
        cache = self._cache_of(write.kind)
        if write.verb == "delete":
            about = Metadata(name=write.name, namespace=write.namespace, uid=write.uid)
            return await delete(self.writer, write.kind, about, write.why)
        if write.verb == "create":
            return await self._create(cache, write)
        body = write.body
        if write.version:
            body = {**body, "metadata": {**body.get("metadata", {}), "resourceVersion": write.version}}
        how = How.APPLY if write.verb == "apply" else How.MERGE
        return await cache.patch(
            self.writer, write.name, body, write.namespace, why=write.why, subresource=write.subresource, how=how,
            force=how is How.APPLY,
        )  # fmt: skip

    def _cache_of(self, kind: Kind) -> Cache[Any]:
        known: tuple[Cache[Any], ...] = (
            self.caches.hosts, self.caches.machines, self.caches.remediations, self.caches.clusters, self.data.claims,
        )  # fmt: skip
        return next((one for one in known if one.kind == kind), None) or Cache(kind, Object)

    async def _create(self, cache: Cache[Any], write: Write) -> Any:
        """What is there already needs nothing: another process, or an earlier look, was faster."""
        try:
            return await cache.create(self.writer, write.body, write.namespace, why=write.why)
        except AlreadyExists:
            return None


async def delete(writer: Writer, kind: Kind, meta: Metadata | OwnedMetadata, why: str) -> None:
    """What is gone already needs nothing."""
    try:
        await writer.delete(kind, meta.name, meta.namespace, uid=meta.uid, why=why)
    except NotFound:
        return


async def drop_finalizers(
    writer: Writer, kind: Kind, meta: Metadata | OwnedMetadata, *ours: str, why: str = "nothing is left of it"
) -> None:
    """Under its version: the list is written whole, and another party's finalizer must not get lost."""
    kept = [one for one in meta.finalizers if one not in ours]
    if len(kept) == len(meta.finalizers):
        return
    body = {"metadata": {"finalizers": kept, "resourceVersion": meta.resource_version}}
    try:
        await writer.patch(kind, meta.name, body, meta.namespace, type=Object, why=why)
    except NotFound:
        return
