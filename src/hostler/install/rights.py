"""What Hostler may do in Kubernetes: the one table behind the chart's roles, docs/rights.md and `hostler doctor`.

A right is what a capability cannot work without, with the reason; nothing is granted that is not in this table, and
only for what is switched on. A room's author edits the lines of that room.

Kinds of somebody else's API (OpenShift, Cluster API, Metal3) are granted wherever their capability is on: where the
kind does not exist the right means nothing, and without it the API server would say 403 instead of 404, so that we
could not know the kind to be absent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from hostler.capabilities import CAPABILITIES, Capability
from hostler.safety.incumbents import Incumbent

ANYWHERE, OWN = "", "@own"  # in every namespace (and for kinds without one); in the operator's own
OPENSHIFT = "openshift"  # a namespace every cluster of that kind has
LEASE_NAME = "@lease"  # the name HOSTLER_LEASE_NAME gives
FOLLOW = ("list", "watch")


@dataclass(frozen=True, slots=True)
class Right:
    """Verbs on one resource, spelled as RBAC and kubectl do: `nodes`, `pods/eviction`, `daemonsets.apps`."""

    resource: str
    verbs: tuple[str, ...]
    why: str
    namespace: str = ANYWHERE  # OWN, or the name of another
    names: tuple[str, ...] = ()  # only objects of these names
    openshift: bool = False  # of use only there

    @property
    def group(self) -> str:
        return self.resource.partition("/")[0].partition(".")[2]

    @property
    def plural(self) -> str:
        """With the subresource, as a rule names it: `pods/eviction`, `fleets/status`."""
        kind, slash, part = self.resource.partition("/")
        return kind.partition(".")[0] + slash + part


_CAPI, _METAL3, _IPAM3, _IPAM = (
    "cluster.x-k8s.io",
    "infrastructure.cluster.x-k8s.io",
    "ipam.metal3.io",
    "ipam.cluster.x-k8s.io",
)
_ADMISSION, _AGENTS = "admissionregistration.k8s.io", "agent-install.openshift.io"
_ROUTERS, _OPERATOR = "openshift-ingress", "hostler-platform"

# Of whatever logs in to a vCenter.
_VCENTER_TRUST = (
    Right("secrets", ("create",), "What a vCenter is recognised by is written at the first contact.", OWN),
    Right(
        "secrets", ("get", "patch"), "It is read before each login; a further vCenter is added.", OWN,
        ("hostler-vcenter-trust",),
    ),
)  # fmt: skip

RIGHTS: dict[str, tuple[Right, ...]] = {
    "fleet": (
        Right("pauses.hostler.dev", FOLLOW, "The stop button: while a Pause exists nothing is written."),
        Right("fleets.hostler.dev", FOLLOW, "The owner's decisions are read from it."),
        Right("fleets.hostler.dev/status", ("patch",), "Conditions and counts are shown there."),
        Right("leases.coordination.k8s.io", ("create",), "The lease of the leader is made once.", OWN),
        Right("leases.coordination.k8s.io", ("get", "patch"), "It is taken, renewed, given back.", OWN, (LEASE_NAME,)),
        Right("namespaces", ("get",), "A missing namespace is said at the start.", OWN),
        Right("tokenreviews.authentication.k8s.io", ("create",), "Who asks the read API is checked; stored nowhere."),
        Right(
            "subjectaccessreviews.authorization.k8s.io", ("create",),
            "Whether the bearer of a token may read /metrics or another path; stored nowhere.",
        ),
        Right("events.events.k8s.io", ("create", "patch"), "What was done is told in the namespace of its object."),
    ),
    "history": (
        Right(
            "configmaps", ("create", "list", "patch", "delete"),
            "The history of hosts: segments are written, merged and dropped.", OWN,
        ),
    ),
    "holds": (
        Right("nodes", FOLLOW, "Every capability looks at nodes."),
        Right("nodes", ("patch",), "Cordons and our own annotations; only those fields are ever sent."),
        Right("nodes/status", ("patch",), "Our own conditions on a node."),
        Right("pods", FOLLOW, "What runs where: for drains, plans and explanations."),
        Right("poddisruptionbudgets.policy", FOLLOW, "Who would block a drain is named before it begins."),
        Right("volumeattachments.storage.k8s.io", FOLLOW, "A node counts as empty once its volumes are detached."),
        Right("daemonsets.apps", FOLLOW, "Pods of a DaemonSet are left where they are."),
    ),
    "maintenance": (
        *_VCENTER_TRUST,
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
    ),
    "ingress": (
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
    ),
    "platform": (
        *_VCENTER_TRUST,
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
    ),
    "join": (
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
    ),
    "reclaim": (
        Right(f"agents.{_AGENTS}", ("get", *FOLLOW, "create", "patch"), "Hosts register, are bound and returned."),
        Right(f"agents.{_AGENTS}/status", ("patch",), "How far each has come."),
        Right(f"infraenvs.{_AGENTS}", ("get", *FOLLOW), "What a host boots into."),
        Right("clusterdeployments.hive.openshift.io", ("get",), "The old cluster of a host, and its kubeconfig."),
        Right("secrets", ("get",), "Kubeconfigs of old clusters and pull secrets, which their objects name."),
        Right("secrets", ("create",), "The key that signs the tokens of hosts.", OWN),
        Right("secrets", FOLLOW, "That key is read by every replica.", OWN, ("hostler-reclaim-key",)),
        Right("pods", ("get",), "The image of our own pod is the agent's, unless AGENT_IMAGE names another.", OWN),
    ),
    "metal": (
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
    ),
}  # fmt: skip


def _incumbent_rights(capability: Capability) -> Iterator[Right]:
    """To see whether the controller we take the place of is still at work. In any namespace: theirs may not exist."""
    for one in capability.incumbents:
        why = f"Whether {one.name} is still at work."
        if one.signs is not None:
            yield Right("deployments.apps", ("list",), f"{why} It may have any name: label, image and variables tell.")
        for at in one.deployments:
            yield Right("deployments.apps", ("get",) if at.namespace else ("list",), why, names=(at.name,))
        for at in one.leases:
            yield Right("leases.coordination.k8s.io", ("get",), why, names=(at.name,))
        for trail in one.trails:
            yield Right(trail.kind, ("get",), why, names=(trail.at.name,))
        yield from _webhook_rights(one)


def _webhook_rights(incumbent: Incumbent) -> Iterator[Right]:
    why = f"Whether a webhook of {incumbent.name} was left pointing nowhere."
    if incumbent.webhook_services:
        for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            yield Right(f"{plural}.{_ADMISSION}", ("list",), why)
        yield Right("endpointslices.discovery.k8s.io", ("list",), why)
    if incumbent.definitions:
        yield Right("customresourcedefinitions.apiextensions.k8s.io", ("get",), why, names=incumbent.definitions)


def rights_of(capability: Capability) -> tuple[Right, ...]:
    """Everything one capability needs beyond what is always granted; nothing while it is not built."""
    if not capability.built:
        return ()
    return tuple(dict.fromkeys((*RIGHTS[capability.name], *_incumbent_rights(capability))))


def rights_for(names: Collection[str]) -> tuple[Right, ...]:
    """What an operator with these capabilities needs; what is always on is always in it."""
    on = [one for one in CAPABILITIES if one.always or one.name in names]
    return tuple(dict.fromkeys(right for one in on for right in rights_of(one)))
