"""Which providerID the Machine of a Node has, by Cluster API or by OpenShift, where their kinds are served.

A user who may write Machines may delete the VM behind one. A kubelet may not write them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from hostler.kube.cache import Unread
from hostler.kube.client import Client
from hostler.kube.clock import Clock, boottime
from hostler.kube.kinds import Kind
from hostler.kube.metrics import Metrics
from hostler.kube.records import Metadata, Node, Record
from hostler.kube.watch import Watch

CLUSTER_API = Kind("cluster.x-k8s.io", "v1beta2", "machines", "Machine", True)
OLDER = ("v1beta1",)  # Cluster API before 1.11; what we read is the same in both
OPENSHIFT = Kind("machine.openshift.io", "v1beta1", "machines", "Machine", True)
OPENSHIFT_NAMESPACE = "openshift-machine-api"  # its controllers look after no Machine elsewhere
CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_CLUSTER, _NAMESPACE = "cluster.x-k8s.io/cluster-name", "cluster.x-k8s.io/cluster-namespace"
BY_NODE = "node"
READ_SECONDS = 60.0  # since the start


class NodeReference(Record, frozen=True):
    name: str = ""


class MachineSpec(Record, frozen=True):
    cluster_name: str = ""
    provider_id: str = msgspec.field(default="", name="providerID")


class MachineStatus(Record, frozen=True):
    node_ref: NodeReference | None = None


class NodeMachine(Record, frozen=True):
    """A Machine, as far as it says which Node it is and which VM."""

    metadata: Metadata = Metadata()
    spec: MachineSpec = MachineSpec()
    status: MachineStatus = MachineStatus()

    @property
    def node(self) -> str:
        return self.status.node_ref.name if self.status.node_ref is not None else ""

    @property
    def cluster(self) -> str:
        """NAMESPACE/NAME of its Cluster."""
        return f"{self.metadata.namespace}/{self.spec.cluster_name}"


def cluster_api_cluster(node: Node) -> str:
    """NAMESPACE/NAME of the Cluster that this Node is of, as Cluster API wrote it; "" where it says nothing.

    Only of the control plane: any kubelet writes annotations of its own Node, and no kubelet writes that label.
    """
    said = node.metadata.annotations
    if not any(label in node.metadata.labels for label in CONTROL_PLANE) or not said.get(_CLUSTER):
        return ""
    return f"{said.get(_NAMESPACE, '')}/{said[_CLUSTER]}"


class NodeMachines:
    """The Machines in this cluster, found by the Node they are."""

    def __init__(self, client: Client, metrics: Metrics, clock: Clock = boottime) -> None:
        self._clock, self._began = clock, clock()
        by_node = {BY_NODE: _node_of}
        # Optional: where they cannot be read (no right, a broken conversion webhook), other evidence proves a node.
        self._cluster_api = Watch(
            client, CLUSTER_API, NodeMachine, metrics=metrics, versions=OLDER, indexes=by_node, optional=True
        )
        self._openshift = Watch(
            client, OPENSHIFT, NodeMachine, metrics=metrics, namespace=OPENSHIFT_NAMESPACE, indexes=by_node,
            optional=True,
        )  # fmt: skip

    def watches(self) -> Iterator[Watch[Any]]:
        yield self._cluster_api
        yield self._openshift

    def listen(self, changed: Callable[[frozenset[str]], None]) -> None:
        """`changed` gets the Nodes of a Machine that names another Node, Cluster or VM than before."""

        def look(_: str, before: NodeMachine | None, after: NodeMachine | None) -> None:
            said = [
                (one.node, one.cluster, one.spec.provider_id) if one is not None else None for one in (before, after)
            ]
            nodes = frozenset(one.node for one in (before, after) if one is not None and one.node)
            if said[0] != said[1] and nodes:
                changed(nodes)

        for watch in self.watches():
            watch.store.listen(look)

    def provider_ids(self, node: str, clusters: frozenset[str]) -> list[str]:
        """Of the Machines that are this Node. `clusters`: how Cluster API names this one; a hub has others' Machines.

        OpenShift's Machines are always of their own cluster.
        """
        own = [one for one in self._cluster_api.store.by(BY_NODE, node) if one.cluster in clusters]
        found = [*own, *self._openshift.store.by(BY_NODE, node)]
        return sorted(one.spec.provider_id for one in found if one.spec.provider_id)

    def unread(self) -> str:
        """Why nothing is decided before the Machines are read; "" where they are, or cannot be.

        A stream that is cut again and again holds nothing back for longer than READ_SECONDS: without Machines the
        evidence for a Node is only weaker.
        """
        if self._clock() - self._began >= READ_SECONDS:
            return ""
        waiting = (one for one in self.watches() if not one.absent and not one.store.synced and not one.problem)
        return next((str(Unread(one.kind)) for one in waiting), "")


def _node_of(machine: NodeMachine) -> tuple[str, ...]:
    return (machine.node,) if machine.node else ()
