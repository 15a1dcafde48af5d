"""When to stop putting back what another controller keeps undoing. Pure.

Invariant: within `RevertLimits.seconds` an object is written at most `reverts` times more often than its owner's
decision changes, however often and by whomever it is undone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hostler.instant import Instant
from hostler.kube.records import ManagedMetadata

# It follows each change of a Deployment with an annotation of its own, so it is often the last, and decides nothing.
_COUNTS_REVISIONS = "kube-controller-manager"


class Revert(NamedTuple):
    """When we saw undone what we had put in place, and what that was."""

    rule: str
    at: Instant


@dataclass(frozen=True, slots=True)
class RevertLimits:
    """So many reverts within so many seconds are a fight."""

    reverts: int = 5
    seconds: float = 600.0

    def pause(self, reverts: Sequence[Revert], rule: str, now: Instant) -> float | None:
        """For how many seconds the object is left alone; None: it may be written. A new rule begins from nothing."""
        recent = [one.at for one in reverts if one.rule == rule and now - one.at < self.seconds]
        return min(recent) + self.seconds - now + 1 if len(recent) >= self.reverts else None


class RevertLog:
    """When we saw undone what had been in place, by our own clock: what a restart may forget."""

    def __init__(self) -> None:
        self._in_place: dict[str, str] = {}  # object -> the rule we last saw in place
        self._seen: dict[str, deque[Revert]] = {}

    def is_undone(self, key: str, rule: str, now: Instant) -> bool:
        """The rule is not in place; True if it was before. A rule that we changed ourselves is no revert."""
        if self._in_place.pop(key, None) != rule:
            return False
        self._seen.setdefault(key, deque(maxlen=100)).append(Revert(rule, now))
        return True

    def is_in_place(self, key: str, rule: str) -> None:
        self._in_place[key] = rule

    def forget(self, key: str) -> None:
        """The object is gone: one with its name later is another."""
        self._in_place.pop(key, None)
        self._seen.pop(key, None)

    def of(self, key: str) -> tuple[Revert, ...]:
        return tuple(self._seen.get(key, ()))

    def seen_at(self, key: str, rule: str, now: Instant) -> tuple[Revert, ...]:
        """Those so far; and where the rule was in place before, the one that `is_undone` would count now."""
        return (*self.of(key), Revert(rule, now)) if self.was_in_place(key, rule) else self.of(key)

    def was_in_place(self, key: str, rule: str) -> bool:
        """Whether `is_undone` would count a revert; nothing is counted."""
        return self._in_place.get(key) == rule


def last_writer(metadata: ManagedMetadata, ours: str) -> str:
    """Who wrote the object last, apart from us and from its status; "" where that is not recorded."""
    apart = (ours, _COUNTS_REVISIONS)
    others = [one for one in metadata.managed_fields if one.manager not in apart and not one.subresource]
    newest = max(others, key=lambda one: (one.time or "", one.manager), default=None)
    return f'field manager "{newest.manager}"' if newest is not None else ""
