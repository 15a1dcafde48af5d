"""What platform may do in Kubernetes, each right with its reason. Pure."""

from __future__ import annotations

from hostler.install.rights import FOLLOW, VCENTER_TRUST_RIGHTS, Right

_ADMISSION = "admissionregistration.k8s.io"
_OPERATOR = "hostler-platform"

RIGHTS: tuple[Right, ...] = (
    *VCENTER_TRUST_RIGHTS,
    Right("daemonsets.apps", ("patch",), "The rule that keeps a DaemonSet off nodes without the cloud."),
    Right(
        f"mutatingadmissionpolicies.{_ADMISSION}", (*FOLLOW, "create", "patch", "delete"),
        "The same as an admission policy, so that nobody undoes it. Its name depends on the DaemonSet.",
    ),
    Right(
        f"mutatingadmissionpolicybindings.{_ADMISSION}", (*FOLLOW, "create", "patch", "delete"),
        "What puts such a policy into force.",
    ),
    Right("persistentvolumeclaims", ("get",), "Which pods need a driver that their node lacks."),
    Right("persistentvolumes", ("get",), "Which driver the volume of a claim needs."),
    Right(
        "clustercsidrivers.operator.openshift.io", (*FOLLOW, "patch"),
        "Who manages the driver's DaemonSet, on OpenShift; HOSTLER_PLATFORM_WAY=unmanaged sets it, and back.",
        names=("csi.vsphere.vmware.com",),
    ),
    Right("clusteroperators.config.openshift.io", ("create",), "Our own ClusterOperator, on OpenShift."),
    Right("clusteroperators.config.openshift.io", FOLLOW, "It is watched.", names=(_OPERATOR,)),
    Right("clusteroperators.config.openshift.io/status", ("patch",), "Its conditions.", names=(_OPERATOR,)),
)  # fmt: skip
