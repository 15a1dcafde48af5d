"""The benchmarks. One that is told to end brings its sandbox down first, for every one of them from here."""

from __future__ import annotations

import signal
from types import FrameType

# A terminal that is closed, and whoever runs this in the background. Ctrl-C is Python's own.
SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def _end(number: int, _frame: FrameType | None) -> None:
    """Out through every `finally`; told twice is told once, or the second would leave what the first takes down."""
    for one in SIGNALS:
        signal.signal(one, signal.SIG_IGN)
    raise SystemExit(128 + number)


for one in SIGNALS:
    signal.signal(one, _end)
