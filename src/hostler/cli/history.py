"""`hostler history`: what happened to hosts."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

import typer

from hostler.cli import explain, flags, say
from hostler.cli.hosts import Output, OutputFlag, print_data
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from hostler.history.wire import HistoryAnswer

app = typer.Typer()
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
Host = Annotated[str, typer.Argument(metavar="[HOST]", help="Only this host, by any of its names.", show_default=False)]
Since = Annotated[str, typer.Option("--since", metavar="AGE", help="For example 90m, 24h or 7d.")]
Capability = Annotated[str, typer.Option("--capability", metavar="NAME", help="Only what this capability did.")]
Most = Annotated[int, typer.Option("--most", min=1, max=10000, help="How many entries at most, the newest.")]


@app.command()
@flags.takes(*explain.ASKING)
def history(
    settings: Settings,
    host: Host = "",
    since: Since = "24h",
    capability: Capability = "",
    most: Most = 500,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Show what happened to hosts, the oldest first: states, since when, for how long, and why.

    Examples: `hostler history` is the last day; `hostler history gpu-7 --since 30d`; `hostler history --capability
    maintenance --since 12h -o json` is for scripts.
    """
    from hostler.cli.cluster import ask_operator
    from hostler.history.wire import HistoryAnswer

    asked = {"host": host, "since": time.time() - _seconds(since), "capability": capability, "most": most}
    path = f"/v1/history?{urlencode({key: value for key, value in asked.items() if value})}"
    answer = ask_operator(settings, path, HistoryAnswer)
    if output in (Output.JSON, Output.YAML):
        print_data(answer, output)
    elif output is Output.NAME:
        for entry in reversed(answer.entries):
            say.text(entry.id)
    else:
        _print_entries(answer, wide=output is Output.WIDE)


def _seconds(text: str) -> float:
    number, unit = text[:-1], text[-1:]
    try:
        return float(number) * UNITS[unit] if unit in UNITS else float(text)
    except ValueError:
        raise typer.BadParameter(f"--since {text} is no age; for example 90m, 24h or 7d") from None


def _print_entries(answer: HistoryAnswer, *, wide: bool) -> None:
    from hostler.inventory.listing import age_text

    for note in answer.notes:
        say.note(note)
    if not answer.entries:
        say.note("Nothing happened, as far as the history goes.")
        return
    if not answer.complete:
        say.note(f"Only the newest {len(answer.entries)} entries are shown; --most shows more.")
    rows = []
    for entry in reversed(answer.entries):
        change = f"{entry.old or '-'} -> {entry.new}" if entry.new else str(entry.what)
        lasted = "" if entry.duration is None else age_text(0.0, entry.duration)
        at = datetime.fromtimestamp(entry.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        row = [at, answer.names.get(entry.key, entry.key), entry.capability, change, lasted, entry.sentence]
        rows.append([*row, entry.what, entry.reason, entry.operation, entry.id] if wide else row)
    columns = ("time (utc)", "host", "by", "what", "after", "why")
    say.table([*columns, *(("kind", "reason", "operation", "id") if wide else ())], rows)
