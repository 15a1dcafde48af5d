"""What ingress measures: pods, whether a node fits, whether the wildcard reaches a router, and reverts."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from hostler.host.conditions import Status
from hostler.ingress.model import Decision, RefusedBy
from hostler.ingress.wildcard import Pointing
from hostler.kube.metrics import Metrics

_WHATS = ("wanted", "available", "waiting", "astray")


class IngressGauges:
    """One set of series per ingress: the name of an IngressController, or `Deployment/NAMESPACE/NAME`."""

    def __init__(self, metrics: Metrics) -> None:
        registry = metrics.registry
        self._routers = Gauge(
            "hostler_ingress_routers", "Pods of an ingress, by their state.", ["controller", "what"], registry=registry
        )
        self._no_node = Gauge(
            "hostler_ingress_no_fitting_node", "1: no node fits where it belongs.", ["controller"], registry=registry
        )
        self._wildcard = Gauge(
            "hostler_ingress_wildcard_reaches_router", "1: it does, 0: traffic is lost, -1: unknown.", ["controller"],
            registry=registry,
        )  # fmt: skip
        self._reverts = Counter(
            "hostler_ingress_reverts", "How often another controller undid a placement.", ["controller"],
            registry=registry,
        )  # fmt: skip
        self._refused = Gauge(
            "hostler_ingress_refused", "1: what the Fleet asks for is refused, and by which rule.",
            ["controller", "reason"], registry=registry,
        )  # fmt: skip
        self._known: set[str] = set()

    def count(self, name: str, available: int, wanted: int, waiting: int = 0, astray: int = 0) -> None:
        self._known.add(name)
        for what, number in zip(_WHATS, (wanted, available, waiting, astray), strict=True):
            self._routers.labels(name, what).set(number)

    def show(self, name: str, decision: Decision) -> None:
        self._known.add(name)
        self._no_node.labels(name).set(decision.no_node is not None)
        by = decision.refusal.by if decision.refusal is not None else None
        for reason in RefusedBy:
            self._refused.labels(name, reason).set(reason is by)
        self._reverts.labels(name)  # there as 0, so that Prometheus sees the first one

    def point(self, name: str, pointing: Pointing | None) -> None:
        """None: there is nothing to judge, such as behind a load balancer."""
        if pointing is None:
            _remove(self._wildcard, name)
            return
        self._wildcard.labels(name).set({Status.TRUE: 1, Status.FALSE: 0}.get(pointing.status, -1))

    def reverted(self, name: str) -> None:
        self._reverts.labels(name.removeprefix("controller/")).inc()

    def forget(self, name: str) -> None:
        if name in self._known:
            self._known.discard(name)
            for what in _WHATS:
                _remove(self._routers, name, what)
            _remove(self._no_node, name)
            _remove(self._wildcard, name)
            for reason in RefusedBy:
                _remove(self._refused, name, reason)
            # The counter stays: one that begins again at 0 hides what it counted.

    def clear(self) -> None:
        for name in tuple(self._known):
            self.forget(name)


def _remove(gauge: Gauge, *labels: str) -> None:
    gauge.labels(*labels)  # a series that was never set cannot be removed
    gauge.remove(*labels)
