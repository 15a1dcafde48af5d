"""What controllers of metal are made with in pure tests: caches and a writer of the test's own."""

from __future__ import annotations

import time
from collections.abc import Callable

from hostler.instant import Instant
from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.clusters import Clusters
from hostler.kube.events import Recorder
from hostler.kube.metrics import Metrics
from hostler.kube.writer import Writer
from hostler.metal.caches import Caches, DataCaches
from hostler.metal.toolbox import Toolbox


def dry_writer(client: Client) -> Writer:
    return Writer(client, "metal", gate=lambda: None, budget=WriteBudget(100), dry_run=True)


def toolbox(
    caches: Caches, client: Client, writer: Writer | None = None, *, data: DataCaches | None = None,
    recorder: Recorder | None = None, metrics: Metrics | None = None, clock: Callable[[], Instant] = time.time,
) -> Toolbox:  # fmt: skip
    """Without a writer: a dry run."""
    writer, metrics = writer or dry_writer(client), metrics or Metrics()
    recorder = recorder or Recorder(writer, "me", metrics)
    data = data or DataCaches.make(client, metrics)
    return Toolbox(caches, data, client, writer, recorder, metrics, Clusters(client), lambda _: writer, clock)
