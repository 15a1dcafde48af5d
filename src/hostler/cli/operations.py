"""`hostler operations`: maintenances, claims and reclaims that are under way, and what blocks each."""

from __future__ import annotations

import typer

from hostler.cli import explain, flags
from hostler.cli.hosts import Output, OutputFlag, one_line, print_data
from hostler.cli.printing import print_note, print_text
from hostler.settings.model import Settings

app = typer.Typer()


@app.command()
@flags.takes(*explain.ASKING)
def operations(settings: Settings, output: OutputFlag = Output.TABLE) -> None:
    """Show what is under way, the oldest first: maintenances, claims and reclaims, how far each is, and what blocks it.

    Examples: `hostler operations`; `hostler operations -o json` is for scripts.
    """
    from hostler.cli.cluster import ask_operator
    from hostler.cli.columns import Column, fit, terminal_width
    from hostler.host.conditions import count
    from hostler.inventory.listing import age_text
    from hostler.inventory.operations import OperationsAnswer

    answer = ask_operator(settings, "/v1/operations", OperationsAnswer)
    if output in (Output.JSON, Output.YAML):
        print_data(answer, output)
        return
    if output is Output.NAME:
        for operation in answer.operations:
            print_text(operation.id)
        return
    for note in answer.notes:
        print_note(note)
    if not answer.operations:
        print_note("Nothing is under way.")
        return
    blocked = sum(bool(operation.blocked_by) for operation in answer.operations)
    print_note(f"{count(len(answer.operations), 'operation')}, {blocked} blocked")
    rows = [
        [
            operation.kind, operation.name, operation.state,
            age_text(operation.since, answer.at) + (" (overdue)" if operation.overdue else ""),
            f"{operation.done}/{operation.total}",
            one_line(operation.blocked_by[0] if operation.blocked_by else ""), one_line(operation.why),
        ]
        for operation in answer.operations
    ]  # fmt: skip
    wide = output is Output.WIDE
    columns = [
        Column("what"), Column("name", 2, 16, needed=True), Column("state"), Column("since"), Column("done"),
        Column("blocked by", 3, 30, needed=True), Column("why", 1, 20),
    ]  # fmt: skip
    print_text("\n".join(fit(columns, rows, None if wide else terminal_width())))
