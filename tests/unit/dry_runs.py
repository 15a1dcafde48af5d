"""A controller in a dry run, over caches that a test fills: what it would send, without an API server."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import msgspec
from structlog.testing import capture_logs

from hostler.kube.budget import WriteBudget
from hostler.kube.client import Client
from hostler.kube.events import Recorder
from hostler.kube.kinds import Kind
from hostler.kube.metrics import Metrics
from hostler.kube.records import HasMetadata
from hostler.kube.watch import Watch
from hostler.kube.writer import Writer
from tests.unit.nowhere import Nowhere

R = TypeVar("R", bound=HasMetadata)
versions = itertools.count(1)


class DryRun:
    """What a capability is wired with. Its client reaches nothing; its writer only reports what it would write."""

    def __init__(self, owner: str) -> None:
        self.metrics = Metrics()
        self.client = Client(Nowhere())
        self.writer = Writer(self.client, owner, gate=lambda: None, budget=WriteBudget(), dry_run=True)
        self.recorder = Recorder(self.writer, "test", self.metrics)

    def watch(self, kind: Kind, record: type[R], *objects: R, unreadable: Iterable[str] = (), **more: Any) -> Watch[R]:
        """A cache that has been read completely."""
        watch = Watch(self.client, kind, record, metrics=self.metrics, **more)
        for one in objects:
            put(watch, one)
        for key in unreadable:
            watch.store.unread(key, next(versions), "it does not decode")
        watch.store.synced = True
        return watch


def put(watch: Watch[R], record: R) -> R:
    """The object as the watch brings it, with a version."""
    version = str(next(versions))
    given: Any = record
    made: R = msgspec.structs.replace(given, metadata=msgspec.structs.replace(given.metadata, resource_version=version))
    watch.store.put(made)
    return made


def writes_of(reconcile: Callable[[], Awaitable[object]]) -> list[tuple[str, str, str]]:
    """(verb, kind/NAMESPACE/NAME, why) of everything that one pass would send, in order."""
    with capture_logs() as logs:
        asyncio.run(_awaited(reconcile))
    return [
        (one["verb"], f"{one['kind'].lower()}/{one['name']}", one["why"])
        for one in logs
        if one["event"] == "would write"
    ]


async def _awaited(reconcile: Callable[[], Awaitable[object]]) -> None:
    await reconcile()
