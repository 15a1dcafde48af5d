"""The settings of join."""

from __future__ import annotations

import re
from collections.abc import Callable

from hostler.settings.model import AnySetting, Rule, Setting
from hostler.settings.readers import PATH, SWITCH, Reader, seconds, whole

SECTION = "join"
_NAME = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
_ONE = re.compile(rf"system:serviceaccount:{_NAME}:{_NAME}|system:bootstrappers(:[a-z0-9:-]{{0,255}}[a-z0-9])?")
_KINDS = (
    "baremetalhosts.metal3.io", "metal3machines.infrastructure.cluster.x-k8s.io", "agents.agent-install.openshift.io",
    "machines.machine.openshift.io", "machines.cluster.x-k8s.io",
)  # fmt: skip
_INVENTORY = re.compile(rf"({'|'.join(map(re.escape, _KINDS))})=(\*|[a-z0-9]([a-z0-9-]{{0,61}}[a-z0-9])?)")
_SPACE = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_CLUSTER = re.compile(rf"{_SPACE}/{_NAME}")
_SPOKE = re.compile(rf"all|{_SPACE}/(\*|{_NAME})")


def _each(pattern: re.Pattern[str]) -> Callable[[str], tuple[str, ...]]:
    def read(text: str) -> tuple[str, ...]:
        given = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
        if not all(pattern.fullmatch(word) for word in given):
            raise ValueError
        return given

    return read


BOOTSTRAPPERS: Reader[tuple[str, ...]] = Reader(
    "a comma-separated list of service accounts (system:serviceaccount:NAMESPACE:NAME) and groups of bootstrap tokens "
    "(system:bootstrappers:...)",
    _each(_ONE),
    ",".join,
    metavar="A,B",
)
CLUSTERS: Reader[tuple[str, ...]] = Reader(
    "a comma-separated list of NAMESPACE/NAME", _each(_CLUSTER), ",".join, metavar="A,B"
)
SPOKES: Reader[tuple[str, ...]] = Reader(
    "a comma-separated list of NAMESPACE/NAME and NAMESPACE/*, or all", _each(_SPOKE), ",".join, metavar="A,B"
)
INVENTORIES: Reader[tuple[str, ...]] = Reader(
    f"a comma-separated list of KIND=NAMESPACE, where KIND is one of {', '.join(_KINDS)}",
    _each(_INVENTORY),
    ",".join,
    metavar="A,B",
)

JOIN_BOOTSTRAPPERS = Setting(
    "HOSTLER_JOIN_BOOTSTRAPPERS",
    BOOTSTRAPPERS,
    (
        "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper",
        "system:bootstrappers:kubeadm:default-node-token",
    ),
    "Who may ask for the certificate of a new node.",
    SECTION,
)
JOIN_WINDOW_SECONDS = Setting(
    "HOSTLER_JOIN_WINDOW_SECONDS",
    seconds(60, most=7 * 86400),
    7200.0,
    "How long after its provisioning began a host may ask to become a node.",
    SECTION,
)
JOIN_SERVING = Setting("HOSTLER_JOIN_SERVING", SWITCH, True, "Approve serving certificates of kubelets too.", SECTION)
JOIN_PENDING_SLACK = Setting(
    "HOSTLER_JOIN_PENDING_SLACK",
    whole(0, 100_000),
    100,
    "Pending requests beyond the number of nodes or machines; more are a flood, and nothing is approved.",
    SECTION,
)
JOIN_KUBELET_CA = Setting(
    "HOSTLER_JOIN_KUBELET_CA",
    PATH,
    "",
    "CA (PEM) of the certificates kubelets serve, to recognise renewals. Unset: that of ConfigMap kube-root-ca.crt.",
    SECTION,
)

JOIN_CLUSTERS = Setting(
    "HOSTLER_JOIN_CLUSTERS",
    CLUSTERS,
    (),
    "The Clusters and ClusterDeployments that stand for this very cluster: hosts of others are not let in. Whatever "
    "Cluster API wrote on the control-plane nodes counts too.",
    SECTION,
)

JOIN_INVENTORIES = Setting(
    "HOSTLER_JOIN_INVENTORIES",
    INVENTORIES,
    ("machines.machine.openshift.io=openshift-machine-api",),
    "The namespaces whose objects invite hosts, per kind; * is every namespace. A kind that is not listed counts in "
    "every namespace, but for Machines of OpenShift: list each kind that tenants may create.",
    SECTION,
)

JOIN_SPOKES = Setting(
    "HOSTLER_JOIN_SPOKES",
    SPOKES,
    (),
    "Further clusters whose nodes are let in too, through the kubeconfig that their Cluster or ClusterDeployment has "
    "here. Unset: none.",
    SECTION,
)

SETTINGS: tuple[AnySetting, ...] = (
    JOIN_BOOTSTRAPPERS, JOIN_CLUSTERS, JOIN_INVENTORIES, JOIN_WINDOW_SECONDS, JOIN_SERVING, JOIN_PENDING_SLACK,
    JOIN_KUBELET_CA, JOIN_SPOKES,
)  # fmt: skip
RULES: tuple[Rule, ...] = ()
