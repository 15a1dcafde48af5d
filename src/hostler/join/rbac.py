"""What join may do in Kubernetes, each right with its reason. Pure."""

from __future__ import annotations

from hostler.install.rights import FOLLOW, OWN, Right

_CAPI = "cluster.x-k8s.io"
_METAL3 = "infrastructure.cluster.x-k8s.io"
_AGENTS = "agent-install.openshift.io"

RIGHTS: tuple[Right, ...] = (
    Right("certificatesigningrequests.certificates.k8s.io", FOLLOW, "New nodes ask by them."),
    Right("certificatesigningrequests.certificates.k8s.io/approval", ("patch",), "An expected one is let in."),
    Right(
        "signers.certificates.k8s.io", ("approve",), "Only certificates of kubelets.",
        names=("kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"),
    ),
    Right("nodes", ("get",), "The address of a kubelet that renews its certificate."),
    Right("baremetalhosts.metal3.io", FOLLOW, "A host being provisioned is expected."),
    Right(f"metal3machines.{_METAL3}", FOLLOW, "So is the host of a machine of Metal3."),
    Right(f"agents.{_AGENTS}", FOLLOW, "So is a host that an installer is at work on."),
    Right("machines.machine.openshift.io", FOLLOW, "So is a machine of OpenShift."),
    Right(f"machines.{_CAPI}", FOLLOW, "So is a machine of Cluster API."),
    Right(
        f"clusters.{_CAPI}", FOLLOW,
        "HOSTLER_JOIN_SPOKES: which further clusters there are. Their kubeconfigs are granted by hand (join.md).",
    ),
    Right("clusterdeployments.hive.openshift.io", FOLLOW, "So is a cluster of Hive."),
    Right("configmaps", ("create",), "Who was let in already: nobody is let in twice.", OWN),
    Right("configmaps", ("list", "watch", "patch"), "It gets a line per host.", OWN, ("hostler-join",)),
    Right("configmaps", ("get",), "The CA of kubelets' certificates.", "kube-system", ("kube-root-ca.crt",)),
)  # fmt: skip
