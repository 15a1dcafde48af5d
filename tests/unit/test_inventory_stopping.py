"""The facts behind "safe to stop", from the caches: they follow every change."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hostler.drain.observe import ATTACHMENT_INDEXES, POD_INDEXES, Sources
from hostler.host.facts import Fact, Known, Unknown
from hostler.inventory.joining import host_of
from hostler.inventory.model import Host, Layer, LayerKind
from hostler.inventory.nodes import node_layer
from hostler.inventory.safe_to_stop import Against, SafeToStop, StopAnswer
from hostler.inventory.sources import StoreSource
from hostler.inventory.stopping import StopSources
from hostler.kube.clock import boottime
from hostler.kube.kinds import DAEMON_SET, NODE, POD, POD_DISRUPTION_BUDGET, VOLUME_ATTACHMENT
from hostler.kube.records import Node, Pod, PodDisruptionBudget, VolumeAttachment, Workload
from hostler.kube.store import Store
from hostler.kube.watch import Watch
from tests.unit.dry_runs import DryRun, put

NOW = 1_000_000.0
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


def node_of(name: str, *, ready: bool = True, control_plane: bool = False) -> Node:
    labels = {CONTROL_PLANE: ""} if control_plane else {}
    status = {"conditions": [{"type": "Ready", "status": str(ready)}]}
    return msgspec.convert({"metadata": {"name": name, "labels": labels}, "status": status}, Node)


class Routing(StoreSource[Node]):
    """The last ready pod of an ingress is on a node."""

    def __init__(self, node: str) -> None:
        super().__init__(Store[Node](), str, lambda node: node_layer(node, "p"))
        self._node = node

    def last_ingress_pods(self, node: str) -> Fact[tuple[str, ...]] | None:
        return Known(("default",) if node == self._node else (), NOW)


class World:
    """Read caches, and what judges hosts by them."""

    def __init__(self, *nodes: Node, leader: Fact[str] = Known("", NOW), routed: str = "") -> None:
        run = DryRun("bench")
        self.nodes: Watch[Node] = run.watch(NODE, Node, *nodes)
        self.pods: Watch[Pod] = run.watch(POD, Pod, indexes=POD_INDEXES)
        self.volumes: Watch[VolumeAttachment] = run.watch(
            VOLUME_ATTACHMENT, VolumeAttachment, indexes=ATTACHMENT_INDEXES
        )
        budgets = run.watch(POD_DISRUPTION_BUDGET, PodDisruptionBudget)
        for watch in (self.nodes, self.pods, self.volumes):
            watch.heard = boottime()
        drain = Sources(self.pods, budgets, self.volumes, run.watch(DAEMON_SET, Workload))
        self.sources = StopSources(self.nodes, drain, [Routing(routed)], lambda: leader)
        self.at = NOW

    def judge(self, name: str) -> SafeToStop:
        node = self.nodes.store.get(name)
        assert node is not None
        self.at += 1  # another answer: within one, ages are asked once
        return self.sources.judge(host_of([node_layer(node, "p")]), "", self.at)

    def against(self, name: str) -> list[Against]:
        return [reason.against for reason in self.judge(name).reasons]


def pod_on(node: str, name: str = "web", owner: str = "ReplicaSet") -> Pod:
    about: dict[str, Any] = {"name": name, "namespace": "n", "ownerReferences": [{"kind": owner, "controller": True}]}
    return msgspec.convert({"metadata": about, "spec": {"nodeName": node}, "status": {"phase": "Running"}}, Pod)


def test_pods_and_volumes_that_come_and_go_are_followed() -> None:
    world = World(node_of("a"), node_of("b"))
    assert world.judge("a").answer is StopAnswer.YES
    put(world.pods, pod_on("a", "log", "DaemonSet"))
    assert world.judge("a").answer is StopAnswer.YES
    pod = put(world.pods, pod_on("a"))
    assert (world.against("a"), world.against("b")) == ([Against.PODS], [])
    world.pods.store.remove(pod)
    volume = {"metadata": {"name": "v"}, "spec": {"nodeName": "a", "source": {"persistentVolumeName": "pv-1"}}}
    put(world.volumes, msgspec.convert(volume, VolumeAttachment))
    assert world.against("a") == [Against.VOLUMES]


def test_more_than_half_of_the_control_plane_has_to_stay_ready() -> None:
    world = World(*(node_of(name, control_plane=True) for name in ("a", "b", "c")), node_of("w"))
    assert world.judge("a").answer is StopAnswer.YES
    put(world.nodes, node_of("b", ready=False, control_plane=True))
    assert (world.against("a"), world.against("w")) == ([Against.QUORUM], [])
    put(world.nodes, node_of("b", control_plane=True))
    assert world.against("a") == []


def test_the_last_ingress_pod_and_the_leader_keep_their_node() -> None:
    assert World(node_of("a"), node_of("b"), routed="a").against("a") == [Against.INGRESS]
    assert World(node_of("a"), leader=Known("a", NOW)).against("a") == [Against.LEADER]


def test_who_does_not_lead_does_not_know_where_the_leader_runs() -> None:
    world = World(node_of("a"), leader=Unknown("this replica does not lead"))
    assert world.judge("a").answer is StopAnswer.UNKNOWN


@pytest.mark.parametrize("which", ["nodes", "pods", "volumes"])
def test_a_cache_that_is_not_read_makes_it_unknown(which: str) -> None:
    world = World(node_of("a"))
    watch: Watch[Any] = getattr(world, which)
    watch.store.synced = False
    assert world.judge("a").answer is StopAnswer.UNKNOWN


def test_a_host_whose_node_is_elsewhere_is_unknown_unless_it_is_free() -> None:
    world = World(node_of("a"))
    metal = Layer("bmh:n/h", LayerKind.BARE_METAL, "h", cluster="n/c", node="w")
    answer = world.sources.judge(host_of([metal]), "", NOW)
    assert answer.answer is StopAnswer.UNKNOWN
    assert "it is not joined with node w of cluster n/c here" in answer.why
    free: Host = msgspec.structs.replace(host_of([metal]), state="available")
    assert world.sources.judge(free, "", NOW).answer is StopAnswer.YES
