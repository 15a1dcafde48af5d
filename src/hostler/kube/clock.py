"""Clocks of this machine, as functions to pass in. Tests pass their own."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]


def boottime() -> float:
    """Seconds that go on while the process is stopped and while the machine is suspended.

    `time.monotonic` stands still during suspend on Linux; a leader must not wake up believing that no time has passed.
    """
    return time.clock_gettime(_BOOTTIME) if _BOOTTIME is not None else time.monotonic()


_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)
