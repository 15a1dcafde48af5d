"""The node of a machine in its own cluster: found, and labelled as its host is.

It is found by its provider id, else by the host's uid or name. A host that was moved or restored has another uid, and
its node still carries the label of the old one. The provider id is what stays: Cluster API moves it along in the spec
of the machine.

The Go provider asks every node once a minute for its labels. Here a node is asked when something changed on our side:
the host's labels, the prefixes on the Metal3Cluster, or which node the machine is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from hostler.apis.metal3 import BareMetalHost, Metal3Machine
from hostler.kube.client import Client
from hostler.kube.clusters import Clusters, Unavailable
from hostler.kube.errors import ApiError, Unreachable
from hostler.kube.foreign import FAILURES, describe_failure
from hostler.kube.kinds import NODE
from hostler.kube.records import Node, Object
from hostler.kube.writer import Writer
from hostler.metal import names
from hostler.metal.caches import UNREAD_SECONDS
from hostler.metal.model import NodeSeen, cluster_of, consumer_key, owner_key
from hostler.metal.provisioning import provider_ids
from hostler.metal.toolbox import Toolbox
from hostler.selectors import is_label_prefix

log = structlog.get_logger("hostler.metal")

# Machines of one cluster that look within so long share one list of its nodes.
SHARED_SECONDS = 1.0
AGAIN_SECONDS = 30.0  # a cluster that could not be asked for a node to label is asked again
FOREIGN_TEXT = 128  # characters of a workload cluster's own text in a condition


def find_node(
    nodes: Sequence[Node], machine: Metal3Machine, host: BareMetalHost, *, cloud_provider: bool
) -> Node | str:
    """The node of this machine among those of its cluster, or a sentence why there is none. Pure."""
    own, uid = machine.spec.provider_id, host.metadata.uid
    ids = (own,) if own else provider_ids(machine, host)
    for wanted in ids:
        if found := [node for node in nodes if node.spec.provider_id == wanted]:
            return found[0] if len(found) == 1 else f"several nodes carry provider id {wanted}: {_listed(found)}."
    found = [node for node in nodes if node.metadata.labels.get(names.NODE_UUID) == uid]
    if len(found) > 1:
        return f"several nodes carry label {names.NODE_UUID}={uid}: {_listed(found)}."
    hostname = host.status.hardware.hostname if host.status.hardware is not None else ""
    if not found and hostname and not cloud_provider:
        # By the name the inspection found; only a node that is nobody's yet.
        found = [
            node for node in nodes if node.metadata.name == hostname and names.NODE_UUID not in node.metadata.labels
        ]
    if not found:
        looked_for = f"provider id {own}" if own else f"label {names.NODE_UUID}={uid}"
        return f"no node with {looked_for} has come up yet."
    (node,) = found
    if node.spec.provider_id:
        foreign = node.spec.provider_id[:FOREIGN_TEXT]
        return f"node {node.metadata.name} carries provider id {foreign!r}, which is not this machine's."
    if cloud_provider:
        return f"the cloud provider has not given node {node.metadata.name} its provider id yet."
    return node


def _listed(nodes: Sequence[Node]) -> str:
    return ", ".join(sorted(node.metadata.name for node in nodes)[:5])


class NodeFinder:
    """Asks workload clusters through their kubeconfig secrets: one list per cluster and look."""

    def __init__(self, clusters: Clusters, writer_for: Callable[[Client], Writer]) -> None:
        self._clusters, self._writer_for = clusters, writer_for
        self._asked: dict[str, asyncio.Task[list[Node] | Unavailable]] = {}  # each cluster: under way, or a moment ago

    async def find(
        self, machine: Metal3Machine, host: BareMetalHost, cluster: str, *, cloud_provider: bool
    ) -> NodeSeen:
        """Find the node and see to it that it carries its provider id."""
        namespace, secret = machine.metadata.namespace, f"{cluster}-kubeconfig"
        try:
            nodes = await self._list(namespace, secret)
            if isinstance(nodes, Unavailable):
                return _unasked(nodes)
            node = find_node(nodes, machine, host, cloud_provider=cloud_provider)
            if isinstance(node, str):
                return NodeSeen(why=node)
            if not node.spec.provider_id:
                async with self._clusters.client(namespace, secret) as client:
                    if isinstance(client, Unavailable):
                        return _unasked(client)
                    await self._give_id(client, node, machine, host)
        except FAILURES as error:
            log.info(
                "a workload cluster could not be asked", cluster=names.key(namespace, cluster), why=str(error)[:300]
            )
            return NodeSeen(why=f"its cluster could not be asked for the node: {describe_failure(error)}.")
        return NodeSeen(node.metadata.name, node.spec.provider_id or _id_to_give(machine, host))

    async def _list(self, namespace: str, secret: str) -> list[Node] | Unavailable:
        """Machines that look at the same moment share one list and its outcome, a failure too.

        A thousand machines that come up must not list a thousand nodes each, nor wait one after the other for a
        cluster that does not answer.
        """
        key = names.key(namespace, secret)
        if key not in self._asked:
            self._asked[key] = asyncio.create_task(self._ask(namespace, secret))
            self._asked[key].add_done_callback(lambda task: self._answered(key, task))
        return await asyncio.shield(self._asked[key])  # who is stopped must not stop the others' list

    async def _ask(self, namespace: str, secret: str) -> list[Node] | Unavailable:
        async with self._clusters.client(namespace, secret) as client:
            return client if isinstance(client, Unavailable) else await client.list(NODE, type=Node)

    def _answered(self, key: str, task: asyncio.Task[list[Node] | Unavailable]) -> None:
        if not task.cancelled():
            task.exception()  # else asyncio complains of a failure for which nobody waits any more
        asyncio.get_running_loop().call_later(SHARED_SECONDS, self._asked.pop, key, None)

    async def _give_id(self, client: Client, node: Node, machine: Metal3Machine, host: BareMetalHost) -> None:
        body = {"spec": {"providerID": _id_to_give(machine, host)}}
        why = f"it is Metal3Machine {machine.metadata.namespace}/{machine.metadata.name}"
        await self._writer_for(client).patch(NODE, node.metadata.name, body, type=Node, why=why)


def _unasked(cluster: Unavailable) -> NodeSeen:
    return NodeSeen(why=f"its cluster cannot be asked for the node: {cluster.discreet or cluster.why}")


def _id_to_give(machine: Metal3Machine, host: BareMetalHost) -> str:
    return machine.spec.provider_id or provider_ids(machine, host)[0]


# -- labels of hosts on their nodes


def read_prefixes(text: str) -> frozenset[str]:
    """The prefixes of the annotation; raises ValueError with a sentence for one that cannot be one."""
    found = frozenset(part for one in text.split(",") if (part := one.strip()))
    for one in sorted(found):
        if not is_label_prefix(one):
            raise ValueError(f"annotation {names.LABEL_PREFIXES} names {one!r}, which is no prefix of a label")
    return found


def select_labels(prefixes: frozenset[str], labels: Mapping[str, str]) -> dict[str, str]:
    """Those of the labels whose prefix is among these."""
    return {key: value for key, value in labels.items() if "/" in key and key.partition("/")[0] in prefixes}


def label_change(prefixes: frozenset[str], wanted: Mapping[str, str], has: Mapping[str, str]) -> dict[str, str | None]:
    """What is to change on a node with labels `has`: only differences, and only labels of these prefixes."""
    change: dict[str, str | None] = {key: None for key in select_labels(prefixes, has) if key not in wanted}
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


class LabelReconciler:
    """Reconciles the labels of one host per call."""

    def __init__(self, tools: Toolbox) -> None:
        self._caches, self._clusters, self._writer_for = tools.caches, tools.clusters, tools.writer_for
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
            prefixes = read_prefixes(asked)
        except ValueError:
            return None  # the Metal3Cluster says so in its condition
        labels = tuple(sorted(select_labels(prefixes, host.metadata.labels).items()))
        return Sync(namespace, cluster.metadata.name, owner.status.node_ref.name, prefixes, labels)
