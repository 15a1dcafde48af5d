"""The facts behind "safe to stop", read from the caches."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hostler.drain.filters import controller_of, finished
from hostler.drain.observe import BY_NODE, Sources, fact_of
from hostler.host.facts import Fact, Known, Unknown, then
from hostler.host.holds import holds_of
from hostler.instant import Instant
from hostler.inventory.model import Holder, Host, LayerKind
from hostler.inventory.nodes import is_control_plane, ready_of
from hostler.inventory.safe_to_stop import ControlPlane, SafeToStop, StopFacts, judge_stop
from hostler.inventory.sources import Source
from hostler.inventory.states import HostKind, HostState
from hostler.kube.records import Node, Pod
from hostler.kube.watch import Watch

LeaderNode = Callable[[], Fact[str]]
VCENTER_NOT_READ = Unknown("vCenter is not read")
# Bare metal in these states runs nothing of a cluster.
IDLE = frozenset({HostState.AVAILABLE, HostState.DISCOVERED})


class StopSources:
    """Judges hosts from the caches. The control-plane nodes are kept up to date: one judgement is no pass over all."""

    def __init__(self, nodes: Watch[Node], drain: Sources, others: Iterable[Source], leader_node: LeaderNode) -> None:
        """`others`: what capabilities contribute. `leader_node`: where the leader runs; "" outside of a cluster."""
        self._nodes, self._drain, self._others, self._leader_node = nodes, drain, tuple(others), leader_node
        self._members = {node.metadata.name for node in nodes.store.values() if is_control_plane(node)}
        nodes.store.listen(self._node_changed)

    def judge(self, host: Host, asker: str, now: Instant) -> SafeToStop:
        return judge_stop(self._facts_of(host, now), asker, now)

    def _facts_of(self, host: Host, now: Instant) -> StopFacts:
        if host.kind is HostKind.ESXI:
            running = _first(source.running_vms(host.id) for source in self._others)
            return StopFacts(Known(host.holders, now), host.mid_steps, running_vms=running or VCENTER_NOT_READ)
        if not any(key.startswith(f"{LayerKind.NODE}:") for key in host.layers):
            return _without_node(host, now)
        node, pods = host.node, self._drain.pods
        return StopFacts(
            holders=self._holders_of(host, now),
            mid_steps=host.mid_steps,
            pods=then(fact_of(pods, pods.store.by(BY_NODE, node), now), pods_that_stop),
            attachments=fact_of(self._drain.attachments, self._attached_to(node), now),
            control_plane=fact_of(self._nodes, self._control_plane_without(node), now),
            last_ingress_pods=_first(source.last_ingress_pods(node) for source in self._others),
            own_leader=then(self._leader_node(), lambda leader: leader == node),
        )

    def _holders_of(self, host: Host, now: Instant) -> Fact[tuple[Holder, ...]]:
        node = self._nodes.store.get(host.node)
        if node is not None and isinstance(unreadable := holds_of(node), Unknown):
            return unreadable
        return fact_of(self._nodes, host.holders, now)

    def _control_plane_without(self, name: str) -> ControlPlane:
        others = (self._nodes.store.get(member) for member in self._members if member != name)
        ready = sum(node is not None and ready_of(node).status == "True" for node in others)
        return ControlPlane(len(self._members), ready, name in self._members)

    def _node_changed(self, name: str, _before: Node | None, after: Node | None) -> None:
        if after is not None and is_control_plane(after):
            self._members.add(name)
        else:
            self._members.discard(name)

    def _attached_to(self, node: str) -> tuple[str, ...]:
        attached = self._drain.attachments.store.by(BY_NODE, node)
        return tuple(found.spec.source.persistent_volume_name or found.metadata.name for found in attached)


def _first(facts: Iterable[Fact[tuple[str, ...]] | None]) -> Fact[tuple[str, ...]] | None:
    return next((fact for fact in facts if fact is not None), None)


def _without_node(host: Host, now: Instant) -> StopFacts:
    """Its node, if it has one, is not in a cluster that is read here."""
    runs: Fact[tuple[str, ...]] | None = None
    if host.state not in IDLE:
        what = f"node {host.node} of cluster {host.cluster}" if host.node else "a node of this cluster"
        runs = Unknown(f"it is not joined with {what} here")
    return StopFacts(Known(host.holders, now), host.mid_steps, pods=runs)


def pods_that_stop(pods: Iterable[Pod]) -> tuple[str, ...]:
    """Those that are neither of a DaemonSet nor static nor finished."""
    return tuple(
        f"{pod.metadata.namespace}/{pod.metadata.name}"
        for pod in pods
        if not finished(pod) and pod.metadata.annotations.mirror is None and not _of_daemon_set(pod)
    )


def _of_daemon_set(pod: Pod) -> bool:
    owner = controller_of(pod)
    return owner is not None and owner.kind == "DaemonSet"
