"""When to stop putting back what another controller keeps undoing.

Invariant: within `RevertLimits.seconds` an object is written at most `reverts` times more often than its owner's
decision changes, however often and by whomever it is undone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from hostler.instant import Instant
from hostler.kube.records import ManagedMetadata


@dataclass(frozen=True, slots=True)
class RevertLimits:
    """So many reverts within so many seconds are a fight."""

    reverts: int = 5
    seconds: float = 600.0

    def pause(self, reverts: Sequence[Instant], now: Instant) -> float | None:
        """For how many seconds the object is left alone; None: it may be written."""
        recent = [at for at in reverts if now - at < self.seconds]
        return min(recent) + self.seconds - now + 1 if len(recent) >= self.reverts else None


class RevertLog:
    """When we saw undone what had been in place, by our own clock: what a restart may forget."""

    def __init__(self) -> None:
        self._in_place: dict[str, str] = {}  # object -> the rule we last saw in place
        self._seen: dict[str, deque[Instant]] = {}

    def is_undone(self, key: str, rule: str, now: Instant) -> bool:
        """The rule is not in place; True if it was before. A rule that we changed ourselves is no revert."""
        if self._in_place.pop(key, None) != rule:
            return False
        self._seen.setdefault(key, deque(maxlen=100)).append(now)
        return True

    def is_in_place(self, key: str, rule: str) -> None:
        self._in_place[key] = rule

    def forget(self, key: str) -> None:
        """The object is gone: one with its name later is another."""
        self._in_place.pop(key, None)

    def times(self, key: str) -> tuple[Instant, ...]:
        return tuple(self._seen.get(key, ()))


def last_writer(metadata: ManagedMetadata, ours: str) -> str:
    """Who wrote the object last, apart from us and from its status; "" where that is not recorded."""
    others = [one for one in metadata.managed_fields if one.manager != ours and not one.subresource]
    newest = max(others, key=lambda one: (one.time or "", one.manager), default=None)
    return f'field manager "{newest.manager}"' if newest is not None else ""
