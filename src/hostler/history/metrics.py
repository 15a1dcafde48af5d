"""What the history measures: how long states last, which hosts are overdue, and whether entries are stored."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge

from hostler.history.durations import Spreads
from hostler.inventory.states import HostKind, HostState


class HistoryMetrics:
    """Labels are states and kinds of hosts, which are few. Only the leader has values: it alone records."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._stays = Gauge(
            "hostler_host_stay_seconds", "How long hosts stayed in a state, over completed stays of 90 days.",
            ["state", "kind", "quantile"], registry=registry,
        )  # fmt: skip
        self._samples = Gauge(
            "hostler_host_stays", "Completed stays of 90 days that hostler_host_stay_seconds is taken from.",
            ["state", "kind"], registry=registry,
        )  # fmt: skip
        self._overdue = Gauge(
            "hostler_hosts_overdue", "Hosts longer in a state than it should last.", ["state", "kind"],
            registry=registry,
        )  # fmt: skip
        self._waiting = Gauge("hostler_history_waiting", "Entries that are not stored yet.", registry=registry)
        self._failing = Gauge(
            "hostler_history_failing", "1 while the history cannot be stored or read.", registry=registry
        )
        self._stored = Counter("hostler_history_entries", "Entries stored.", registry=registry)
        self._dropped = Counter(
            "hostler_history_entries_dropped", "Entries dropped because they could not be stored.", registry=registry
        )

    def show_spreads(self, spreads: Spreads) -> None:
        self._stays.clear()
        self._samples.clear()
        for (state, kind), spread in spreads.items():
            self._samples.labels(state, kind).set(spread.samples)
            for share, seconds in spread.seconds.items():
                self._stays.labels(state, kind, f"{share:g}").set(seconds)

    def show_overdue(self, hosts: Iterable[tuple[HostState, HostKind]]) -> None:
        self._overdue.clear()
        for (state, kind), number in Count(hosts).items():
            self._overdue.labels(state, kind).set(number)

    def show_waiting(self, entries: int, *, failing: bool) -> None:
        self._waiting.set(entries)
        self._failing.set(failing)

    def stored(self, entries: int) -> None:
        self._stored.inc(entries)

    def dropped(self, entries: int) -> None:
        self._dropped.inc(entries)

    def clear(self) -> None:
        """We do not lead any more: the next leader has the values."""
        self.show_spreads({})
        self.show_overdue(())
        self.show_waiting(0, failing=False)
