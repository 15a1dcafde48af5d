"""What every controller of metal works with, and the writes that several of them make."""

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
from hostler.kube.errors import NotFound
from hostler.kube.events import Recorder
from hostler.kube.kinds import Kind
from hostler.kube.metrics import Metrics
from hostler.kube.records import Metadata, Object
from hostler.kube.writer import Writer
from hostler.metal.caches import Caches
from hostler.metal.model import Write


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Made once by the capability. `writer_for`: the same budget for a workload cluster, whose client is given."""

    caches: Caches
    client: Client
    writer: Writer
    recorder: Recorder
    metrics: Metrics
    clusters: Clusters
    writer_for: Callable[[Client], Writer]
    clock: Callable[[], Instant] = time.time

    async def send(self, write: Write) -> Any:
        """One decided write; what the object is now, or None in a dry run. The cache of its kind shows it at once."""
        body = write.body
        if write.version:
            body = {**body, "metadata": {**body.get("metadata", {}), "resourceVersion": write.version}}
        how = How.APPLY if write.verb == "apply" else How.MERGE
        cache = self.caches.by_kind.get(write.kind) or Cache(write.kind, Object)
        return await cache.patch(
            self.writer, write.name, body, write.namespace, why=write.why, subresource=write.subresource, how=how,
            force=how is How.APPLY,
        )  # fmt: skip


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


def owner_reference(kind: Kind, meta: Metadata) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": meta.name, "uid": meta.uid, "controller": True}
