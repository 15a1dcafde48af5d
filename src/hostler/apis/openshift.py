"""OpenShift's objects, with just the fields we use, and their kinds. Pure.

The published CRDs of `github.com/openshift/api` are what they are read from.
"""

from __future__ import annotations

import msgspec

from hostler.kube.kinds import Kind
from hostler.kube.records import Condition, Metadata, NodeAddress, Record

MACHINE = Kind("machine.openshift.io", "v1beta1", "machines", "Machine", True)


# -- machines


class NodeReference(Record, frozen=True):
    name: str = ""


class MachineSpec(Record, frozen=True):
    provider_id: str = msgspec.field(default="", name="providerID")


class MachineStatus(Record, frozen=True):
    addresses: tuple[NodeAddress, ...] = ()
    conditions: tuple[Condition, ...] = ()
    node_ref: NodeReference = NodeReference()


class Machine(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: MachineSpec = MachineSpec()
    status: MachineStatus = MachineStatus()

    @property
    def node(self) -> str:
        return self.status.node_ref.name
