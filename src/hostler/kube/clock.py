"""Clocks of this machine, as functions to pass in. Tests pass their own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

log = structlog.get_logger("hostler.clock")
Clock = Callable[[], float]


def boottime() -> float:
    """Seconds that go on while the process is stopped and while the machine is suspended.

    `time.monotonic` stands still during suspend on Linux; a leader must not wake up believing that no time has passed.
    """
    return time.clock_gettime(_BOOTTIME) if _BOOTTIME is not None else time.monotonic()


_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)

# A wall clock that goes this much further than time between two looks was set; less is nothing a deadline is lost by.
STEP_SECONDS = 5.0
LOOK_SECONDS = 1.0


class Steps:
    """Notices that the wall clock was set while we run: by NTP, by a hypervisor that let the machine sleep.

    After a step forward, everything scheduled in between is due at once, although no time has really passed. A caller
    that acts harshly when a time is over therefore counts it from the step (`last`). Not known after a restart.
    """

    def __init__(
        self, told: Callable[[float], None] = lambda step: None, *, wall: Clock = time.time, ticks: Clock = boottime
    ) -> None:
        """`told` is called with the seconds of each step, negative for a step back."""
        self._told, self._wall, self._ticks = told, wall, ticks
        self._apart = wall() - ticks()
        self._at = 0.0

    def last(self, now: float) -> float:
        """When the wall clock was last set forward, as it shows it since; no later than `now`. 0.0: never."""
        before, wall, after = self._ticks(), self._wall(), self._ticks()
        if after - before < LOOK_SECONDS:  # else we were stopped between the two, and they are not of one moment
            step, self._apart = wall - after - self._apart, wall - after
            if abs(step) >= STEP_SECONDS:
                self._at = wall if step > 0 else min(self._at, wall)
                then = "what must not end early begins anew" if step > 0 else "times under way last longer"
                log.warning(f"the clock of this machine was set; {then}", seconds=round(step, 1))
                self._told(step)
        return min(self._at, now)

    async def run(self) -> None:
        """Look every second, so that a step is reported when it happens."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.last(self._wall())
