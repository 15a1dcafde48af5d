"""The facts behind "safe to stop", read from the caches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from hostler.drain.filters import finished
from hostler.drain.observe import BY_NODE, Sources, fact_of
from hostler.host.facts import Fact, Known, Unknown, then
from hostler.host.holds import holds_of
from hostler.instant import Instant
from hostler.inventory.model import Holder, Host, LayerKind
from hostler.inventory.nodes import is_control_plane, ready_of
from hostler.inventory.safe_to_stop import ControlPlane, SafeToStop, StopFacts, judge_stop
from hostler.inventory.sources import Source
from hostler.inventory.states import HostKind, HostState
from hostler.kube.records import Node, OwnerReference, Pod
from hostler.kube.watch import Watch

V = TypeVar("V")
LeaderNode = Callable[[], Fact[str]]
VCENTER_NOT_READ = Unknown("vCenter is not read")
NO_MEMBER = ControlPlane(0, 0, is_member=False)  # without it nothing of the control plane is lost
NODE_LAYER = f"{LayerKind.NODE}:"
# Bare metal in these states runs nothing of a cluster.
IDLE = frozenset({HostState.AVAILABLE, HostState.DISCOVERED})


class StopSources:
    """Judges hosts from the caches. The control-plane nodes are kept up to date: one judgement is no pass over all."""

    def __init__(self, nodes: Watch[Node], drain: Sources, others: Iterable[Source], leader_node: LeaderNode) -> None:
        """`others`: what capabilities contribute. `leader_node`: where the leader runs; "" outside of a cluster."""
        self._nodes, self._drain, self._others, self._leader_node = nodes, drain, tuple(others), leader_node
        self._members: dict[str, bool] = {}  # the control-plane nodes: whether each is Ready
        for node in nodes.store.values():
            self._node_changed(node.metadata.name, None, node)
        nodes.store.listen(self._node_changed)
        self._ages: tuple[Instant, Mapping[str, Fact[Any]]] = (-1.0, {})
        self._leader: tuple[Instant, Fact[str]] = (-1.0, Unknown(""))

    def judge(self, host: Host, asker: str, now: Instant) -> SafeToStop:
        return judge_stop(self._facts_of(host, now), asker, now)

    def _facts_of(self, host: Host, now: Instant) -> StopFacts:
        if host.kind is HostKind.ESXI:
            running = next((fact for source in self._others if (fact := source.running_vms(host.id)) is not None), None)
            return StopFacts(Known(host.holders, now), host.mid_steps, running_vms=running or VCENTER_NOT_READ)
        if not host.layers[-1].startswith(NODE_LAYER):  # the last one is the highest
            return _without_node(host, now)
        node, drain = host.node, self._drain
        return StopFacts(
            holders=self._holders_of(host, now),
            mid_steps=host.mid_steps,
            pods=self._fact(drain.pods, pods_that_stop(drain.pods.store.by(BY_NODE, node)), now),
            attachments=self._fact(drain.attachments, self._attached_to(node), now),
            control_plane=self._fact(self._nodes, self._control_plane_without(node), now),
            last_ingress_pods=self._last_ingress_pods(node),
            own_leader=self._leads_from(node, now),
        )

    def _fact(self, watch: Watch[Any], value: V, now: Instant) -> Fact[V]:
        """How old a cache is, is asked once for all hosts of one answer; nothing (most often) is one record."""
        if self._ages[0] != now:
            watches: tuple[Watch[Any], ...] = (self._nodes, self._drain.pods, self._drain.attachments)
            self._ages = now, {watch.kind.plural: fact_of(watch, (), now) for watch in watches}
        known = self._ages[1][watch.kind.plural]
        return known if value == () or isinstance(known, Unknown) else Known(value, known.at)

    def _leads_from(self, node: str, now: Instant) -> Fact[bool]:
        if self._leader[0] != now:
            self._leader = now, self._leader_node()
        return then(self._leader[1], lambda leader: leader == node)

    def _holders_of(self, host: Host, now: Instant) -> Fact[tuple[Holder, ...]]:
        node = self._nodes.store.get(host.node)
        if node is not None and isinstance(unreadable := holds_of(node), Unknown):
            return unreadable
        return self._fact(self._nodes, host.holders, now)

    def _last_ingress_pods(self, node: str) -> Fact[tuple[str, ...]] | None:
        for source in self._others:
            if (fact := source.last_ingress_pods(node)) is not None:
                return fact
        return None

    def _control_plane_without(self, name: str) -> ControlPlane:
        if name not in self._members:
            return NO_MEMBER
        ready = sum(self._members.values()) - self._members[name]
        return ControlPlane(len(self._members), ready, is_member=True)

    def _node_changed(self, name: str, _before: Node | None, after: Node | None) -> None:
        if after is not None and is_control_plane(after):
            self._members[name] = ready_of(after).status == "True"
        else:
            self._members.pop(name, None)

    def _attached_to(self, node: str) -> tuple[str, ...]:
        attached = self._drain.attachments.store.by(BY_NODE, node)
        return tuple(found.spec.source.persistent_volume_name or found.metadata.name for found in attached)


def _without_node(host: Host, now: Instant) -> StopFacts:
    """Its node, if it has one, is not in a cluster that is read here."""
    runs: Fact[tuple[str, ...]] | None = None
    if host.state not in IDLE:
        what = f"node {host.node} of cluster {host.cluster}" if host.node else "a node of this cluster"
        runs = Unknown(f"it is not joined with {what} here")
    return StopFacts(Known(host.holders, now), host.mid_steps, pods=runs)


def pods_that_stop(pods: Iterable[Pod]) -> tuple[str, ...]:
    """Those that are neither of a DaemonSet nor static nor finished."""
    found = []
    for pod in pods:  # a plain loop: it sees every pod of the cluster for one full answer
        meta = pod.metadata
        if meta.annotations.mirror is None and not _of_daemon_set(meta.owner_references) and not finished(pod):
            found.append(f"{meta.namespace}/{meta.name}")
    return tuple(found)


def _of_daemon_set(owners: Iterable[OwnerReference]) -> bool:
    for owner in owners:
        if owner.controller:
            return owner.kind == "DaemonSet"
    return False
