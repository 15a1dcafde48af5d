"""Metal3Clusters, and the cleaning mode that a template gives its machines."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
from msgspec.structs import replace

from hostler.apis import capi, metal3
from hostler.apis.capi import Cluster
from hostler.apis.metal3 import Metal3Cluster, Metal3Machine, Metal3MachineTemplate
from hostler.host.conditions import names as listed
from hostler.instant import Instant
from hostler.kube.errors import NotFound
from hostler.metal import names
from hostler.metal.caches import UNREAD_SECONDS
from hostler.metal.model import Said, Write, cluster_of, owner_key
from hostler.metal.nodes import read_prefixes
from hostler.metal.status import PAUSED, UNPAUSED, conditions_change
from hostler.metal.toolbox import Toolbox

# -- Metal3Cluster: pure

DEFAULT_PORT = 6443


def endpoint_change(cluster: Metal3Cluster) -> dict[str, Any]:
    """The port where only the host of the endpoint is named, as the Go provider's webhook defaults it.

    It has to be in the spec: Cluster API copies it from there into the Cluster.
    """
    endpoint = cluster.spec.control_plane_endpoint
    return {"spec": {"controlPlaneEndpoint": {"port": DEFAULT_PORT}}} if endpoint.host and not endpoint.port else {}


def judge_cluster(cluster: Metal3Cluster, owner: Cluster | None) -> Said:
    """Whether the infrastructure of a cluster is ready: metal has none of its own but the endpoint's name."""
    endpoint = cluster.spec.control_plane_endpoint
    if owner is None:
        return Said(names.READY, False, "WaitingForClusterOwnerRef", "It waits for a Cluster to own it.")
    if not endpoint.host or not endpoint.port:
        missing = "host" if not endpoint.host else "port"
        message = f"spec.controlPlaneEndpoint has no {missing}; name the address under which the API server will be."
        return Said(names.READY, False, "ControlPlaneEndpointMissing", message)
    return Said(names.READY, True, "Ready")


def judge_prefixes(cluster: Metal3Cluster) -> tuple[Said, ...]:
    """What is wrong with the prefixes of labels to sync, and then that it is mended; else nothing needs to be said."""
    try:
        read_prefixes(cluster.metadata.annotations.get(names.LABEL_PREFIXES, ""))
    except ValueError as wrong:
        message = f"No labels go from hosts to nodes: {wrong}. Write DNS names there, separated by commas."
        return (Said(names.LABELS_SYNCED, False, "WrongPrefix", message),)
    known = any(one.type == names.LABELS_SYNCED for one in cluster.status.conditions)
    return (Said(names.LABELS_SYNCED, True, "PrefixesRead"),) if known else ()


def cluster_change(cluster: Metal3Cluster, said: Said, now: Instant) -> dict[str, Any]:
    """The patch of its status; empty: nothing is to change."""
    ready = [said, Said("InfrastructureReady", said.true, said.reason, said.message)]
    change = conditions_change(cluster, (*ready, UNPAUSED, *judge_prefixes(cluster)), now)
    if said.true and not cluster.status.initialization.provisioned:
        change["initialization"] = {"provisioned": True}
    if cluster.spec.failure_domains != cluster.status.failure_domains:
        change["failureDomains"] = msgspec.to_builtins(list(cluster.spec.failure_domains)) or None  # none: not empty
    return {"status": change} if change else {}


def pause_change(cluster: Metal3Cluster, now: Instant) -> dict[str, Any]:
    """The patch of the status of one that is paused: only that it is."""
    change = conditions_change(cluster, (PAUSED,), now)
    return {"status": change} if change else {}


def cleaning_change(template: Metal3MachineTemplate, machine: Metal3Machine) -> dict[str, Any]:
    """The template's cleaning mode where the machine's differs; one that the template leaves open is left alone."""
    wanted = template.spec.template.spec.automated_cleaning_mode
    if not wanted or machine.spec.automated_cleaning_mode == wanted or machine.metadata.deletion_timestamp:
        return {}
    return {"spec": {"automatedCleaningMode": wanted}}


def decide_cluster(
    cluster: Metal3Cluster, owner: Cluster | None, machines: Collection[str], now: Instant
) -> tuple[Write, ...]:
    """What is written next. `machines`: those that a cluster which is being deleted waits for."""
    meta = cluster.metadata
    if meta.deletion_timestamp:
        return _end_cluster(cluster, machines, now)
    if capi.PAUSED in meta.annotations or (owner is not None and owner.spec.paused):
        return _patches((cluster, pause_change(cluster, now), PAUSED.message))
    finalized: dict[str, Any] = {}
    if owner is not None and names.CLUSTER_FINALIZER not in meta.finalizers:
        finalized = {"metadata": {"finalizers": [*meta.finalizers, names.CLUSTER_FINALIZER]}}
    known = _with_port(cluster)
    said = judge_cluster(known, owner)
    return _patches(
        (cluster, finalized, "its machines go before it"),
        (cluster, endpoint_change(cluster), "its endpoint names no port"),
        (cluster, cluster_change(known, said, now), said.message or "its endpoint is known"),
    )


def _end_cluster(cluster: Metal3Cluster, machines: Collection[str], now: Instant) -> tuple[Write, ...]:
    """Only once its machines are gone; each of them wakes it as it goes."""
    meta = cluster.metadata
    if names.CLUSTER_FINALIZER not in meta.finalizers:
        return ()
    if machines:
        waits = f"It waits for {listed(machines)}."
        said = Said(names.READY, False, "WaitingForMachines", waits)
        return _patches((cluster, cluster_change(cluster, said, now), waits))
    kept = [one for one in meta.finalizers if one != names.CLUSTER_FINALIZER]
    return _patches((cluster, {"metadata": {"finalizers": kept}}, "its machines are gone"))


def _with_port(cluster: Metal3Cluster) -> Metal3Cluster:
    if not endpoint_change(cluster):
        return cluster
    endpoint = replace(cluster.spec.control_plane_endpoint, port=DEFAULT_PORT)
    return replace(cluster, spec=replace(cluster.spec, control_plane_endpoint=endpoint))


def _patches(*changes: tuple[Metal3Cluster, dict[str, Any], str]) -> tuple[Write, ...]:
    """Finalizers under the version that was read: the list is written whole, and others' must not get lost."""
    return tuple(
        Write(
            metal3.METAL3_CLUSTER, cluster.metadata.name, cluster.metadata.namespace, body, why,
            version=cluster.metadata.resource_version if "metadata" in body else "",
            subresource="status" if "status" in body else None,
        )
        for cluster, body, why in changes
        if body
    )  # fmt: skip


# -- reconcilers


class ClusterReconciler:
    """Reconciles one Metal3Cluster per call."""

    def __init__(self, tools: Toolbox) -> None:
        self._tools, self._caches = tools, tools.caches

    async def reconcile(self, key: str) -> float | None:
        if self._caches.unread():
            return UNREAD_SECONDS
        cluster = self._caches.clusters.store.get(key)
        if cluster is None:
            return None
        meta = cluster.metadata
        owner = self._caches.capi_clusters.store.get(owner_key(meta, "Cluster"))
        of = owner_key(meta, "Cluster") or names.key(meta.namespace, meta.labels.get(capi.CLUSTER_NAME, meta.name))
        machines = [one.metadata.name for one in self._caches.machines.store.by("cluster", of)]
        for write in decide_cluster(cluster, owner, machines, self._tools.clock()):
            try:
                await self._tools.send(write)
            except NotFound:
                return None  # it is gone
        return None


class TemplateReconciler:
    """Copies a template's cleaning mode to its machines, only where it differs."""

    def __init__(self, tools: Toolbox) -> None:
        self._caches, self._writer = tools.caches, tools.writer

    async def reconcile(self, key: str) -> float | None:
        if self._caches.unread():
            return UNREAD_SECONDS
        template = self._caches.templates.store.get(key)
        if template is None or template.metadata.deletion_timestamp:
            return None
        for machine in self._caches.machines.store.by("template", key):
            change = cleaning_change(template, machine)
            if self._caches.scope.why_filtered(machine.metadata):
                continue
            if change and not self._caches.paused(machine.metadata.namespace, cluster_of(machine, None)):
                meta, why = machine.metadata, f"Metal3MachineTemplate {template.metadata.name} says so"
                await self._caches.machines.patch(self._writer, meta.name, change, meta.namespace, why=why)
        return None
