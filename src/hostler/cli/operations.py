"""`hostler operations`: maintenances, claims and reclaims that are under way, and what blocks each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from hostler.cli import explain, flags
from hostler.cli.columns import Cell, Tone
from hostler.cli.listing import Column, Listed, Table, View, sentence, show_list, takes_view
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from hostler.inventory.operations import Operation

app = typer.Typer()


@dataclass(frozen=True, slots=True)
class Shown:
    """An operation, and when the answer was made that it is of."""

    operation: Operation
    now: float


def _since_text(shown: Shown) -> str:
    from hostler.inventory.listing import age_text

    return age_text(shown.operation.since, shown.now) + (" overdue" if shown.operation.overdue else "")


def _state_cell(shown: Shown) -> Cell:
    operation = shown.operation
    return Cell(operation.state, Tone.BAD if operation.overdue or operation.blocked_by else Tone.BUSY)


def _why_text(shown: Shown) -> str:
    operation = shown.operation
    return f"blocked by {'; '.join(operation.blocked_by)}" if operation.blocked_by else operation.why


OPERATIONS: Table[Shown] = Table(
    name=lambda shown: shown.operation.id,
    columns=(
        Column("what", lambda shown: shown.operation.kind, needed=True),
        Column("name", lambda shown: shown.operation.name, needed=True),
        Column("state", _state_cell, needed=True),
        Column("since", _since_text, needed=True, ages=True, sort=lambda shown: shown.operation.since or float("inf")),
        Column("done", lambda shown: f"{shown.operation.done}/{shown.operation.total}", order=3),
        sentence("why", _why_text),
        Column("blocked by", lambda shown: "; ".join(shown.operation.blocked_by), wide=True),
        Column("next", lambda shown: shown.operation.next, wide=True),
        Column("id", lambda shown: shown.operation.id, wide=True),
    ),
)


@app.command()
@flags.takes(*explain.ASKING)
@takes_view(OPERATIONS.words, namespaces=True, labels=True)
def operations(settings: Settings, view: View) -> None:
    """Show what is under way, the oldest first: maintenances, claims and reclaims, how far each is, and what blocks it.

    With -n or -l: those about a host in that namespace or with these labels.

    Examples: `hostler operations`; `hostler operations --watch`; `hostler operations -o json` is for scripts.
    """
    import msgspec

    from hostler.cli.cluster import ask_operator
    from hostler.cli.host_filter import hosts_that_fit
    from hostler.host.conditions import count
    from hostler.inventory.operations import OperationsAnswer

    def look() -> Listed[Shown]:
        answer = ask_operator(settings, "/v1/operations", OperationsAnswer)
        fitting = hosts_that_fit(settings, view)
        found = [one for one in answer.operations if fitting is None or fitting.has(one.key, *one.hosts)]
        blocked = sum(bool(one.blocked_by) for one in found)
        summary = (f"{count(len(found), 'operation')}, {blocked} blocked",) if found else ()
        return Listed(
            [Shown(one, answer.at) for one in found],
            data=lambda shown: msgspec.structs.replace(answer, operations=tuple(one.operation for one in shown)),
            notes=(*answer.notes, *summary),
            nothing="Nothing is under way.",
        )

    show_list(view, look, OPERATIONS)
