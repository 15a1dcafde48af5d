"""Cluster API's objects, with just the fields we use, and their kinds. Pure."""

from __future__ import annotations

import msgspec

from hostler.kube.kinds import Kind
from hostler.kube.records import CONTROL_PLANE, Condition, Metadata, Node, NodeAddress, Record, share

GROUP = "cluster.x-k8s.io"
IPAM_GROUP = "ipam.cluster.x-k8s.io"

MACHINE = Kind(GROUP, "v1beta2", "machines", "Machine", True)
CLUSTER = Kind(GROUP, "v1beta2", "clusters", "Cluster", True)
MACHINE_SET = Kind(GROUP, "v1beta2", "machinesets", "MachineSet", True)
MACHINE_DEPLOYMENT = Kind(GROUP, "v1beta2", "machinedeployments", "MachineDeployment", True)
KUBEADM_CONTROL_PLANE = Kind(
    "controlplane.cluster.x-k8s.io", "v1beta2", "kubeadmcontrolplanes", "KubeadmControlPlane", True
)
IP_ADDRESS_CLAIM = Kind(IPAM_GROUP, "v1beta2", "ipaddressclaims", "IPAddressClaim", True)
IP_ADDRESS = Kind(IPAM_GROUP, "v1beta2", "ipaddresses", "IPAddress", True)

# Where v1beta2 is not served (Cluster API before 1.11); what we read is the same in both.
OLDER = ("v1beta1",)

# On the objects of a cluster, and on the nodes of one that Cluster API created (with the second).
CLUSTER_NAME, CLUSTER_NAMESPACE = "cluster.x-k8s.io/cluster-name", "cluster.x-k8s.io/cluster-namespace"
PAUSED = "cluster.x-k8s.io/paused"


class ContractReference(Record, frozen=True):
    kind: str = ""
    name: str = ""


class Bootstrap(Record, frozen=True):
    data_secret_name: str = ""
    config_ref: ContractReference = ContractReference()


class MachineSpec(Record, frozen=True):
    cluster_name: str = ""
    failure_domain: str = ""
    provider_id: str = msgspec.field(default="", name="providerID")
    bootstrap: Bootstrap = Bootstrap()


class MachineStatus(Record, frozen=True):
    node_ref: ContractReference = ContractReference()


class Machine(Record, frozen=True):
    metadata: Metadata = Metadata()
    spec: MachineSpec = MachineSpec()
    status: MachineStatus = MachineStatus()

    def __post_init__(self) -> None:
        share(self.metadata, "namespace", "finalizers")

    @property
    def node(self) -> str:
        return self.status.node_ref.name

    @property
    def cluster(self) -> str:
        """NAMESPACE/NAME of its Cluster."""
        return f"{self.metadata.namespace}/{self.spec.cluster_name}"


class MachineDetails(MachineStatus, frozen=True):
    addresses: tuple[NodeAddress, ...] = ()
    conditions: tuple[Condition, ...] = ()


class DetailedMachine(Machine, frozen=True):
    """A Machine with its addresses and conditions. Only join reads them, and they are three quarters of its size."""

    status: MachineDetails = MachineDetails()


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


def group_of(api_version: str) -> str:
    """`a.b/v1` is of group `a.b`; the version may change under us and does not count."""
    return api_version.rpartition("/")[0]


def cluster_of_node(node: Node) -> str:
    """NAMESPACE/NAME of the Cluster that this Node is of, as Cluster API wrote it; "" where it says nothing.

    Only of the control plane: any kubelet writes annotations of its own Node, and no kubelet writes that label.
    """
    said = node.metadata.annotations
    if not any(label in node.metadata.labels for label in CONTROL_PLANE) or not said.get(CLUSTER_NAME):
        return ""
    return f"{said.get(CLUSTER_NAMESPACE, '')}/{said[CLUSTER_NAME]}"
