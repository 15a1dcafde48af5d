"""A serving certificate: a node proves its addresses. Part of `decide`. Pure."""

from __future__ import annotations

from ipaddress import ip_address

from hostler.host.conditions import names
from hostler.host.facts import Known, Unknown
from hostler.join.limits import allowed_rule
from hostler.join.model import Facts, Live, Policy, Rule, RuleName, SigningRequest
from hostler.join.rules import fails, holds, unknown
from hostler.join.shape import PREFIX, Shape, spelled
from hostler.kube.records import CONTROL_PLANE, Node

# Names that belong to the cluster itself and to no kubelet, whatever a node says of itself.
CLUSTER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "openshift", "openshift.default")
CLUSTER_ENDINGS = (".svc", ".cluster.local", ".localhost")


def serving_rules(request: SigningRequest, shape: Shape, facts: Facts, policy: Policy) -> list[Rule]:
    """Every rule about the names and addresses a certificate for serving asks for."""
    match facts.nodes:
        case Unknown(why):
            return [unknown(RuleName.NODE, f"the nodes are not known: {why}")]
        case Known(nodes):
            node = nodes.get(shape.node)
    if node is None:
        return [fails(RuleName.NODE, f"there is no node {shape.node}")]
    if node.metadata.deletion_timestamp:
        return [fails(RuleName.NODE, f"node {shape.node} is being deleted")]
    there = holds(RuleName.NODE, f"node {shape.node} is there")
    its_own = _own_names(request, shape, node, facts)
    allowed = allowed_rule(request.spec, shape, facts)
    return [there, its_own, _nobody_elses(shape, facts), _no_cluster_names(shape, node, policy), allowed]


def _own_names(request: SigningRequest, shape: Shape, node: Node, facts: Facts) -> Rule:
    wanted = shape.dns | shape.ips
    # A node's own name is its own whether or not its addresses list it, as `owners_of` has it too.
    own = frozenset(canonical(one) for one in (shape.node, *(at.address for at in node.status.addresses)))
    match facts.invited:
        case Known(invited):
            hosts = [one for one in invited.get(shape.node, ()) if one.here(facts.clusters)]
            own |= {canonical(one) for host in hosts for one in host.addresses}
    strange = wanted - own
    if not strange:
        return holds(RuleName.OWN_NAMES, "every name and address is the node's own")
    match facts.live.get(request.metadata.uid):
        case Known(Live(name, dns, ips)) if name == f"{PREFIX}{shape.node}" and (dns, ips) == (shape.dns, shape.ips):
            return holds(RuleName.OWN_NAMES, "a renewal: its kubelet serves a valid certificate with the same names")
        case Known(Live()):
            also = "; the certificate its kubelet serves has other names"
        case Unknown(why):
            also = f"; the certificate its kubelet serves cannot be told: {why}"
        case _:
            also = ""
    if not node.status.addresses:
        return unknown(RuleName.OWN_NAMES, f"node {shape.node} has no addresses yet{also}")
    return fails(RuleName.OWN_NAMES, f"{names(strange)} is not among the addresses of node {shape.node}{also}")


def _nobody_elses(shape: Shape, facts: Facts) -> Rule:
    """A kubelet writes its own node's addresses: one that names another node's is not believed."""
    taken = sorted(
        f"{one} of {names(others)}"
        for one in shape.dns | shape.ips
        if (others := facts.owners.get(one, frozenset()) - {shape.node})
    )
    if taken:
        return fails(RuleName.NOT_ANOTHERS, f"it asks for what another node has: {names(taken)}")
    return holds(RuleName.NOT_ANOTHERS, "no other node has these names or addresses")


def _no_cluster_names(shape: Shape, node: Node, policy: Policy) -> Rule:
    """Names of the cluster, and where its API server is: a worker that is believed to be there could pose as it."""
    wrong = [one for one in shape.dns if one in CLUSTER_NAMES or one.endswith(CLUSTER_ENDINGS) or _of_service(one)]
    if not any(one in node.metadata.labels for one in CONTROL_PLANE):
        wrong += [one for one in shape.dns | shape.ips if one == policy.api_server]
    for one in shape.ips:
        at = ip_address(one)
        if at.is_loopback or at.is_unspecified or at.is_multicast or at.is_link_local:
            wrong.append(one)
    if wrong:
        return fails(RuleName.NODE_NAMES, f"{names(wrong)} can be no node's name or address")
    return holds(RuleName.NODE_NAMES, "these can be a node's names and addresses")


def _of_service(name: str) -> bool:
    """NAME.NAMESPACE.svc.DOMAIN, whatever the cluster's domain is."""
    return name.split(".")[2:3] == ["svc"]


def canonical(address: str) -> str:
    """An address or a name in the one spelling that can be compared."""
    try:
        read = ip_address(address.strip())
    except ValueError:
        return spelled(address.strip())
    return str(getattr(read, "ipv4_mapped", None) or read)
