"""Records how the states of hosts change and what is done to them, and stores it once a second. Only the leader does.

A decision never waits for this and never reads it. What cannot be stored waits in memory, bounded; see `trail`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import structlog

from hostler.history.actions import DONE, ActionFeed, Happened
from hostler.history.durations import DAYS, Durations
from hostler.history.metrics import HistoryMetrics
from hostler.history.model import GONE, Entry, Stored, id_order, stay_of
from hostler.history.trail import About, Stay, Trail
from hostler.instant import Instant, iso
from hostler.inventory.model import Layer, Line, node_key
from hostler.inventory.picture import Changes
from hostler.inventory.service import InventoryService
from hostler.inventory.states import PASSING, STATE_ORDER, HostKind
from hostler.kube.errors import ApiError, Unreachable, WriteRefused

FLUSH_SECONDS = 1.0
NOTE_SECONDS = 0.05  # changes closer together than this are seen as one
MEASURE_SECONDS = 15.0
MOST_AT_ONCE = 500  # entries in one write
FIRST_PRUNE_SECONDS, PRUNE_SECONDS = 600.0, 86400.0
FINISH_SECONDS = 2.0
STOPPED, INTERRUPTED, NOT_RECORDED = "Stopped", "Interrupted", "NotRecorded"  # reasons of gaps, beside Dropped
log = structlog.get_logger("hostler.history")


class StoreFailed(Exception):
    """A store of its own kind refused, with a sentence that tells no secret."""


class Store(Protocol):
    """Where entries are kept. `append` may be given the same entries again and stores none twice."""

    @property
    def loaded(self) -> bool: ...
    @property
    def unreadable(self) -> Mapping[str, str]: ...
    async def load(self, stays_since: Instant) -> Stored: ...
    async def append(self, entries: Sequence[Entry]) -> None: ...
    async def prune(self, now: Instant) -> int: ...
    async def find(self, keys: Collection[str], since: Instant, most: int, capability: str = "") -> list[Entry]: ...
    async def after(self, id: str, since: Instant, most: int) -> list[Entry]: ...
    async def close(self) -> None: ...


class Recorder:
    def __init__(
        self,
        store: Store,
        inventory: InventoryService,
        feed: ActionFeed,
        metrics: HistoryMetrics,
        token: Callable[[], int | None],
        ready: Callable[[], bool],
    ) -> None:
        """`token`: the lease's count of leaders while this replica leads, else None. `ready`: every cache is read."""
        self._store, self._inventory, self._feed, self._metrics = store, inventory, feed, metrics
        self._token, self._ready, self._clock = token, ready, feed.clock
        self._durations = Durations(self._kind_of)
        self._trail: Trail | None = None
        self._led = -1
        self._version = ""
        self._layers_of: dict[str, tuple[str, ...]] = {}  # by id of a host, as it was noted last
        self._prune_at = 0.0
        self._measure_at = 0.0
        self._dropped = 0
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
            else:
                self._feed.take()  # written by this replica without leading: nobody's entries
                self._rest()
            await asyncio.sleep(NOTE_SECONDS)

    async def finish(self) -> None:
        """Before another one leads: store what waits, if that is quick."""
        if self._trail is None or self._token() != self._led:
            return
        with suppress(ApiError, Unreachable, WriteRefused, StoreFailed, TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS):
                self._note(self._trail)
                self._trail.gap(self._clock(), reason=STOPPED, sentence="The leader stopped; nothing is missing.")
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
            told = str(error) if isinstance(error, (ApiError, Unreachable, StoreFailed)) else repr(error)
            if not self.trouble:
                log.warning("the history cannot be stored; entries wait in memory", error=told)
            self.trouble = f"The history cannot be stored: {told.rstrip('.')}."
        self._measure(self._clock())

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
        now, trail = self._clock(), Trail(token)
        stored = await self._store.load(now - DAYS * 86400)
        trail.resume(stored.last, PASSING)
        if self._trail is not None:
            trail.requeue(self._trail.waiting)
        news = self._inventory.news("")
        self._version, self._layers_of = news.version, {host.id: host.layers for host in news.hosts}
        if stored.last:
            reason, sentence = gap_before(max(stored.last, key=lambda entry: id_order(entry.id)), self._led)
            trail.gap(now, reason=reason, sentence=sentence)
        states, ours = layer_stays(self._inventory.layers(), now), node_key(self._feed.cluster, "")
        # Only of nodes it is certain by now that they are gone: vCenters and other clusters are read later.
        gone = [key for key in trail.stays if key.startswith(ours) and key not in states]
        trail.infer(states, gone, now)
        self._durations = Durations(self._kind_of)
        self._durations.add(stored.stays)
        self._trail, self._led, self._dropped, self._measure_at = trail, token, 0, 0.0

    def _note(self, trail: Trail) -> None:
        now, news = self._clock(), self._inventory.news(self._version)
        self._version = news.version
        for happened in self._feed.take():
            note_action(trail, happened, self._operation_of(happened, trail))
        for layer in self._inventory.layers([host.id for host in news.hosts]):
            line = top_line(layer)
            if line is not None:
                trail.transition(
                    layer.key,
                    str(line.state),
                    now,
                    capability=line.capability,
                    sentence=line.why,
                    operation=line.operation,
                )
        for key in self._left(news):
            if self._inventory.host_of(key) is None and key in trail.stays:
                trail.transition(key, GONE, now, sentence="It is no longer reported.")
                trail.forget(key)

    def _left(self, news: Changes) -> set[str]:
        """The layers that are not where they were noted last: of hosts that changed or went."""
        left = set[str]()
        for host in news.hosts:
            left.update(set(self._layers_of.get(host.id, ())).difference(host.layers))
            self._layers_of[host.id] = host.layers
        for id in news.gone:
            left.update(self._layers_of.pop(id, ()))
        return left

    def _operation_of(self, happened: Happened, trail: Trail) -> str:
        """The operation that a layer is in, or was until this moment."""
        if happened.operation:
            return happened.operation
        stay = trail.stays.get(happened.key)
        ending = stay.operation_at(happened.at) if stay is not None else ""
        return self._inventory.operation_of(happened.key) or ending

    async def _flush(self) -> None:
        """Store what waits. Raises what the store answered."""
        async with self._storing:
            while self._trail is not None and (entries := self._trail.take(MOST_AT_ONCE, self._clock())):
                await self._store.append(entries)
                for entry in entries:
                    log.info("history", **log_fields(entry))
                self._trail.done(entries)
                self._metrics.stored(len(entries))
                self._durations.add(stay for entry in entries if (stay := stay_of(entry)) is not None)

    # -- what is measured

    def _kind_of(self, key: str) -> HostKind | None:
        host = self._inventory.host_of(key)
        return None if host is None else host.kind

    def _measure(self, now: Instant) -> None:
        trail = self._trail
        if trail is None:
            self._metrics.show_waiting(0, failing=bool(self.trouble))
            return
        self._metrics.show_waiting(len(trail), failing=bool(self.trouble))
        self._metrics.dropped(trail.dropped_in_all - self._dropped)
        self._dropped = trail.dropped_in_all
        if now >= self._measure_at:
            self._measure_at = now + MEASURE_SECONDS
            self._inventory.learn(self._durations.overdue_limits(now))
            self._metrics.show_spreads(self._durations.spreads(now))
            self._metrics.show_overdue((host.state, host.kind) for host in self._inventory.overdue())

    def _rest(self) -> None:
        """We do not lead: the next leader measures."""
        if self._measure_at:
            self._measure_at, self.trouble = 0.0, ""
            self._metrics.clear()


def note_action(trail: Trail, happened: Happened, operation: str) -> None:
    about = About(capability=happened.capability, reason=happened.reason, sentence=happened.sentence)
    about["operation"] = operation
    if happened.result:
        about["result"] = happened.result
    if happened.is_refusal:
        trail.refusal(happened.key, happened.at, **about)
    elif happened.result in DONE:
        trail.action(happened.key, happened.at, **about)
    else:
        trail.failure(happened.key, happened.at, **about)


def gap_before(newest: Entry, led: int) -> tuple[str, str]:
    """What may be missing before a leader begins, as a typed reason and a sentence. `led`: our last term."""
    if newest.reason == STOPPED:
        return NOT_RECORDED, f"Nobody recorded since {iso(newest.at)}, when the leader before stopped."
    if id_order(newest.id)[0] == led:
        return NOT_RECORDED, "Nobody recorded while this replica did not lead."
    return INTERRUPTED, "The leader before ended at once: entries of its last 2 seconds may be missing."


def top_line(layer: Layer) -> Line | None:
    """What counts most of what is reported about one layer."""
    return min(layer.lines, key=lambda line: STATE_ORDER[line.state], default=None)


def layer_stays(layers: Collection[Layer], now: Instant) -> Mapping[str, Stay]:
    lines = ((layer.key, top_line(layer)) for layer in layers)
    return {
        key: Stay(str(line.state), now if line.since is None else line.since, line.operation)
        for key, line in lines
        if line is not None
    }


def log_fields(entry: Entry) -> dict[str, object]:
    """Stable names for whoever reads the log: docs/history.md lists them."""
    return {
        "id": entry.id, "at": entry.at, "key": entry.key, "what": str(entry.what), "capability": entry.capability,
        "from": entry.old, "to": entry.new, "reason": entry.reason, "sentence": entry.sentence,
        "duration": entry.duration, "operation": entry.operation, "result": entry.result,
    }  # fmt: skip
