"""Hosts kept for a deployment or control plane, and those kept for one that no longer exists."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from hostler.apis import capi, metal3
from hostler.apis.capi import Cluster
from hostler.apis.metal3 import BareMetalHost, Reference
from hostler.kube.records import key_of
from hostler.metal import names
from hostler.metal.caches import UNREAD_SECONDS
from hostler.metal.model import Write, consumer_key, patch_host
from hostler.metal.moving import UNBLOCKED
from hostler.metal.release import why_not_empty
from hostler.metal.toolbox import Toolbox

# -- hosts kept for a machine to come


def _is_our_cluster(host: BareMetalHost, consumer: Reference) -> bool:
    """A Cluster of Cluster API beside the host; other APIs have kinds of that name, too."""
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


def why_abandoned(host: BareMetalHost, deployments: Collection[str], clusters: Mapping[str, Cluster]) -> str:
    """Why a reserved host is reserved for nobody any more; empty: it is not reserved, or a machine may still come."""
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


def is_upkept(host: BareMetalHost) -> bool:
    """Whether a host without a machine has something that may have to be taken off."""
    return names.NODE_REUSE in host.metadata.labels or is_blocked_for_nothing(host)


@dataclass(frozen=True, slots=True)
class ReservationFacts:
    """What is known around a host that is kept for a machine to come."""

    host: BareMetalHost
    deployments: frozenset[str] = frozenset()  # MachineDeployments of its namespace
    clusters: Mapping[str, Cluster] = field(default_factory=dict)  # of its namespace
    unreadable: bool = False  # one of those cannot be read: it may be kept for that one
    machine_gone: bool = False  # the machine that is its consumer does not exist


@dataclass(frozen=True, slots=True)
class Freed:
    """What is taken off a host that no machine has; with a `reason`, an Event tells it."""

    write: Write
    reason: str = ""
    note: str = ""


def decide_reservation(facts: ReservationFacts) -> Freed | None:
    """Whether a host is kept for nobody, or marked as if a machine had it; None: it stays as it is."""
    host = facts.host
    if why := "" if facts.unreadable else why_abandoned(host, facts.deployments, facts.clusters):
        label = host.metadata.labels[names.NODE_REUSE]
        change = _free(host, {"labels": {names.NODE_REUSE: None}})
        return Freed(patch_host(host, change, why), "ReservationEnded", f"It is no longer kept for {label}: {why}.")
    if why := why_left(facts):
        return Freed(patch_host(host, _free(host, {}), why), "ConsumerGone", f"It is kept for its kind only: {why}.")
    if is_blocked_for_nothing(host):
        why = "no machine has it, so `clusterctl move` need not wait for it"
        return Freed(patch_host(host, {"metadata": UNBLOCKED}, why))
    return None


def _free(host: BareMetalHost, change: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {"metadata": {**change, **UNBLOCKED}}
    return body if host.spec.consumer_ref is None else {**body, "spec": {"consumerRef": None}}


def why_left(facts: ReservationFacts) -> str:
    """Why an empty, kept host has a consumer that never comes back; empty: it has none such.

    A user took the finalizer off the machine by force while its host was being emptied. What would have been done with
    it is done here, or its successor would wait for this host for ever.
    """
    host, machine = facts.host, consumer_key(facts.host)
    meta = host.metadata
    if not machine or names.NODE_REUSE not in meta.labels or why_not_empty(host) or host.imaged:
        return ""
    # Without its Cluster, or while that is paused, host and machine may be on their way from elsewhere.
    cluster = facts.clusters.get(meta.labels.get(capi.CLUSTER_NAME, ""))
    gone = facts.machine_gone and cluster is not None and not cluster.spec.paused
    return f"Metal3Machine {machine} is gone" if gone else ""


class ReservedHostReconciler:
    """Frees hosts that are kept for a deployment or control plane, or held by a machine, that no longer exists."""

    def __init__(self, tools: Toolbox) -> None:
        self._caches, self._tools = tools.caches, tools

    async def reconcile(self, key: str) -> float | None:
        if self._caches.unread():
            return UNREAD_SECONDS
        host = self._caches.hosts.store.get(key)
        freed = self.decide(host) if host is not None else None
        if host is None or freed is None:
            return None
        after = await self._tools.send(freed.write)
        if after is not None and freed.reason:
            self._tools.recorder.event(
                metal3.BARE_METAL_HOST, host.metadata, "Normal", freed.reason, "Release", freed.note
            )
        return None

    def decide(self, host: BareMetalHost) -> Freed | None:
        return decide_reservation(self.facts(host))

    def facts(self, host: BareMetalHost) -> ReservationFacts:
        if names.NODE_REUSE not in host.metadata.labels:  # of the others nothing else matters
            return ReservationFacts(host)
        namespace, machines = host.metadata.namespace, self._caches.machines.store
        deployments, clusters = self._caches.deployments.store, self._caches.capi_clusters.store
        unreadable = any(key.startswith(f"{namespace}/") for key in (*deployments.unreadable, *clusters.unreadable))
        consumer = consumer_key(host)
        return ReservationFacts(
            host,
            frozenset(one.metadata.name for one in deployments if one.metadata.namespace == namespace),
            {one.metadata.name: one for one in clusters if one.metadata.namespace == namespace},
            unreadable,
            bool(consumer) and consumer not in machines.unreadable and machines.get(consumer) is None,
        )

    def reserved(self, namespace: str = "") -> list[str]:
        """Every host that is kept for a machine to come, or marked as if a machine had it."""
        return [
            key_of(one.metadata)
            for one in self._caches.hosts.store
            if is_upkept(one) and (not namespace or one.metadata.namespace == namespace)
        ]
