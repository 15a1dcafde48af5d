"""Which nodes a command is about: by name, label, ESXi host or rack. All are known before anything is written."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from hostler.cli.printing import print_note
from hostler.errors import Complaint, Exit
from hostler.host.conditions import names
from hostler.inventory.listing import where_of
from hostler.inventory.nodes import RACK
from hostler.inventory.states import HostKind
from hostler.kube.client import Client
from hostler.kube.errors import NotFound
from hostler.kube.kinds import NODE
from hostler.kube.records import Node
from hostler.selectors import Requirement, parse_selector
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from hostler.inventory.wire import HostRow

ALL = 10_000  # names in a sentence that must leave none out


@dataclass(frozen=True, slots=True)
class Choice:
    """What the person chose by. Several of `selector`, `esxi` and `rack`: a node must fit all of them."""

    named: tuple[str, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    esxi: str = ""
    rack: str = ""
    said: str = ""  # as typed, for sentences

    def admits(self, node: Node) -> bool:
        """Whether its labels fit; the ESXi host is the operator's to know."""
        labels = node.metadata.labels
        return (not self.rack or labels.get(RACK) == self.rack) and all(one.holds(labels) for one in self.requirements)


def choice_of(named: Iterable[str], selector: str, esxi: str, rack: str) -> Choice:
    """What was typed, or what is wrong with it."""
    nodes = tuple(dict.fromkeys(named))
    given = [(flag, text) for flag, text in (("-l", selector), ("--esxi", esxi), ("--rack", rack)) if text.strip()]
    if nodes and given:
        raise typer.BadParameter(f"nodes are chosen by name or by {given[0][0]}: give one of them")
    if not nodes and not given:
        raise typer.BadParameter("name at least one node, or choose by -l SELECTOR, --esxi HOST or --rack RACK")
    try:
        requirements = parse_selector(selector)
    except ValueError as error:
        raise typer.BadParameter(f"{error}") from None
    said = " ".join(f"{flag} {shlex.quote(text)}" for flag, text in given)
    return Choice(nodes, requirements, esxi.strip(), rack.strip(), said)


async def nodes_of(client: Client, settings: Settings, choice: Choice) -> tuple[str, ...]:
    """Every node that was chosen, each known to this cluster. A Complaint says which is not, or that none fits."""
    if choice.named:
        await _refuse_missing(client, choice.named)
        return choice.named
    # Asked first: without an operator --esxi cannot be answered, and half an answer would leave nodes in service.
    on_esxi = await _nodes_on(client, settings, choice.esxi) if choice.esxi else None
    listed = {node.metadata.name: node for node in await client.list(NODE, type=Node)}
    if on_esxi is not None and (strange := on_esxi - set(listed)):
        raise Complaint(
            f"The operator knows {names(strange)} on {choice.esxi}, but this cluster has no such node. "
            "Nothing was changed.",
            hint="Check that --operator is the one of this --context.",
            code=Exit.REFUSED,
        )
    found = sorted(
        name for name, node in listed.items() if choice.admits(node) and (on_esxi is None or name in on_esxi)
    )
    if not found:
        see = "hostler hosts -o wide" if choice.esxi else "kubectl get nodes --show-labels"
        raise Complaint(f"No node matches {choice.said}.", hint=f"See: {see}", code=Exit.REFUSED)
    print_note(f"{choice.said}: {names(found, limit=ALL)}.")
    return tuple(found)


async def _refuse_missing(client: Client, named: Iterable[str]) -> None:
    missing = []
    for name in named:
        try:
            await client.get(NODE, name, type=Node)
        except NotFound:
            missing.append(name)
    if missing:
        several = len(missing) > 1
        raise Complaint(
            f"There {'are no nodes' if several else 'is no node'} {names(missing, limit=ALL)} in this cluster. "
            "Nothing was changed.",
            hint="See: kubectl get nodes",
            code=Exit.REFUSED,
        )


async def _nodes_on(client: Client, settings: Settings, esxi: str) -> set[str]:
    """The nodes whose VM is proven to run on this ESXi host, as the operator sees it now."""
    from hostler.cli.cluster import ask_operator_by
    from hostler.inventory.wire import HostsAnswer

    answer = await ask_operator_by(client, settings, "/v1/hosts", HostsAnswer)
    for sentence in answer.notes:
        print_note(sentence)
    here = rows_on(answer.hosts, esxi)
    for row in here:
        for sentence in () if row.host.node else row.host.notes:
            print_note(f"{row.host.name} is left as it is. {sentence}")
    return {row.host.node for row in here if row.host.node}


def rows_on(rows: Iterable[HostRow], esxi: str) -> list[HostRow]:
    """The machines on this ESXi host: its name, or its place (`vcenter/cluster/host`) where two have that name."""
    here = [row for row in rows if row.host.where.esxi and f"/{where_of(row)}".endswith(f"/{esxi}")]
    places = {where_of(row) for row in here}
    if len(places) > 1:
        raise Complaint(
            f"Several ESXi hosts are named {esxi}: {names(places)}. Nothing was changed.",
            hint=f"Give more of its place, for example --esxi {min(places)}",
            code=Exit.REFUSED,
        )
    if not here:
        raise Complaint(
            f"No ESXi host {esxi} is known to the operator. Nothing was changed.",
            hint="See: hostler hosts --kind esxi",
            code=Exit.REFUSED,
        )
    return [row for row in here if row.host.kind is not HostKind.ESXI]
