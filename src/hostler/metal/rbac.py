"""What metal may do in Kubernetes, each right with its reason. Pure."""

from __future__ import annotations

from dataclasses import replace

from hostler.install.rights import FOLLOW, OWN, Right
from hostler.metal.kinds.webhook_objects import DEFINITIONS, MUTATING, SECRET_NAME, VALIDATING
from hostler.metal.settings import METAL_NAMESPACES

_CAPI = "cluster.x-k8s.io"
_METAL3 = "infrastructure.cluster.x-k8s.io"
_IPAM3 = "ipam.metal3.io"
_IPAM = "ipam.cluster.x-k8s.io"

_EVERYWHERE: tuple[Right, ...] = (
    Right("baremetalhosts.metal3.io", ("get", *FOLLOW, "patch"), "Hosts are claimed, paused and released."),
    Right(
        "baremetalhosts.metal3.io", ("delete",),
        "No host is ever deleted. OpenShift's admission (OwnerReferencesPermissionEnforcement) lets only those who "
        "might delete a host change its owners: those that the Go provider wrote are taken off.",
        openshift=True,
    ),
    Right(f"metal3machines.{_METAL3}", ("get", *FOLLOW, "patch"), "Finalizers, annotations, provider ids."),
    Right(f"metal3machines.{_METAL3}/status", ("patch",), "What came of them."),
    Right(f"metal3clusters.{_METAL3}", (*FOLLOW, "patch"), "A cluster goes after its machines."),
    Right(f"metal3clusters.{_METAL3}/status", ("patch",), "What came of it."),
    Right(f"metal3machinetemplates.{_METAL3}", FOLLOW, "Capacity, and the cleaning mode of their machines."),
    Right(f"metal3datatemplates.{_METAL3}", (*FOLLOW, "patch"), "A finalizer while a machine uses it."),
    Right(f"metal3datatemplates.{_METAL3}/status", ("patch",), "Who has which index."),
    Right(f"metal3dataclaims.{_METAL3}", (*FOLLOW, "create", "patch", "delete"), "One per machine with data."),
    Right(f"metal3dataclaims.{_METAL3}/status", ("patch",), "What came of it."),
    Right(f"metal3remediations.{_METAL3}", (*FOLLOW, "patch"), "Unhealthy machines are rebooted; a finalizer."),
    Right(f"metal3remediations.{_METAL3}/status", ("patch",), "How far each has come."),
    Right(f"machines.{_CAPI}/status", ("patch",), "Only the condition OwnerRemediated."),
    Right(f"metal3datas.{_METAL3}", (*FOLLOW, "create", "patch", "delete"), "One per claim."),
    Right(f"metal3datas.{_METAL3}/status", ("patch",), "What came of it."),
    Right(f"ipclaims.{_IPAM3}", (*FOLLOW, "create", "patch", "delete"), "Addresses of a machine."),
    Right(f"ippools.{_IPAM3}", FOLLOW, "A pool that does not exist is named."),
    Right(f"ipaddresses.{_IPAM3}", FOLLOW, "The answers to those claims."),
    Right(f"ipaddressclaims.{_IPAM}", (*FOLLOW, "create", "patch", "delete"), "The same for Cluster API's pools."),
    Right(f"ipaddresses.{_IPAM}", FOLLOW, "The answers to those claims."),
    Right(
        f"clusters.{_CAPI}", ("get", *FOLLOW),
        "Whether a cluster is paused or ready; read again before the pause of a host is taken back.",
    ),
    Right(f"machines.{_CAPI}", FOLLOW, "Bootstrap data and failure domain of a machine."),
    Right("machines.machine.openshift.io", FOLLOW, "Which node a host of an OpenShift Machine is."),
    Right(f"machinesets.{_CAPI}", FOLLOW, "Whose hosts a machine may have again, and from which template it is."),
    Right(
        f"kubeadmcontrolplanes.controlplane.{_CAPI}", FOLLOW,
        "From which template a machine of a control plane is, where its own annotation is missing.",
    ),
    Right(f"machinedeployments.{_CAPI}", FOLLOW, "Hosts kept for a deployment that is gone are freed."),
    Right(
        "secrets", FOLLOW,
        "Changed BMC credentials wake their host. Asked for by label (environment.metal3.io=baremetal), which "
        "RBAC cannot say; what is in them is not kept.",
    ),
    Right("secrets", ("get",), "Kubeconfigs of workload clusters, CLUSTER-kubeconfig in any namespace."),
    Right("secrets", ("create", "patch"), "Rendered metadata and network data, which Baremetal Operator reads."),
)  # fmt: skip
_WEBHOOKS: tuple[Right, ...] = (
    Right("secrets", ("create",), "The certificate of the webhooks is made once.", OWN),
    Right(
        "secrets", ("list", "watch", "patch"), "Every replica serves it, the leader renews it.", OWN, (SECRET_NAME,)
    ),
    *(
        Right(f"{plural}.{group}", ("get", "patch"), "The CA of the webhooks is filled in, and nothing else.", names=of)
        for plural, group, of in (
            ("mutatingwebhookconfigurations", "admissionregistration.k8s.io", (MUTATING,)),
            ("validatingwebhookconfigurations", "admissionregistration.k8s.io", (VALIDATING,)),
            ("customresourcedefinitions", "apiextensions.k8s.io", DEFINITIONS),
        )
    ),
)  # fmt: skip

RIGHTS = (*(replace(right, limited_by=METAL_NAMESPACES.name) for right in _EVERYWHERE), *_WEBHOOKS)
