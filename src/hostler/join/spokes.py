"""Which further clusters (spokes) new nodes are let into, and which hosts are expected in each. Pure.

The border between tenants: a host of one cluster never lets a node into another. What is read in a spoke says nothing
about which cluster it is; only the object on the hub whose kubeconfig we used does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from hostler.apis.assisted import AGENT, CLUSTER_DEPLOYMENT, ClusterDeployment
from hostler.apis.capi import CLUSTER, MACHINE, PAUSED, Cluster
from hostler.apis.metal3 import BARE_METAL_HOST, METAL3_MACHINE
from hostler.join.invitations import AnySource, invitations
from hostler.join.model import Invitation, Policy
from hostler.kube.kinds import Kind
from hostler.kube.records import CONTROL_PLANE, Metadata, Node, NodeStatus

# What stands for a spoke on the hub.
ClusterObject: TypeAlias = Cluster | ClusterDeployment
EVERY = "all"
# What can be expected in a cluster of each kind. A Machine of OpenShift and an expected host are the hub's own.
INVENTORY: Mapping[Kind, tuple[Kind, ...]] = {
    CLUSTER: (BARE_METAL_HOST, METAL3_MACHINE, MACHINE),
    CLUSTER_DEPLOYMENT: (AGENT,),
}


@dataclass(frozen=True, slots=True)
class Spoke:
    """One further cluster. `uid`: of its object on the hub; another object of the same name is another cluster."""

    kind: Kind
    namespace: str
    name: str
    uid: str
    secret: str  # with its kubeconfig, in the same namespace

    @property
    def key(self) -> str:
        """As hosts name their cluster."""
        return f"{self.namespace}/{self.name}"

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.key}"


def spoke_of(kind: Kind, found: ClusterObject) -> Spoke:
    about, named = found.metadata, ""
    if isinstance(found, ClusterDeployment):
        known = found.spec.cluster_metadata
        reference = known.admin_kubeconfig_secret_ref if known is not None else None
        named = reference.name if reference is not None else ""
    default = f"{about.name}-kubeconfig" if kind == CLUSTER else f"{about.name}-admin-kubeconfig"
    return Spoke(kind, about.namespace, about.name, about.uid, named or default)


def choose_spokes(
    found: Iterable[tuple[Kind, ClusterObject]], named: Collection[str], ourselves: Collection[str]
) -> list[Spoke]:
    """The clusters to follow, oldest first: one that is created later displaces nobody when there are too many.

    `ourselves`: the names of the hub, which is no spoke of itself. A cluster that is paused or being deleted is left.
    """
    wanted = [
        (cluster.metadata.creation_timestamp, str(spoke), spoke)
        for kind, cluster in found
        if not cluster.metadata.deletion_timestamp and not _is_paused(cluster)
        if is_named(cluster.metadata, named) and (spoke := spoke_of(kind, cluster)).key not in ourselves
    ]
    return [spoke for _, _, spoke in sorted(wanted, key=lambda entry: (entry[0] or "", entry[1]))]


def _is_paused(found: ClusterObject) -> bool:
    return PAUSED in found.metadata.annotations or (isinstance(found, Cluster) and found.spec.paused)


def is_named(about: Metadata, named: Collection[str]) -> bool:
    return not {EVERY, f"{about.namespace}/*", f"{about.namespace}/{about.name}"}.isdisjoint(named)


def invitations_for(
    spoke: Spoke, found: Iterable[tuple[Kind, AnySource]], policy: Policy
) -> dict[str, tuple[Invitation, ...]]:
    """Who is expected in exactly this cluster. The one place where hosts of other clusters are kept out.

    Only hosts in the spoke's own namespace count: elsewhere another tenant writes, who could name this cluster too.
    Agents bind across namespaces, so those of a namespace that HOSTLER_JOIN_INVENTORIES names count as well.
    """
    allowed = {kind: namespaces_of(spoke, kind, policy) for kind in INVENTORY[spoke.kind]}
    there = [(kind, host) for kind, host in found if host.metadata.namespace in allowed.get(kind, ())]
    made = invitations(there, ())  # the hub's own list must not shut out the spoke's namespace: `there` is the limit
    return {
        name: tuple(
            replace(invitation, cluster=invitation.cluster or None) for invitation in those
        )  # none named is not this one
        for name, those in made.items()
    }


def namespaces_of(spoke: Spoke, kind: Kind, policy: Policy) -> frozenset[str]:
    """The namespaces whose objects of this kind may invite a host into this cluster."""
    listed = policy.inventories.get(kind.resource, frozenset()) if kind == AGENT else frozenset()
    return frozenset({spoke.namespace}) | listed


def trim_node(node: Node) -> Node:
    """What the rules read of a spoke's node, so that ten thousand of them fit into memory."""
    about = node.metadata
    labels = {label: "" for label in CONTROL_PLANE if label in about.labels}
    kept = Metadata(
        name=about.name, uid=about.uid, resource_version=about.resource_version,
        deletion_timestamp=about.deletion_timestamp, labels=labels,
    )  # fmt: skip
    return Node(metadata=kept, status=NodeStatus(addresses=node.status.addresses))
