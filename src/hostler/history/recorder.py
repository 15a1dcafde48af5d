"""Records how the states of hosts change, and stores it once a second. Only the leader records.

A decision never waits for this and never reads it. What cannot be stored waits in memory, bounded; see `trail`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import structlog

from hostler.history.model import Entry
from hostler.history.trail import Stay, Trail
from hostler.instant import Instant
from hostler.inventory.model import Layer, Line
from hostler.inventory.service import InventoryService
from hostler.inventory.states import STATE_ORDER
from hostler.kube.errors import ApiError, Unreachable, WriteRefused

FLUSH_SECONDS = 1.0
NOTE_SECONDS = 0.05  # changes closer together than this are seen as one
MOST_AT_ONCE = 1000  # entries in one write
PRUNE_SECONDS = 86400.0
log = structlog.get_logger("hostler.history")


class Store(Protocol):
    """Where entries are kept. `append` may be given the same entries again and stores none twice."""

    async def load(self) -> list[Entry]: ...
    async def append(self, entries: Sequence[Entry]) -> None: ...
    async def prune(self, now: Instant) -> int: ...
    def find(self, keys: Collection[str], since: Instant, most: int) -> list[Entry]: ...


class Recorder:
    def __init__(
        self,
        store: Store,
        inventory: InventoryService,
        token: Callable[[], int | None],
        clock: Callable[[], Instant],
    ) -> None:
        """`token`: the lease's count of leaders while this replica leads, else None."""
        self._store, self._inventory, self._token, self._clock = store, inventory, token, clock
        self._trail: Trail | None = None
        self._led = -1
        self._version = ""
        self._pruned = 0.0
        self._trouble = ""

    @property
    def trouble(self) -> str:
        """Why nothing could be stored lately; "" where it could."""
        return self._trouble

    async def run(self) -> None:
        changed = asyncio.Event()
        self._inventory.listen(changed.set)
        stored = asyncio.get_running_loop().time()
        while True:
            with suppress(TimeoutError):
                # Not wait_for: in Python 3.11 it swallows a cancellation that comes together with a change.
                async with asyncio.timeout(FLUSH_SECONDS):
                    await changed.wait()
            changed.clear()
            token = self._token()
            if token is None:
                self._trail = None
            elif self._trail is not None and self._led == token:
                self._note()
            if token is not None and asyncio.get_running_loop().time() - stored >= FLUSH_SECONDS:
                await self._keep(token)
                stored = asyncio.get_running_loop().time()
            await asyncio.sleep(NOTE_SECONDS)

    async def _keep(self, token: int) -> None:
        try:
            if self._trail is None or self._led != token:
                await self._begin(token)
            await self.flush()
            if self._clock() - self._pruned > PRUNE_SECONDS:
                await self._store.prune(self._clock())
                self._pruned = self._clock()
            self._trouble = ""
        except WriteRefused:
            pass  # paused, or the lease is lost: what is recorded waits
        except (ApiError, Unreachable) as error:
            if not self._trouble:
                log.warning("the history cannot be stored; entries wait in memory", error=str(error))
            self._trouble = str(error)

    async def _begin(self, token: int) -> None:
        """Continue from what is stored; a state that differs was entered while nobody recorded."""
        trail = Trail(token)
        trail.resume(await self._store.load())
        self._version = self._inventory.news("").version
        trail.infer(layer_stays(self._inventory.layers(), self._clock()))
        self._trail, self._led = trail, token

    def _note(self) -> None:
        assert self._trail is not None
        now, news = self._clock(), self._inventory.news(self._version)
        self._version = news.version
        for layer in self._inventory.layers([host.id for host in news.hosts]):
            line = top_line(layer)
            if line is not None:
                self._trail.transition(
                    layer.key, line.state, now, capability=line.capability, sentence=line.why, operation=line.operation
                )

    async def flush(self) -> None:
        """Store what waits. Raises what the store answered."""
        while self._trail is not None and (entries := self._trail.take(MOST_AT_ONCE, self._clock())):
            await self._store.append(entries)
            for entry in entries:
                log.info("history", **_fields(entry))
            self._trail.done(entries)


def top_line(layer: Layer) -> Line | None:
    """What counts most of what is reported about one layer."""
    return min(layer.lines, key=lambda line: STATE_ORDER[line.state], default=None)


def layer_stays(layers: Collection[Layer], now: Instant) -> Mapping[str, Stay]:
    lines = ((layer.key, top_line(layer)) for layer in layers)
    return {key: Stay(line.state, now if line.since is None else line.since) for key, line in lines if line is not None}


def _fields(entry: Entry) -> dict[str, object]:
    """Stable names for whoever reads the log."""
    return {
        "id": entry.id, "key": entry.key, "what": str(entry.what), "capability": entry.capability, "from": entry.old,
        "to": entry.new, "reason": entry.reason, "sentence": entry.sentence, "duration": entry.duration,
        "operation": entry.operation,
    }  # fmt: skip
