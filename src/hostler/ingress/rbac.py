"""What ingress may do in Kubernetes, each right with its reason. Pure."""

from __future__ import annotations

from hostler.install.rights import FOLLOW, Right

_ROUTERS = "openshift-ingress"

RIGHTS: tuple[Right, ...] = (
    Right("ingresses.config.openshift.io", FOLLOW, "Where OpenShift wants its routers by default."),
    Right("ingresses.config.openshift.io", ("patch",), "HOSTLER_INGRESS_BACKFILL fills it in.", names=("cluster",)),
    Right("ingresses.config.openshift.io/status", ("patch",), "The same, where it is kept.", names=("cluster",)),
    Right("infrastructures.config.openshift.io", FOLLOW, "The topology of the cluster."),
    Right("ingresscontrollers.operator.openshift.io", (*FOLLOW, "create"), "The default one is made if missing."),
    Right("ingresscontrollers.operator.openshift.io/status", ("patch",), "Conditions of the routers."),
    Right("deployments.apps", (*FOLLOW, "patch"), "Ingress that the Fleet lists and its owner marked."),
    Right("daemonsets.apps", ("patch",), "The same for ingress that runs as a DaemonSet."),
    Right("deployments.apps", ("create",), "Routers that have none yet.", _ROUTERS, openshift=True),
    Right(
        "poddisruptionbudgets.policy", ("create", "patch", "delete"), "The budgets of the routers.", _ROUTERS,
        openshift=True,
    ),
)  # fmt: skip
