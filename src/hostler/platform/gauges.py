"""What platform measures: classes of nodes, checks, stranded pods, conditions and reverts."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import Counter, Gauge

from hostler.host.conditions import Condition, Status
from hostler.host.platform import Class
from hostler.kube.metrics import Metrics
from hostler.platform.model import PlacedNode, Result, Round


class PlatformGauges:
    def __init__(self, metrics: Metrics) -> None:
        registry = metrics.registry
        self._nodes = Gauge("hostler_platform_nodes", "Nodes by platform class.", ["class"], registry=registry)
        self._checks = Gauge(
            "hostler_platform_checks", "vSphere nodes by the result of their check.", ["result"], registry=registry
        )
        self._stranded = Gauge(
            "hostler_platform_stranded_pods", "Pods that need a driver their node lacks.", registry=registry
        )
        self._conditions = Gauge(
            "hostler_platform_condition", "1: True, 0: False, -1: Unknown.", ["type"], registry=registry
        )
        self._reverts = Counter(
            "hostler_platform_reverts", "How often somebody took the rule from a DaemonSet.", ["daemonset"],
            registry=registry,
        )  # fmt: skip

    def show(self, nodes: Sequence[PlacedNode], round_: Round, stranded: int, conditions: Sequence[Condition]) -> None:
        for kind in Class:
            self._nodes.labels(kind).set(sum(one.found.kind is kind for one in nodes))
        for result in Result:
            self._checks.labels(result).set(sum(one.result is result for one in round_.results.values()))
        self._stranded.set(stranded)
        for one in conditions:
            self._conditions.labels(one.type).set({Status.TRUE: 1, Status.FALSE: 0}.get(one.status, -1))

    def in_place(self, daemon_set: str) -> None:
        self._reverts.labels(daemon_set)  # there as 0, so that Prometheus sees the first one

    def reverted(self, daemon_set: str) -> None:
        self._reverts.labels(daemon_set).inc()
