"""Labels of hosts on their nodes: the prefixes are named on the Metal3Cluster. Pure, but for the keeper at the end.

The Go provider asks every node once a minute. Here a node is asked when something changed on our side: the host's
labels, the prefixes, or which node the machine is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from hostler.apis.metal3 import BareMetalHost
from hostler.kube.client import Client
from hostler.kube.clusters import Clusters, Unavailable
from hostler.kube.errors import ApiError, Unreachable
from hostler.kube.kinds import NODE
from hostler.kube.records import Node, Object
from hostler.kube.writer import Writer
from hostler.metal import names
from hostler.metal.caches import UNREAD_SECONDS, Caches, consumer_key, owner_key
from hostler.metal.model import cluster_of
from hostler.selectors import is_label_prefix

log = structlog.get_logger("hostler.metal")

AGAIN_SECONDS = 30.0  # a cluster that could not be asked is asked again


def prefixes_of(text: str) -> frozenset[str]:
    """The prefixes of the annotation; raises ValueError with a sentence for one that cannot be one."""
    found = frozenset(part for one in text.split(",") if (part := one.strip()))
    for one in sorted(found):
        if not is_label_prefix(one):
            raise ValueError(f"annotation {names.LABEL_PREFIXES} names {one!r}, which is no prefix of a label")
    return found


def synced_labels(prefixes: frozenset[str], labels: Mapping[str, str]) -> dict[str, str]:
    """Those of the labels whose prefix is among these."""
    return {key: value for key, value in labels.items() if "/" in key and key.partition("/")[0] in prefixes}


def label_change(prefixes: frozenset[str], wanted: Mapping[str, str], has: Mapping[str, str]) -> dict[str, str | None]:
    """What is to change on a node with labels `has`: only differences, and only labels of these prefixes."""
    change: dict[str, str | None] = {key: None for key in synced_labels(prefixes, has) if key not in wanted}
    change.update((key, value) for key, value in wanted.items() if has.get(key) != value)
    return change


@dataclass(frozen=True, slots=True)
class Sync:
    """Which labels which node is to have."""

    namespace: str
    cluster: str
    node: str
    prefixes: frozenset[str]
    labels: tuple[tuple[str, str], ...]


class LabelKeeper:
    """Reconciles the labels of one host per call."""

    def __init__(self, caches: Caches, clusters: Clusters, writer_for: Callable[[Client], Writer]) -> None:
        self._caches, self._clusters, self._writer_for = caches, clusters, writer_for
        self._done: dict[str, Sync] = {}  # by host: what its node was last seen to have

    async def reconcile(self, key: str) -> float | None:
        if self._caches.unread():
            return UNREAD_SECONDS
        host = self._caches.hosts.store.get(key)
        sync = self.wanted(host) if host is not None else None
        if sync is None:
            self._done.pop(key, None)
            return None
        if self._done.get(key) == sync:
            return None
        async with self._clusters.client(sync.namespace, f"{sync.cluster}-kubeconfig") as client:
            if isinstance(client, Unavailable):
                log.info("labels wait for their cluster", host=key, why=client.why)
                return AGAIN_SECONDS
            try:
                await self._write(client, sync, key)
            except (ApiError, Unreachable) as error:
                log.info("labels wait for their node", host=key, why=str(error))
                return AGAIN_SECONDS
        self._done[key] = sync
        return None

    async def _write(self, client: Client, sync: Sync, host: str) -> None:
        node = await client.get(NODE, sync.node, type=Node)
        change = label_change(sync.prefixes, dict(sync.labels), node.metadata.labels)
        if change:
            body = {"metadata": {"labels": change}}
            why = f"the labels of host {host}"
            await self._writer_for(client).patch(NODE, sync.node, body, type=Object, why=why)

    def wanted(self, host: BareMetalHost) -> Sync | None:
        """None where no labels are asked for, or the host is no node yet."""
        caches, namespace = self._caches, host.metadata.namespace
        machine = caches.machines.store.get(consumer_key(host))
        owner = caches.capi_machines.store.get(owner_key(machine.metadata, "Machine")) if machine is not None else None
        if (
            machine is None
            or owner is None
            or not owner.status.node_ref.name
            or names.PAUSED in host.metadata.annotations
        ):
            return None
        cluster = caches.capi_clusters.store.get(names.key(namespace, cluster_of(machine, owner)))
        if cluster is None or cluster.spec.paused:
            return None
        metal = caches.clusters.store.get(names.key(namespace, cluster.spec.infrastructure_ref.name))
        asked = metal.metadata.annotations.get(names.LABEL_PREFIXES) if metal is not None else None
        if asked is None:
            return None
        try:
            prefixes = prefixes_of(asked)
        except ValueError:
            return None  # the Metal3Cluster says so in its condition
        labels = tuple(sorted(synced_labels(prefixes, host.metadata.labels).items()))
        return Sync(namespace, cluster.metadata.name, owner.status.node_ref.name, prefixes, labels)
