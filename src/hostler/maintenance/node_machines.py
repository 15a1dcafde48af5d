"""Which providerID the Machine of a Node has, by Cluster API or by OpenShift, where their kinds are served.

A user who may write Machines may delete the VM behind one. A kubelet may not write them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from hostler.apis import capi, openshift
from hostler.kube.cache import Unread
from hostler.kube.client import Client
from hostler.kube.clock import Clock, boottime
from hostler.kube.metrics import Metrics
from hostler.kube.watch import Watch

OPENSHIFT_NAMESPACE = "openshift-machine-api"  # its controllers look after no Machine elsewhere
BY_NODE = "node"
READ_SECONDS = 60.0  # since the start
NodeMachine: TypeAlias = capi.Machine | openshift.Machine


class NodeMachines:
    """The Machines in this cluster, found by the Node they are."""

    def __init__(self, client: Client, metrics: Metrics, clock: Clock = boottime) -> None:
        self._clock, self._began = clock, clock()
        by_node = {BY_NODE: _node_of}
        # Optional: where they cannot be read (no right, a broken conversion webhook), other evidence proves a node.
        self._cluster_api = Watch(
            client, capi.MACHINE, capi.Machine, metrics=metrics, versions=capi.OLDER, indexes=by_node, optional=True
        )
        self._openshift = Watch(
            client, openshift.MACHINE, openshift.Machine, metrics=metrics, namespace=OPENSHIFT_NAMESPACE,
            indexes=by_node, optional=True,
        )  # fmt: skip

    def watches(self) -> Iterator[Watch[Any]]:
        yield self._cluster_api
        yield self._openshift

    def listen(self, changed: Callable[[frozenset[str]], None]) -> None:
        """`changed` gets the Nodes of a Machine that names another Node, Cluster or VM than before."""

        def look(_: str, before: NodeMachine | None, after: NodeMachine | None) -> None:
            said = [
                (one.node, _cluster_of(one), one.spec.provider_id) if one is not None else None
                for one in (before, after)
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
        found: list[NodeMachine] = [*own, *self._openshift.store.by(BY_NODE, node)]
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


def _cluster_of(machine: NodeMachine) -> str:
    return machine.cluster if isinstance(machine, capi.Machine) else ""
