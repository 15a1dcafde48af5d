"""What a right in Kubernetes is, and what is always granted; a capability lists its own in `rbac.py`. Pure.

A right is what a capability cannot work without, with the reason; nothing is granted that is not in such a table, and
only for what is switched on (`install.grants`).

Kinds of somebody else's API (OpenShift, Cluster API, Metal3) are granted wherever their capability is on: where the
kind does not exist the right means nothing, and without it the API server would say 403 instead of 404, so that we
could not know the kind to be absent.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    limited_by: str = ""  # a setting: where it names namespaces, the right is granted in these and nowhere else

    @property
    def group(self) -> str:
        return self.resource.partition("/")[0].partition(".")[2]

    @property
    def plural(self) -> str:
        """With the subresource, as a rule names it: `pods/eviction`, `fleets/status`."""
        kind, slash, part = self.resource.partition("/")
        return kind.partition(".")[0] + slash + part


# Of whatever logs in to a vCenter.
VCENTER_TRUST_RIGHTS = (
    Right("secrets", ("create",), "What a vCenter is recognised by is written at the first contact.", OWN),
    Right(
        "secrets", ("get", "patch"), "It is read before each login; a further vCenter is added.", OWN,
        ("hostler-vcenter-trust",),
    ),
)  # fmt: skip

# -- what is always on

FLEET_RIGHTS = (
    Right("pauses.hostler.dev", FOLLOW, "The stop button: while a Pause exists nothing is written."),
    Right("fleets.hostler.dev", FOLLOW, "The owner's decisions are read from it."),
    Right("fleets.hostler.dev/status", ("patch",), "Conditions and counts are shown there."),
    Right("leases.coordination.k8s.io", ("create",), "The lease of the leader is made once.", OWN),
    Right("leases.coordination.k8s.io", ("get", "patch"), "It is taken, renewed, given back.", OWN, (LEASE_NAME,)),
    Right("namespaces", ("get",), "A missing namespace is said at the start.", OWN),
    Right("tokenreviews.authentication.k8s.io", ("create",), "Who asks the read API is checked; stored nowhere."),
    Right(
        "subjectaccessreviews.authorization.k8s.io", ("create",),
        "Whether the bearer of a token may read /metrics or another path, or see the page; stored nowhere.",
    ),
    Right("events.events.k8s.io", ("create", "patch"), "What was done is told in the namespace of its object."),
)  # fmt: skip
HOLDS_RIGHTS = (
    Right("nodes", FOLLOW, "Every capability looks at nodes."),
    Right("nodes", ("patch",), "Cordons and our own annotations; only those fields are ever sent."),
    Right("nodes/status", ("patch",), "Our own conditions on a node."),
    Right("pods", FOLLOW, "What runs where: for drains, plans and explanations."),
    Right("poddisruptionbudgets.policy", FOLLOW, "Who would block a drain is named before it begins."),
    Right("volumeattachments.storage.k8s.io", FOLLOW, "A node counts as empty once its volumes are detached."),
    Right("daemonsets.apps", FOLLOW, "Pods of a DaemonSet are left where they are."),
)  # fmt: skip
HISTORY_RIGHTS = (
    Right(
        "configmaps", ("create", "list", "patch", "delete"),
        "The history of hosts: segments are written, merged and dropped.", OWN,
    ),
)  # fmt: skip
