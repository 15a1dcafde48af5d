"""What speaks against a reclaim, one rule at a time. `decide` takes the first, `explain` shows them all. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hostler.host.facts import Known, Unknown
from hostler.reclaim.artifacts import HASHED, Artifacts, Distrust, Untrusted, find_refused_argument, find_untrusted
from hostler.reclaim.decision import NotKnown, Refused, Waits, require_fact
from hostler.reclaim.facts import AGENTS_FROM, CONFIRM, HASHES, MANAGED_BY, default_kubeconfig
from hostler.reclaim.identity import Proof, prove_machine
from hostler.reclaim.model import UNCONFIRMED, ControlPlane, Host, Policy, Reason, SpokeNode

Check = Callable[[Host, Policy], str]


@dataclass(frozen=True, slots=True)
class Rule:
    """`check` says what it found, or raises Refused, NotKnown or Waits. It may rely on the rules before it."""

    name: str
    check: Check


def may_reclaim(host: Host, policy: Policy) -> SpokeNode:
    """The node to put the agent on.

    Raises Refused with the first reason against it, NotKnown for a missing fact, Waits where others go first.
    """
    for rule in RULES:
        rule.check(host, policy)
    return _node_of(host)


def check_trust(host: Host, policy: Policy) -> None:
    """Raises Refused where a reclaim that is under way must not go on, NotKnown where its reach is not known.

    A node that does not answer ends nothing: it was proven before its agent was put there, and with the last
    control-plane node its API goes. A node that is gone is for `decide` to judge.
    """
    _check_note(host, policy)
    _check_namespace(host, policy)
    if isinstance(host.spoke.node, Known) and host.spoke.node.value is not None:
        _check_machine(host, policy)
    if isinstance(host.artifacts, Known) and host.artifacts.value is not None:
        _check_trusted_artifacts(host, policy)
        _check_kernel_arguments(host, policy)


def has_reach(host: Host) -> bool:
    """Whether it is known that this Agent may act in its old cluster."""
    return isinstance(host.spoke.reach, Known) and host.spoke.reach.value


def is_own_machine(host: Host, node: SpokeNode) -> bool:
    """Whether the Node may be deleted for this Agent."""
    return has_reach(host) and prove_machine(host, node) in (Proof.SYSTEM_UUID, Proof.ADDRESS)


def _check_note(host: Host, _: Policy) -> str:
    if host.previous is None:
        raise Refused(
            Reason.PREVIOUS_CLUSTER_UNKNOWN,
            "The Agent does not say which cluster it was in (status.deprovision_info); boot it into discovery by hand.",
        )
    return f"It was node {host.previous.node} of {_cluster_of(host)}."


def _check_confirmed(host: Host, _: Policy) -> str:
    if host.reason in UNCONFIRMED:
        raise Refused(
            Reason.NOTE_NOT_CONFIRMED,
            f"The Agent's note (status.deprovision_info) says {_cluster_of(host)}, but that is not where it was last "
            "installed; boot it into discovery by hand.",
        )
    return "The note is of the cluster it was last in."


def _check_not_cancelled(host: Host, _: Policy) -> str:
    if host.cancelled:
        raise Refused(Reason.CANCELLED, "It was cancelled by annotation before it began.")
    return "It is not cancelled."


def _check_no_bmc(host: Host, _: Policy) -> str:
    if host.bare_metal_host:
        raise Refused(Reason.BMC_MANAGED, f"BareMetalHost {host.bare_metal_host} boots this host.")
    return "No BareMetalHost belongs to it."


def _check_hub(_: Host, policy: Policy) -> str:
    if not policy.hub_url:
        raise Refused(Reason.HUB_NOT_CONFIGURED, "HUB_URL is not set, so an agent on the node could not reach the hub.")
    if not policy.image:
        message = "AGENT_IMAGE is not set and the operator's own image is unknown, so no agent can be started."
        raise Refused(Reason.HUB_NOT_CONFIGURED, message)
    return f"Agents reach the hub at {policy.hub_url}."


def _check_namespace(host: Host, _: Policy) -> str:
    """Before anything is asked of that cluster. Whether it exists is not for Agents of other namespaces to know."""
    where = _cluster_of(host)
    require_fact(
        host.spoke.reach,
        f"cannot tell whether Agents of namespace {host.namespace} may act in {where}",
        Reason.NAMESPACE_NOT_ALLOWED,
        f"Agents of namespace {host.namespace} may not return hosts of ClusterDeployment {where}. Its owner "
        f"can allow it with the annotation {AGENTS_FROM}={host.namespace} on it, an administrator with "
        f"HOSTLER_RECLAIM_INVENTORIES={host.namespace}; then retry.",
    )
    return f"Agents of namespace {host.namespace} may act in {where}."


def _check_kubeconfig(host: Host, _: Policy) -> str:
    where = _cluster_of(host)
    name = host.previous.name if host.previous is not None else ""
    require_fact(
        host.spoke.kubeconfig,
        f"cannot read the kubeconfig of {where}",
        Reason.NO_KUBECONFIG,
        f"ClusterDeployment {where} has no admin kubeconfig: the Secret that its "
        "spec.clusterMetadata.adminKubeconfigSecretRef names is not there; nor, where it names none, Secret "
        f"{default_kubeconfig(name)}.",
    )
    return f"The kubeconfig of {where} is there."


def _check_node(host: Host, _: Policy) -> str:
    return f"Cluster {_cluster_of(host)} has node {_node_of(host).name}."


def _check_boot(host: Host, _: Policy) -> str:
    node = _node_of(host)
    if not node.boot_id:
        raise NotKnown(f"node {node.name} does not report its boot id, so Hostler could not tell that it was restarted")
    return f"It is in boot {node.boot_id}."


def _check_machine(host: Host, _: Policy) -> str:
    node, where = _node_of(host), _cluster_of(host)
    match prove_machine(host, node):
        case Proof.SYSTEM_UUID:
            return "The node's system UUID is that of the Agent."
        case Proof.ADDRESS:
            return (
                "The node has an address of the Agent's inventory, and no system UUID says that it is another machine."
            )
        case Proof.CONTRADICTED:
            other = host.spoke.namesake
            why = f"that of Agent {other}" if other else "not the one in the serial number of the Agent's inventory"
            raise Refused(
                Reason.ANOTHER_MACHINE, f"Node {node.name} of {where} is another machine: its system UUID is {why}."
            )
    raise Refused(
        Reason.MACHINE_NOT_PROVEN,
        f"Nothing shows that node {node.name} of {where} is the machine of this Agent: the Agent's name is not the "
        "node's system UUID, and no InternalIP of the node is in the Agent's inventory. Boot it into discovery "
        "by hand.",
    )


def _check_unmanaged(host: Host, _: Policy) -> str:
    node = _node_of(host)
    manager = _manager_of(host, node)
    if not manager:
        own = node.provider_id == _own_provider(host)
        return f"Its provider {node.provider_id} is this very Agent." if own else "No machine provider manages it."
    if host.managed_by == manager:
        return f"{_describe_manager(node)} manages it, and the annotation {MANAGED_BY} accepts that."
    raise Refused(
        Reason.MANAGED_BY_MACHINE_PROVIDER,
        f"Node {node.name} is managed by {_describe_manager(node)}, which may replace it or delete its machine. "
        f"To return the host all the same, annotate the Agent with {MANAGED_BY}={manager}.",
    )


def _manager_of(host: Host, node: SpokeNode) -> str:
    """Who else manages the node: its Machine, else its providerID. Cluster API's provider for Agents is no stranger."""
    return "" if node.provider_id == _own_provider(host) else node.machine or node.provider_id


def _describe_manager(node: SpokeNode) -> str:
    return f"Machine {node.machine}" if node.machine else f"the provider of {node.provider_id}"


def _own_provider(host: Host) -> str:
    """The providerID that Cluster API's provider for Agents gives the node of this Agent."""
    return f"agent://{host.name}"


def _check_quorum(host: Host, _: Policy) -> str:
    node, where = _node_of(host), _cluster_of(host)
    if not node.control_plane:
        return "It is no control-plane node."
    found = _control_plane_of(host)
    if found.keeps_quorum:
        return f"{found.staying} of {found.total} control-plane nodes of {where} are Ready and stay without it."
    if host.confirmed:
        return f"{where} loses its control plane, and the annotation {CONFIRM} accepts that."
    agents = ", ".join(found.leaving)
    first = f" Before it leave{'s' if len(found.leaving) == 1 else ''} {agents}." if agents else ""
    accept = f"To return the whole cluster, annotate each of its Agents with {CONFIRM}={where}."
    if not found.staying:
        raise Refused(
            Reason.LAST_CONTROL_PLANE,
            f"Node {node.name} is the last control-plane node of {where}: no other one is Ready and stays."
            f"{first} {accept}",
        )
    raise Refused(
        Reason.QUORUM_LOST,
        f"Without node {node.name} only {found.staying} of {found.total} control-plane nodes of {where} are Ready and "
        f"stay, which is no majority.{first} {accept}",
    )


def _check_workers(host: Host, _: Policy) -> str:
    """Returning a host needs the API of its old cluster, and that goes with the control plane."""
    if not _node_of(host).control_plane:
        return "It is no control-plane node."
    workers = _control_plane_of(host).workers
    if not workers:
        return "No worker of its cluster is being returned."
    more = f" and {len(workers) - 3} more" if len(workers) > 3 else ""
    raise Waits(f"It waits until the workers of its cluster are returned: {', '.join(workers[:3])}{more}.")


def _control_plane_of(host: Host) -> ControlPlane:
    match host.spoke.control_plane:
        case Known(found):
            return found
        case Unknown(why):
            raise NotKnown(f"cannot read the control-plane nodes of {_cluster_of(host)}: {why}")


def accepted_risks(host: Host) -> str:
    """What annotations of the owner accept on this return, for the condition; all rules hold."""
    node = _node_of(host)
    found = []
    if node.control_plane and host.confirmed and not _control_plane_of(host).keeps_quorum:
        found.append(f" Cluster {_cluster_of(host)} loses its control plane, as the annotation {CONFIRM} accepts.")
    if _manager_of(host, node):
        found.append(f" The node is managed by {_describe_manager(node)}, as the annotation {MANAGED_BY} accepts.")
    return "".join(found)


def _check_artifacts(host: Host, _: Policy) -> str:
    _artifacts_of(host)
    return "The InfraEnv has boot artifacts."


def _check_trusted_artifacts(host: Host, policy: Policy) -> str:
    found = find_untrusted(_artifacts_of(host), policy.boot)
    if found is not None:
        raise Refused(Reason.ARTIFACTS_NOT_TRUSTED, _describe_distrust(found))
    return "Kernel, initrd and rootfs come by https, by a known hash, or from where the settings accept plain HTTP."


def _describe_distrust(found: Untrusted) -> str:
    if found.why is Distrust.NOT_AN_ADDRESS:
        return (
            f"The {found.name} is not fetched: its address is not a plain http or https address "
            "(status.bootArtifacts of the InfraEnv)."
        )
    if found.why is Distrust.PROXY:
        what = "HUB_URL is plain HTTP, and agents would reach it" if found.name == "hub" else f"The {found.name} comes"
        return (
            f"{what} by plain HTTP through the proxy of the InfraEnv (spec.proxy.httpProxy), which can replace what "
            "passes. Use https, or add the host to spec.proxy.noProxy."
        )
    note = f"annotate the InfraEnv with {HASHES[found.name]}, " if found.name in HASHED else ""
    return (
        f"The {found.name} comes from {found.host} by plain HTTP, so anyone on the network path can replace it. "
        f"Use https, {note}or add {found.host} to HOSTLER_RECLAIM_ARTIFACT_HOSTS."
    )


def _check_kernel_arguments(host: Host, policy: Policy) -> str:
    refused = find_refused_argument(_artifacts_of(host).arguments, policy.boot.arguments)
    if refused is not None:
        raise Refused(
            Reason.KERNEL_ARGUMENT_REFUSED,
            f"The InfraEnv has the kernel argument {refused}, which is not accepted. Remove it from "
            "spec.kernelArguments, or add its name to HOSTLER_RECLAIM_KERNEL_ARGUMENTS.",
        )
    return "Every kernel argument of the InfraEnv is accepted."


def _artifacts_of(host: Host) -> Artifacts:
    found = require_fact(
        host.artifacts,
        "cannot read the boot artifacts",
        Reason.ARTIFACTS_UNAVAILABLE,
        "The InfraEnv of this Agent has no boot artifacts in its status.",
    )
    assert found is not None
    return found


RULES = (
    Rule("the old cluster is known", _check_note),
    Rule("the note is confirmed", _check_confirmed),
    Rule("not cancelled", _check_not_cancelled),
    Rule("no BareMetalHost", _check_no_bmc),
    Rule("the hub is configured", _check_hub),
    Rule("the namespace may act there", _check_namespace),
    Rule("kubeconfig", _check_kubeconfig),
    Rule("the node is there", _check_node),
    Rule("its boot is known", _check_boot),
    Rule("the same machine", _check_machine),
    Rule("no machine provider", _check_unmanaged),
    Rule("the control plane keeps its quorum", _check_quorum),
    Rule("boot artifacts", _check_artifacts),
    Rule("boot artifacts are trusted", _check_trusted_artifacts),
    Rule("kernel arguments", _check_kernel_arguments),
    Rule("workers first", _check_workers),
)


def _cluster_of(host: Host) -> str:
    assert host.previous is not None
    return f"{host.previous.namespace}/{host.previous.name}"


def _node_of(host: Host) -> SpokeNode:
    assert host.previous is not None
    found = require_fact(
        host.spoke.node,
        f"cannot tell whether cluster {_cluster_of(host)} has node {host.previous.node}",
        Reason.NODE_NOT_FOUND,
        f"Cluster {_cluster_of(host)} has no node {host.previous.node}.",
    )
    assert found is not None
    return found
