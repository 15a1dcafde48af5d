"""`hostler maintenance`: which workers are out for their ESXi host, and what a maintenance would do."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from hostler.cli import explain, flags
from hostler.cli.printing import Output, OutputFlag, print_json, print_note, print_rich, print_table, print_text
from hostler.errors import Complaint, Exit
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from hostler.maintenance.status import MaintenanceStatus

app = typer.Typer(no_args_is_help=True, help="See which workers are out for their ESXi host, and what one would do.")
WATCH_SECONDS = 2.0
EsxiHost = Annotated[str, typer.Argument(metavar="ESXI-HOST", help="As vCenter names it.", show_default=False)]
Watching = Annotated[bool, typer.Option("--watch", "-w", help="Again at every change, until Ctrl-C.")]


@app.callback()
def group() -> None:
    """See which workers are out for their ESXi host, and what one would do."""


@app.command()
@flags.takes(*explain.ASKING)
def status(settings: Settings, watch: Watching = False, output: OutputFlag = Output.TABLE) -> None:
    """Show every maintenance under way: node, VM, ESXi host, state, since when, what blocks it, what comes next."""
    from hostler.cli.cluster import ask_operator
    from hostler.maintenance.status import MaintenanceStatus

    before: MaintenanceStatus | None = None
    while True:
        try:
            found = ask_operator(settings, "/v1/maintenance", MaintenanceStatus)
        except Complaint as complaint:
            if before is not None and complaint.code is Exit.UNREACHABLE:
                print_note(f"{complaint.sentence} Asking again.")  # an operator that is being replaced
                time.sleep(WATCH_SECONDS)
                continue
            from hostler.cli import without_operator

            _show(without_operator.read_instead(settings, complaint, without_operator.read_maintenance), output)
            return
        if found != before:
            before = found
            if watch and sys.stdout.isatty() and output is Output.TABLE:
                sys.stdout.write("\x1b[2J\x1b[H")
            _show(found, output)
        if not watch:
            return
        time.sleep(WATCH_SECONDS)


@app.command()
@flags.takes(*explain.ASKING)
def plan(settings: Settings, host: EsxiHost, output: OutputFlag = Output.TABLE) -> None:
    """Say what would happen if this ESXi host entered maintenance now. Nothing is changed."""
    from hostler.cli.cluster import ask_operator
    from hostler.explain.registry import Answer

    answer = ask_operator(settings, f"/v1/plan/esxi/{quote(host, safe='')}", Answer)
    if output is Output.JSON:
        print_json(answer)
    else:
        print_rich(explain.tree_of(answer))


def _show(found: MaintenanceStatus, output: Output) -> None:
    if output is Output.JSON:
        print_json(found)
        return
    for sentence in (*found.notes, *found.unknown):
        print_note(sentence)
    if found.unknown:
        other = "what is shown may be old" if found.rows else "no maintenance of a node is known"
        print_note(f"Cannot tell whether an ESXi host is entering maintenance; {other}.")
    elif not found.rows:
        print_note("No managed node is in maintenance, and no ESXi host under one is entering it.")
    if found.rows:
        print_table(
            ("node", "vm", "esxi host", "state", "since", "blocked by", "next"),
            [
                (one.node, one.vm, one.host, one.state or one.phase, one.since, one.blocked_by or "-", one.next or "-")
                for one in found.rows
            ],
        )
    for waiting in found.foreign:
        print_text(f"{waiting.host} also waits for VMs that are not ours: {', '.join(waiting.vms)}")
