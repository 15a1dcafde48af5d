"""Explains ingress: which field decided, which default applied, where the pods are and why; and its notes on hosts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hostler.drain.observe import fact_of
from hostler.explain.registry import Action, Explainer, Explanation, FactSeen, Registry, RuleSeen
from hostler.host.facts import Fact, Unknown
from hostler.ingress import conditions
from hostler.ingress.controller import IngressReconciler
from hostler.ingress.decide import Facts, router_name
from hostler.ingress.model import CLUSTER, ROUTERS_IN, Decision, Placed, Placement, Step
from hostler.ingress.observe import is_ready, pods_of_workload
from hostler.ingress.status import describe_pod
from hostler.instant import Instant
from hostler.inventory.model import Layer
from hostler.inventory.sources import Source
from hostler.kube.client import Gate
from hostler.kube.records import Node, Pod


@dataclass(frozen=True, slots=True)
class IngressExplainers:
    """Explains `ingresscontroller/NAME`, `ingress/cluster`, and the workloads that the Fleet names."""

    reconciler: IngressReconciler
    gate: Gate  # why nothing would be written now

    def register(self, registry: Registry) -> None:
        registry.add(Explainer("ingresscontroller", "ingress", self.controller, self.controller))
        registry.add(Explainer("ingress", "ingress", self.cluster, self.cluster))
        for kind in ("Deployment", "DaemonSet"):
            registry.add(Explainer(kind.lower(), "ingress", self._workload(kind), self._workload(kind)))

    def controller(self, name: str) -> Explanation | None:
        decided = self.reconciler.decide_router(name)
        if decided is None:
            return None
        if (unread := self._unread()) is not None:
            return unread
        facts, decision = decided
        seen = (*_pods(facts.pods, facts.nodes, decision.placement), *_conditions(facts))
        return self._explained(decision, decision.placement.steps if decision.placement else (), seen)

    def cluster(self, name: str) -> Explanation | None:
        decided = self.reconciler.decide_cluster()
        backfill, default = decided.backfill, decided.default
        known = (
            backfill.unreadable is not None or self.reconciler.observer.caches.ingress.store.get(CLUSTER) is not None
        )
        if name != CLUSTER or not known:
            return None
        if (unread := self._unread()) is not None:
            return unread
        rules = (
            RuleSeen("backfill", "acts" if backfill.writes else "does nothing", backfill.why, bool(backfill.writes)),
            RuleSeen("default", "acts" if default.writes else "does nothing", default.why, bool(default.writes)),
        )
        actions = self._actions(backfill) + self._actions(default)
        return Explanation("ingress", backfill.why, rules, actions=actions)

    def _workload(self, kind: str) -> Callable[[str], Explanation | None]:
        def explain(name: str) -> Explanation | None:
            asked = dict(self.reconciler.observer.workloads()).get(f"{kind}/{name}")
            if asked is None:
                return None
            if (unread := self._unread()) is not None:
                return unread
            current, decision = self.reconciler.decide_workload(asked)
            pods = pods_of_workload(self.reconciler.observer.caches.pods.store.values(), current)
            nodes = tuple(self.reconciler.observer.caches.nodes.store)
            steps = decision.placement.steps if decision.placement else ()
            return self._explained(decision, steps, _pods(pods, nodes, decision.placement))

        return explain

    def _unread(self) -> Explanation | None:
        why = self.reconciler.observer.caches.unread()
        return Explanation("ingress", f"Nothing is decided yet: {why}.") if why else None

    def _explained(self, decision: Decision, steps: Sequence[Step], seen: Sequence[FactSeen]) -> Explanation:
        rules = tuple(
            RuleSeen(step.field, step.value, f"{step.decided_by}: {step.why}", decided=True) for step in steps
        )
        return Explanation("ingress", decision.why, rules, tuple(seen), self._actions(decision))

    def _actions(self, decision: Decision) -> tuple[Action, ...]:
        back = self.gate() or ""
        return tuple(
            Action(
                str(write.verb),
                f"{write.kind.kind.lower()}/{write.name}{f' ({write.subresource})' if write.subresource else ''}",
                write.why,
                held_back=back,
            )
            for write in decision.writes
        )


def _pods(pods: Sequence[Pod], nodes: Sequence[Node], placed: Placement | None) -> list[FactSeen]:
    """Each pod, its node, and whether the placement wants it there."""
    labels = {node.metadata.name: node.metadata.labels for node in nodes}
    return [
        FactSeen(f"pod {pod.metadata.name}", describe_pod(pod, labels.get(pod.spec.node_name), placed)) for pod in pods
    ]


def _conditions(facts: Facts) -> list[FactSeen]:
    shown = [found for found in facts.controller.status.conditions if found.type in conditions.OURS]
    return [FactSeen(f"condition {found.type}", f"{found.status} ({found.reason}): {found.message}") for found in shown]


class IngressSource(Source):
    """It shows no hosts. Where pods are is looked up again only after an ingress, or a pod of one, has changed."""

    def __init__(self, reconciler: IngressReconciler, clock: Callable[[], Instant]) -> None:
        self._reconciler, self._caches, self._clock = reconciler, reconciler.observer.caches, clock
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
        self._namespaces = frozenset(workload.metadata.namespace for workload in found.values())
        pods = [pod for pod in self._caches.pods.store.values() if pod.metadata.namespace in self._namespaces]
        last = defaultdict[str, list[str]](list)
        for name, workload in sorted(found.items()):
            nodes = {pod.spec.node_name for pod in pods_of_workload(pods, workload) if is_ready(pod)}
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
        for key, asked in self._reconciler.observer.workloads():
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
