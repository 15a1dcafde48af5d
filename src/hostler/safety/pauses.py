"""The Pause objects as the watch brings them: whether they stop writes, and when the last one ended.

Writes are allowed only on knowledge: every Pause was read a short while ago and there is none, or this cluster is known
not to have the kind. What cannot be read, or not be decoded, stops writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from hostler.apis.fleet import NAME, Fleet, Pause
from hostler.host.conditions import Status
from hostler.instant import Instant, parse
from hostler.kube.kinds import PAUSE
from hostler.kube.store import Store
from hostler.kube.watch import FRESH_SECONDS
from hostler.safety.pause_state import PAUSED, PauseReason, PauseState, paused_sentence, seen_pauses


class PauseWatch(Protocol):
    """What we need of the watch on Pause: `kube.watch.Watch[Pause]` is the real one."""

    @property
    def store(self) -> Store[Pause]: ...
    @property
    def absent(self) -> bool: ...
    @property
    def forbidden(self) -> bool: ...
    @property
    def problem(self) -> str: ...
    def age(self) -> float | None: ...


def read_pauses(watch: PauseWatch) -> PauseState:
    """Read the stop button. Unknown is not absent: writes go only if no Pause exists, or the kind does not."""
    age, detail = watch.age(), f": {watch.problem}" if watch.problem else ""
    if watch.forbidden:
        need = (
            f"The rights `list` and `watch` on {PAUSE.resource} are needed to read it; until then nothing is written."
        )
        return PauseState(PauseReason.FORBIDDEN, f"Cannot tell whether Hostler is paused{detail}. {need}")
    if age is None or not watch.store.synced:
        return PauseState(PauseReason.NOT_READ, f"Cannot tell yet whether Hostler is paused{detail}.")
    if age > FRESH_SECONDS:  # it may have missed the stop button
        silent = f"Cannot tell whether Hostler is paused: the API server said nothing of it for {age:.0f} s{detail}."
        return PauseState(PauseReason.SILENT, silent)
    pauses = seen_pauses(watch.store.values(), watch.store.unreadable)
    if pauses:  # also while the kind is new, and still called absent until its first listing is complete
        return PauseState(PauseReason.PAUSE_EXISTS, paused_sentence(pauses), pauses)
    if watch.absent:
        return PauseState(PauseReason.NO_KIND, "This cluster does not have the kind Pause, so nothing is paused.")
    return PauseState(PauseReason.NO_PAUSE, "Nothing is paused.")


class PauseEnd:
    """When the last pause ended. Whoever waits for a time must not find it run out because nothing could be done.

    From the Fleet's own status, which outlives this process, and from what it has seen itself. The status alone is not
    enough: it is written a moment after the pause ended, and goes with the Fleet.
    """

    def __init__(self, read_stop: Callable[[], PauseState], fleet: Store[Fleet]) -> None:
        self._read_stop = read_stop
        self._fleet = fleet
        self._open: Instant | None = None  # since when this process sees nothing stopped
        self._seen = False  # it has seen a pause, or lost sight of them; that it had not read them yet is neither

    def ended(self, now: Instant) -> Instant:
        """`now` while everything is stopped; 0.0 where it never was. Never later than now, whoever's clock wrote it."""
        pause = self._read_stop()
        if pause.stopped:
            self._seen = self._seen or pause.known or self._open is not None
            self._open = None
            return now
        if self._open is None:
            self._open = now
        return min(now, max(self._open if self._seen else 0.0, self._told(self._open)))

    def _told(self, running: Instant) -> Instant:
        """By the status; where that does not say yet that a pause is over, since we see it `running`."""
        fleet = self._fleet.get(NAME)
        said = next((one for one in fleet.status.conditions if one.type == PAUSED), None) if fleet is not None else None
        if said is None:
            return 0.0
        return parse(said.last_transition_time) or 0.0 if said.status is Status.FALSE else running
