"""How many writes per second we allow ourselves: less when the API server says it has too much to do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from hostler.kube.clock import Clock
from hostler.kube.errors import LONGEST_WAIT

LOWEST = 0.5  # writes per second, however loaded the server is: one that never writes never learns that it may


class WriteBudget:
    """A token bucket whose rate halves on 429 and grows back slowly while writes succeed.

    Writers are served in the order they came. Between two 429s at least a second passes before the rate halves again:
    ten writes that were under way together are one message of the server, not ten.
    """

    def __init__(
        self,
        rate: float = 20.0,
        burst: int = 40,
        *,
        recovery: float | None = None,
        clock: Clock = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        changed: Callable[[float], None] | None = None,
    ) -> None:
        """`recovery`: by how much the rate grows per second, by default a twentieth of the full rate."""
        self.full = max(rate, LOWEST)
        self.burst = max(burst, 1)
        self._rate = self.full
        self._recovery = self.full / 20 if recovery is None else recovery
        self._clock, self._sleep = clock, sleep
        self._changed = changed or (lambda _: None)
        self._tokens = float(self.burst)
        self._filled = self._grown = clock()
        self._blocked_until = self._halved = float("-inf")
        self._turn = asyncio.Lock()  # hands itself on in order of arrival
        self._changed(self._rate)

    @property
    def rate(self) -> float:
        """Writes per second allowed right now."""
        return self._rate

    async def take(self) -> None:
        """Wait for the right to one write."""
        async with self._turn:
            while (wait := self._wait()) > 0:
                # In short naps: the rate may change while we wait.
                await self._sleep(min(wait, 1.0))
            self._tokens -= 1

    def throttled(self, retry_after: float | None) -> None:
        """The server answered 429: slow down, and stay silent for as long as it asked."""
        now = self._clock()
        if retry_after is not None and retry_after > 0:
            self._blocked_until = max(self._blocked_until, now + min(retry_after, LONGEST_WAIT))
        self._grown = now
        if now - self._halved < 1.0:
            return
        self._halved = now
        self._fill(now)
        self._set(max(LOWEST, self._rate / 2))
        self._tokens = min(self._tokens, 0.0)  # what was saved up would be a burst right after the pause

    def succeeded(self) -> None:
        """A write went through: recover by the time that passed since the last one, a minute at most."""
        now = self._clock()
        if self._rate < self.full:
            self._fill(now)
            self._set(min(self.full, self._rate + self._recovery * min(max(0.0, now - self._grown), 60.0)))
        self._grown = now

    def _wait(self) -> float:
        now = self._clock()
        if now < self._blocked_until:
            return self._blocked_until - now
        self._fill(now)
        missing = 1 - self._tokens
        return missing / self._rate if missing > 1e-6 else 0.0  # rounding must not cost another nap

    def _fill(self, now: float) -> None:
        # At the rate that held since the last look; nothing is saved up while the server asked for rest.
        since = max(self._filled, self._blocked_until)
        if now > since:
            self._tokens = min(float(self.burst), self._tokens + (now - since) * self._rate)
        self._filled = max(now, self._filled)

    def _set(self, rate: float) -> None:
        self._rate = rate
        self._changed(rate)
