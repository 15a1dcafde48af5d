"""The objects of Cluster API, with just the fields we use. Pure."""

from __future__ import annotations

from hostler.kube.records import Metadata, Record
from hostler.metal.model import Metal3Machine, share
from hostler.metal.names import CLUSTER_NAME


class ContractReference(Record, frozen=True):
    kind: str = ""
    name: str = ""


class Bootstrap(Record, frozen=True):
    data_secret_name: str = ""
    config_ref: ContractReference = ContractReference()


class CapiMachineSpec(Record, frozen=True):
    cluster_name: str = ""
    failure_domain: str = ""
    bootstrap: Bootstrap = Bootstrap()


class CapiMachineStatus(Record, frozen=True):
    node_ref: ContractReference = ContractReference()


class Machine(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: CapiMachineSpec = CapiMachineSpec()
    status: CapiMachineStatus = CapiMachineStatus()

    def __post_init__(self) -> None:
        share(self.metadata, "namespace", "finalizers")


class ClonedSpec(Record, frozen=True):
    infrastructure_ref: ContractReference = ContractReference()


class Cloned(Record, frozen=True):
    """What machines are made from."""

    spec: ClonedSpec = ClonedSpec()


class MachineSetSpec(Record, frozen=True):
    template: Cloned = Cloned()


class MachineSet(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: MachineSetSpec = MachineSetSpec()

    @property
    def infrastructure(self) -> ContractReference:
        return self.spec.template.spec.infrastructure_ref


class ControlPlaneSpec(Record, frozen=True):
    machine_template: Cloned = Cloned()


class ControlPlane(Record, frozen=True):
    """A KubeadmControlPlane."""

    metadata: Metadata = Metadata()
    spec: ControlPlaneSpec = ControlPlaneSpec()

    @property
    def infrastructure(self) -> ContractReference:
        return self.spec.machine_template.spec.infrastructure_ref


class ClusterSpec(Record, frozen=True):
    paused: bool = False
    control_plane_ref: ContractReference = ContractReference()
    infrastructure_ref: ContractReference = ContractReference()


class ClusterInitialization(Record, frozen=True):
    infrastructure_provisioned: bool = False


class ClusterStatus(Record, frozen=True):
    initialization: ClusterInitialization = ClusterInitialization()


class Cluster(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: ClusterSpec = ClusterSpec()
    status: ClusterStatus = ClusterStatus()


def cluster_of(machine: Metal3Machine, owner: Machine | None) -> str:
    """The name of the cluster a Metal3Machine belongs to."""
    return (owner.spec.cluster_name if owner is not None else "") or machine.metadata.labels.get(CLUSTER_NAME, "")
