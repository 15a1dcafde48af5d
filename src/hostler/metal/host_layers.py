"""BareMetalHosts as layers of the picture, and the claims that are under way.

State, sentence and next step come from the decision that `explain` shows. Which node a host is comes from a Machine of
this very cluster, or stays in doubt; nodes of workload clusters are named and not joined.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from hostler.apis import capi, metal3, openshift
from hostler.apis.capi import Cluster, Machine, cluster_of_node
from hostler.apis.metal3 import METAL3_MACHINE, BareMetalHost, Metal3Machine
from hostler.instant import Instant, parse
from hostler.inventory.look import Looked, Readable, list_readable
from hostler.inventory.model import Host, Layer, bare_metal_key
from hostler.inventory.next_step import next_sentence
from hostler.inventory.operations import Operation, OperationKind
from hostler.inventory.sources import RecordedAs, Source
from hostler.inventory.states import HostState
from hostler.kube.client import Client
from hostler.kube.kinds import Kind
from hostler.kube.records import Node, key_of
from hostler.kube.store import Store
from hostler.metal import names
from hostler.metal.caches import Caches
from hostler.metal.controller import MachineReconciler
from hostler.metal.explain import explain_forecast
from hostler.metal.host_lines import (
    CLAIM_STEPS,
    METAL,
    NodeHere,
    Standing,
    bare_metal_layer,
    host_line,
    ids_of,
    is_blocked,
    join_node,
    machine_key,
    operation_of,
    waiting_of,
)
from hostler.metal.model import Decision, Facts, Step, consumer_key, owner_key
from hostler.metal.openshift_nodes import join_openshift_node, openshift_machine_key
from hostler.metal.remediation.controller import RemediationReconciler
from hostler.metal.remediation.decide import decide_remediation
from hostler.metal.remediation.model import Remediation
from hostler.metal.simulate import simulate_machine
from hostler.metal.status import is_settled

OURS = ("metal3://",)
BARE_METAL = bare_metal_key("", "").rstrip("/")


class ThisCluster:
    """What this cluster is called by Cluster API, and which of its Nodes carry provider IDs of Metal3."""

    def __init__(self, nodes: Store[Node], changed: Callable[[Iterable[str]], None]) -> None:
        """`changed` gets the provider IDs and the names of nodes that say something else now."""
        self._nodes, self._changed = nodes, changed
        self._named: dict[str, str] = {}  # by control-plane node: what it calls the cluster
        self._carriers = defaultdict[str, set[str]](set)
        for node in nodes:
            self._follow(node.metadata.name, None, node)
        nodes.listen(self._node_changed)

    @property
    def clusters(self) -> frozenset[str]:
        return frozenset(self._named.values())

    def node(self, name: str) -> NodeHere | None:
        found = self._nodes.get(name) if name else None
        return NodeHere(name, found.spec.provider_id) if found is not None else None

    def carriers(self, provider: Iterable[str]) -> frozenset[str]:
        return frozenset(name for one in provider for name in self._carriers.get(one, ()))

    def _node_changed(self, name: str, before: Node | None, after: Node | None) -> None:
        if before is not None and after is not None and _identity(before) == _identity(after):
            return
        known = self.clusters
        self._follow(name, before, after)
        if self.clusters != known:
            self._changed(())
        else:
            self._changed({name, *(one.spec.provider_id for one in (before, after) if one is not None)})

    def _follow(self, name: str, before: Node | None, after: Node | None) -> None:
        if before is not None:
            self._carriers[before.spec.provider_id].discard(name)
            self._named.pop(name, None)
        if after is not None:
            if after.spec.provider_id.startswith(OURS):
                self._carriers[after.spec.provider_id].add(name)
            if cluster := cluster_of_node(after):
                self._named[name] = cluster


def _identity(node: Node) -> tuple[str, str]:
    return node.spec.provider_id, cluster_of_node(node)


class MetalSource(Source):
    def __init__(
        self,
        keeper: MachineReconciler,
        remediator: RemediationReconciler,
        nodes: Store[Node],
        openshift_machines: Store[openshift.Machine],
        cluster: str,
        clock: Callable[[], Instant],
    ) -> None:
        """`cluster`: what this cluster is called in the picture."""
        self._openshift = openshift_machines
        self._keeper, self._remediator, self._cluster, self._clock = keeper, remediator, cluster, clock
        self._caches: Caches = keeper.caches
        self._listeners: list[Callable[[], None]] = []
        self._changed = set(self._caches.hosts.store.keys())
        self._was_read = False
        # By provider ID, name of a node or key of an OpenShift Machine: the hosts it concerns.
        self._by_identity = defaultdict[str, set[str]](set)
        self._identities: dict[str, tuple[str, ...]] = {}
        self._here = ThisCluster(nodes, self._nodes_changed)
        caches = self._caches
        caches.hosts.store.listen(self._host_changed)
        caches.machines.store.listen(lambda _, before, after: self._mark(self._hosts_of(before, after)))
        caches.capi_machines.store.listen(lambda key, _before, _after: self._mark(self._hosts_owned(key)))
        caches.capi_clusters.store.listen(self._cluster_changed)
        caches.remediations.store.listen(lambda _, before, after: self._mark(self._hosts_remedied(before, after)))
        self._openshift.listen(lambda key, _before, _after: self._mark(self._by_identity.get(key, ())))

    def listen(self, changed: Callable[[], None]) -> None:
        self._listeners.append(changed)

    def take(self) -> Mapping[str, Layer | None]:
        is_read = self._caches.unread() is None
        if is_read and not self._was_read:  # until then nothing was decided
            self._changed |= set(self._caches.hosts.store.keys())
        self._was_read = is_read
        keys, self._changed = self._changed, set()
        return {bare_metal_key(*key.split("/", 1)): self._layer(key) for key in keys}

    def operations(self) -> Iterable[Operation]:
        """Claims and releases. A machine that has settled, and stays, is none."""
        if self._caches.unread() is not None:
            return
        for machine in self._caches.machines.store:
            if not is_settled(machine) or machine.metadata.deletion_timestamp:
                facts = self._keeper.explained_facts(machine)
                if not is_settled(machine) or facts.associated:
                    yield self._claim(facts, self._keeper.decide(facts))

    def recorded_as(self, kind: Kind, namespace: str, name: str) -> RecordedAs | None:
        """What is done to a Metal3Machine is told of the host it has, and until it has one of itself."""
        if (kind.group, kind.kind) != (METAL3_MACHINE.group, METAL3_MACHINE.kind):
            return None
        machine = self._caches.machines.store.get(names.key(namespace, name))
        host = self._caches.own_host(machine) if machine is not None else None
        if host is not None:
            return RecordedAs(bare_metal_key(host.metadata.namespace, host.metadata.name), _under_way(machine))
        return RecordedAs(machine_key(namespace, name), _under_way(machine))

    def history_keys(self, host: Host) -> tuple[str, ...]:
        found = (self._caches.hosts.store.get(key.removeprefix(BARE_METAL)) for key in host.layers)
        consumers = (consumer_key(one) for one in found if one is not None)
        return tuple(machine_key(*key.split("/", 1)) for key in consumers if key)

    # -- what changed

    def _mark(self, keys: Iterable[str]) -> None:
        self._changed.update(keys)
        for listener in self._listeners:
            listener()

    def _host_changed(self, key: str, before: BareMetalHost | None, after: BareMetalHost | None) -> None:
        """What is decided for a machine depends on every host that names it: as its consumer, or as its owner."""
        machines = {machine for host in (before, after) if host is not None for machine in _machines_named(host)}
        hosts = self._caches.hosts.store
        self._mark({key, *(one for machine in machines for one in hosts.keys_by("consumer", machine))})

    def _hosts_of(self, *machines: Metal3Machine | None) -> Iterator[str]:
        hosts = self._caches.hosts.store
        for machine in machines:
            if machine is not None:
                yield from hosts.keys_by("consumer", key_of(machine.metadata))

    def _hosts_owned(self, key: str) -> set[str]:
        return set(self._hosts_of(*self._caches.machines.store.by("owner", key)))

    def _hosts_remedied(self, *remediations: Remediation | None) -> set[str]:
        owners = {owner_key(one.metadata, "Machine") for one in remediations if one is not None}
        return {host for owner in owners for host in self._hosts_owned(owner)}

    def _cluster_changed(self, key: str, before: Cluster | None, after: Cluster | None) -> None:
        if before is not None and after is not None and before.spec == after.spec and before.status == after.status:
            return
        machines = self._caches.machines.store
        found = (*machines.by("cluster", key), *machines.by("cluster", names.key(key.partition("/")[0], "")))
        self._mark(set(self._hosts_of(*found)))

    def _nodes_changed(self, identities: Iterable[str]) -> None:
        """None given: this cluster is called something else, so any host may be one of its nodes."""
        found = list(identities)
        if not found:
            self._mark(self._caches.hosts.store.keys())
        self._mark({key for one in found for key in self._by_identity.get(one, ())})

    # -- layers

    def _layer(self, key: str) -> Layer | None:
        host = self._caches.hosts.store.get(key)
        if host is None:
            self._recognise(key, ())
            return None
        standing = self._standing(key, host)
        layer, facts = bare_metal_layer(standing), standing.facts
        if facts is None:
            return self._join_openshift(key, layer, host)
        owner = facts.owner
        self._recognise(key, (*sorted(ids_of(facts)), *((owner.node,) if owner is not None and owner.node else ())))
        return join_node(layer, facts, self._here, self._cluster)

    def _join_openshift(self, key: str, layer: Layer, host: BareMetalHost) -> Layer:
        """A host without a Metal3Machine may have one of OpenShift."""
        owner = openshift_machine_key(host)
        machine = self._openshift.get(owner) if owner else None
        self._recognise(key, tuple(filter(None, (owner, machine.node if machine is not None else ""))))
        return layer if machine is None else join_openshift_node(layer, host, machine, self._here, self._cluster)

    def _recognise(self, key: str, identities: tuple[str, ...]) -> None:
        """Remember by what changes of nodes this host is concerned."""
        if self._identities.get(key, ()) == identities:
            return
        for one in self._identities.pop(key, ()):
            self._by_identity[one].discard(key)
            if not self._by_identity[one]:
                del self._by_identity[one]
        if identities:
            self._identities[key] = identities
        for one in identities:
            self._by_identity[one].add(key)

    def _standing(self, key: str, host: BareMetalHost) -> Standing:
        machine = self._caches.machines.store.get(consumer_key(host))
        facts = self._keeper.explained_facts(machine) if machine is not None else None
        if facts is None or not facts.associated or facts.host is None or key_of(facts.host.metadata) != key:
            return Standing(host)
        if not self._was_read:
            return Standing(host, facts)
        decision = self._keeper.decide(facts)
        remediation = self._remediation_of(facts.owner)
        remedy = ""
        if remediation is not None:
            remedy = decide_remediation(self._remediator.facts(remediation), self._clock()).why
        return Standing(host, facts, decision, self._next(facts, decision), remediation, remedy)

    def _remediation_of(self, owner: Machine | None) -> Remediation | None:
        key = key_of(owner.metadata) if owner is not None else ""
        return next(iter(self._caches.remediations.store.by("owner", key)), None) if key else None

    def _next(self, facts: Facts, decision: Decision) -> str:
        """The first step of `plan`; a machine that has all it wants needs none."""
        settles = decision.step is Step.KEEP and is_settled(facts.machine)
        if settles or decision.step in (Step.MOVED, Step.PAUSED) or facts.host is None:
            return ""
        forecast = simulate_machine(facts, (facts.host,), self._keeper.rules, self._clock(), passes=1)
        return next_sentence(explain_forecast(forecast, "").actions)

    # -- claims

    def _claim(self, facts: Facts, decision: Decision) -> Operation:
        machine, host = facts.machine, facts.host if facts.associated else None
        going = bool(machine.metadata.deletion_timestamp)
        if host is not None:
            line = host_line(Standing(host, facts, decision, self._next(facts, decision)))
            state, since, why, after = line.state, line.since, line.why, line.next
        else:
            state, since, after = HostState.CLAIMED, parse(machine.metadata.creation_timestamp), ""
            why = _told(machine) if decision.wish is not None else decision.why
        total = len(CLAIM_STEPS)
        done = CLAIM_STEPS.index(state) if host is not None and state in CLAIM_STEPS else 0
        key = bare_metal_key(host.metadata.namespace, host.metadata.name) if host is not None else ""
        return Operation(
            id=operation_of(machine), kind=OperationKind.CLAIM, capability=METAL, name=machine.metadata.name, key=key,
            state="waiting for a host" if host is None and not going else str(state), since=since, why=why, next=after,
            blocked_by=(why,) if is_blocked(facts, decision) else (), hosts=(key,) if key else (),
            done=0 if going else done + 1 if host is not None else 0, total=1 if going else total + 1,
            waiting=waiting_of(facts),
        )  # fmt: skip


def _under_way(machine: Metal3Machine | None) -> str:
    """The claim or release that a machine is in, if any."""
    if machine is None or (is_settled(machine) and not machine.metadata.deletion_timestamp):
        return ""
    return operation_of(machine)


def _machines_named(host: BareMetalHost) -> Iterator[str]:
    meta, consumer = host.metadata, host.spec.consumer_ref
    if consumer is not None:
        yield names.key(consumer.namespace, consumer.name)
    yield from (names.key(meta.namespace, owner.name) for owner in meta.owner_references)


def _told(machine: Metal3Machine) -> str:
    """What the operator found when it last looked for a host; it is not looked for again only to be shown."""
    said = (one.message for one in machine.status.conditions if one.type == names.ASSOCIATED and one.status != "True")
    return next(said, "") or "A host is chosen for it."


# -- without an operator


async def look_at_metal(client: Client, nodes: Sequence[Node], cluster: str) -> Looked:
    """Every BareMetalHost, with its Metal3Machine and its Machine where those can be read."""
    hosts = await list_readable(client, metal3.BARE_METAL_HOST, BareMetalHost)
    if not hosts.found:
        return Looked(notes=hosts.notes)
    machines = await list_readable(client, metal3.METAL3_MACHINE, Metal3Machine, capi.OLDER)
    owners = await list_readable(client, capi.MACHINE, Machine, capi.OLDER)
    known = {key_of(one.metadata): one for one in machines.found}
    owned = {key_of(one.metadata): one for one in owners.found}
    here = ThisCluster(_store_of(nodes), lambda _: None)
    layers: list[Layer] = []
    more: Readable[openshift.Machine] = Readable()
    if any(map(openshift_machine_key, hosts.found)):
        more = await list_readable(client, openshift.MACHINE, openshift.Machine)
    of_openshift = {key_of(one.metadata): one for one in more.found}
    for host in hosts.found:
        machine = known.get(consumer_key(host))
        consumer = host.spec.consumer_ref
        if machine is None or consumer is None or not consumer.is_machine(machine):
            layer, owner = bare_metal_layer(Standing(host)), of_openshift.get(openshift_machine_key(host))
            layers.append(layer if owner is None else join_openshift_node(layer, host, owner, here, cluster))
            continue
        facts = Facts(machine, owned.get(owner_key(machine.metadata, "Machine")), host=host)
        layers.append(join_node(bare_metal_layer(Standing(host, facts)), facts, here, cluster))
    return Looked(tuple(layers), (*hosts.notes, *machines.notes, *owners.notes, *more.notes))


def _store_of(nodes: Sequence[Node]) -> Store[Node]:
    store = Store[Node]()
    for node in nodes:
        store.put(node)
    return store
