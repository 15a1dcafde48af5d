"""The picture as the operator keeps it: sources in, answers out. Read-only; nothing here decides or writes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from hostler.explain.registry import Explanation
from hostler.instant import Instant
from hostler.inventory.model import Host, Layer
from hostler.inventory.operations import EsxiName, OperationsAnswer, find_maintenances, maintenance_line
from hostler.inventory.overdue import Stays, judge_overdue, waits_for
from hostler.inventory.picture import Changes, Picture
from hostler.inventory.sources import RecordedAs, Source
from hostler.inventory.states import HostState
from hostler.inventory.stopping import StopSources
from hostler.inventory.wire import HostAnswer, HostRow, HostsAnswer
from hostler.kube.kinds import Kind


@dataclass(frozen=True, slots=True)
class Several:
    """More than one host has this name; their ids tell them apart."""

    ids: tuple[str, ...]


class InventoryService:
    def __init__(
        self, boot_id: str, sources: Iterable[Source], stopping: StopSources, clock: Callable[[], Instant]
    ) -> None:
        self._picture = Picture(boot_id)
        self._sources = tuple(sources)
        self._stopping = stopping
        self._clock = clock
        self._stays: Stays = {}

    def listen(self, changed: Callable[[], None]) -> None:
        for source in self._sources:
            source.listen(changed)

    def learn(self, stays: Stays) -> None:
        """How long completed stays took, from the history."""
        self._stays = stays

    def overdue(self) -> list[Host]:
        """The hosts that stay longer in their state than they should, as of the last refresh."""
        now = self._clock()
        hosts = self._picture.hosts.values()
        return [host for host in hosts if judge_overdue(self._with_waiting(host), now, self._stays) is not None]

    def operation_of(self, key: str) -> str:
        """The operation that a layer is part of, as of the last refresh."""
        layer = self._picture.layer(key)
        return next((line.operation for line in layer.lines if line.operation), "") if layer is not None else ""

    def refresh(self) -> frozenset[str]:
        """Bring the picture up to date; returns the ids of hosts that changed, came or went."""
        changed = set[str]()
        for source in self._sources:
            changed |= self._picture.update(source.take())
        return frozenset(changed)

    def news(self, version: str) -> Changes:
        """What changed since a version of this process; everything for any other version."""
        self.refresh()
        return self._picture.since(version)

    def layers(self, hosts: Collection[str] | None = None) -> list[Layer]:
        """The layers of these hosts, or of all."""
        found = self._picture.hosts.values() if hosts is None else map(self._picture.hosts.get, hosts)
        keys = (key for host in found if host is not None for key in host.layers)
        return [layer for key in keys if (layer := self._picture.layer(key)) is not None]

    def hosts(self, since: str = "", *, labels: bool = False) -> HostsAnswer:
        """`labels`: with those of each host, which would be most of the answer."""
        now, news = self._clock(), self.news(since)
        rows = tuple(self._row(host if labels else replace(host, labels={}), now) for host in news.hosts)
        return HostsAnswer(news.version, now, rows, news.gone, news.complete)

    def rows_in(self, states: Collection[HostState]) -> tuple[HostRow, ...]:
        """The hosts in these states, as of the last refresh."""
        now = self._clock()
        return tuple(self._row(host, now) for host in self._picture.hosts.values() if host.state in states)

    def host(self, name: str, asker: str = "") -> HostAnswer | Several | None:
        """By id, or by the name of the host or of one of its layers."""
        self.refresh()
        found = self._picture.host_of(name)
        if found is None:
            named = sorted({host.id for host in self._named(name)})
            if len(named) > 1:
                return Several(tuple(named))
            found = self._picture.hosts[named[0]] if named else None
        if found is None:
            return None
        layers = tuple(layer for key in found.layers if (layer := self._picture.layer(key)) is not None)
        more = tuple(note for source in self._sources for note in source.notes(found))
        now, row = self._clock(), self._row(found, self._clock(), asker)
        shown = replace(row, host=replace(row.host, notes=(*found.notes, *more))) if more else row
        return HostAnswer(self._picture.version, now, shown, layers)

    def recorded_as(self, kind: Kind, namespace: str, name: str) -> RecordedAs | None:
        """About which host the history records a write to an object that is no layer; None: about none."""
        found = (source.recorded_as(kind, namespace, name) for source in self._sources)
        return next((as_what for as_what in found if as_what is not None), None)

    def history_keys(self, host: Host) -> tuple[str, ...]:
        """The keys that the history of a host is found under: its layers, and what belongs to them."""
        return (*host.layers, *(key for source in self._sources for key in source.history_keys(host)))

    def host_of(self, key: str) -> Host | None:
        """The host that a layer belongs to, as of the last refresh."""
        return self._picture.host_of(key)

    def operations(self) -> OperationsAnswer:
        """What is under way, the oldest first."""
        self.refresh()
        now, hosts = self._clock(), self._picture.hosts

        def is_late(host: Host) -> bool:
            return judge_overdue(self._with_waiting(host), now, self._stays) is not None

        lines = {host.id: line for host in hosts.values() if (line := maintenance_line(self.layers((host.id,))))}
        found = list(find_maintenances(hosts.values(), lines, self._explain_esxi, is_late))
        for operation in (begun for source in self._sources for begun in source.operations()):
            mine = {host.id: host for key in operation.hosts if (host := self._picture.host_of(key)) is not None}
            found.append(replace(operation, hosts=tuple(mine), overdue=any(map(is_late, mine.values()))))
        found.sort(
            key=lambda operation: (operation.since if operation.since is not None else float("inf"), operation.id)
        )
        return OperationsAnswer(self._picture.version, now, tuple(found))

    def _explain_esxi(self, hosts: Collection[EsxiName]) -> Mapping[EsxiName, Explanation]:
        return {name: why for source in self._sources for name, why in source.explain_esxi(hosts).items()}

    def _named(self, name: str) -> Iterator[Host]:
        for host in self._picture.hosts.values():
            if host.name == name or any(key.endswith(f"/{name}") for key in host.layers):
                yield host

    def _row(self, host: Host, now: Instant, asker: str = "") -> HostRow:
        host = self._with_waiting(host)
        return HostRow(host, judge_overdue(host, now, self._stays), self._stopping.judge(host, asker, now))

    def _with_waiting(self, host: Host) -> Host:
        waits = "" if host.waiting else waits_for(host, self._picture.host_of(host.under))
        return replace(host, waiting=waits) if waits else host
