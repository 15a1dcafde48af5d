"""`hostler history`: what happened to hosts."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import typer
from typer.core import TyperGroup

from hostler.cli import explain, flags
from hostler.cli.columns import Cell, Tone
from hostler.cli.listing import Column, Listed, Table, View, sentence, show_list, takes_view
from hostler.cli.printing import print_text
from hostler.instant import parse
from hostler.settings.model import Settings

if TYPE_CHECKING:
    from hostler.history.model import Entry
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


@dataclass(frozen=True, slots=True)
class Shown:
    """An entry, and the answer it is of, which has the names of hosts."""

    entry: Entry
    answer: HistoryAnswer


def _at_text(shown: Shown) -> str:
    return datetime.fromtimestamp(shown.entry.at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _age_text(shown: Shown) -> str:
    from hostler.inventory.listing import age_text

    return age_text(shown.entry.at, time.time())


def _name_text(shown: Shown) -> str:
    from hostler.history.listing import name_of

    return name_of(shown.answer, shown.entry)


def _what_cell(shown: Shown) -> Cell:
    from hostler.history.listing import what_of

    return Cell(what_of(shown.entry), _TONES.get(shown.entry.what, Tone.NONE))


def _lasted_text(shown: Shown) -> str:
    from hostler.history.listing import duration_text

    return duration_text(shown.entry)


_TONES = {"refusal": Tone.BUSY, "gap": Tone.BAD, "inferred": Tone.QUIET}
ENTRIES: Table[Shown] = Table(
    name=lambda shown: shown.entry.id,
    columns=(
        Column("time (utc)", _at_text, order=1),
        Column("age", _age_text, needed=True, ages=True, sort=lambda shown: -shown.entry.at),
        Column("host", _name_text, needed=True),
        Column("by", lambda shown: shown.entry.capability, order=2),
        Column("what", _what_cell, needed=True),
        Column("after", _lasted_text, order=3),
        sentence("why", lambda shown: shown.entry.sentence),
        Column("reason", lambda shown: shown.entry.reason, wide=True),
        Column("operation", lambda shown: shown.entry.operation, wide=True),
        Column("id", lambda shown: shown.entry.id, wide=True),
    ),
)


@history_app.command()
@flags.takes(*explain.ASKING)
@takes_view(ENTRIES.words, namespaces=True, labels=True)
def show(
    settings: Settings,
    view: View,
    host: Host = "",
    since: Since = "24h",
    capability: Capability = "",
    most: Most = 500,
) -> None:
    """Show what happened to hosts, the oldest first: states and how long they lasted, actions, refusals, and why.

    With -n or -l: what happened to hosts in that namespace or with these labels, as far as they still exist.

    Examples: `hostler history` is the last day; `hostler history gpu-7 --since 30d`; `hostler history --capability
    maintenance --since 12h -o json` is for scripts.
    """
    import msgspec

    from hostler.cli.cluster import ask_operator
    from hostler.cli.host_filter import hosts_that_fit
    from hostler.history.wire import HistoryAnswer

    asked = {"host": host, "since": _instant(since), "capability": capability, "most": most}

    def look() -> Listed[Shown]:
        answer = ask_operator(settings, _path(asked), HistoryAnswer)
        fitting = hosts_that_fit(settings, view)
        entries = [
            one for one in answer.entries if fitting is None or fitting.has(one.key, answer.names.get(one.key, ""))
        ]
        more = "" if answer.complete else f"Only the newest {len(answer.entries)} entries are shown; --most shows more."
        return Listed(
            [Shown(entry, answer) for entry in reversed(entries)],
            data=lambda shown: msgspec.structs.replace(answer, entries=tuple(one.entry for one in reversed(shown))),
            notes=tuple(note for note in (*answer.notes, more) if note),
            nothing="Nothing happened, as far as the history goes.",
        )

    show_list(view, look, ENTRIES)


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
