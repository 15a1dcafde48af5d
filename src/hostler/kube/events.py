"""Kubernetes Events: what `kubectl describe` shows of what we did and why. Aggregated, bounded, never in the way."""

from __future__ import annotations

import asyncio
import random
import re
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec
import structlog

from hostler.instant import iso_micro
from hostler.kube.clock import Clock
from hostler.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
    WriteRefused,
)
from hostler.kube.kinds import EVENT, Kind
from hostler.kube.metrics import Metrics
from hostler.kube.records import Identity, Object, key_of
from hostler.kube.writer import Writer

log = structlog.get_logger("hostler.events")

EventType: TypeAlias = Literal["Normal", "Warning"]
Key: TypeAlias = tuple[str, ...]
# Called with the capability that refuses, the object, a typed reason and a sentence. It must be quick and not raise.
RefusalListener: TypeAlias = "Callable[[str, Kind, Identity, str, str], None]"

CONTROLLER = "hostler.dev/operator"  # by this name our Events are found again
LONGEST_NOTE = 1024  # bytes; the API's own bound
LONGEST_WORD = 128
SERIES_ENDS = 1800.0  # seconds without a repeat; the server forgets an Event after an hour
FIRST_GAP, LONGEST_GAP = 5.0, 300.0  # between two updates of one series: doubled each time
TOO_OLD = 600.0  # an Event that could not be written for so long is no news any more


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much we keep and send. `per_object`: new Events of one object at once; one more each `refill` seconds."""

    waiting: int = 1000
    known: int = 4000
    per_object: int = 25
    refill: float = 30.0


@dataclass(slots=True)
class Series:
    """One Event and its repeats. There may be thousands, so what is in its key is not repeated here."""

    kind: Kind
    began: float  # wall clock, as `last`
    last: float  # for the object
    seen: float  # our clock, for us
    count: int = 1
    sent: int = 0
    due: float = 0.0
    gap: float = FIRST_GAP
    created: bool = False
    name: str = ""  # given when it is first written


class Recorder:
    """Takes events from reconciles and writes them in the background; run `run()` as a task.

    `event` returns at once and never raises. What cannot be written is counted and forgotten: an outage of the API
    server costs a bounded amount of memory.
    """

    def __init__(
        self,
        writer: Writer,
        instance: str,
        metrics: Metrics,
        *,
        controller: str = CONTROLLER,
        bounds: Bounds | None = None,
        listener: RefusalListener | None = None,
        clock: Clock = time.monotonic,
        wall: Clock = time.time,
    ) -> None:
        """`writer` has a gate and a budget of its own, so that Events never delay other writes."""
        self._writer, self._metrics = writer, metrics
        self._controller, self._instance = controller, instance[:LONGEST_WORD]
        self._bounds = bounds or Bounds()
        self._listener = listener
        self._clock, self._wall = clock, wall
        self._known: OrderedDict[Key, Series] = OrderedDict()
        self._waiting: dict[Key, Series] = {}  # in order of arrival
        self._allowance: OrderedDict[Key, tuple[float, float]] = OrderedDict()
        self._wake = asyncio.Event()
        self._ended = asyncio.Event()
        self._running = self._stopping = False
        self._rest = 0.0
        self._said: set[str] = set()

    # -- taking

    def event(
        self,
        kind: Kind,
        metadata: Identity,
        type: EventType,
        reason: str,
        action: str,
        note: str,
        *,
        refusing: str = "",
    ) -> None:
        """Something happened to this object. The same again is counted, not written again.

        `refusing`: the capability that says here why it does not go on.
        """
        if refusing and self._listener is not None and not self._writer.dry_run:
            self._listener(refusing, kind, metadata, reason, note)
        note = cut(note, LONGEST_NOTE)
        subject = (kind.resource, metadata.namespace, metadata.name, metadata.uid)
        key = (*subject, type, reason, action, note)
        now = self._clock()
        series = self._known.get(key)
        if series is not None and now - series.seen <= SERIES_ENDS:
            self._known.move_to_end(key)
            series.count += 1
            series.seen, series.last = now, self._wall()
        elif not self._allowed(subject, now):
            self._metrics.event_dropped("rate")
            return
        else:
            wall = self._wall()
            series = self._known[key] = Series(kind, began=wall, last=wall, seen=now)
            self._known.move_to_end(key)
        if self._writer.dry_run:
            self._only_say(series, kind, metadata, reason, note)
        elif key not in self._waiting:
            self._waiting[key] = series
            self._wake.set()
        self._keep_bounds()

    def _body(self, key: Key, series: Series) -> dict[str, Any]:
        _, namespace, name, uid, type, reason, action, note = key
        kind = series.kind
        regarding = {"apiVersion": kind.api_version, "kind": kind.kind, "name": name, "uid": uid}
        if namespace:
            regarding["namespace"] = namespace
        return {
            "eventTime": iso_micro(series.began),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "type": type if type in ("Normal", "Warning") else "Normal",
            "reason": _word(reason),
            "action": _word(action),
            "regarding": {name: value for name, value in regarding.items() if value},
            "note": note,
        }

    def _allowed(self, subject: Key, now: float) -> bool:
        """A token bucket per object: one that flaps must not drown the others."""
        tokens, at = self._allowance.pop(subject, (float(self._bounds.per_object), now))
        tokens = min(float(self._bounds.per_object), tokens + (now - at) / self._bounds.refill)
        allowed = tokens >= 1
        self._allowance[subject] = (tokens - 1 if allowed else tokens, now)
        return allowed

    def _keep_bounds(self) -> None:
        """Forget the oldest: new events matter more."""
        while len(self._waiting) > self._bounds.waiting:
            self._drop(next(iter(self._waiting)), "full")
        while len(self._known) > self._bounds.known:
            key, _ = self._known.popitem(last=False)
            if self._waiting.pop(key, None) is not None:
                self._metrics.event_dropped("full")
        while len(self._allowance) > self._bounds.known:
            self._allowance.popitem(last=False)

    def _only_say(self, series: Series, kind: Kind, metadata: Identity, reason: str, note: str) -> None:
        if series.count == 1:
            about = f"{kind.kind} {key_of(metadata)}"
            log.info("would record an event", about=about, reason=_word(reason), note=note)

    # -- writing

    async def run(self) -> None:
        """Write what waits, until `stop()`."""
        self._running = True
        try:
            while not (self._stopping and not self._waiting):
                pause = await self._step()
                if pause > 0:
                    await self._sleep(pause)
        finally:
            self._running = False
            self._ended.set()

    async def stop(self, within: float = 3.0) -> None:
        """Write what still waits, but for no longer than this; then forget it. Call before the lease is released."""
        self._stopping = True
        self._wake.set()
        try:
            async with asyncio.timeout(within):
                await (self._ended.wait() if self._running else self.run())
        except TimeoutError:
            pass
        for key in list(self._waiting):
            self._drop(key, "stopped")

    async def _step(self) -> float:
        """Write the first that is due; how long to sleep if none is."""
        now = self._clock()
        if now < self._rest and not self._stopping:
            return self._rest - now
        # The first one only: to list all that are due, for each of them, would be quadratic.
        due = next((key for key, series in self._waiting.items() if self._stopping or series.due <= now), None)
        if due is None:
            return max(0.05, min((series.due for series in self._waiting.values()), default=now + 60) - now)
        try:
            return await self._write(due, self._waiting[due])
        except Exception:  # the loop's edge: a bug here must not stop the recorder; counted and logged
            log.exception("bug while recording an event")
            self._metrics.loop_failed("events")
            self._drop(due, "bug")
            return 1.0

    async def _write(self, key: Key, series: Series) -> float:
        count = series.count
        try:
            await self._send(key, series, count)
        except WriteRefused:
            self._drop(key, "gate")
        except AlreadyExists:
            self._done(key, series, count)  # our own create, whose answer was lost
        except (TooManyRequests, ServerError, Conflict, Unreachable) as error:
            return self._later(key, series, error)
        except NotFound as error:
            if not series.created:
                return self._refuse(key, error)  # its namespace is gone
            series.created, series.name = False, ""  # it has expired
        except (ApiError, msgspec.MsgspecError) as error:
            return self._refuse(key, error)
        else:
            self._done(key, series, count)
        return 0.0

    async def _send(self, key: Key, series: Series, count: int) -> None:
        repeats = {"count": count, "lastObservedTime": iso_micro(series.last)}
        namespace = key[1] or "default"  # the API wants Events about cluster-scoped objects there
        if series.created:
            await self._writer.patch(
                EVENT, series.name, {"series": repeats}, namespace, type=Object, why="happened again"
            )
            return
        series.name = series.name or _name(key[2])  # tried again under the same: then it is written once
        body = {"metadata": {"name": series.name, "namespace": namespace}, **self._body(key, series)}
        if count > 1:
            body["series"] = repeats
        await self._writer.create(EVENT, body, namespace, type=Object, why=body["reason"])

    def _done(self, key: Key, series: Series, count: int) -> None:
        self._metrics.event_recorded("repeat" if series.created else "new")
        series.due = self._clock() + series.gap
        series.gap = min(LONGEST_GAP, series.gap * 2)
        series.created, series.sent, self._rest = True, count, 0.0
        self._waiting.pop(key, None)
        latest = self._known.get(key, series)
        if latest.count > latest.sent:
            self._waiting[key] = latest  # it happened again while we wrote, or long after: then it is a new one

    def _later(self, key: Key, series: Series, error: ApiError | Unreachable) -> float:
        now = self._clock()
        if now - series.seen > TOO_OLD:
            self._drop(key, "outage")
            return 0.0
        asked = error.retry_after if isinstance(error, ApiError) else None
        pause = min(asked or random.uniform(1.0, 5.0), 30.0)  # nosec B311 # jitter
        self._rest = now + pause
        return pause if not self._stopping else 0.2

    def _refuse(self, key: Key, error: Exception) -> float:
        words = f"{type(error).__name__}: {error}"[:200]
        if words not in self._said and len(self._said) < 100:
            self._said.add(words)
            log.warning("the API server does not take an event of ours", error=words)
        self._drop(key, "refused")
        return 0.0

    def _drop(self, key: Key, why: str) -> None:
        series = self._waiting.pop(key, None)
        if series is not None:
            self._metrics.event_dropped(why, series.count - series.sent)
            series.sent = series.count

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()


def cut(text: str, most: int) -> str:
    """`text` in at most so many bytes of UTF-8, with a mark where something is missing."""
    data = text.encode(errors="replace")
    if len(data) <= most:
        return data.decode()
    return data[: most - 3].decode(errors="ignore") + "…"


def _word(given: str) -> str:
    return cut(given, LONGEST_WORD) or "Unknown"


def _name(about: str) -> str:
    """Unique, and a legal object name whatever the object is called (some names hold colons)."""
    stem = re.sub(r"[^a-z0-9.-]", "-", about.lower())[:200].strip(".-") or "object"
    return f"{stem}.{uuid.uuid4().hex[:16]}"
