"""What the runtime counts and measures. One registry, passed in where it is needed; there are no globals.

Labels come from small closed sets (kinds, verbs, words of our own), never from object names. Should one grow all the
same, what comes after the first few hundred is counted as "other": a metric must not become a leak.

What an alert is about is there as 0 from the start (`expect_...`): Prometheus does not see a counter grow that comes
as 1.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar
from weakref import WeakSet

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from hostler import __version__
from hostler.kube.clock import Clock

MOST_SERIES = 400
_SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 30, 120)
LOOPS = ("events", "http", "maintenance")  # those with an edge at which errors are caught
_LAG = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5)
M = TypeVar("M", Counter, Gauge, Histogram)


class Readings(Protocol):
    """A cache, as far as it is measured."""

    @property
    def unreadable(self) -> Mapping[str, str]: ...


class Family(Generic[M]):
    """One metric with labels, its series kept at hand and bounded in number."""

    def __init__(self, metric: M, labels: int) -> None:
        self._metric: M = metric
        self._other = ("other",) * labels
        self._series: dict[tuple[str, ...], M] = {}

    def of(self, *labels: str) -> M:
        found = self._series.get(labels)
        if found is None:
            if len(self._series) >= MOST_SERIES and labels != self._other:
                return self.of(*self._other)
            found = self._series[labels] = self._metric.labels(*labels)
        return found


class Metrics:
    """Every metric of the runtime. Rooms add their own to `registry`."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._gauge("hostler_build_info", "The version that runs.", "version").of(__version__).set(1)
        self._queue_and_reconciles()
        self._caches()
        self._writes_and_leadership()

    def text(self) -> bytes:
        """As Prometheus reads it."""
        return generate_latest(self.registry)

    # -- work queues and reconciles

    def _queue_and_reconciles(self) -> None:
        self._depth = self._gauge("hostler_queue_depth", "Keys waiting.", "queue")
        self._adds = self._counter("hostler_queue_adds", "Keys added.", "queue")
        self._results = self._counter("hostler_reconciles", "Reconciles by result.", "controller", "result")
        self._seconds = self._histogram("hostler_reconcile_seconds", "Time of one reconcile.", _SECONDS, "controller")

    def queue_depth(self, queue: str, depth: int) -> None:
        self._depth.of(queue).set(depth)

    def queue_added(self, queue: str) -> None:
        self._adds.of(queue).inc()

    def expect_controller(self, controller: str) -> None:
        for result in ("bug", "error"):
            self._results.of(controller, result)

    def reconciled(self, controller: str, result: str, seconds: float) -> None:
        self._results.of(controller, result).inc()
        self._seconds.of(controller).observe(seconds)

    # -- watch caches

    def _caches(self) -> None:
        self._cached = self._gauge("hostler_objects_cached", "Objects in the cache.", "kind")
        self._restarts = self._counter("hostler_watch_restarts", "Watches begun again, by why.", "kind", "why")
        self._unreadable = self._counter("hostler_decode_failures", "Objects left out as unreadable.", "kind")
        self._left_out = self._gauge("hostler_objects_unreadable", "Objects that are there and cannot be read.", "kind")
        self._stores: dict[str, WeakSet[Readings]] = {}

    def cached(self, kind: str, objects: int) -> None:
        self._cached.of(kind).set(objects)

    def watch_restarted(self, kind: str, why: str) -> None:
        self._restarts.of(kind, why).inc()

    def follows(self, kind: str, store: Readings) -> None:
        """What it cannot read is asked for at every scrape. A kind may be followed twice, for different fields."""
        stores = self._stores.setdefault(kind, WeakSet())
        stores.add(store)
        self._left_out.of(kind).set_function(lambda: sum(len(one.unreadable) for one in stores))

    def unreadable(self, kind: str) -> None:
        self._unreadable.of(kind).inc()

    # -- writes, events, leadership, the loop itself

    def _writes_and_leadership(self) -> None:
        registry = self.registry
        self._writes = self._counter("hostler_writes", "Writes by result.", "verb", "kind", "result")
        self._forbidden = self._counter("hostler_writes_forbidden", "Writes refused for want of rights.", "capability")
        self._rate = Gauge(
            "hostler_write_budget_per_second", "Writes per second we allow ourselves.", registry=registry
        )
        self._events = self._counter("hostler_events_recorded", "Kubernetes Events written.", "how")
        self._dropped = self._counter("hostler_events_dropped", "Kubernetes Events not written, by why.", "why")
        self._leader = Gauge("hostler_leader", "1 while this replica leads.", registry=registry)
        self._failures = self._counter("hostler_loop_failures", "Errors caught at a loop's edge: bugs.", "loop")
        for loop in LOOPS:
            self._failures.of(loop)
        self._steps = self._counter("hostler_clock_steps", "The machine's clock was set while we ran.", "way")
        for way in ("forward", "back"):
            self._steps.of(way)
        self._lag = Histogram("hostler_loop_lag_seconds", "How late a sleeper wakes.", buckets=_LAG, registry=registry)
        self._worst = Gauge("hostler_loop_lag_worst_seconds", "The worst lag of the last minute.", registry=registry)

    def wrote(self, verb: str, kind: str, result: str) -> None:
        self._writes.of(verb, kind, result).inc()

    def expect_writer(self, capability: str) -> None:
        self._forbidden.of(capability)

    def forbidden(self, capability: str) -> None:
        self._forbidden.of(capability).inc()

    def write_rate(self, per_second: float) -> None:
        self._rate.set(per_second)

    def event_recorded(self, how: str) -> None:
        self._events.of(how).inc()

    def event_dropped(self, why: str, count: int = 1) -> None:
        self._dropped.of(why).inc(count)

    def leading(self, held: bool) -> None:
        self._leader.set(1 if held else 0)

    def loop_failed(self, loop: str) -> None:
        self._failures.of(loop).inc()

    def clock_stepped(self, seconds: float) -> None:
        self._steps.of("forward" if seconds > 0 else "back").inc()

    async def measure_loop(self, every: float = 0.5, clock: Clock = time.monotonic) -> None:
        """Measure the event loop's lag for ever; run it as a task."""
        worst, minute = 0.0, clock()
        while True:
            due = clock() + every
            await asyncio.sleep(every)
            now = clock()
            lag = max(0.0, now - due)
            self._lag.observe(lag)
            if now - minute > 60:
                worst, minute = 0.0, now
            worst = max(worst, lag)
            self._worst.set(worst)

    # -- making them

    def _gauge(self, name: str, text: str, *labels: str) -> Family[Gauge]:
        return Family(Gauge(name, text, labels, registry=self.registry), len(labels))

    def _counter(self, name: str, text: str, *labels: str) -> Family[Counter]:
        return Family(Counter(name, text, labels, registry=self.registry), len(labels))

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Family[Histogram]:
        return Family(Histogram(name, text, labels, buckets=buckets, registry=self.registry), len(labels))
