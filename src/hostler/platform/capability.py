"""Platform as the operator sees it: its watches, its controller, what wakes it, what it explains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from hostler.apis.openshift import CLUSTER_CSI_DRIVER, CLUSTER_OPERATOR, ClusterCSIDriver, ClusterOperator
from hostler.capability import Capability
from hostler.explain.registry import Registry
from hostler.host.conditions import Condition
from hostler.host.reverts import RevertLimits
from hostler.kube.client import Gate
from hostler.kube.kinds import DAEMON_SET
from hostler.kube.records import Node, Pod
from hostler.kube.watch import Watch
from hostler.platform import settings as setting
from hostler.platform.conditions import OPERATOR_NAME
from hostler.platform.controller import CHECKS, KEYS, PODS, SCOPE, Options, PlatformReconciler
from hostler.platform.decide import Policy
from hostler.platform.executor import PlatformExecutor
from hostler.platform.explain import PlatformExplainers, PlatformSource
from hostler.platform.model import BINDING, CSI_DRIVER, POLICY, DaemonSet, PolicySpec, WaySetting
from hostler.platform.observe import Caches, Observer, StrandedPods
from hostler.platform.scoping import chooses
from hostler.platform.status import PlatformReport
from hostler.settings.foundation import UNINITIALISED_GRACE_SECONDS
from hostler.shared import Shared

# Nodes change in bursts: one look for all of them, and one question to vCenter.
SOON, LATER = 0.1, 2.0


class PlatformCapability(Capability):
    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        client, metrics, settings = shared.client, shared.metrics, shared.settings
        writers = shared.writers

        def watch(kind: Any, record: Any, fields: str = "") -> Watch[Any]:
            return Watch(client, kind, record, metrics=metrics, fields=fields)

        self.caches = Caches(
            daemon_sets=watch(DAEMON_SET, DaemonSet),
            policies=watch(POLICY, PolicySpec),
            bindings=watch(BINDING, PolicySpec),
            operators=watch(CLUSTER_OPERATOR, ClusterOperator, f"metadata.name={OPERATOR_NAME}"),
            drivers=watch(CLUSTER_CSI_DRIVER, ClusterCSIDriver, f"metadata.name={CSI_DRIVER}"),
            nodes=shared.nodes,
            pods=shared.sources.pods,
            fleet=shared.fleet,
        )
        limits = RevertLimits(settings[setting.PLATFORM_FIGHT_REVERTS], settings[setting.PLATFORM_FIGHT_SECONDS])
        policy = Policy(WaySetting(settings[setting.PLATFORM_WAY]), settings[setting.PLATFORM_STRICT], limits)
        self._report = PlatformReport(shared.recorder, metrics, shared.changed)
        self._reconciler = PlatformReconciler(
            Observer(
                self.caches, lambda: shared.vcenters, StrandedPods(client),
                lambda: writers.guard.displaced("platform"), settings[UNINITIALISED_GRACE_SECONDS],
            ),
            # While the CSI operator is at work and we do not write beside it, it gets its own back all the same.
            PlatformExecutor(self.caches, writers.of("platform"), writers.giving_back("platform"), shared.recorder),
            self._report,
            Options(policy, settings[setting.PLATFORM_REMOVE_TAINT]),
            wake=lambda key: self.controller.queue.add(key, after=SOON),
        )  # fmt: skip
        self.controller = self.add_controller("platform", self._reconciler.reconcile, workers=2)

    def watches(self) -> Iterator[Watch[Any]]:
        return self.caches.own()

    def conditions(self) -> Sequence[Condition]:
        """What the Fleet's status says of us, under names of our own."""
        return [
            msgspec.structs.replace(condition, type=f"Platform{condition.type}")
            for condition in self._report.conditions
        ]

    def host_source(self, cluster: str) -> PlatformSource:
        return PlatformSource(self._reconciler)

    def register(self, registry: Registry, gate: Gate) -> None:
        PlatformExplainers(self._reconciler, gate).register(registry)

    def wake_all(self) -> None:
        for key in KEYS:
            self.controller.queue.add(key)

    def vcenter_changed(self) -> None:
        """How we stand with a vCenter changed: what was known may not be any more, or the other way round."""
        self.controller.queue.add(CHECKS, after=LATER)

    def listen(self) -> None:
        """What wakes what; a DaemonSet that lost its rule is looked at at once."""
        add = self.controller.queue.add
        self.caches.daemon_sets.store.listen(self._daemon_set_changed)
        self.caches.policies.store.listen(lambda *_: add(SCOPE, after=SOON))
        self.caches.bindings.store.listen(lambda *_: add(SCOPE, after=SOON))
        self.caches.operators.store.listen(lambda *_: add(SCOPE, after=LATER))
        self.caches.drivers.store.listen(lambda *_: add(SCOPE, after=SOON))
        self.caches.nodes.store.listen(self._node_changed)
        self.caches.pods.store.listen(self._pod_changed)
        self.wake_all()

    def _daemon_set_changed(self, _: str, before: DaemonSet | None, after: DaemonSet | None) -> None:
        there = [daemon_set.metadata for daemon_set in (before, after) if daemon_set is not None]
        if any(chooses(entry, about) for entry in self._reconciler.observer.entries() for about in there):
            self.controller.queue.add(SCOPE)

    def _node_changed(self, _: str, before: Node | None, after: Node | None) -> None:
        if before is None or after is None or _counts(before) != _counts(after):
            self.controller.queue.add(SCOPE, after=SOON)
            self.controller.queue.add(CHECKS, after=LATER)
            self.controller.queue.add(PODS, after=LATER)

    def _pod_changed(self, _: str, before: Pod | None, after: Pod | None) -> None:
        pod = after or before
        if pod is not None and pod.spec.node_name:
            self.controller.queue.add(PODS, after=LATER)


def _counts(node: Node) -> tuple[object, ...]:
    """What of a node can change a decision; heartbeats cannot."""
    return node.metadata.labels, node.spec.provider_id, node.spec.taints, node.status.node_info.system_uuid
