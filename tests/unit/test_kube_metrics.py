"""The metrics page: what is on it, and that it does not grow without bound."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time

from prometheus_client.parser import text_string_to_metric_families

from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.controller import Controller
from hostler.kube.kinds import NODE
from hostler.kube.metrics import MOST_SERIES, Metrics
from hostler.kube.records import Node
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from tests.unit.nowhere import Nowhere


def samples(metrics: Metrics) -> dict[str, float]:
    families = text_string_to_metric_families(metrics.text().decode())
    return {
        sample.name + "".join(f" {name}={value}" for name, value in sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def test_everything_counted_is_on_the_page() -> None:
    metrics = Metrics()
    metrics.queue_depth("nodes", 3)
    metrics.queue_added("nodes")
    metrics.reconciled("nodes", "ok", 0.02)
    metrics.watch_restarted("pods", "gone")
    metrics.unreadable("pods")
    metrics.cached("pods", 7)
    metrics.wrote("patch", "nodes", "ok")
    metrics.write_rate(12.5)
    metrics.event_recorded("new")
    metrics.event_dropped("full", 4)
    metrics.leading(True)
    metrics.loop_failed("events")
    found = samples(metrics)
    wanted = {
        "hostler_queue_depth queue=nodes": 3,
        "hostler_queue_adds_total queue=nodes": 1,
        "hostler_reconciles_total controller=nodes result=ok": 1,
        "hostler_reconcile_seconds_count controller=nodes": 1,
        "hostler_watch_restarts_total kind=pods why=gone": 1,
        "hostler_decode_failures_total kind=pods": 1,
        "hostler_objects_cached kind=pods": 7,
        "hostler_writes_total kind=nodes result=ok verb=patch": 1,
        "hostler_write_budget_per_second": 12.5,
        "hostler_events_recorded_total how=new": 1,
        "hostler_events_dropped_total why=full": 4,
        "hostler_leader": 1,
        "hostler_loop_failures_total loop=events": 1,
    }
    assert wanted.items() <= found.items()
    assert found["process_resident_memory_bytes"] > 0


def test_what_alerts_are_about_is_there_before_it_happens() -> None:
    """Prometheus does not see a counter grow that comes as 1."""

    async def nothing(key: str) -> float | None:
        return None

    metrics = Metrics()

    async def make() -> None:
        async with Client(Nowhere()) as client:
            Controller("nodes", nothing, metrics=metrics)
            Writer(client, "holds", gate=lambda: None, budget=WriteBudget(1, 1), metrics=metrics)

    asyncio.run(make())
    found = samples(metrics)
    for name in (
        "hostler_loop_failures_total loop=events",
        "hostler_loop_failures_total loop=http",
        "hostler_reconciles_total controller=nodes result=bug",
        "hostler_reconciles_total controller=nodes result=error",
        "hostler_writes_forbidden_total capability=holds",
    ):
        assert found[name] == 0


def test_what_cannot_be_read_is_counted_over_every_cache_that_is_there() -> None:
    metrics = Metrics()
    name = "hostler_objects_unreadable kind=nodes"

    async def follow() -> None:
        async with Client(Nowhere()) as client:
            one, two = (Watch(client, NODE, Node, metrics=metrics) for _ in range(2))
            assert samples(metrics)[name] == 0
            one.store.unread("a", 1, "why")
            two.store.unread("a", 1, "why")
            assert samples(metrics)[name] == 2
            two.store.forget("a", 2)
            assert samples(metrics)[name] == 1

    asyncio.run(follow())
    gc.collect()
    assert samples(metrics)[name] == 0


def test_two_of_them_do_not_share_anything() -> None:
    one, other = Metrics(), Metrics()
    one.leading(True)
    assert samples(other)["hostler_leader"] == 0


def test_labels_that_grow_are_counted_as_other() -> None:
    metrics = Metrics()
    for number in range(MOST_SERIES + 50):
        metrics.watch_restarted("pods", f"why-{number}")
    restarts = {
        name: value for name, value in samples(metrics).items() if name.startswith("hostler_watch_restarts_total")
    }
    assert len(restarts) == MOST_SERIES + 1
    assert restarts["hostler_watch_restarts_total kind=other why=other"] == 50


def test_a_blocked_loop_is_seen() -> None:
    metrics = Metrics()

    async def go() -> None:
        task = asyncio.create_task(metrics.measure_loop(every=0.01))
        await asyncio.sleep(0.05)
        time.sleep(0.3)  # noqa: ASYNC251  # what must never happen, on purpose
        await asyncio.sleep(0.05)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(go())
    assert samples(metrics)["hostler_loop_lag_worst_seconds"] > 0.2
