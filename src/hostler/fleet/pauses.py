"""When the last pause ended. Whoever waits for a time must not find it run out because nothing could be done."""

from __future__ import annotations

from hostler.fleet.decide import PAUSED
from hostler.fleet.guard import FleetWatch, pause_of
from hostler.fleet.model import NAME
from hostler.host.conditions import Status
from hostler.instant import Instant, parse


class Pauses:
    """From the Fleet's own status, which outlives this process, and from what it has seen itself.

    The status alone is not enough: it is written a moment after the button is released, and goes with the Fleet.
    """

    def __init__(self, fleet: FleetWatch) -> None:
        self._fleet = fleet
        self._open: Instant | None = None  # since when this process sees nothing stopped
        self._seen = False  # it has seen a pause, or lost sight of the Fleet; that it had not read it yet is neither

    def ended(self, now: Instant) -> Instant:
        """`now` while everything is stopped; 0.0 where it never was. Never later than now, whoever's clock wrote it."""
        pause = pause_of(self._fleet)
        if pause.stopped:
            self._seen = self._seen or pause.known or self._open is not None
            self._open = None
            return now
        if self._open is None:
            self._open = now
        return min(now, max(self._open if self._seen else 0.0, self._told(self._open)))

    def _told(self, running: Instant) -> Instant:
        """By the status; where that does not say yet that a pause is over, since we see it `running`."""
        fleet = self._fleet.store.get(NAME)
        said = next((one for one in fleet.status.conditions if one.type == PAUSED), None) if fleet is not None else None
        if said is None:
            return 0.0
        return parse(said.last_transition_time) or 0.0 if said.status is Status.FALSE else running
