"""From caches to the facts a judgement rests upon. What is not in step is unknown, never empty."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from hostler.apis.capi import cluster_of_node
from hostler.apis.fleet import NAME, Fleet, ServingCertificates
from hostler.host.facts import Fact, Known, Unknown
from hostler.instant import Instant, parse
from hostler.join.invitations import AnySource, invitations, machines_of
from hostler.join.kubelet_request import PREFIX, Misshapen, Shape, counts_for_flood, shape_of
from hostler.join.model import (
    CLIENT,
    OURS,
    USED,
    Crowd,
    Facts,
    Invitation,
    Live,
    Policy,
    ServingLimits,
    SigningRequest,
    Use,
)
from hostler.join.rules import canonical
from hostler.join.spokes import INVENTORY, Spoke, invitations_for, namespaces_of
from hostler.kube.kinds import Kind
from hostler.kube.records import Metadata, Node, Record
from hostler.kube.store import Index
from hostler.kube.watch import Watch
from hostler.safety.guard import FleetWatch

HOUR = 3600.0
# Kubernetes accepts more for a request than for a node: kubelets name theirs `csr-abcde` and `node-csr-<base64url>`.
REQUEST_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,252}", re.ASCII)
BY_NAMESPACE = "namespace"
SOURCE_INDEXES: Mapping[str, Index[Any]] = {BY_NAMESPACE: lambda host: (host.metadata.namespace,)}
Shapes: TypeAlias = Mapping[str, Shape | Misshapen]  # by uid of the request


class Memory(Record, frozen=True):
    """The ConfigMap that remembers whom we let in: a line of JSON per host."""

    metadata: Metadata = Metadata()
    data: dict[str, str] = msgspec.field(default_factory=dict)


class UseLine(msgspec.Struct, frozen=True):
    csr: str
    uid: str
    at: float


@dataclass(frozen=True, slots=True)
class Caches:
    """What join reads. Nodes and the Fleet are shared with the other capabilities.

    With a `spoke` the requests, nodes and memory are that cluster's; hosts and the Fleet are always the hub's.
    """

    requests: Watch[SigningRequest]
    sources: Mapping[Kind, Watch[Any]]
    memory: Watch[Memory]
    nodes: Watch[Node]
    fleet: FleetWatch
    namespace: str
    spoke: Spoke | None = None

    def own(self) -> Iterator[Watch[Any]]:
        yield self.requests
        yield from self.sources.values()
        yield self.memory


def facts_of(
    caches: Caches,
    live: Mapping[str, Fact[Live]],
    shapes: Shapes,
    policy: Policy,
    now: Instant,
    *,
    asked: bool,
) -> Facts:
    """Everything that is known now. `shapes`: of requests that are read already; `asked`: some are pending."""
    invited = invited_of(caches, policy, now, asked)
    nodes = nodes_of(caches, now)
    fleet = fleet_of(caches, now)
    spoke = caches.spoke
    # What the nodes of a spoke say about their cluster is that cluster's own word, and must not open another's hosts.
    clusters = clusters_of(caches.nodes.store.values(), policy) if spoke is None else frozenset({spoke.key})
    return Facts(
        nodes=nodes,
        owners=owners_of(caches.nodes.store.values()),
        invited=invited,
        used=used_of(caches, now),
        crowd=_crowd(caches, nodes, invited, clusters, policy, now),
        live=live,
        clusters=clusters,
        admitted=admitted_by(caches.requests.store, shapes),
        limits=fleet if isinstance(fleet, Unknown) else Known(limits_of(fleet.value), now),
        spoke=spoke.key if spoke is not None else "",
    )


def clusters_of(nodes: Iterable[Node], policy: Policy) -> frozenset[str]:
    """The names this cluster goes by: those the owner set, and those Cluster API wrote on its control plane."""
    return policy.clusters | {name for node in nodes if (name := cluster_of_node(node))}


def nodes_of(caches: Caches, now: Instant) -> Fact[Mapping[str, Node]]:
    watch = caches.nodes
    if not watch.store.synced or watch.problem:
        return Unknown(watch.problem or "nodes are still being read")
    if watch.store.unreadable:
        return Unknown(f"node {min(watch.store.unreadable)} cannot be read")
    return Known({node.metadata.name: node for node in watch.store}, now)


def invited_of(caches: Caches, policy: Policy, now: Instant, asked: bool) -> Fact[Mapping[str, tuple[Invitation, ...]]]:
    """Who is expected. While nobody asks, nobody is looked for: of thousands of hosts that would take a while."""
    for kind, watch in caches.sources.items():
        if not watch.absent and (not watch.store.synced or watch.problem):
            return Unknown(watch.problem or f"{kind.resource} are still being read")
    fleet = fleet_of(caches, now)
    if isinstance(fleet, Unknown):
        return fleet
    if not asked:
        return Known({}, now)
    if caches.spoke is not None:
        return Known(invitations_for(caches.spoke, _hosts_near(caches, caches.spoke, policy), policy), now)
    current = fleet.value
    found = ((kind, host) for kind, watch in caches.sources.items() for host in watch.store)
    expected = current.spec.join.expected if current is not None else ()
    return Known(invitations(found, expected, policy.inventories), now)


def _hosts_near(caches: Caches, spoke: Spoke, policy: Policy) -> Iterator[tuple[Kind, AnySource]]:
    """The hosts of the namespaces that count: what one spoke costs does not grow with the others' hosts."""
    for kind in INVENTORY[spoke.kind]:
        store = caches.sources[kind].store
        for namespace in sorted(namespaces_of(spoke, kind, policy)):
            yield from ((kind, host) for host in store.by(BY_NAMESPACE, namespace))


def fleet_of(caches: Caches, now: Instant) -> Fact[Fleet | None]:
    fleet = caches.fleet
    if not fleet.absent and (not fleet.store.synced or fleet.problem):
        return Unknown(fleet.problem or "the Fleet is still being read")
    if NAME in fleet.store.unreadable:
        return Unknown(f"the Fleet cannot be read: {fleet.store.unreadable[NAME]}")
    return Known(fleet.store.get(NAME), now)


def limits_of(fleet: Fleet | None) -> ServingLimits:
    """What the Fleet allows in serving certificates; without a Fleet everything."""
    allowed = fleet.spec.join.serving if fleet is not None else ServingCertificates()
    return ServingLimits(allowed.names, allowed.prefixes, allowed.max_days)


def used_of(caches: Caches, now: Instant) -> Fact[Mapping[str, Use]]:
    """Whom we let in already. A line that cannot be read is a host of which nothing is known: nobody is let in."""
    watch = caches.memory
    if not watch.store.synced or watch.problem:
        return Unknown(watch.problem or "our own ConfigMap is still being read")
    if watch.store.unreadable:
        return Unknown(f"ConfigMap {caches.namespace}/{USED} cannot be read")
    memory = watch.store.get(f"{caches.namespace}/{USED}")
    return uses_in(memory, now)


def uses_in(memory: Memory | None, now: Instant) -> Fact[Mapping[str, Use]]:
    used: dict[str, Use] = {}
    for name, line in (memory.data if memory is not None else {}).items():
        try:
            read = msgspec.json.decode(line, type=UseLine)
        except msgspec.MsgspecError:
            return Unknown(f"the line of {name} in ConfigMap {USED} cannot be read; correct or remove it")
        used[name] = Use(read.csr, read.uid, read.at)
    return Known(used, now)


def line_of(use: Use) -> str:
    return msgspec.json.encode(UseLine(use.csr, use.uid, use.at)).decode()


def owners_of(nodes: Iterable[Node]) -> dict[str, frozenset[str]]:
    """Which nodes have an address or a name; a node's own name is its own whatever its addresses say."""
    found: dict[str, set[str]] = {}
    for node in nodes:
        name = node.metadata.name
        for at in (name, *(address.address for address in node.status.addresses)):
            found.setdefault(canonical(at), set()).add(name)
    return {at: frozenset(those) for at, those in found.items()}


def pending_of(requests: Iterable[SigningRequest]) -> list[SigningRequest]:
    """Requests of kubelets' signers that nobody has decided.

    The name of a request ends up in a command that we propose: one that a shell could read otherwise is left out.
    """
    return [
        request
        for request in requests
        if request.spec.signer_name in OURS and REQUEST_NAME.fullmatch(request.metadata.name) and not request.decided_by
    ]


def approved_of(requests: Iterable[SigningRequest]) -> list[SigningRequest]:
    """Requests for a new node's certificate that anybody approved, we or another."""
    return [request for request in requests if request.spec.signer_name == CLIENT and _let_in(request)]


def _let_in(request: SigningRequest) -> bool:
    types = {condition.type for condition in request.status.conditions}
    # A renewal lets nobody in: the node was in.
    return "Approved" in types and "Failed" not in types and not request.spec.username.startswith(PREFIX)


def admitted_by(requests: Iterable[SigningRequest], shapes: Shapes | None = None) -> dict[str, Use]:
    """The last request by which each node was let in, by us or by anybody; the API server keeps them for an hour."""
    found: dict[str, Use] = {}
    for request in approved_of(requests):
        shape = (shapes or {}).get(request.metadata.uid) or shape_of(request.spec)
        at = parse(request.metadata.creation_timestamp) or 0.0
        if isinstance(shape, Shape) and (shape.node not in found or found[shape.node].at <= at):
            found[shape.node] = Use(request.metadata.name, request.metadata.uid, at)
    return found


def _crowd(
    caches: Caches,
    nodes: Fact[Mapping[str, Node]],
    invited: Fact[Mapping[str, tuple[Invitation, ...]]],
    clusters: frozenset[str],
    policy: Policy,
    now: Instant,
) -> Fact[Crowd]:
    watch = caches.requests
    if not watch.store.synced or watch.problem:
        return Unknown(watch.problem or "requests are still being read")
    match nodes, invited:
        case Unknown(why), _:
            return Unknown(why)
        case _, Unknown(why):
            return Unknown(why)
        case Known(known), Known(expected):
            hosts = machines_of(expected, clusters)
            return Known(crowd_of(watch.store.values(), len(known), hosts, policy, now), now)
    raise AssertionError("a fact is Known or Unknown")


def crowd_of(requests: Iterable[SigningRequest], nodes: int, machines: int, policy: Policy, now: Instant) -> Crowd:
    """More pending requests of the last hour than there could be hosts is a flood. One of unknown age counts.

    Only requests of bootstrappers and nodes count: a user who may merely create requests must not keep nodes out.
    """
    recent = 0
    for request in pending_of(requests):
        if not counts_for_flood(request.spec, policy):
            continue
        created = parse(request.metadata.creation_timestamp)
        recent += created is None or now - created < HOUR
    return Crowd(recent, max(nodes, machines) + policy.slack)


@dataclass(frozen=True, slots=True)
class Reading:
    """A cluster as it was listed once. With a `spoke`, hosts and the Fleet are the hub's, as in `Caches`."""

    requests: Sequence[SigningRequest]
    nodes: Sequence[Node]
    hosts: Sequence[tuple[Kind, AnySource]]
    fleet: Fleet | None = None
    memory: Memory | None = None
    spoke: Spoke | None = None


def facts_of_reading(
    reading: Reading, policy: Policy, now: Instant, live: Mapping[str, Fact[Live]] | None = None
) -> Facts:
    """The same facts from one reading of a cluster, for the CLI."""
    requests, nodes, fleet, spoke = reading.requests, reading.nodes, reading.fleet, reading.spoke
    expected = fleet.spec.join.expected if fleet is not None else ()
    if spoke is None:
        invited, clusters = invitations(reading.hosts, expected, policy.inventories), clusters_of(nodes, policy)
    else:
        invited, clusters = invitations_for(spoke, reading.hosts, policy), frozenset({spoke.key})
    return Facts(
        nodes=Known({node.metadata.name: node for node in nodes}, now),
        owners=owners_of(nodes),
        invited=Known(invited, now),
        used=uses_in(reading.memory, now),
        crowd=Known(crowd_of(requests, len(nodes), machines_of(invited, clusters), policy, now), now),
        live=live or {},
        clusters=clusters,
        admitted=admitted_by(requests),
        limits=Known(limits_of(fleet), now),
        spoke=spoke.key if spoke is not None else "",
    )
