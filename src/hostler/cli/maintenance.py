"""`hostler maintenance`: which workers are out for their ESXi host, and what a maintenance would do."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from hostler.cli import explain, flags
from hostler.cli.columns import Cell, Tone
from hostler.cli.listing import Column, Listed, Table, View, age_of, sentence, show_list, takes_view
from hostler.cli.printing import Output, OutputFlag, print_answer, print_rich, print_text
from hostler.errors import Complaint
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from hostler.maintenance.status import MaintenanceStatus, Row

app = typer.Typer(no_args_is_help=True, help="See which workers are out for their ESXi host, and what one would do.")
NOTHING = "No managed node is in maintenance, and no ESXi host under one is entering it."
EsxiHost = Annotated[str, typer.Argument(metavar="ESXI-HOST", help="As vCenter names it.", show_default=False)]


@app.callback()
def group() -> None:
    """See which workers are out for their ESXi host, and what one would do."""


def _state_cell(row: Row) -> Cell:
    return Cell(row.state or row.phase, Tone.BAD if row.blocked_by else Tone.BUSY)


ROWS: Table[Row] = Table(
    name=lambda row: f"node/{row.node}" if row.node else f"vm/{row.vm}",
    columns=(
        Column("node", lambda row: row.node, needed=True),
        Column("vm", lambda row: row.vm, order=1),
        Column("esxi host", lambda row: row.host, order=3, least=10),
        Column("state", _state_cell, needed=True),
        Column("since", lambda row: age_of(row.since, time.time()), needed=True, ages=True,
               sort=lambda row: row.since),
        Column("since at", lambda row: row.since, wide=True),
        sentence("blocked by", lambda row: row.blocked_by or "-"),
        Column("next", lambda row: row.next or "-", order=4, least=20, wrap=True),
        Column("maintenance of", lambda row: row.maintenance_of, wide=True),
        Column("target", lambda row: row.target, wide=True),
        Column("why", lambda row: row.why, wide=True),
    ),
)  # fmt: skip


@app.command()
@flags.takes(*explain.ASKING)
@takes_view(ROWS.words, labels=True)
def status(settings: Settings, view: View) -> None:
    """Show every maintenance under way: node, VM, ESXi host, state, since when, what blocks it, what comes next."""
    from hostler.cli.cluster import ask_operator
    from hostler.cli.host_filter import hosts_that_fit
    from hostler.maintenance.status import MaintenanceStatus

    def look() -> Listed[Row]:
        try:
            found = ask_operator(settings, "/v1/maintenance", MaintenanceStatus)
        except Complaint as complaint:
            if view.watch:
                raise
            from hostler.cli import without_operator

            found = without_operator.read_instead(settings, complaint, without_operator.read_maintenance)
        fitting = hosts_that_fit(settings, view)
        return listed(found, [row for row in found.rows if fitting is None or fitting.has(row.node, row.vm)])

    show_list(view, look, ROWS)


@app.command()
@flags.takes(*explain.ASKING)
def plan(settings: Settings, host: EsxiHost, output: OutputFlag = Output.TABLE) -> None:
    """Say what would happen if this ESXi host entered maintenance now. Nothing is changed."""
    from hostler.cli.cluster import ask_operator
    from hostler.explain.registry import Answer

    answer = ask_operator(settings, f"/v1/plan/esxi/{quote(host, safe='')}", Answer)
    print_answer(answer, output, lambda: print_rich(explain.tree_of(answer)), names=(f"{answer.kind}/{answer.name}",))


def listed(found: MaintenanceStatus, rows: Sequence[Row]) -> Listed[Row]:
    """These rows of the status, with what is to be said of all of it."""
    import msgspec

    def show_foreign() -> None:
        for waiting in found.foreign:
            print_text(f"{waiting.host} also waits for VMs that are not ours: {', '.join(waiting.vms)}")

    other = "what is shown may be old" if found.rows else "no maintenance of a node is known"
    doubt = (f"Cannot tell whether an ESXi host is entering maintenance; {other}.",) if found.unknown else ()
    return Listed(
        rows,
        data=lambda shown: msgspec.structs.replace(found, rows=tuple(shown)),
        notes=(*found.notes, *found.unknown, *doubt),
        nothing="" if found.unknown else NOTHING,
        below=show_foreign,
    )
