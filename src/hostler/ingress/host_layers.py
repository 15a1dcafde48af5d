"""What ingress knows of hosts: on which node the last ready pod of a managed ingress is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from hostler.drain.observe import fact_of
from hostler.host.facts import Fact, Unknown
from hostler.ingress.controller import IngressKeeper
from hostler.ingress.decide import router_name
from hostler.ingress.model import ROUTERS_IN, Placed
from hostler.ingress.observe import pods_of, ready
from hostler.instant import Instant
from hostler.inventory.model import Layer
from hostler.inventory.sources import Source
from hostler.kube.records import Pod


class IngressSource(Source):
    """It shows no hosts. Where pods are is looked up again only after an ingress, or a pod of one, has changed."""

    def __init__(self, keeper: IngressKeeper, clock: Callable[[], Instant]) -> None:
        self._keeper, self._caches, self._clock = keeper, keeper.caches, clock
        self._last: Mapping[str, tuple[str, ...]] | None = None  # by node; None: to be looked up again
        self._namespaces: frozenset[str] = frozenset()
        caches = self._caches
        caches.pods.store.listen(self._pod_changed)
        caches.controllers.store.listen(lambda *_: self._forget())
        caches.fleet.store.listen(lambda *_: self._forget())
        caches.deployments.store.listen(self._workload_changed)
        caches.daemon_sets.store.listen(self._workload_changed)

    def listen(self, changed: Callable[[], None]) -> None:
        """Nothing of it is in a layer: whether a host is safe to stop is judged when it is asked for."""

    def take(self) -> Mapping[str, Layer | None]:
        return {}

    def last_ingress_pods(self, node: str) -> Fact[tuple[str, ...]] | None:
        if (unread := self._caches.unread()) is not None:
            return Unknown(str(unread))
        if self._last is None:
            self._last = self._look()
        return fact_of(self._caches.pods, self._last.get(node, ()), self._clock())

    def _look(self) -> Mapping[str, tuple[str, ...]]:
        found = dict(self._ingresses())
        self._namespaces = frozenset(one.metadata.namespace for one in found.values())
        pods = [pod for pod in self._caches.pods.store.values() if pod.metadata.namespace in self._namespaces]
        last = defaultdict[str, list[str]](list)
        for name, workload in sorted(found.items()):
            nodes = {pod.spec.node_name for pod in pods_of(pods, workload) if ready(pod)}
            if len(nodes) == 1:
                last[nodes.pop()].append(name)
        return {node: tuple(names) for node, names in last.items()}

    def _ingresses(self) -> Iterator[tuple[str, Placed]]:
        """The routers of IngressControllers, and what the Fleet names."""
        caches = self._caches
        for controller in caches.controllers.store:
            key = f"{ROUTERS_IN}/{router_name(controller.metadata.name)}"
            if (router := caches.deployments.store.get(key)) is not None:
                yield f"Deployment/{key}", router
        for key, asked in self._keeper.workloads():
            store = caches.daemon_sets.store if asked.kind == "DaemonSet" else caches.deployments.store
            if (placed := store.get(f"{asked.namespace}/{asked.name}")) is not None:
                yield key, placed

    # -- what changed

    def _forget(self) -> None:
        self._last = None

    def _workload_changed(self, _: str, before: Placed | None, after: Placed | None) -> None:
        if before is None or after is None or before.spec.selector != after.spec.selector:
            self._forget()

    def _pod_changed(self, _: str, before: Pod | None, after: Pod | None) -> None:
        if any(pod is not None and pod.metadata.namespace in self._namespaces for pod in (before, after)):
            self._forget()
