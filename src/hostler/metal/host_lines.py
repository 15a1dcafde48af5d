"""What a BareMetalHost, and the machine that has it, report for the picture of hosts. Pure.

The operator gives the decision it made last; without one the state comes from the objects, and the sentence from the
same functions that decide.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from hostler.apis import capi
from hostler.apis.metal3 import BareMetalHost, Metal3Machine, Reference
from hostler.host.conditions import names as listed
from hostler.instant import Instant, parse
from hostler.inventory.model import Layer, LayerKind, Line, Where, bare_metal_key, mac_mark, node_key
from hostler.inventory.nodes import RACK
from hostler.inventory.states import HostState
from hostler.kube.records import key_of
from hostler.metal import names
from hostler.metal.claiming.choose import domain_of
from hostler.metal.claiming.refusal import why_not_free
from hostler.metal.model import Decision, Facts, Step
from hostler.metal.provisioning import provider_ids
from hostler.metal.remediation.model import RUNNING, WAITING, Remediation
from hostler.metal.status import PROVISIONED, error_of, is_settled, readiness_of

METAL = "metal"
EMPTYING = ("deprovisioning", "deleting", "powering off before delete")
# A claim goes through these; what it has reached is its progress.
CLAIM_STEPS = (HostState.CLAIMED, HostState.PROVISIONING, HostState.JOINING)
SECRET_MISSING = "BMCSecretMissing"  # nosec B105 # the reason of a condition


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of one host. `facts`: of the Metal3Machine that has it, with what is decided for it."""

    host: BareMetalHost
    facts: Facts | None = None
    decision: Decision | None = None
    next: str = ""
    remediation: Remediation | None = None
    remedy: str = ""  # what is decided about the remediation, as a sentence


def bare_metal_layer(standing: Standing) -> Layer:
    """The layer of a host, without the node that it is."""
    host, facts = standing.host, standing.facts
    meta = host.metadata
    owner = facts.owner if facts is not None else None
    return Layer(
        key=bare_metal_key(meta.namespace, meta.name),
        kind=LayerKind.BARE_METAL,
        name=meta.name,
        lines=lines_of(standing),
        where=Where(namespace=meta.namespace, rack=meta.labels.get(RACK, ""), failure_domain=domain_of(host)),
        cluster=f"{meta.namespace}/{facts.cluster_name}" if facts is not None and facts.cluster_name else "",
        node=owner.node if owner is not None else "",
        problems=problems_of(standing),
        marks=tuple(map(mac_mark, filter(None, (host.spec.boot_mac_address,)))),
        labels=meta.labels,
    )


def lines_of(standing: Standing) -> tuple[Line, ...]:
    first = host_line(standing)
    remedy = _remediation_line(standing)
    return (first,) if remedy is None else (remedy, first)


def host_line(standing: Standing) -> Line:
    host, facts = standing.host, standing.facts
    state = state_of(host, facts)
    if facts is None:
        under_way = state in (HostState.PROVISIONING, HostState.DEPROVISIONING)
        return Line(METAL, state, _why_without_machine(host, state), since_of(host, None, state), mid_step=under_way)
    under_way = state is HostState.DEPROVISIONING or state in CLAIM_STEPS
    return Line(
        METAL,
        state,
        why_of(standing),
        since_of(host, facts.machine, state),
        next=standing.next if under_way or state is HostState.FAILED else "",
        mid_step=under_way,
        waiting=waiting_of(facts),
        operation=operation_of(facts.machine) if under_way or state is HostState.FAILED else "",
        about=facts.machine.metadata.name,
    )


def state_of(host: BareMetalHost, facts: Facts | None) -> HostState:
    """An error of the BMC is no failure of a host that has its image: a node runs on without its BMC."""
    machine = facts.machine if facts is not None else None
    if host.failing and host.state not in PROVISIONED:
        return HostState.FAILED
    going = host.metadata.deletion_timestamp or (machine is not None and machine.metadata.deletion_timestamp)
    if host.state in EMPTYING or going:
        return HostState.DEPROVISIONING
    if host.state == "provisioning":
        return HostState.PROVISIONING
    if host.state in PROVISIONED:
        comes_up = machine is not None and host.state == "provisioned" and not is_settled(machine)
        return HostState.JOINING if comes_up else HostState.PROVISIONED
    if machine is not None or _foreign(host):
        return HostState.CLAIMED
    if not host.available:
        return HostState.DISCOVERED
    return HostState.AVAILABLE if why_not_free(host) is None else HostState.HELD


def why_of(standing: Standing) -> str:
    """What `explain` says of the machine."""
    host, facts, decision = standing.host, standing.facts, standing.decision
    if decision is not None:
        return decision.why
    return readiness_of(facts, host)[1] if facts is not None else _why_without_machine(host, state_of(host, None))


def _why_without_machine(host: BareMetalHost, state: HostState) -> str:
    if host.failing:
        return error_of(host)
    if (consumer := _foreign(host)) is not None:
        called = f"{consumer.kind} {consumer.namespace}/{consumer.name}"
        return f"Host {host.metadata.name} is {host.state or 'new'}; its consumer is {called}."
    refused = why_not_free(host)
    if state is HostState.HELD and refused is not None:
        return f"It is unavailable: {refused.text}."
    if state is HostState.AVAILABLE:
        label = host.metadata.labels.get(names.NODE_REUSE)
        return f"It is reserved for {label}." if label else "It is free."
    return f"Host {host.metadata.name} is {host.state or 'new'}."


def _foreign(host: BareMetalHost) -> Reference | None:
    """A consumer; a Cluster only keeps a host for its next machine."""
    consumer = host.spec.consumer_ref
    return None if consumer is None or consumer.kind == capi.CLUSTER.kind else consumer


def since_of(host: BareMetalHost, machine: Metal3Machine | None, state: HostState) -> Instant | None:
    """As the objects tell; None where they do not."""
    history = host.status.operation_history
    match state:
        case HostState.PROVISIONING:
            return parse(history.provision.start)
        case HostState.JOINING | HostState.PROVISIONED:
            return parse(history.provision.end)
        case HostState.DEPROVISIONING:
            deleted = machine.metadata.deletion_timestamp if machine is not None else host.metadata.deletion_timestamp
            return parse(deleted or history.deprovision.start)
        case HostState.AVAILABLE:
            return parse(host.last_used)
        case HostState.CLAIMED | HostState.FAILED if machine is not None:
            wanted = (names.ASSOCIATED, "True") if state is HostState.CLAIMED else (names.HEALTHY, "False")
            said = (one for one in machine.status.conditions if (one.type, one.status) == wanted)
            return next((parse(one.last_transition_time) for one in said), None)
    return None


def waiting_of(facts: Facts) -> str:
    """On what a person has made it wait."""
    return f"Cluster {facts.cluster_name}, which is paused, or it is itself" if facts.paused else ""


def operation_of(machine: Metal3Machine) -> str:
    """One per claim: another machine of this name is another claim."""
    meta = machine.metadata
    return f"claim/{key_of(meta)}/{meta.creation_timestamp}".rstrip("/")


def machine_key(namespace: str, name: str) -> str:
    """Under which the history keeps what is done to a Metal3Machine that has no host yet."""
    return f"m3m:{namespace}/{name}"


def problems_of(standing: Standing) -> tuple[str, ...]:
    found = [error_of(standing.host)] if standing.host.failing else []
    if standing.facts is not None:
        said = standing.facts.machine.status.conditions
        found += [one.message for one in said if one.type == names.ASSOCIATED and one.reason == SECRET_MISSING]
    return tuple(found)


def _remediation_line(standing: Standing) -> Line | None:
    remediation, host = standing.remediation, standing.host
    if remediation is None or remediation.status.phase not in (RUNNING, WAITING):
        return None
    state = HostState.RETURNING if host.status.powered_on else HostState.STOPPED
    why = standing.remedy or f"Metal3Remediation {remediation.metadata.name} reboots it."
    return Line(METAL, state, why, parse(remediation.status.last_remediated), mid_step=True)


# -- which node it is


@dataclass(frozen=True, slots=True)
class NodeHere:
    """A Node of this cluster, as far as it says which host it is."""

    name: str
    provider_id: str


class Here(Protocol):
    """What is known of the nodes of this cluster."""

    @property
    def clusters(self) -> frozenset[str]:
        """NAMESPACE/NAME of the Cluster objects that stand for this very cluster."""

    def node(self, name: str) -> NodeHere | None: ...
    def carriers(self, provider: Iterable[str]) -> frozenset[str]: ...


def join_node(layer: Layer, facts: Facts, here: Here, cluster: str) -> Layer:
    """The layer with the Node of this cluster that it is, or with the doubt. `cluster`: what this one is called."""
    owner = facts.owner
    if owner is None or owner.cluster not in here.clusters:
        doubt = judge_node(facts, None, here.carriers(ids_of(facts)))
        return replace(layer, doubts=(doubt,) if doubt else ())
    named = here.node(owner.node)
    doubt = judge_node(facts, named, here.carriers(ids_of(facts)))
    same = (node_key(cluster, named.name),) if named is not None and not doubt else ()
    return replace(layer, cluster=cluster, same_as=same, doubts=(doubt,) if doubt else ())


def ids_of(facts: Facts) -> frozenset[str]:
    """Provider IDs that the node of this host has, or may have."""
    known = provider_ids(facts.machine, facts.host) if facts.host is not None else ()
    return frozenset({*known, facts.machine.spec.provider_id} - {""})


def judge_node(facts: Facts, named: NodeHere | None, carriers: Collection[str]) -> str:
    """Why a host is not taken for the node it may be, as a sentence; empty: it is `named`, or there is no such node.

    A Machine of this cluster names its node, which no kubelet can write; and no provider ID may say otherwise.
    `carriers`: the Nodes here that carry its provider ID.
    """
    owner = facts.owner
    ids = {one for one in (facts.machine.spec.provider_id, owner.spec.provider_id if owner is not None else "") if one}
    if named is None:
        nodes = listed(sorted(carriers))
        return f"Node {nodes} may be it, without proof: no Machine of this cluster names that node." if carriers else ""
    if len(ids) != 1:
        what = "it has no provider ID" if not ids else "its Machine and its Metal3Machine have different provider IDs"
        return f"Node {named.name} may be it, without proof: {what}."
    if named.provider_id and named.provider_id not in ids:
        return f"Node {named.name} may be it, without proof: the node has another provider ID."
    others = [name for name in sorted(carriers) if name != named.name]
    return f"Node {listed(others)} has its provider ID too." if others else ""


# -- claims


def is_blocked(facts: Facts, decision: Decision) -> bool:
    """Whether a claim, or a release, waits for a user."""
    if decision.step in (Step.WAIT, Step.PAUSED, Step.UNREADABLE, Step.CLAIM):
        return True
    host = facts.host
    if host is None:
        return False
    held = names.PAUSED in host.metadata.annotations or (host.failing and host.state not in PROVISIONED)
    unrendered = facts.rendered is not None and not facts.rendered.ready and not host.imaged
    return held or (decision.step is Step.KEEP and unrendered)
