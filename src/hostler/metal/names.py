"""The names Metal3 and Cluster API give to things: labels, annotations, finalizers, conditions. Pure."""

from __future__ import annotations

from hashlib import sha256

from hostler.apis.metal3 import GROUP
from hostler.host.taints import OUT_OF_SERVICE_BY

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

NODE_REUSE = f"{GROUP}/node-reuse"
FAILURE_DOMAIN = f"{GROUP}/failure-domain"
CONTROL_PLANE = "cluster.x-k8s.io/control-plane"
CONTROL_PLANE_NAME = "cluster.x-k8s.io/control-plane-name"
DEPLOYMENT_NAME = "cluster.x-k8s.io/deployment-name"
CLONED_FROM = "cluster.x-k8s.io/cloned-from-name"
DATA_NAME = f"{GROUP}/data-name"
POOL_NAME = f"{GROUP}/pool-name"
NODE_UUID = "metal3.io/uuid"  # on a Node of the workload cluster: the uid of its host

MACHINE_FINALIZER = f"metal3machine.{GROUP}"
CLUSTER_FINALIZER = f"metal3cluster.{GROUP}"
DATA_FINALIZER = f"metal3data.{GROUP}"
DATA_CLAIM_FINALIZER = f"metal3dataclaim.{GROUP}"
DATA_TEMPLATE_FINALIZER = f"metal3datatemplate.{GROUP}"
BMC_SECRETS = "environment.metal3.io=baremetal"
REMEDIATION_FINALIZER = f"metal3remediation.{GROUP}"
SECRET_TYPE = f"{GROUP}/secret"

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
