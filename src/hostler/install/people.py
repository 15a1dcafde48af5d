"""What people and Prometheus may do: the table behind the chart's ClusterRoles for them, and docs. Pure.

A ClusterRole cannot name a namespace, so what belongs to the operator's own is named by object: its lease, its Service,
its reader. Nobody gets the proxy to other Services, or to any pod: that would let every viewer reach everything that
listens in the cluster. Only the viewer is aggregated, to `view`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hostler.explain.callers import METRICS_PATH, READER
from hostler.install.rights import LEASE_NAME, Right

Json = dict[str, Any]
SERVICE_NAME = "@service"  # the operator's own Service, with its port as the proxy's path has it: hostler:http
METRICS_READER = "metrics-reader"
_READ = ("get", "list", "watch")
_CAPI, _METAL3, _ADMISSION = "cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io", "admissionregistration.k8s.io"
_DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
_AGENTS, _CONFIG = "agent-install.openshift.io", "config.openshift.io"
# What else of Metal3's provider is looked at before it is taken over.
_METAL3_KINDS = (
    "metal3clusters", "metal3clustertemplates", "metal3datas", "metal3dataclaims", "metal3datatemplates",
    "metal3remediations", "metal3remediationtemplates",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PeopleRole:
    """One ClusterRole for people: NAME-viewer and so on. It has the rights of those before it too."""

    name: str
    rights: tuple[Right, ...]
    commands: str
    equals: str  # what its holder can do in effect
    aggregated: bool = False  # to `view`


VIEWER = PeopleRole(
    "viewer",
    (
        Right("fleets.hostler.dev", _READ, "The owner's decisions, and the status of the fleet."),
        Right("fleets.hostler.dev/picture", ("get",), "To log in to the page behind an Ingress; no object has it."),
        Right("pauses.hostler.dev", _READ, "Which pauses stop all writes, by whom, and why."),
        Right("leases.coordination.k8s.io", ("get",), "Who leads, and how it is reached.", names=(LEASE_NAME,)),
        Right(
            "serviceaccounts/token", ("create",),
            f"A token for asking the operator, for ten minutes; {READER} itself has no rights.", names=(READER,),
        ),
        Right("services/proxy", ("get",), "The way to the operator's read API.", names=(SERVICE_NAME,)),
    ),
    "`status`, `explain`, `plan`, `config --running`, `maintenance status` and `plan`; `doctor` and `bundle` as far as "
    "your other rights go",
    "It reads what the operator knows: names, states and settings without secrets, nodes and VMs included. It writes "
    f"nothing. Everyone with `view` has it, so give the ServiceAccount {READER} no rights: its tokens are theirs.",
    aggregated=True,
)  # fmt: skip

OPERATOR = PeopleRole(
    "operator",
    (
        Right("pauses.hostler.dev", ("create", "delete"), "`hostler pause` and `resume`."),
        Right("nodes", (*_READ, "patch"), "`hold`, `release` and `drain` cordon a node and write the hold on it."),
        Right("pods", _READ, "What runs on a node that is drained."),
        Right("pods/eviction", ("create",), "`drain` empties a node as budgets allow."),
        Right("poddisruptionbudgets.policy", _READ, "Who blocks a drain is named."),
        Right("volumeattachments.storage.k8s.io", _READ, "A node counts as empty once its volumes are detached."),
        Right("persistentvolumeclaims", ("get",), "Volumes of pods that stay are not waited for."),
        Right("daemonsets.apps", _READ, "Pods of a DaemonSet are left where they are."),
        Right("subjectaccessreviews.authorization.k8s.io", ("create",), "`doctor` asks what the operator may do."),
        Right(f"validatingadmissionpolicies.{_ADMISSION}", _READ, "`doctor` says whether they are in force."),
        Right(f"validatingadmissionpolicybindings.{_ADMISSION}", _READ, "The same."),
    ),
    "`hold`, `release`, `drain`, `pause`, `resume`, `doctor`",
    "It is not weak. `patch` on nodes changes every label, taint and annotation of every node, also those by which "
    "Hostler and others decide. `create` on `pods/eviction` evicts any pod that its budget lets go. So its holder "
    "can move every workload, and bring a pod of their own onto a node of their choice. It reads every pod. `delete` "
    "on `pauses` ends the pause of another. Give it to those who may take any node out of service.",
)  # fmt: skip

ADMIN = PeopleRole(
    "admin",
    (
        Right("fleets.hostler.dev", ("create", "patch"), "`join expect`, and the owner's decisions."),
        Right(_DEFINITIONS, ("get", "create"), "`crds --apply`; a withdrawal asks whether a kind is there."),
        Right(_DEFINITIONS, ("patch",), "`crds --apply`.", names=("fleets.hostler.dev", "pauses.hostler.dev")),
        Right("certificatesigningrequests.certificates.k8s.io", _READ, "`join csrs`."),
        Right("certificatesigningrequests.certificates.k8s.io/approval", ("patch",), "`join approve`."),
        Right(
            "signers.certificates.k8s.io", ("approve",), "Only certificates of kubelets.",
            names=("kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"),
        ),
        Right("configmaps", ("get", "patch"), "`join approve` writes down who was let in.", names=("hostler-join",)),
        Right("configmaps", ("create",), "It is made if nobody was let in before."),
        Right("configmaps", ("get",), "The cluster's CA, for what a new machine boots with.",
              names=("kube-root-ca.crt", "hostler-stopped-vms")),
        Right("secrets", ("get",), "`join ignition` and `reclaim token` need these two and no other.",
              names=("worker-user-data-managed", "hostler-reclaim-key")),
        Right("secrets", ("get", "patch"), "`vcenter show` and `trust`.", names=("hostler-vcenter-trust",)),
        Right("machineconfigpools.machineconfiguration.openshift.io", ("get",), "`join ignition`."),
        Right("machineconfigs.machineconfiguration.openshift.io", ("get",), "`join ignition`."),
        Right(f"clusterversions.{_CONFIG}", ("get",), "`join guide`."),
        Right("baremetalhosts.metal3.io", (*_READ, "patch"), "`metal hosts`, `metal withdraw`, `join csrs`."),
        Right(f"metal3machines.{_METAL3}", _READ, "`join csrs`, `metal takeover`."),
        Right(f"metal3machinetemplates.{_METAL3}", _READ, "`metal capacity`."),
        *(Right(f"{plural}.{_METAL3}", _READ, "`metal takeover --check`.") for plural in _METAL3_KINDS),
        *(Right(f"{plural}.{_CAPI}", _READ, "The same.") for plural in ("machinesets", "machinedeployments")),
        Right(f"kubeadmcontrolplanes.controlplane.{_CAPI}", _READ, "The same."),
        Right("leases.coordination.k8s.io", ("get",), "Whether the provider that metal replaces is at work.",
              names=("controller-leader-election-capm3",)),
        Right(f"mutatingwebhookconfigurations.{_ADMISSION}", ("list",), "Whether its webhooks are still there."),
        Right(f"validatingwebhookconfigurations.{_ADMISSION}", ("list",), "The same."),
        Right("endpointslices.discovery.k8s.io", ("list",), "And whether they answer."),
        Right(f"clusters.{_CAPI}", _READ, "`metal withdraw`."),
        Right(f"machines.{_CAPI}", _READ, "`join csrs`."),
        Right("machines.machine.openshift.io", _READ, "`join csrs`."),
        Right(f"agents.{_AGENTS}", (*_READ, "patch"), "`reclaim start`, `cancel`, `retry` and `status`."),
        Right(f"infraenvs.{_AGENTS}", _READ, "`reclaim token`."),
        Right("deployments.apps", _READ, "`ingress status`, `platform status`."),
        Right(f"ingresses.{_CONFIG}", _READ, "`ingress status`."),
        Right(f"infrastructures.{_CONFIG}", _READ, "`ingress status`."),
        Right("ingresscontrollers.operator.openshift.io", _READ, "`ingress status`."),
        Right(f"mutatingadmissionpolicies.{_ADMISSION}", (*_READ, "delete"), "`platform status` and `withdraw`."),
        Right(f"mutatingadmissionpolicybindings.{_ADMISSION}", (*_READ, "delete"), "`platform withdraw`."),
        Right(f"clusteroperators.{_CONFIG}", (*_READ, "delete"), "`platform withdraw`."),
        Right("clustercsidrivers.operator.openshift.io", (*_READ, "patch"), "`platform withdraw`, `remove-driver`."),
        Right("storageclasses.storage.k8s.io", _READ, "`platform remove-driver` refuses while a volume needs it."),
        Right("persistentvolumes", _READ, "So it does here."),
        Right("persistentvolumeclaims", _READ, "And here."),
    ),
    "everything else the CLI does, but for four things: `join cloud-init` creates a bootstrap token (`create` on "
    "`secrets` in kube-system), `bundle` reads the logs of the operator's pods (`view` in its namespace), `vcenter "
    "trust` makes its Secret where there is none (`create` on `secrets` in that namespace), and `join csrs "
    "--join-spokes` reads kubeconfigs of further clusters (`get` on those Secrets)",
    "Treat it as cluster-admin. `patch` on `fleets` decides where ingress runs and who is expected as a node. Who "
    "approves signing requests of kubelets makes any machine any node, and a node reads the Secrets of its pods. "
    "`reclaim start` takes a host from its cluster; `patch` on `baremetalhosts` decides what a machine boots; deleting "
    "admission policies undoes what they enforce.",
)  # fmt: skip

PEOPLE = (VIEWER, OPERATOR, ADMIN)
METRICS_WHY = (
    "What Prometheus reads. Bind it to the account that scrapes; the chart's ServiceMonitor brings a token that has it."
)


def rights_of_role(role: PeopleRole) -> tuple[Right, ...]:
    """Its own and those of the roles before it, so that one binding is enough."""
    return tuple(right for earlier in PEOPLE[: PEOPLE.index(role) + 1] for right in earlier.rights)


def object_names(right: Right, *, lease: str, service: str) -> list[str]:
    """The names a rule is limited to; empty: to none."""
    known = {LEASE_NAME: lease, SERVICE_NAME: service}
    return [known.get(name, name) for name in right.names]


def people_roles(name: str, *, lease: str, service: str) -> Iterator[Json]:
    """The ClusterRoles as manifests; `name` is what they and the Service begin with."""
    for role in PEOPLE:
        aggregated = {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}} if role.aggregated else {}
        rules = [_rule(right, object_names(right, lease=lease, service=service)) for right in rights_of_role(role)]
        yield _role(f"{name}-{role.name}", rules, aggregated)
    yield _role(f"{name}-{METRICS_READER}", [{"nonResourceURLs": [METRICS_PATH], "verbs": ["get"]}], {})


def _role(name: str, rules: list[Json], metadata: Json) -> Json:
    about = {"name": name, **metadata}
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": about, "rules": rules}


def _rule(right: Right, only: list[str]) -> Json:
    named = {"resourceNames": only} if only else {}
    return {"apiGroups": [right.group], "resources": [right.plural], **named, "verbs": list(right.verbs)}
