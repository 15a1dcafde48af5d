"""What is under way: maintenances of ESXi hosts, claims and reclaims, with what blocks each. Pure.

Claims and reclaims come from the capability that decides about them (`Source.operations`). A maintenance is one ESXi
host, with every host whose maintenance names it; what blocks them is what `explain` says of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from hostler.explain.registry import Explanation
from hostler.host.holds import MAINTENANCE
from hostler.instant import Instant
from hostler.inventory.model import Host, Layer, Line
from hostler.inventory.states import HostKind, HostState

# Out of the way of an ESXi host that enters maintenance.
AWAY = frozenset({HostState.STOPPED, HostState.RETURNING})


class OperationKind(StrEnum):
    MAINTENANCE = "maintenance"
    CLAIM = "claim"
    RECLAIM = "reclaim"


class Operation(msgspec.Struct, rename="camel", frozen=True):
    """One of them. `state`: of a host, or the operation's own; `key`: of the layer it is about, "" where there is none.

    `done` of `total`: hosts of a maintenance, steps of a claim or a reclaim.
    """

    id: str
    kind: OperationKind
    capability: str
    name: str
    key: str = ""
    state: str = ""
    since: Instant | None = None
    why: str = ""
    next: str = ""
    blocked_by: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    done: int = 0
    total: int = 0
    overdue: bool = False
    waiting: str = ""  # on what it waits on purpose


class OperationsAnswer(msgspec.Struct, rename="camel", frozen=True):
    """`/v1/operations`. `version`: of the picture it was made from."""

    version: str
    at: Instant
    operations: tuple[Operation, ...] = ()
    notes: tuple[str, ...] = ()


EsxiName = tuple[str, str]  # vCenter and name of an ESXi host
# What `explain esxi/NAME` shows of each of these; one that nobody explains is left out.
ExplainEsxi = Callable[[Collection[EsxiName]], Mapping[EsxiName, Explanation]]


@dataclass(frozen=True, slots=True)
class Member:
    """A host that an ESXi host's maintenance is about; `line`: what its maintenance says, if it is in one."""

    host: Host
    line: Line | None


def find_maintenances(
    hosts: Collection[Host], lines: Mapping[str, Line], explain: ExplainEsxi, late: Callable[[Host], bool]
) -> Iterator[Operation]:
    """`lines`: what the maintenance of a host says, by the host's id."""
    members = defaultdict[EsxiName, list[Member]](list)
    esxi = {(host.where.vcenter, host.name): host for host in hosts if host.kind is HostKind.ESXI}
    by_key = {host.id: name for name, host in esxi.items()}
    for host in hosts:
        line = lines.get(host.id)
        if line is not None:
            members[_maintained_by(host, line, esxi)].append(Member(host, line))
        elif host.under in by_key and host.node:
            members[by_key[host.under]].append(Member(host, None))
    entering = {name for name, host in esxi.items() if host.state is HostState.DRAINING}
    under_way = sorted({*entering, *(name for name, found in members.items() if any(member.line for member in found))})
    explained = explain(under_way) if under_way else {}
    for name in under_way:
        yield _maintenance(name, esxi.get(name), members.get(name, []), explained.get(name), late)


def maintenance_line(layers: Iterable[Layer]) -> Line | None:
    """What the maintenance of these layers says, if they are in one."""
    return next((line for layer in layers for line in layer.lines if line.capability == MAINTENANCE), None)


def _maintained_by(host: Host, line: Line, esxi: Collection[EsxiName]) -> EsxiName:
    """The ESXi host that a maintenance is about: in the vCenter of the VM, else the only one of that name."""
    named = [name for name in esxi if name[1] == line.about]
    if host.where.vcenter or len(named) != 1:
        return host.where.vcenter, line.about
    return named[0]


def _maintenance(
    name: EsxiName,
    esxi: Host | None,
    members: list[Member],
    explained: Explanation | None,
    late: Callable[[Host], bool],
) -> Operation:
    state = _state_of(esxi, members)
    leaves = esxi is not None and esxi.state is HostState.IN_SERVICE
    settled = [member for member in members if (member.line is None if leaves else _is_away(member))]
    left = {member.host.node: _why_left(member, explained) for member in members if member not in settled}
    began = [at for member in members if (at := _began(member)) is not None]
    since = min(began, default=esxi.since if esxi else None)
    key = esxi.id if esxi is not None else ""
    return Operation(
        id=f"maintenance/{key or '/'.join(name)}/{since or 0:.0f}", kind=OperationKind.MAINTENANCE,
        capability=MAINTENANCE, name=name[1], key=key, state=str(state), since=since,
        why=explained.outcome if explained is not None else esxi.why if esxi is not None else "",
        next=next((member.host.next for member in members if member not in settled and member.host.next), ""),
        blocked_by=tuple(_blockers(left, explained)), hosts=tuple(sorted(member.host.id for member in members)),
        done=len(settled), total=len(members), waiting=_waiting(members) if not left else "",
        overdue=any(late(member.host) for member in members) or (esxi is not None and late(esxi)),
    )  # fmt: skip


def _is_away(member: Member) -> bool:
    return member.line is not None and member.line.state in AWAY


def _state_of(esxi: Host | None, members: Iterable[Member]) -> HostState:
    """Draining until nobody is in the way, then stopped, then returning: the first that holds for anybody."""
    found = {member.line.state for member in members if member.line is not None}
    if esxi is not None and esxi.state is HostState.DRAINING:
        return HostState.DRAINING
    order = (HostState.DRAINING, HostState.STOPPED, HostState.RETURNING)
    return next((state for state in order if state in found), HostState.UNKNOWN)


def _waiting(members: Iterable[Member]) -> str:
    """Only where every host that is still in maintenance waits on purpose."""
    found = [member.line.waiting for member in members if member.line is not None]
    return found[0] if found and all(found) else ""


def _began(member: Member) -> Instant | None:
    """The hold begins with the maintenance and ends with it."""
    return next((holder.since for holder in member.host.holders if holder.name == MAINTENANCE), None)


def _why_left(member: Member, explained: Explanation | None) -> str:
    """Of a node that maintenance says nothing about."""
    if explained is None or member.line is not None:
        return member.host.why
    return "its VM runs there, and Hostler does not manage it."


def _blockers(left: Mapping[str, str], explained: Explanation | None) -> Iterator[str]:
    """Per node that has not got there yet, what is decided about it."""
    told = {rule.name: rule.why for rule in explained.rules} if explained is not None else {}
    for node, why in sorted(left.items()):
        yield f"{node}: {told.get(node) or why}"
