"""Explains ingress: which field decided, which default applied, where the pods are and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hostler.explain.registry import Action, Explainer, Explanation, FactSeen, Registry, RuleSeen
from hostler.ingress import conditions
from hostler.ingress.controller import IngressKeeper
from hostler.ingress.decide import Facts
from hostler.ingress.fitting import selects
from hostler.ingress.model import CLUSTER, Decision, Placement, Step
from hostler.ingress.observe import pods_of, ready
from hostler.kube.client import Gate
from hostler.kube.records import Node, Pod


@dataclass(frozen=True, slots=True)
class IngressExplainers:
    """Explains `ingresscontroller/NAME`, `ingress/cluster`, and the workloads that the Fleet names."""

    keeper: IngressKeeper
    gate: Gate  # why nothing would be written now

    def register(self, registry: Registry) -> None:
        registry.add(Explainer("ingresscontroller", "ingress", self.controller, self.controller))
        registry.add(Explainer("ingress", "ingress", self.cluster, self.cluster))
        for kind in ("Deployment", "DaemonSet"):
            registry.add(Explainer(kind.lower(), "ingress", self._workload(kind), self._workload(kind)))

    def controller(self, name: str) -> Explanation | None:
        decided = self.keeper.decide_router(name)
        if decided is None:
            return None
        if (unread := self._unread()) is not None:
            return unread
        facts, decision = decided
        seen = (*_pods(facts.pods, facts.nodes, decision.placement), *_conditions(facts))
        return self._explained(decision, decision.placement.steps if decision.placement else (), seen)

    def cluster(self, name: str) -> Explanation | None:
        decided = self.keeper.decide_cluster()
        backfill, default = decided.backfill, decided.default
        known = backfill.unreadable is not None or self.keeper.caches.ingress.store.get(CLUSTER) is not None
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
            asked = dict(self.keeper.workloads()).get(f"{kind}/{name}")
            if asked is None:
                return None
            if (unread := self._unread()) is not None:
                return unread
            current, decision = self.keeper.decide_workload(asked)
            pods = pods_of(self.keeper.caches.pods.store.values(), current)
            nodes = tuple(self.keeper.caches.nodes.store)
            steps = decision.placement.steps if decision.placement else ()
            return self._explained(decision, steps, _pods(pods, nodes, decision.placement))

        return explain

    def _unread(self) -> Explanation | None:
        why = self.keeper.caches.unread()
        return Explanation("ingress", f"Nothing is decided yet: {why}.") if why else None

    def _explained(self, decision: Decision, steps: Sequence[Step], seen: Sequence[FactSeen]) -> Explanation:
        rules = tuple(RuleSeen(one.field, one.value, f"{one.decided_by}: {one.why}", decided=True) for one in steps)
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


def describe_pod(pod: Pod, labels: dict[str, str] | None, placed: Placement | None) -> str:
    """A sentence: where a pod is."""
    if pod.metadata.deletion_timestamp:
        return f"ending on {pod.spec.node_name or 'no node'}"
    if not pod.spec.node_name:
        return "waiting: no node has the labels, the room and no taint in the way"
    state = "ready" if ready(pod) else "not ready"
    if labels is None:
        return f"{state} on {pod.spec.node_name}, which is not in the cluster any more"
    fits = placed is None or selects(placed, pod.spec.node_name, labels)
    return f"{state} on {pod.spec.node_name}, {'where it belongs' if fits else 'where it does not belong'}"


def _conditions(facts: Facts) -> list[FactSeen]:
    shown = [one for one in facts.controller.status.conditions if one.type in conditions.OURS]
    return [FactSeen(f"condition {one.type}", f"{one.status} ({one.reason}): {one.message}") for one in shown]
