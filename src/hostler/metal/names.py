"""The names Metal3 and Cluster API give to things: kinds, labels, annotations, finalizers, conditions. Pure."""

from __future__ import annotations

from hashlib import sha256

from hostler.host.taints import OUT_OF_SERVICE_BY
from hostler.kube.kinds import Kind

INFRASTRUCTURE = "infrastructure.cluster.x-k8s.io"
CLUSTER_API = "cluster.x-k8s.io"
METAL3_IPAM = "ipam.metal3.io"
CAPI_IPAM = "ipam.cluster.x-k8s.io"

HOST = Kind("metal3.io", "v1alpha1", "baremetalhosts", "BareMetalHost", True)
METAL3_MACHINE = Kind(INFRASTRUCTURE, "v1beta2", "metal3machines", "Metal3Machine", True)
METAL3_CLUSTER = Kind(INFRASTRUCTURE, "v1beta2", "metal3clusters", "Metal3Cluster", True)
METAL3_MACHINE_TEMPLATE = Kind(INFRASTRUCTURE, "v1beta2", "metal3machinetemplates", "Metal3MachineTemplate", True)
METAL3_DATA_TEMPLATE = Kind(INFRASTRUCTURE, "v1beta2", "metal3datatemplates", "Metal3DataTemplate", True)
METAL3_DATA_CLAIM = Kind(INFRASTRUCTURE, "v1beta2", "metal3dataclaims", "Metal3DataClaim", True)
METAL3_DATA = Kind(INFRASTRUCTURE, "v1beta2", "metal3datas", "Metal3Data", True)
METAL3_REMEDIATION = Kind(INFRASTRUCTURE, "v1beta2", "metal3remediations", "Metal3Remediation", True)
MACHINE = Kind(CLUSTER_API, "v1beta2", "machines", "Machine", True)
CLUSTER = Kind(CLUSTER_API, "v1beta2", "clusters", "Cluster", True)
MACHINE_SET = Kind(CLUSTER_API, "v1beta2", "machinesets", "MachineSet", True)
MACHINE_DEPLOYMENT = Kind(CLUSTER_API, "v1beta2", "machinedeployments", "MachineDeployment", True)
KUBEADM_CONTROL_PLANE = Kind(
    "controlplane.cluster.x-k8s.io", "v1beta2", "kubeadmcontrolplanes", "KubeadmControlPlane", True
)
METAL3_IP_CLAIM = Kind(METAL3_IPAM, "v1alpha1", "ipclaims", "IPClaim", True)
METAL3_IP_ADDRESS = Kind(METAL3_IPAM, "v1alpha1", "ipaddresses", "IPAddress", True)
IP_ADDRESS_CLAIM = Kind(CAPI_IPAM, "v1beta2", "ipaddressclaims", "IPAddressClaim", True)
IP_ADDRESS = Kind(CAPI_IPAM, "v1beta2", "ipaddresses", "IPAddress", True)

HOST_ANNOTATION = "metal3.io/BareMetalHost"  # on a Metal3Machine: the host it wants, then has
PAUSED = "baremetalhost.metal3.io/paused"  # on a host; whose pause it is says its value
OUR_PAUSE = "metal3.io/capm3"
STATUS_ANNOTATION = "baremetalhost.metal3.io/status"
DETACHED = "baremetalhost.metal3.io/detached"
BLOCK_MOVE = "clusterctl.cluster.x-k8s.io/block-move"  # `clusterctl move` waits while an object carries it
MOVE_HIERARCHY = "clusterctl.cluster.x-k8s.io/move-hierarchy"  # label: moved along, with all that it owns
DELETE_FOR_MOVE = "clusterctl.cluster.x-k8s.io/delete-for-move"  # it has been moved, and is about to be deleted here
UNHEALTHY = ("capm3.metal3.io/unhealthy", "capi.metal3.io/unhealthy")
REMEDIATION_POWER_OFF = "reboot.metal3.io/metal3-remediation-"  # and the remediation's uid: keeps a host off
TAINTED_BY = OUT_OF_SERVICE_BY
RENDERED_FOR = "hostler.dev/rendered-for"  # on a Metal3Data: the uid of the host its secrets were rendered for
LABEL_PREFIXES = "metal3.io/metal3-label-sync-prefixes"  # on a Metal3Cluster: which labels of hosts go to nodes

NODE_REUSE = f"{INFRASTRUCTURE}/node-reuse"
FAILURE_DOMAIN = f"{INFRASTRUCTURE}/failure-domain"
CLUSTER_NAME = "cluster.x-k8s.io/cluster-name"
CONTROL_PLANE = "cluster.x-k8s.io/control-plane"
CONTROL_PLANE_NAME = "cluster.x-k8s.io/control-plane-name"
DEPLOYMENT_NAME = "cluster.x-k8s.io/deployment-name"
CLONED_FROM = "cluster.x-k8s.io/cloned-from-name"
OBJECT_PAUSED = "cluster.x-k8s.io/paused"
DATA_NAME = f"{INFRASTRUCTURE}/data-name"
POOL_NAME = f"{INFRASTRUCTURE}/pool-name"
NODE_UUID = "metal3.io/uuid"  # on a Node of the workload cluster: the uid of its host

MACHINE_FINALIZER = f"metal3machine.{INFRASTRUCTURE}"
CLUSTER_FINALIZER = f"metal3cluster.{INFRASTRUCTURE}"
DATA_FINALIZER = f"metal3data.{INFRASTRUCTURE}"
DATA_CLAIM_FINALIZER = f"metal3dataclaim.{INFRASTRUCTURE}"
DATA_TEMPLATE_FINALIZER = f"metal3datatemplate.{INFRASTRUCTURE}"
BMC_SECRETS = "environment.metal3.io=baremetal"
REMEDIATION_FINALIZER = f"metal3remediation.{INFRASTRUCTURE}"
SECRET_TYPE = f"{INFRASTRUCTURE}/secret"

# Conditions of a Metal3Machine.
READY = "Ready"
HEALTHY = "BareMetalHostHealthy"
ASSOCIATED = "AssociateBareMetalHost"
METADATA = "AssociateMetal3MachineMetaData"
DATA_READY = "Metal3DataReady"
PAUSED_CONDITION = "Paused"
LABELS_SYNCED = "LabelsSynced"  # on a Metal3Cluster, only where its prefixes are or were wrong


def key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}"


def reuse_label(role: str, name: str) -> str:
    """The label of hosts kept for a control plane (`cp`) or MachineDeployment (`md`): no longer than a label may be."""
    whole = f"{role}-{name}"
    return whole if len(whole) <= 63 else f"{whole[:54]}-{sha256(name.encode()).hexdigest()[:8]}"


def group_of(api_version: str) -> str:
    """`a.b/v1` is of group `a.b`; the version may change under us and does not count."""
    return api_version.rpartition("/")[0]
