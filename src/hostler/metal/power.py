"""Whether a host that says it is off can be believed: it may say so from before it was asked, or between two errors."""

from __future__ import annotations

from collections.abc import Callable

from hostler.apis.metal3 import BareMetalHost
from hostler.metal.caches import held_by
from hostler.metal.claims import DEBOUNCE_SECONDS


class Power:
    """Follows the hosts that are kept off, by the annotation that does so."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # The annotation -> when its host's word counts. By our own clock: after a restart it begins anew.
        self._from: dict[str, float] = {}

    def host_changed(self, before: BareMetalHost | None, after: BareMetalHost | None) -> None:
        was = held_by(before) if before is not None else ()
        now = held_by(after) if after is not None else ()
        for name in set(was) - set(now):
            self._from.pop(name, None)
        was_on = before is not None and before.status.powered_on
        went_off = was_on and after is not None and not after.status.powered_on
        for name in now:
            if name not in self._from:
                self._from[name] = self._clock() + DEBOUNCE_SECONDS
            elif name in was and went_off:
                self._from[name] = self._clock()  # after it was asked to

    def fresh(self, name: str) -> bool:
        return self._clock() >= self._from.get(name, float("inf"))
