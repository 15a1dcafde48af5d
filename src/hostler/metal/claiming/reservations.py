"""Hosts kept for a deployment or control plane, and those kept for one that no longer exists."""

from __future__ import annotations

from typing import Any

from hostler.apis import capi, metal3
from hostler.apis.capi import Cluster
from hostler.apis.metal3 import BareMetalHost, Reference
from hostler.kube.records import key_of
from hostler.metal import names
from hostler.metal.caches import UNREAD_SECONDS
from hostler.metal.model import consumer_key
from hostler.metal.moving import UNBLOCKED
from hostler.metal.release import why_not_empty
from hostler.metal.toolbox import Toolbox

# -- hosts kept for somebody


def _is_our_cluster(host: BareMetalHost, consumer: Reference) -> bool:
    """A Cluster of Cluster API beside the host; others have kinds of that name too, and are somebody else."""
    return (
        consumer.kind == capi.CLUSTER.kind
        and capi.group_of(consumer.api_version) == capi.GROUP
        and consumer.namespace == host.metadata.namespace
    )


def is_blocked_for_nothing(host: BareMetalHost) -> bool:
    """Whether `clusterctl move` would wait for a host that no machine has: free, or kept by its Cluster."""
    consumer = host.spec.consumer_ref
    free = consumer is None or _is_our_cluster(host, consumer)
    return free and names.BLOCK_MOVE in host.metadata.annotations


def why_abandoned(host: BareMetalHost, deployments: set[str], clusters: dict[str, Cluster]) -> str:
    """Why a reserved host is reserved for nobody any more; empty: it is not reserved, or still for somebody."""
    label = host.metadata.labels.get(names.NODE_REUSE)
    consumer = host.spec.consumer_ref
    if label is None or (consumer is not None and not _is_our_cluster(host, consumer)):
        return ""
    if consumer is not None:
        cluster = clusters.get(consumer.name)
        if cluster is None or cluster.metadata.deletion_timestamp:
            return f"Cluster {consumer.name} is gone"
        if cluster.spec.paused:
            return ""  # it may be on its way to another management cluster, its deployments before it
    role, _, name = label.partition("-")
    if role == "md" and all(names.reuse_label(role, one) != label for one in deployments):
        return f"MachineDeployment {name} is gone"
    planes = {one.spec.control_plane_ref.name for one in clusters.values()}
    if role == "cp" and all(names.reuse_label(role, one) != label for one in planes):
        return f"control plane {name} is gone"
    return ""


class ReservedHostController:
    """Frees hosts that are kept for a deployment or control plane, or held by a machine, that no longer exists."""

    def __init__(self, tools: Toolbox) -> None:
        self._caches, self._writer, self._recorder = tools.caches, tools.writer, tools.recorder

    async def reconcile(self, key: str) -> float | None:
        if self._caches.unread():
            return UNREAD_SECONDS
        host = self._caches.hosts.store.get(key)
        if host is None:
            return None
        if why := self.why(host):
            label = host.metadata.labels[names.NODE_REUSE]
            change = {"labels": {names.NODE_REUSE: None}}
            await self._free(host, change, why, "ReservationEnded", f"It is no longer kept for {label}: {why}.")
        elif why := self.why_left(host):
            await self._free(host, {}, why, "ConsumerGone", f"It is kept for its kind only: {why}.")
        elif is_blocked_for_nothing(host):
            meta, why = host.metadata, "no machine has it, so `clusterctl move` need not wait for it"
            body = {"metadata": {**UNBLOCKED, "resourceVersion": meta.resource_version}}
            await self._caches.hosts.patch(self._writer, meta.name, body, meta.namespace, why=why)
        return None

    async def _free(self, host: BareMetalHost, change: dict[str, Any], why: str, reason: str, note: str) -> None:
        meta = host.metadata
        body: dict[str, Any] = {"metadata": {**change, **UNBLOCKED, "resourceVersion": meta.resource_version}}
        if host.spec.consumer_ref is not None:
            body["spec"] = {"consumerRef": None}
        after = await self._caches.hosts.patch(self._writer, meta.name, body, meta.namespace, why=why)
        if after is not None:
            self._recorder.event(metal3.BARE_METAL_HOST, meta, "Normal", reason, "Release", note)

    def why_left(self, host: BareMetalHost) -> str:
        """Why an empty, kept host has a consumer that never comes back; empty: it has none such.

        Somebody took off the machine's finalizer by force while its host was being emptied. What would have been done
        with it is done here, or its successor would wait for this host for ever.
        """
        meta, machine = host.metadata, consumer_key(host)
        machines, cluster = self._caches.machines.store, meta.labels.get(capi.CLUSTER_NAME, "")
        if not machine or names.NODE_REUSE not in meta.labels or why_not_empty(host) or host.imaged:
            return ""
        if machine in machines.unreadable or machines.get(machine) is not None:
            return ""
        # Without its Cluster, or while that is paused, host and machine may be on their way from elsewhere.
        known = self._caches.capi_clusters.store.get(names.key(meta.namespace, cluster))
        return "" if known is None or known.spec.paused else f"Metal3Machine {machine} is gone"

    def why(self, host: BareMetalHost) -> str:
        """Why nobody is coming for this host any more; empty: somebody may, or it is not kept at all."""
        if names.NODE_REUSE not in host.metadata.labels:
            return ""
        namespace, caches = host.metadata.namespace, self._caches
        unreadable = (*caches.deployments.store.unreadable, *caches.capi_clusters.store.unreadable)
        if any(key.startswith(f"{namespace}/") for key in unreadable):
            return ""  # it may be kept for that one
        deployments = {one.metadata.name for one in caches.deployments.store if one.metadata.namespace == namespace}
        clusters = {one.metadata.name: one for one in caches.capi_clusters.store if one.metadata.namespace == namespace}
        return why_abandoned(host, deployments, clusters)

    def reserved(self, namespace: str = "") -> list[str]:
        """Every host that is kept for a machine to come, or marked as if a machine had it."""
        return [
            key_of(one.metadata)
            for one in self._caches.hosts.store
            if is_upkept(one) and (not namespace or one.metadata.namespace == namespace)
        ]


def is_upkept(host: BareMetalHost) -> bool:
    """Whether a host without a machine has something that may have to be taken off."""
    return names.NODE_REUSE in host.metadata.labels or is_blocked_for_nothing(host)
