"""The node of a machine in its own cluster: by its provider id, else by the host's uid or name.

A host that was moved or restored has another uid, and its node still carries the label of the old one. The provider id
is what stays: Cluster API moves it along in the spec of the machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from hostler.apis.metal3 import BareMetalHost, Metal3Machine
from hostler.kube.client import Client
from hostler.kube.clusters import Clusters, Unavailable
from hostler.kube.foreign import FAILURES, describe_failure
from hostler.kube.kinds import NODE
from hostler.kube.records import Node
from hostler.kube.writer import Writer
from hostler.metal import names
from hostler.metal.model import NodeSeen
from hostler.metal.provisioning import provider_ids

# Machines of one cluster that look within so long share one list of its nodes.
SHARED_SECONDS = 1.0
FOREIGN_TEXT = 128  # characters of a workload cluster's own text in a condition
log = structlog.get_logger("hostler.metal")


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


class Nodes:
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
