"""How long completed stays took, by state and kind of host: for metrics, and for what counts as overdue. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from hostler.history.model import Stayed
from hostler.instant import Instant
from hostler.inventory.overdue import Stays, percentile_of
from hostler.inventory.states import HostKind, HostState

DAYS = 90.0
SAMPLES_LIMIT = 2_000  # of one state and kind, the newest
QUANTILES = (0.5, 0.9, 0.95)
OVERDUE_QUANTILE = 0.95
_STATES = frozenset(HostState)
_KINDS = {
    "vm": HostKind.VM, "esxi": HostKind.ESXI, "bmh": HostKind.BARE_METAL, "agent": HostKind.AGENT,
    "node": HostKind.NODE_ONLY,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spread:
    """The seconds of completed stays by quantile, and how many stays there were."""

    seconds: Mapping[float, float]
    samples: int


Spreads = Mapping[tuple[HostState, HostKind], Spread]


class Durations:
    def __init__(self, kind_of: Callable[[str], HostKind | None]) -> None:
        """`kind_of`: the kind of the host that a layer belongs to now, by key."""
        self._kind_of = kind_of
        self._samples: dict[tuple[HostState, HostKind], deque[tuple[Instant, float]]] = {}

    def add(self, stays: Iterable[Stayed]) -> None:
        for stay in stays:
            kind = self._kind_of(stay.key) or kind_of_key(stay.key)
            if kind is None or stay.state not in _STATES:
                continue
            samples = self._samples.setdefault((HostState(stay.state), kind), deque(maxlen=SAMPLES_LIMIT))
            samples.append((stay.at, stay.seconds))

    def spreads(self, now: Instant) -> Spreads:
        oldest = now - DAYS * 86400
        found = dict[tuple[HostState, HostKind], Spread]()
        for key, samples in self._samples.items():
            seconds = [seconds for at, seconds in samples if at >= oldest]
            if seconds:
                measured = {
                    share: percentile.seconds for share in QUANTILES if (percentile := percentile_of(seconds, share))
                }
                found[key] = Spread(measured, len(seconds))
        return found

    def overdue_limits(self, now: Instant) -> Stays:
        """As `inventory.overdue` wants them."""
        oldest = now - DAYS * 86400
        return {
            key: limit
            for key, samples in self._samples.items()
            if (limit := percentile_of([seconds for at, seconds in samples if at >= oldest], OVERDUE_QUANTILE))
        }


def kind_of_key(key: str) -> HostKind | None:
    """Of a layer whose host is gone: by what the layer is."""
    return _KINDS.get(key.partition(":")[0])
