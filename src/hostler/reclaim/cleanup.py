"""What is taken back when a reclaim has ended, and what is kept until that is known. Pure.

Nothing is deleted or forgotten on a fact that is not known, and nothing is done in a cluster that the Agent does not
reach, but for taking back what is there for that very Agent.
"""

from __future__ import annotations

from dataclasses import replace

from hostler.host.facts import Known, Unknown
from hostler.reclaim.decision import (
    Action,
    Decision,
    ForgetCluster,
    Release,
    RemoveFinalizer,
    RemoveNode,
    SetCondition,
    Withdraw,
)
from hostler.reclaim.model import Host, Policy, Reason, SpokeNode, is_held_for
from hostler.reclaim.rules import has_reach, is_own_machine


def clean_up_discovered(host: Host, policy: Policy) -> Decision:
    """In discovery: whatever is left in the old cluster goes, then the note about it."""
    if host.previous is None:
        return clean_up(host, "It is in discovery.", ())
    settled = _forget_cluster(host, policy)
    if host.reason != Reason.REGISTERED and not any(isinstance(action, ForgetCluster) for action in settled.actions):
        # Whatever becomes of the old cluster: the note about it is not of where the host is installed next.
        said = SetCondition(Reason.REGISTERED, "The host is in discovery again.")
        return replace(settled, actions=(*settled.actions, said))
    return settled


def _forget_cluster(host: Host, policy: Policy) -> Decision:
    last: tuple[Action, ...] = (ForgetCluster(),)
    if policy.remove_node and _may_remove(host):
        match host.spoke.node:
            case Unknown(why):
                return Decision((), f"Cannot read its node in the old cluster: {why}")
            case Known(SpokeNode(ready=True) as node):
                return Decision((), f"Node {node.name} of its old cluster still reports that it is ready.")
            case Known(SpokeNode(control_plane=True) as node):
                # Its etcd member is still there: without the Node, the next quorum would be counted without it.
                message = (
                    f"The host is in discovery again. Node {node.name} of its old cluster stays: it is a control-plane "
                    "node, and counts as lost until a person removes its etcd member and then the Node."
                )
                last = (SetCondition(Reason.REGISTERED, message), ForgetCluster())
            case Known(SpokeNode() as node) if is_own_machine(host, node):
                last = (RemoveNode(node), ForgetCluster())
    return clean_up(host, "It is in discovery.", last)


def _may_remove(host: Host) -> bool:
    """Unless it is known that its cluster cannot be reached, or that this Agent must not act there."""
    return not any(isinstance(fact, Known) and not fact.value for fact in (host.spoke.kubeconfig, host.spoke.reach))


def clean_up(host: Host, why: str, last: tuple[Action, ...]) -> Decision:
    """Take what is left of ours off the old cluster; `last` only when it is known that nothing is left."""
    last = (*last, RemoveFinalizer()) if host.kept else last
    if host.previous is None:
        return Decision(last, why)
    match host.spoke.kubeconfig, host.spoke.remains:
        case Known(False), _:
            return Decision(last, f"{why} Its old cluster cannot be reached any more: it has no kubeconfig.")
        case _, Unknown(unknown):
            return Decision((), f"{why} Cannot tell what is left in its old cluster: {unknown}")
        case _, Known(remains) if remains:
            return Decision((Withdraw(),), f"{why} What it left in its old cluster is removed.")
    match host.spoke.node:
        case Known(SpokeNode(held=True) as node) if has_reach(host) or is_held_for(host, node):
            return Decision((Release(node),), f"{why} Node {node.name} of its old cluster is released.")
    return Decision(last, why)


def has_remains(host: Host) -> bool:
    return isinstance(host.spoke.remains, Known) and bool(host.spoke.remains.value)
