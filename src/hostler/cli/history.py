"""`hostler history`: what happened to hosts."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import typer
from typer.core import TyperGroup

from hostler.cli import explain, flags
from hostler.cli.hosts import Output, OutputFlag, print_data
from hostler.cli.printing import console_of, print_note, print_table, print_text
from hostler.instant import parse
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from hostler.history.wire import HistoryAnswer


class ShowByDefault(TyperGroup):
    """`hostler history gpu-7` is `hostler history show gpu-7`."""

    default_command = "show"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [self.default_command, *args]
        return super().parse_args(ctx, args)


HELP = "Show what happened to hosts; `hostler history [HOST]` is `hostler history show [HOST]`."
history_app = typer.Typer(cls=ShowByDefault, help=HELP)
app = typer.Typer()
app.add_typer(history_app, name="history")

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
ID = re.compile(r"\d{1,15}\.\d{1,15}")
PAGE = 5_000  # entries in one answer of an export
Host = Annotated[str, typer.Argument(metavar="[HOST]", help="Only this host, by any of its names.", show_default=False)]
Since = Annotated[
    str, typer.Option("--since", metavar="AGE|TIME", help="For example 90m, 24h, 7d or 2026-11-18T03:00.")
]
After = Annotated[
    str,
    typer.Option(
        "--since", metavar="AGE|TIME|ID", help="Only what came after; an id is that of the last line you have."
    ),
]
Capability = Annotated[str, typer.Option("--capability", metavar="NAME", help="Only what this capability did.")]
Most = Annotated[int, typer.Option("--most", min=1, max=10000, help="How many entries at most, the newest.")]


@history_app.command()
@flags.takes(*explain.ASKING)
def show(
    settings: Settings,
    host: Host = "",
    since: Since = "24h",
    capability: Capability = "",
    most: Most = 500,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Show what happened to hosts, the oldest first: states and how long they lasted, actions, refusals, and why.

    Examples: `hostler history` is the last day; `hostler history gpu-7 --since 30d`; `hostler history --capability
    maintenance --since 12h -o json` is for scripts.
    """
    from hostler.cli.cluster import ask_operator
    from hostler.history.wire import HistoryAnswer

    asked = {"host": host, "since": _instant(since), "capability": capability, "most": most}
    answer = ask_operator(settings, _path(asked), HistoryAnswer)
    if output in (Output.JSON, Output.YAML):
        print_data(answer, output)
    elif output is Output.NAME:
        for entry in reversed(answer.entries):
            print_text(entry.id)
    else:
        _print_entries(answer, wide=output is Output.WIDE)


@history_app.command()
@flags.takes(*explain.ASKING)
def export(settings: Settings, since: After = "") -> None:
    """Print every entry as one line of JSON, the oldest first, for other stores. It can be resumed.

    Examples: `hostler history export > history.jsonl` is all that is kept; `hostler history export --since 7.1204 >>
    history.jsonl` goes on after the entry with that id.
    """
    import msgspec

    from hostler.cli.cluster import ask_operator
    from hostler.history.wire import HistoryAnswer

    is_id = ID.fullmatch(since) is not None
    after, instant = (since, 0.0) if is_id or not since else ("", _instant(since))
    complete = False
    while not complete:
        answer = ask_operator(settings, _path({"after": after, "since": instant, "most": PAGE}), HistoryAnswer)
        if answer.entries:
            print_text("\n".join(msgspec.json.encode(entry).decode() for entry in answer.entries))
            after = answer.entries[-1].id
        complete = answer.complete or not answer.entries


def _path(asked: Mapping[str, object]) -> str:
    return f"/v1/history?{urlencode({key: value for key, value in asked.items() if value or key == 'after'})}"


def _instant(text: str) -> float:
    """An age, or a time as in the answers; without a zone it is UTC."""
    if (at := parse(text)) is not None and "-" in text:
        return at
    number, unit = text[:-1], text[-1:]
    try:
        return time.time() - (float(number) * UNITS[unit] if unit in UNITS else float(text))
    except ValueError:
        message = f"--since {text} is no age and no time; for example 90m, 24h, 7d or 2026-11-18T03:00"
        raise typer.BadParameter(message) from None


def _print_entries(answer: HistoryAnswer, *, wide: bool) -> None:
    from hostler.history.listing import COLUMNS, MORE_COLUMNS, WIDE_COLUMNS, entry_rows, narrow_lines

    for note in answer.notes:
        print_note(note)
    if not answer.entries:
        print_note("Nothing happened, as far as the history goes.")
        return
    if not answer.complete:
        print_note(f"Only the newest {len(answer.entries)} entries are shown; --most shows more.")
    if wide or console_of(sys.stdout.isatty()).width >= WIDE_COLUMNS:
        print_table([*COLUMNS, *(MORE_COLUMNS if wide else ())], entry_rows(answer, more=wide))
    else:
        print_text("\n".join(narrow_lines(answer)))
