"""What is counted and measured about maintenances. Labels are small closed sets of words."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from hostler.host.identity import Refusal
from hostler.maintenance.decision import BlockedBy, Pass
from hostler.maintenance.hosts import is_not_back
from hostler.maintenance.model import State, World, identity_doubt

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60)
_DRAIN = (5, 15, 30, 60, 120, 300, 600, 1200, 3600)


class MaintenanceMetrics:
    def __init__(self, registry: CollectorRegistry, bug: Callable[[], None] = lambda: None) -> None:
        """`bug` counts an error that nobody foresaw."""
        self.bug = bug
        self._states = Gauge("hostler_maintenance_nodes", "Nodes per state.", ["state"], registry=registry)
        self._blocked = Gauge(
            "hostler_maintenance_blocked", "Nodes that do not go on, by why.", ["reason"], registry=registry
        )
        self._doubted = Gauge(
            "hostler_maintenance_return_in_doubt", "Nodes being stopped whose return our model doubts.",
            registry=registry,
        )  # fmt: skip
        self._refused = Gauge(
            "hostler_maintenance_identity_refused", "Nodes that are refused as the VM they say they are, by why.",
            ["reason"], registry=registry,
        )  # fmt: skip
        self._not_back = Gauge(
            "hostler_maintenance_not_back",
            "Nodes whose VM we stopped and whose ESXi host is in service again, while the VM is off.",
            registry=registry,
        )
        self.drained = Histogram(
            "hostler_maintenance_drain_seconds", "From the cordon to the stop of the VM.", registry=registry,
            buckets=_DRAIN,
        )  # fmt: skip
        self.detected = Histogram(
            "hostler_maintenance_detection_seconds",
            "From vCenter's push of the task to the cordon in the API server.",
            registry=registry,
            buckets=_SECONDS,
        )
        self._tasks = Counter(
            "hostler_maintenance_power_tasks", "Asked of vCenter, by result.", ["what", "result"], registry=registry
        )
        self._overdue = Counter(
            "hostler_maintenance_power_on_timeouts", "POWER_ON_TIMEOUT_SECONDS passed.", registry=registry
        )
        self._passes = Histogram(
            "hostler_maintenance_pass_seconds", "One pass over everything.", registry=registry, buckets=_SECONDS
        )

    def task(self, what: str, result: str) -> None:
        self._tasks.labels(what, result).inc()

    def overdue(self) -> None:
        self._overdue.inc()

    def passed(self, world: World, found: Pass, states: Tally[str], seconds: float) -> None:
        self._passes.observe(seconds)
        for state in State:
            self._states.labels(str(state)).set(states[str(state)])
        self._doubted.set(sum(bool(one.doubt) for one in found.decisions))
        self._not_back.set(sum(is_not_back(one, world) for one in world.subjects))
        doubts = (identity_doubt(one) for one in world.subjects)
        refused = Tally(doubt.reason for doubt in doubts if doubt is not None)
        for refusal in Refusal:
            self._refused.labels(str(refusal)).set(refused[refusal])
        blocked = Tally(one.blocked.by for one in found.decisions if one.blocked is not None)
        for reason in BlockedBy:
            self._blocked.labels(reason.value).set(blocked[reason])
