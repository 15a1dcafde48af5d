"""The node of a machine in its own cluster: found by the host's uid, by the cloud provider's id, or by its name."""

from __future__ import annotations

from collections.abc import Callable

from hostler.kube.client import Client
from hostler.kube.clusters import Clusters, Unavailable
from hostler.kube.errors import ApiError, NotFound, Unreachable
from hostler.kube.kinds import NODE
from hostler.kube.records import Node
from hostler.kube.writer import Writer
from hostler.metal import names
from hostler.metal.decide import NodeSeen
from hostler.metal.model import Host, Metal3Machine


def provider_ids(machine: Metal3Machine, host: Host) -> tuple[str, str]:
    """The provider id as it is written now, and as it was written before."""
    meta = machine.metadata
    return f"metal3://{meta.namespace}/{host.metadata.name}/{meta.name}", f"metal3://{host.metadata.uid}"


class Nodes:
    """Asks workload clusters through their kubeconfig secrets, one request per look."""

    def __init__(self, clusters: Clusters, writer_for: Callable[[Client], Writer]) -> None:
        self._clusters, self._writer_for = clusters, writer_for

    async def find(self, machine: Metal3Machine, host: Host, cluster: str, *, cloud_provider: bool) -> NodeSeen:
        """Find the node and see to it that it carries its provider id."""
        secret = f"{cluster}-kubeconfig"
        async with self._clusters.client(machine.metadata.namespace, secret) as client:
            if isinstance(client, Unavailable):
                return NodeSeen(why=f"its cluster cannot be asked for the node: {client.why}")
            try:
                return await self._find(client, machine, host, cloud_provider)
            except (ApiError, Unreachable) as error:
                return NodeSeen(why=f"its cluster could not be asked for the node: {error}.")

    async def _find(self, client: Client, machine: Metal3Machine, host: Host, cloud_provider: bool) -> NodeSeen:
        current, legacy = provider_ids(machine, host)
        found = await client.list(NODE, type=Node, labels=f"{names.NODE_UUID}={host.metadata.uid}")
        if len(found) > 1:
            several = ", ".join(sorted(node.metadata.name for node in found)[:5])
            return NodeSeen(why=f"several nodes carry label {names.NODE_UUID}={host.metadata.uid}: {several}.")
        if not found and cloud_provider:
            found = [one for one in await client.list(NODE, type=Node) if one.spec.provider_id in (current, legacy)]
        if not found and not cloud_provider:
            found = await self._by_name(client, host)
        if not found:
            return NodeSeen(why=f"no node with label {names.NODE_UUID}={host.metadata.uid} has come up yet.")
        node = found[0]
        has = node.spec.provider_id
        if has in (current, legacy):
            return NodeSeen(node.metadata.name, has)
        if has:
            return NodeSeen(why=f"node {node.metadata.name} carries provider id {has}, which is not this machine's.")
        if cloud_provider:
            return NodeSeen(why=f"the cloud provider has not given node {node.metadata.name} its provider id yet.")
        body = {"spec": {"providerID": current}}
        why = f"it is Metal3Machine {machine.metadata.namespace}/{machine.metadata.name}"
        await self._writer_for(client).patch(NODE, node.metadata.name, body, type=Node, why=why)
        return NodeSeen(node.metadata.name, current)

    async def _by_name(self, client: Client, host: Host) -> list[Node]:
        """By the name the inspection found; only a node that is nobody's yet."""
        hostname = host.status.hardware.hostname if host.status.hardware is not None else ""
        if not hostname:
            return []
        try:
            node = await client.get(NODE, hostname, type=Node)
        except NotFound:
            return []
        return [node] if names.NODE_UUID not in node.metadata.labels else []
