"""What speaks against a reclaim, one rule at a time. Pure; `decide` takes the first, `explain` shows them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hostler.host.facts import Known, Unknown
from hostler.reclaim.model import UNCONFIRMED, Host, Policy, Reason, SpokeNode
from hostler.uuids import normalise, same_uuid


class Refused(Exception):
    """A reclaim is not possible; caught in this room only."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


class NotKnown(Exception):
    """A fact is missing; caught in this room only."""


Check = Callable[[Host, Policy], str]


@dataclass(frozen=True, slots=True)
class Rule:
    """`check` says what it found, or raises Refused or NotKnown. It may rely on the rules before it."""

    name: str
    check: Check


def may_reclaim(host: Host, policy: Policy) -> SpokeNode:
    """The node to put the agent on. Raises Refused with the first reason against it, NotKnown for a missing fact."""
    for rule in RULES:
        rule.check(host, policy)
    return _node_of(host)


def _previous(host: Host, _: Policy) -> str:
    if host.previous is None:
        raise Refused(
            Reason.PREVIOUS_CLUSTER_UNKNOWN,
            "The Agent does not say which cluster it was in (status.deprovision_info); boot it into discovery by hand.",
        )
    return f"It was node {host.previous.node} of {_where(host)}."


def _confirmed(host: Host, _: Policy) -> str:
    if host.reason in UNCONFIRMED:
        raise Refused(
            Reason.NOTE_NOT_CONFIRMED,
            f"The Agent's note (status.deprovision_info) says {_where(host)}, but that is not where it was last "
            "installed; boot it into discovery by hand.",
        )
    return "The note is of the cluster it was last in."


def _not_cancelled(host: Host, _: Policy) -> str:
    if host.cancelled:
        raise Refused(Reason.CANCELLED, "It was cancelled by annotation before it began.")
    return "Nobody cancelled it."


def _no_bmc(host: Host, _: Policy) -> str:
    if host.bare_metal_host:
        raise Refused(Reason.BMC_MANAGED, f"BareMetalHost {host.bare_metal_host} boots this host.")
    return "No BareMetalHost belongs to it."


def _hub(_: Host, policy: Policy) -> str:
    if not policy.hub_url:
        raise Refused(Reason.HUB_NOT_CONFIGURED, "HUB_URL is not set, so an agent on the node could not reach the hub.")
    if not policy.image:
        message = "AGENT_IMAGE is not set, and the operator's own image is not known, so no agent can be started."
        raise Refused(Reason.HUB_NOT_CONFIGURED, message)
    return f"Agents reach the hub at {policy.hub_url}."


def _kubeconfig(host: Host, _: Policy) -> str:
    where = _where(host)
    match host.spoke.kubeconfig:
        case Unknown(why):
            raise NotKnown(f"the kubeconfig of {where} cannot be read: {why}")
        case Known(False):
            raise Refused(Reason.NO_KUBECONFIG, f"ClusterDeployment {where} has no admin kubeconfig Secret.")
    return f"The kubeconfig of {where} is there."


def _node(host: Host, _: Policy) -> str:
    return f"Cluster {_where(host)} has node {_node_of(host).name}."


def _boot(host: Host, _: Policy) -> str:
    node = _node_of(host)
    if not node.boot_id:
        raise NotKnown(f"node {node.name} does not say which boot it is in, so a restart could not be told")
    return f"It is in boot {node.boot_id}."


def _same_machine(host: Host, _: Policy) -> str:
    node = _node_of(host)
    if not (normalise(host.system_uuid) and normalise(node.system_uuid)):
        return "Its system UUID is not known on both sides; the name counts."
    if not same_uuid(host.system_uuid, node.system_uuid):
        raise Refused(
            Reason.ANOTHER_MACHINE,
            f"Node {node.name} of {_where(host)} is another machine: its system UUID is {node.system_uuid}, the "
            f"Agent's {host.system_uuid}.",
        )
    return f"Both know the system UUID {node.system_uuid}."


def _unmanaged(host: Host, _: Policy) -> str:
    node = _node_of(host)
    if node.managed_by:
        raise Refused(Reason.MANAGED_BY_MACHINE_PROVIDER, f"Node {node.name} is managed by {node.managed_by}.")
    return "No machine provider manages it."


def _not_the_last(host: Host, _: Policy) -> str:
    node, where = _node_of(host), _where(host)
    if not node.control_plane:
        return "It is no control-plane node."
    if host.confirmed:
        return "It is a control-plane node, and the owner confirmed it."
    match host.spoke.control_planes:
        case Unknown(why):
            raise NotKnown(f"which other control-plane nodes {where} has is not known: {why}")
        case Known(0):
            raise Refused(
                Reason.LAST_CONTROL_PLANE,
                f"Node {node.name} is the last control-plane node of {where}: no other one is ready and stays. The "
                "annotation reclaim.hostler.dev/confirm=last-control-plane says that this is meant.",
            )
        case Known(count):
            return f"{where} has {count} other control-plane nodes that are ready and stay."
    raise AssertionError("a fact is Known or Unknown")


def _artifacts(host: Host, _: Policy) -> str:
    match host.artifacts:
        case Unknown(why):
            raise NotKnown(f"the boot artifacts are not known: {why}")
        case Known(None):
            raise Refused(
                Reason.ARTIFACTS_UNAVAILABLE, "The InfraEnv of this Agent has no boot artifacts in its status."
            )
    return "The InfraEnv has boot artifacts."


RULES = (
    Rule("the old cluster is known", _previous),
    Rule("the note is confirmed", _confirmed),
    Rule("not cancelled", _not_cancelled),
    Rule("no BareMetalHost", _no_bmc),
    Rule("the hub is configured", _hub),
    Rule("kubeconfig", _kubeconfig),
    Rule("the node is there", _node),
    Rule("its boot is known", _boot),
    Rule("the same machine", _same_machine),
    Rule("no machine provider", _unmanaged),
    Rule("not the last control-plane node", _not_the_last),
    Rule("boot artifacts", _artifacts),
)


def _where(host: Host) -> str:
    assert host.previous is not None
    return f"{host.previous.namespace}/{host.previous.name}"


def _node_of(host: Host) -> SpokeNode:
    assert host.previous is not None
    match host.spoke.node:
        case Unknown(why):
            raise NotKnown(f"cluster {_where(host)} does not say whether node {host.previous.node} is there: {why}")
        case Known(None):
            raise Refused(Reason.NODE_NOT_FOUND, f"Cluster {_where(host)} has no node {host.previous.node}.")
        case Known(SpokeNode() as node):
            return node
    raise AssertionError("a fact is Known or Unknown")
