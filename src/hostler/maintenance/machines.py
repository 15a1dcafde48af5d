"""Machines of our nodes, by Cluster API or by OpenShift: which VM they prove, and the annotation that keeps them.

A user who may write Machines may delete the VM behind one. A kubelet may not write them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import structlog

from hostler.apis import capi, openshift
from hostler.apis.capi import MACHINE, OLDER, Machine
from hostler.kube.cache import Unread
from hostler.kube.client import Client
from hostler.kube.clock import Clock, boottime
from hostler.kube.errors import ApiError, Forbidden, NotFound
from hostler.kube.metrics import Metrics
from hostler.kube.records import Object
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from hostler.maintenance.decision import SKIP_REMEDIATION

OPENSHIFT_NAMESPACE = "openshift-machine-api"  # its controllers manage no Machine elsewhere
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
                (machine.node, _cluster_of(machine), machine.spec.provider_id) if machine is not None else None
                for machine in (before, after)
            ]
            nodes = frozenset(machine.node for machine in (before, after) if machine is not None and machine.node)
            if said[0] != said[1] and nodes:
                changed(nodes)

        for watch in self.watches():
            watch.store.listen(look)

    def provider_ids(self, node: str, clusters: frozenset[str]) -> list[str]:
        """Of the Machines that are this Node. `clusters`: how Cluster API names this one; a hub has others' Machines.

        OpenShift's Machines are always of their own cluster.
        """
        own = [machine for machine in self._cluster_api.store.by(BY_NODE, node) if machine.cluster in clusters]
        found: list[NodeMachine] = [*own, *self._openshift.store.by(BY_NODE, node)]
        return sorted(machine.spec.provider_id for machine in found if machine.spec.provider_id)

    def unread(self) -> str:
        """Why nothing is decided before the Machines are read; "" where they are, or cannot be.

        A stream that is cut again and again holds nothing back for longer than READ_SECONDS: without Machines the
        evidence for a Node is only weaker.
        """
        if self._clock() - self._began >= READ_SECONDS:
            return ""
        waiting = (
            watch for watch in self.watches() if not watch.absent and not watch.store.synced and not watch.problem
        )
        return next((str(Unread(watch.kind)) for watch in waiting), "")


def _node_of(machine: NodeMachine) -> tuple[str, ...]:
    return (machine.node,) if machine.node else ()


def _cluster_of(machine: NodeMachine) -> str:
    return machine.cluster if isinstance(machine, capi.Machine) else ""


# -- telling a Cluster API Machine in this cluster that its node is in maintenance, so that no health check deletes it

log = structlog.get_logger("hostler.maintenance")

KINDS = (MACHINE, *(replace(MACHINE, version=version) for version in OLDER))
TRIES = 3  # then it goes on without the Machine
MAINTENANCE_OF = "hostler.dev/maintenance-of"  # on the Machine: the annotation beside it is ours, for this node


class Machines:
    def __init__(self, client: Client, writer: Writer) -> None:
        self._client, self._writer = client, writer
        self._said: set[str] = set()
        self._tries: dict[str, int] = {}
        self.elsewhere: set[str] = set()  # Machines that are not in this cluster

    async def tell(self, machine: str, node: str, why: str) -> None:
        """Before the first eviction. A Machine that is not here is its owner's to pause; an annotated one stays so."""
        await self._write(machine, node, why, _skip_annotations)

    async def release(self, machine: str, node: str, why: str) -> None:
        """Take back what is ours; what its owner has set stays."""
        await self._write(machine, node, why, _release_annotations)

    async def _write(
        self, machine: str, node: str, why: str, wanted: Callable[[Machine, str], dict[str, str | None]]
    ) -> None:
        namespace, _, name = machine.partition("/")
        for kind in KINDS:
            try:
                found = await self._client.get(kind, name, namespace, type=Machine)
                annotations = wanted(found, node)
                if annotations:
                    version = found.metadata.resource_version
                    body = {"metadata": {"resourceVersion": version, "annotations": annotations}}
                    await self._writer.patch(kind, name, body, namespace, type=Object, why=why)
                return
            except NotFound:
                continue
            except Forbidden as error:
                self._warn(f"Cannot annotate Machine {machine} of {node} for its maintenance: {error}.")
                return
            except ApiError as error:
                # A webhook of Cluster API that is down must keep no node cordoned, nor a maintenance from going on.
                self._tries[machine] = self._tries.get(machine, 0) + 1
                if self._tries[machine] < TRIES:
                    raise
                del self._tries[machine]
                self._warn(
                    f"Machine {machine} of {node} could not be written: {error}. If it carries {MAINTENANCE_OF} when "
                    f"the maintenance is over, remove that annotation and {SKIP_REMEDIATION}."
                )
                return
        self.elsewhere.add(machine)
        self._warn(
            f"Machine {machine} of {node} is not in this cluster: where a MachineHealthCheck watches it, its owner "
            f"must annotate it with {SKIP_REMEDIATION}."
        )

    def _warn(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            log.warning(sentence)


def _skip_annotations(machine: Machine, node: str) -> dict[str, str | None]:
    """Nothing where it is another node's, or where its owner has said it."""
    if machine.node != node or SKIP_REMEDIATION in machine.metadata.annotations:
        return {}
    return {SKIP_REMEDIATION: "", MAINTENANCE_OF: node}


def _release_annotations(machine: Machine, node: str) -> dict[str, str | None]:
    if machine.metadata.annotations.get(MAINTENANCE_OF) != node:
        return {}
    return {SKIP_REMEDIATION: None, MAINTENANCE_OF: None}
