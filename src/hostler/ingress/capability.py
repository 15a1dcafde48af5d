"""Ingress as the operator sees it: its watches, its controller, what wakes it, what it explains."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from hostler.apis.openshift import (
    INFRASTRUCTURE,
    INGRESS,
    INGRESS_CONTROLLER,
    Infrastructure,
    IngressConfig,
    IngressController,
)
from hostler.capability import Capability
from hostler.explain.registry import Registry
from hostler.host.conditions import Condition
from hostler.ingress import settings as setting
from hostler.ingress.controller import CONTROLLER_KEY, IngressReconciler
from hostler.ingress.executor import IngressExecutor
from hostler.ingress.explain import IngressExplainers, IngressSource
from hostler.ingress.model import CLUSTER, CONTROLLERS_IN, ROUTERS_IN, Placed
from hostler.ingress.observe import Caches, Observer, Options
from hostler.ingress.status import IngressReport
from hostler.kube.client import Gate
from hostler.kube.kinds import DAEMON_SET, DEPLOYMENT
from hostler.kube.records import Node, Pod
from hostler.kube.watch import Watch
from hostler.shared import Shared

# Pods and nodes change in bursts; a tenth of a second later the picture is the same for all of them.
SOON = 0.1


class IngressCapability(Capability):
    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        client, metrics, settings = shared.client, shared.metrics, shared.settings

        def watch(kind: Any, record: Any, namespace: str | None = None) -> Watch[Any]:
            return Watch(client, kind, record, metrics=metrics, namespace=namespace)

        self.caches = Caches(
            ingress=watch(INGRESS, IngressConfig),
            infrastructure=watch(INFRASTRUCTURE, Infrastructure),
            controllers=watch(INGRESS_CONTROLLER, IngressController, CONTROLLERS_IN),
            deployments=watch(DEPLOYMENT, Placed),
            daemon_sets=watch(DAEMON_SET, Placed),
            budgets=shared.sources.budgets,
            pods=shared.sources.pods,
            nodes=shared.nodes,
            fleet=shared.fleet,
        )
        named: tuple[str, ...] = settings[setting.INGRESS_WORKLOADS]
        options = Options(
            settings[setting.INGRESS_BACKFILL], settings[setting.INGRESS_ROUTER_IMAGE],
            settings[setting.INGRESS_CHECK_WILDCARD], frozenset(named),
        )  # fmt: skip
        executor = IngressExecutor(self.caches, shared.writers.of("ingress"), shared.recorder)
        self._report = IngressReport(metrics, shared.changed)
        self._reconciler = IngressReconciler(Observer(self.caches, options), executor, self._report)
        self.controller = self.add_controller("ingress", self._reconciler.reconcile)

    def watches(self) -> Iterator[Watch[Any]]:
        return self.caches.own()

    def conditions(self) -> Sequence[Condition]:
        """What the Fleet's status says of the ingresses that it names."""
        return self._report.conditions

    def led(self, held: bool) -> None:
        """A replica that no longer leads no longer looks: what it saw last must not hide what the leader sees."""
        if not held:
            self._report.metrics.clear()

    def host_source(self, cluster: str) -> IngressSource:
        return IngressSource(self._reconciler, time.time)

    def register(self, registry: Registry, gate: Gate) -> None:
        IngressExplainers(self._reconciler, gate).register(registry)

    def wake_all(self) -> None:
        for key in self._reconciler.all_keys():
            self.controller.queue.add(key)

    def listen(self) -> None:
        """What wakes what: the objects that decide wake everything, a workload and its pods only its own key."""
        caches, add = self.caches, self.controller.queue.add
        caches.ingress.store.listen(lambda *_: self.wake_all())
        caches.infrastructure.store.listen(lambda *_: self.wake_all())
        caches.controllers.store.listen(lambda key, *_: self._controller_changed(key))
        caches.deployments.store.listen(lambda key, *_: self._workload_changed("Deployment", key))
        caches.daemon_sets.store.listen(lambda key, *_: self._workload_changed("DaemonSet", key))
        caches.budgets.store.listen(lambda key, *_: self._budget_changed(key))
        caches.pods.store.listen(self._pod_changed)
        caches.nodes.store.listen(self._node_changed)
        add(CLUSTER)

    def _controller_changed(self, key: str) -> None:
        self.controller.queue.add(f"{CONTROLLER_KEY}{key.partition('/')[2]}")
        self.controller.queue.add(CLUSTER)

    def _workload_changed(self, kind: str, key: str) -> None:
        namespace, _, name = key.partition("/")
        if kind == "Deployment" and namespace == ROUTERS_IN and name.startswith("router-"):
            self.controller.queue.add(f"{CONTROLLER_KEY}{name.removeprefix('router-')}")
        elif f"{kind}/{key}" in dict(self._reconciler.observer.workloads()):
            self.controller.queue.add(f"{kind}/{key}")

    def _budget_changed(self, key: str) -> None:
        if key.startswith(f"{ROUTERS_IN}/router-"):
            self.controller.queue.add(f"{CONTROLLER_KEY}{key.partition('/router-')[2]}")

    def _pod_changed(self, _: str, before: Pod | None, after: Pod | None) -> None:
        pod = after or before
        if pod is not None and pod.metadata.namespace == ROUTERS_IN:
            for controller in self.caches.controllers.store:
                self.controller.queue.add(f"{CONTROLLER_KEY}{controller.metadata.name}", after=SOON)

    def _node_changed(self, _: str, before: Node | None, after: Node | None) -> None:
        if before is None or after is None or _counts(before) != _counts(after):
            for key in self._reconciler.all_keys():
                self.controller.queue.add(key, after=SOON)


def _counts(node: Node) -> tuple[object, ...]:
    """What of a node can change a decision; heartbeats cannot."""
    return node.metadata.labels, node.spec.taints, node.spec.unschedulable, node.status.addresses
