"""Keys waiting to be looked at: each once, soonest first, important before unimportant, failures later."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable

BACKOFF_FIRST = 0.1
BACKOFF_MOST = 60.0
LEFTOVERS = 1000  # overtaken deadlines kept before they are swept out


class Queue:
    """A deduplicating priority queue of keys.

    A key is worked on by at most one worker at a time; added again meanwhile, it comes back when that worker is done.
    Of several deadlines for a key the earliest wins. The most urgent priority asked for wins (0 before 1 before 2).
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] | None = None,
        jitter: Callable[[], float] = random.random,
        first: float = BACKOFF_FIRST,
        most: float = BACKOFF_MOST,
    ) -> None:
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._jitter = jitter
        self._first = first
        self._most = most
        self._ready: list[tuple[int, int, str]] = []  # priority, order of arrival, key
        self._later: list[tuple[float, int, str]] = []  # deadline, order of arrival, key
        self._waiting: dict[str, tuple[float | None, int]] = {}  # key -> deadline (None: ready now), priority
        self._active: dict[str, tuple[float | None, int] | None] = {}  # key in work -> how it was added again
        self._failures: dict[str, int] = {}
        self._order = 0
        self._bell = asyncio.Event()
        self._closed = False

    def add(self, key: str, *, after: float = 0.0, priority: int = 1) -> None:
        """Look at `key` now, or `after` seconds from now; an earlier deadline it already has stays."""
        if self._closed:
            return
        due = self._clock() + after if after > 0 else None
        if key in self._active:
            self._active[key] = _sooner(self._active[key], (due, priority))
            return
        had = self._waiting.get(key)
        want = _sooner(had, (due, priority))
        if want == had:
            return
        self._waiting[key] = want
        self._order += 1
        if want[0] is None:
            heapq.heappush(self._ready, (want[1], self._order, key))
        else:
            heapq.heappush(self._later, (want[0], self._order, key))
            if len(self._later) > 2 * len(self._waiting) + LEFTOVERS:
                self._sweep()
        self._bell.set()

    async def get(self) -> str | None:
        """The next key to look at, or None when the queue is closed. Every `get` is answered by one `done`."""
        while not self._closed:
            key = self._take()
            if key is not None:
                self._active[key] = None
                return key
            self._bell.clear()
            wait = self._next_deadline()
            try:
                async with asyncio.timeout(wait):
                    await self._bell.wait()
            except TimeoutError:
                continue
        self._bell.set()  # the other workers are to see it too
        return None

    def done(self, key: str) -> None:
        """The work on `key` has ended; if it was added meanwhile it is due again."""
        again = self._active.pop(key)
        if again is not None:
            due, priority = again
            self.add(key, after=max(due - self._clock(), 0.0) if due is not None else 0.0, priority=priority)

    def retry(self, key: str) -> float:
        """It failed: come back after this key's own back-off, which doubles with each failure. Returns the delay."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(self._first * 2.0 ** min(failures, 30), self._most) * (0.75 + self._jitter() / 2)
        self.add(key, after=delay)
        return delay

    def forget(self, key: str) -> None:
        """It went well: the next failure starts with the shortest delay again."""
        self._failures.pop(key, None)

    def failures(self, key: str) -> int:
        return self._failures.get(key, 0)

    def close(self) -> None:
        """No more keys are given out; workers finish what they have."""
        self._closed = True
        self._bell.set()

    def __len__(self) -> int:
        """Keys that are due now."""
        self._promote()
        return sum(1 for due, _ in self._waiting.values() if due is None)

    @property
    def active(self) -> int:
        return len(self._active)

    # -- inside

    def _take(self) -> str | None:
        self._promote()
        while self._ready:
            priority, _, key = heapq.heappop(self._ready)
            if self._waiting.get(key) == (None, priority):  # otherwise a leftover of a later, better entry
                del self._waiting[key]
                return key
        return None

    def _promote(self) -> None:
        """Move what has come due from `_later` to `_ready`."""
        now = self._clock()
        while self._later and self._later[0][0] <= now:
            due, order, key = heapq.heappop(self._later)
            entry = self._waiting.get(key)
            if entry is not None and entry[0] == due:
                self._waiting[key] = (None, entry[1])
                heapq.heappush(self._ready, (entry[1], order, key))

    def _sweep(self) -> None:
        """Drop entries that a sooner one has overtaken: a key woken often that asks for `in an hour` leaves many."""
        self._later = [one for one in self._later if self._waiting.get(one[2], (None, 0))[0] == one[0]]
        heapq.heapify(self._later)

    def _next_deadline(self) -> float | None:
        """Seconds until the next key comes due; None while there is none."""
        while self._later:
            due, _, key = self._later[0]
            entry = self._waiting.get(key)
            if entry is not None and entry[0] == due:
                return max(due - self._clock(), 0.0)
            heapq.heappop(self._later)
        return None


def _sooner(had: tuple[float | None, int] | None, want: tuple[float | None, int]) -> tuple[float | None, int]:
    if had is None:
        return want
    due = None if had[0] is None or want[0] is None else min(had[0], want[0])
    return due, min(had[1], want[1])
