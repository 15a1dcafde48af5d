"""Filters a list that is about hosts by what the hosts have: `-l` and `-n` where the rows have neither of their own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hostler.cli.cluster import ask_operator
from hostler.cli.listing import View
from hostler.inventory.wire import HostsAnswer
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from hostler.inventory.wire import HostRow


@dataclass(frozen=True, slots=True)
class FittingHosts:
    """By everything a row may call a host: its id, the keys of its layers, its node, its name."""

    names: frozenset[str]

    def has(self, *names: str) -> bool:
        return any(name in self.names for name in names if name)


def hosts_that_fit(settings: Settings, view: View) -> FittingHosts | None:
    """The hosts with these labels in that namespace, as the operator knows them; None: nothing was asked for."""
    if not view.selector and (view.all_namespaces or not view.namespace):
        return None
    answer = ask_operator(settings, "/v1/hosts?labels=all", HostsAnswer)
    return FittingHosts(frozenset(fitting_names(answer.hosts, view)))


def fitting_names(rows: Iterable[HostRow], view: View) -> Iterable[str]:
    for row in rows:
        host = row.host
        if view.admits(host.labels) and view.is_in(host.where.namespace):
            yield from (host.id, host.node, host.name, *host.layers)
