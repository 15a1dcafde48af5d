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
MOST_AT_ONCE = 500  # entries in one write
FIRST_PRUNE_SECONDS, PRUNE_SECONDS = 600.0, 86400.0
FINISH_SECONDS = 2.0
GONE = "gone"
log = structlog.get_logger("hostler.history")


class Store(Protocol):
    """Where entries are kept. `append` may be given the same entries again and stores none twice."""

    @property
    def loaded(self) -> bool: ...
    async def load(self) -> list[Entry]: ...
    async def append(self, entries: Sequence[Entry]) -> None: ...
    async def prune(self, now: Instant) -> int: ...
    async def find(self, keys: Collection[str], since: Instant, most: int, capability: str = "") -> list[Entry]: ...


class Recorder:
    def __init__(
        self,
        store: Store,
        inventory: InventoryService,
        token: Callable[[], int | None],
        ready: Callable[[], bool],
        clock: Callable[[], Instant],
    ) -> None:
        """`token`: the lease's count of leaders while this replica leads, else None. `ready`: every cache is read."""
        self._store, self._inventory, self._token, self._ready, self._clock = store, inventory, token, ready, clock
        self._trail: Trail | None = None
        self._led = -1
        self._version = ""
        self._prune_at = 0.0
        self._storing = asyncio.Lock()
        self.trouble = ""  # why nothing could be stored lately; "" where it could

    async def run(self) -> None:
        changed = asyncio.Event()
        self._inventory.listen(changed.set)
        loop = asyncio.get_running_loop()
        stored = loop.time()
        while True:
            with suppress(TimeoutError):
                # Not wait_for: in Python 3.11 it swallows a cancellation that comes together with a change.
                async with asyncio.timeout(FLUSH_SECONDS):
                    await changed.wait()
            changed.clear()
            token = self._token()
            if token is not None:
                due = loop.time() - stored >= FLUSH_SECONDS
                await self._step(token, store=due)
                stored = loop.time() if due else stored
            await asyncio.sleep(NOTE_SECONDS)

    async def finish(self) -> None:
        """Before another one leads: store what waits, if that is quick."""
        with suppress(ApiError, Unreachable, WriteRefused, TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS):
                await self._flush()

    async def _step(self, token: int, *, store: bool) -> None:
        try:
            if self._trail is not None and self._led == token:
                self._note(self._trail)
            if store:
                await self._keep(token)
                self.trouble = ""
        except WriteRefused:
            pass  # paused, or the lease is lost: what is recorded waits
        except Exception as error:  # noqa: BLE001 - a log must never end the operator whose work it records
            if not self.trouble:
                log.warning("the history cannot be stored; entries wait in memory", error=repr(error))
            self.trouble = f"The history cannot be stored: {error}."

    async def _keep(self, token: int) -> None:
        if self._trail is None or self._led != token:
            if not self._ready():
                return
            await self._begin(token)
        await self._flush()
        now = self._clock()
        if now >= self._prune_at:
            is_due = self._prune_at > 0  # not right at the start, when everything else begins too
            self._prune_at = now + (PRUNE_SECONDS if is_due else FIRST_PRUNE_SECONDS)
            if is_due:
                await self._store.prune(now)

    async def _begin(self, token: int) -> None:
        """Continue from what is stored; a state that differs was entered while nobody recorded."""
        trail = Trail(token)
        trail.resume(await self._store.load())
        if self._trail is not None:
            trail.requeue(self._trail.waiting)
        self._version = self._inventory.news("").version
        trail.infer(layer_stays(self._inventory.layers(), self._clock()))
        self._trail, self._led = trail, token

    def _note(self, trail: Trail) -> None:
        now, news = self._clock(), self._inventory.news(self._version)
        self._version = news.version
        for layer in self._inventory.layers([host.id for host in news.hosts]):
            line = top_line(layer)
            if line is not None:
                trail.transition(
                    layer.key, line.state, now, capability=line.capability, sentence=line.why, operation=line.operation
                )
        if news.gone:
            for key in [key for key in trail.stays if self._inventory.host_of(key) is None]:
                trail.transition(key, GONE, now, sentence="It is no longer reported.")
                trail.forget(key)

    async def _flush(self) -> None:
        """Store what waits. Raises what the store answered."""
        async with self._storing:
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
