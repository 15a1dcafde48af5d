"""What an Agent reports for the picture of hosts. Pure.

The operator gives the decision it made last; without one the Agent's condition `Reclaimed` says what was decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hostler.apis.assisted import INFRA_ENV_LABEL, Agent
from hostler.instant import Instant, parse
from hostler.inventory.model import Layer, LayerKind, Line, Suspect, Where, agent_key, bare_metal_key, mac_mark
from hostler.inventory.states import HostState
from hostler.reclaim.decision import Decision
from hostler.reclaim.facts import PROGRESS, RECLAIMED, host_of
from hostler.reclaim.identity import Proof, prove_machine
from hostler.reclaim.model import IN_A_CLUSTER, UNDER_WAY, Host, Reason, SpokeNode, State, is_pinned, is_unbound
from hostler.reclaim.quoting import clean_text, is_name

RECLAIM = "reclaim"
TEXT_LIMIT = 200
# What assisted-service calls the states of a host that reclaim has nothing to do with.
STATES: Mapping[str, HostState] = {
    "discovering": HostState.CLAIMED,
    "known": HostState.CLAIMED,
    "binding": HostState.CLAIMED,
    "insufficient": HostState.CLAIMED,
    "pending-for-input": HostState.CLAIMED,
    "preparing-for-installation": HostState.PROVISIONING,
    "preparing-successful": HostState.PROVISIONING,
    "preparing-failed": HostState.FAILED,
    "installing": HostState.PROVISIONING,
    "installing-in-progress": HostState.PROVISIONING,
    "installing-pending-user-action": HostState.FAILED,
    "resetting": HostState.DEPROVISIONING,
    "resetting-pending-user-action": HostState.FAILED,
    "error": HostState.FAILED,
    "cancelled": HostState.FAILED,
    "disconnected": HostState.UNKNOWN,
    "disabled": HostState.HELD,
    "unbinding": HostState.RECLAIMING,
    State.DISCOVERING: HostState.DISCOVERED,
    State.INSUFFICIENT: HostState.DISCOVERED,
    State.DISCONNECTED: HostState.UNKNOWN,
    State.DISABLED: HostState.HELD,
    State.RECLAIMING: HostState.RECLAIMING,
    State.REBOOTING: HostState.RECLAIMING,
    State.PENDING: HostState.FAILED,  # a person has to boot it
}
# In these a sentence of assisted-service, or of the host, says what is wrong.
TROUBLED = ("insufficient", "insufficient-unbound", "preparing-failed", "error", "disconnected", "disconnected-unbound")
# A reclaim goes through these; what it has reached is its progress.
RECLAIM_STEPS = 3


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of one Agent. `host`: with the facts of the last look, where there was one."""

    agent: Agent
    host: Host
    decision: Decision | None = None
    next: str = ""

    @classmethod
    def of(cls, agent: Agent) -> Standing:
        """As the object alone tells."""
        return cls(agent, host_of(agent))


def agent_layer(standing: Standing, same_as: tuple[str, ...] = (), doubts: tuple[str, ...] = ()) -> Layer:
    agent, host = standing.agent, standing.host
    meta = agent.metadata
    state = state_of(host, agent)
    cluster, node = _cluster_of(host, state)
    return Layer(
        key=agent_key(meta.namespace, meta.name),
        kind=LayerKind.AGENT,
        name=host.hostname if is_name(host.hostname) else meta.name,
        lines=(agent_line(standing),),
        where=Where(namespace=meta.namespace, infra_env=meta.labels.get(INFRA_ENV_LABEL, "")),
        cluster=cluster,
        node=node,
        problems=_problems(agent),
        same_as=same_as,
        doubts=doubts,
        suspects=_suspects(agent, host),
        labels=meta.labels,
    )


def agent_line(standing: Standing) -> Line:
    agent, host = standing.agent, standing.host
    state = state_of(host, agent)
    is_operation = is_under_way(host)
    return Line(
        RECLAIM,
        state,
        why_of(standing),
        _since_of(standing, state),
        next=standing.next if is_operation else "",
        mid_step=host.state in UNDER_WAY or (host.kept and not host.deleted),
        waiting="the workers of its cluster" if is_operation and host.reason == Reason.WORKERS_FIRST else "",
        operation=operation_of(host) if is_operation else "",
        about=host.name,
    )


def state_of(host: Host, agent: Agent) -> HostState:
    if host.state in IN_A_CLUSTER:
        return HostState.PROVISIONED if host.bound is not None else HostState.RECLAIMING
    if host.state == State.KNOWN:
        return HostState.AVAILABLE if agent.spec.approved else HostState.DISCOVERED
    if not host.state:
        return HostState.DISCOVERED
    return STATES.get(host.state, HostState.UNKNOWN)


def is_under_way(host: Host) -> bool:
    """Whether a reclaim of it is under way, wanted, or left to a person."""
    unbound = host.state in IN_A_CLUSTER and host.bound is None
    return unbound or host.state in (*UNDER_WAY, State.PENDING)


def is_blocked(standing: Standing) -> bool:
    """Whether a reclaim waits for a person or another party."""
    host = standing.host
    empties = host.state == State.RECLAIMING and host.spoke.drain is not None
    return host.state in IN_A_CLUSTER or host.state == State.PENDING or empties


def steps_done(host: Host) -> int:
    """Of a reclaim: what comes before the agent is done, the image is on the host, it is in discovery."""
    if is_unbound(host.state):
        return RECLAIM_STEPS
    if host.state == State.REBOOTING:
        return 2
    return 1 if host.state == State.RECLAIMING and is_pinned(host) and host.spoke.drain is None else 0


def why_of(standing: Standing) -> str:
    """What `explain` says of the Agent, with the reason of a refusal, and how far its download is."""
    agent, host = standing.agent, standing.host
    condition = next((condition for condition in agent.status.conditions if condition.type == RECLAIMED), None)
    told = condition.message if condition is not None and is_under_way(host) else ""
    decided = standing.decision.why if standing.decision is not None else ""
    if host.state == State.PENDING:
        return " ".join(dict.fromkeys(filter(None, (told, decided)))) or "It waits for a person."
    progress = clean_text(agent.metadata.annotations.get(PROGRESS, ""), TEXT_LIMIT)
    where = f" It reports: {progress}." if progress and host.state in UNDER_WAY else ""
    return f"{decided or told or _plainly(host)}{where}"


def _plainly(host: Host) -> str:
    if host.state in IN_A_CLUSTER:
        return "It is in its cluster." if host.bound is not None else "It is unbound from its cluster."
    return f"Its Agent is {host.state}." if host.state else "Its Agent has no state yet."


def operation_of(host: Host) -> str:
    """One per reclaim: the Agent keeps the note about its cluster until it is over."""
    was = f"/{host.previous.namespace}/{host.previous.name}" if host.previous is not None else ""
    return f"reclaim/{host.namespace}/{host.name}{was}"


def _since_of(standing: Standing, state: HostState) -> Instant | None:
    """When its stage began; of a state that is no stage of its own the object says nothing."""
    host = standing.host
    if host.state in IN_A_CLUSTER and host.bound is None:
        bound = (condition for condition in standing.agent.status.conditions if condition.type in ("Bound", RECLAIMED))
        return max((parse(condition.last_transition_time) or 0.0 for condition in bound), default=0.0) or None
    return None if state is HostState.UNKNOWN else host.since


def _cluster_of(host: Host, state: HostState) -> tuple[str, str]:
    """The cluster it is in, or on its way out of, and its node there."""
    if host.bound is not None:
        return "/".join(host.bound), host.hostname if state is HostState.PROVISIONED and is_name(host.hostname) else ""
    previous = host.previous
    if previous is None or is_unbound(host.state):
        return "", ""
    return f"{previous.namespace}/{previous.name}", previous.node


def _problems(agent: Agent) -> tuple[str, ...]:
    info = agent.status.debug_info
    if info.state not in TROUBLED or not info.state_info:
        return ()
    return (f"Its Agent is {info.state}: {clean_text(info.state_info, TEXT_LIMIT)}",)


def _suspects(agent: Agent, host: Host) -> tuple[Suspect, ...]:
    """Who may write the Agent writes its label too: the BareMetalHost's boot MAC address has to agree."""
    if not host.bare_metal_host:
        return ()
    macs = tuple(
        mac_mark(interface.mac_address) for interface in agent.status.inventory.interfaces if interface.mac_address
    )
    named = clean_text(host.bare_metal_host, TEXT_LIMIT)
    doubt = f"BareMetalHost {named} may be it, without proof: only a label names it, and no MAC address agrees."
    return (Suspect(bare_metal_key(host.namespace, host.bare_metal_host), macs, doubt),)


# -- which node of this cluster it is


def node_of_agent(host: Host) -> str:
    """The name of the node that it is, or was: never one while it is in discovery."""
    if is_unbound(host.state) or not (host.bound or host.previous):
        return ""
    name = host.previous.node if host.previous is not None else host.hostname
    return name if is_name(name) else ""


def judge_node(host: Host, node: SpokeNode, namesake: str) -> str | None:
    """Why an Agent is not taken for the node of its name in this cluster, as a sentence; "": it is; None: it is not.

    Reclaim's own proof, but for the address: that counts only in the cluster the Agent was installed into, and
    whether that is this one is not known. `namesake`: another Agent that is named by the node's system UUID.
    """
    match prove_machine(replace(host, spoke=replace(host.spoke, namesake=namesake)), node):
        case Proof.SYSTEM_UUID:
            return ""
        case Proof.CONTRADICTED:
            return None
        case Proof.ADDRESS:
            return f"Node {node.name} may be it, without proof: name and address agree, and no system UUID does."
    return f"Node {node.name} may be it, without proof: only the name agrees."
