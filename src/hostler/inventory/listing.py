"""Which hosts a list shows, in which order, and the line above it. Pure; the CLI and the page share it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hostler.host.conditions import count
from hostler.instant import Instant
from hostler.inventory.states import NOT_OUT, STATE_ORDER, HostKind, HostState, SortBy
from hostler.inventory.wire import HostRow
from hostler.selectors import Requirement


@dataclass(frozen=True, slots=True)
class Filter:
    """Everything that is given must fit; of several states or kinds, one."""

    states: frozenset[HostState] = frozenset()
    kinds: frozenset[HostKind] = frozenset()
    cluster: str = ""
    overdue: bool = False
    out: bool = False
    selector: tuple[Requirement, ...] = ()

    def admits(self, row: HostRow) -> bool:
        host = row.host
        return (
            (not self.states or host.state in self.states)
            and (not self.kinds or host.kind in self.kinds)
            and (not self.cluster or host.cluster == self.cluster)
            and (not self.overdue or row.overdue is not None)
            and (not self.out or host.state not in NOT_OUT)
            and all(requirement.holds(host.labels) for requirement in self.selector)
        )


def where_of(row: HostRow, *, brief: bool = False) -> str:
    """The place in one word: `vcenter/cluster/esxi`, `namespace/rack` or an InfraEnv. `brief`: without domains."""
    where = row.host.where
    esxi = "" if row.host.kind is HostKind.ESXI else where.esxi  # that is its name
    label = esxi.partition(".")[0]
    if brief and not label.isdecimal():  # else it is an address
        esxi = label
    parts = (
        (where.vcenter, where.compute_cluster, esxi)
        if where.vcenter
        else (where.namespace, where.infra_env, where.rack or where.failure_domain)
    )
    return "/".join(part for part in parts if part)


_SORT_KEYS: dict[SortBy, Callable[[HostRow], Any]] = {
    SortBy.NAME: lambda row: (),
    SortBy.STATE: lambda row: STATE_ORDER[row.host.state],
    SortBy.SINCE: lambda row: row.host.since if row.host.since is not None else float("inf"),
    SortBy.CLUSTER: lambda row: row.host.cluster,
    SortBy.WHERE: where_of,
    SortBy.KIND: lambda row: row.host.kind,
}


def select_rows(rows: Iterable[HostRow], wanted: Filter, sort_by: SortBy) -> list[HostRow]:
    """Equal ones by name and id, so that the order never depends on the answer's."""
    found = [row for row in rows if wanted.admits(row)]
    return sorted(found, key=lambda row: (_SORT_KEYS[sort_by](row), row.host.name, row.host.id))


def summarise_rows(rows: Sequence[HostRow]) -> str:
    """`412 hosts: 398 in service, 6 draining, 5 stopped (2 overdue), 3 failed`: the most frequent first."""
    if not rows:
        return "No hosts."
    states = Counter(row.host.state for row in rows)
    late = Counter(row.host.state for row in rows if row.overdue is not None)
    parts = [
        f"{number} {state}" + (f" ({late[state]} overdue)" if late[state] else "")
        for state, number in sorted(states.items(), key=lambda item: (-item[1], STATE_ORDER[item[0]]))
    ]
    return f"{count(len(rows), 'host')}: {', '.join(parts)}"


def age_text(since: Instant | None, now: Instant) -> str:
    """As kubectl prints ages: two units at most, `3m`, `2h5m`, `12d`."""
    if since is None:
        return ""
    seconds = max(0, int(now - since))
    days, hours, minutes = seconds // 86400, seconds // 3600, seconds // 60
    if minutes < 2:
        return f"{seconds}s"
    if minutes < 10 and seconds % 60:
        return f"{minutes}m{seconds % 60}s"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8 and minutes % 60:
        return f"{hours}h{minutes % 60}m"
    if days < 2:
        return f"{hours}h"
    if days < 8 and hours % 24:
        return f"{days}d{hours % 24}h"
    return f"{days}d"
