"""How long to wait before the next attempt."""

from __future__ import annotations

import random


class Backoff:
    """Doubling from `first` to `most`, with full jitter, so that a thousand clients do not come back together."""

    def __init__(self, first: float, most: float) -> None:
        self._first, self._most = first, most
        self.failures = 0  # in a row; the caller sets it back to 0 after a success

    def next(self) -> float:
        self.failures += 1
        return random.random() * min(self._first * 2.0 ** min(self.failures, 20), self._most)  # nosec B311 # jitter

    def next_after(self, asked: float | None) -> float:
        """The next delay, but no shorter than the server asks for."""
        return max(asked or 0.0, self.next()) * (1 + random.random() / 4)  # nosec B311 # jitter
