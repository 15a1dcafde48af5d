"""What maintenance may do in Kubernetes, each right with its reason. Pure."""

from __future__ import annotations

from hostler.install.rights import FOLLOW, OWN, VCENTER_TRUST_RIGHTS, Right

_CAPI = "cluster.x-k8s.io"

RIGHTS: tuple[Right, ...] = (
    *VCENTER_TRUST_RIGHTS,
    Right("pods/eviction", ("create",), "Nodes are emptied by evictions, so that budgets are kept."),
    Right("persistentvolumeclaims", ("get",), "Volumes of pods that stay on a node are not waited for."),
    Right("leases.coordination.k8s.io", ("get",), "Whether a kubelet still renews its lease.", "kube-node-lease"),
    Right("namespaces", ("get",), "Its UID names this cluster in the marks on VMs.", names=("kube-system",)),
    Right("configmaps", ("create",), "Marks of stopped VMs, where vCenter's attributes cannot be written.", OWN),
    Right("configmaps", ("list", "watch", "patch"), "They are read and changed.", OWN, ("hostler-stopped-vms",)),
    Right(
        f"machines.{_CAPI}", ("get", "patch"),
        "HOSTLER_MAINTENANCE_SKIP_REMEDIATION annotates the machine of a node in maintenance.",
    ),
    Right(f"machines.{_CAPI}", FOLLOW, "A machine proves which VM its node is."),
    Right("machines.machine.openshift.io", FOLLOW, "So does a machine of OpenShift."),
)  # fmt: skip
