"""Tells a Cluster API Machine in this cluster that its node is in maintenance, so that no health check deletes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import structlog

from hostler.apis.capi import MACHINE, OLDER, Machine
from hostler.kube.client import Client
from hostler.kube.errors import ApiError, Forbidden, NotFound
from hostler.kube.records import Object
from hostler.kube.writer import Writer
from hostler.maintenance.decision import SKIP_REMEDIATION

log = structlog.get_logger("hostler.maintenance")

KINDS = (MACHINE, *(replace(MACHINE, version=version) for version in OLDER))
TRIES = 3  # then it goes on without the Machine
OURS = "hostler.dev/maintenance-of"  # on the Machine: the annotation beside it is ours, for this node


class Machines:
    def __init__(self, client: Client, writer: Writer) -> None:
        self._client, self._writer = client, writer
        self._said: set[str] = set()
        self._tries: dict[str, int] = {}
        self.elsewhere: set[str] = set()  # Machines that are not in this cluster

    async def tell(self, machine: str, node: str, why: str) -> None:
        """Before the first eviction. A Machine that is not here is its owner's to pause; one that is told stays so."""
        await self._write(machine, node, why, _telling)

    async def release(self, machine: str, node: str, why: str) -> None:
        """Take back what is ours; what its owner has set stays."""
        await self._write(machine, node, why, _releasing)

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
                self._warn(f"Machine {machine} of {node} cannot be told of the maintenance: {error}.")
                return
            except ApiError as error:
                # A webhook of Cluster API that is down must keep no node cordoned, nor a maintenance from going on.
                self._tries[machine] = self._tries.get(machine, 0) + 1
                if self._tries[machine] < TRIES:
                    raise
                del self._tries[machine]
                self._warn(
                    f"Machine {machine} of {node} could not be written: {error}. If it carries {OURS} when the "
                    f"maintenance is over, remove that annotation and {SKIP_REMEDIATION}."
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


def _telling(machine: Machine, node: str) -> dict[str, str | None]:
    """Nothing where it is another node's, or where its owner has said it."""
    if machine.node != node or SKIP_REMEDIATION in machine.metadata.annotations:
        return {}
    return {SKIP_REMEDIATION: "", OURS: node}


def _releasing(machine: Machine, node: str) -> dict[str, str | None]:
    if machine.metadata.annotations.get(OURS) != node:
        return {}
    return {SKIP_REMEDIATION: None, OURS: None}
