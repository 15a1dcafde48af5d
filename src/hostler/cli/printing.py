"""What goes to stdout and what to stderr. `NO_COLOR` and pipes are honoured by rich itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hostler.cli.failures import escape_controls as escape_controls
from hostler.cli.failures import print_note as print_note

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


OutputFlag = Annotated[Output, typer.Option("--output", "-o", help="How to print.", case_sensitive=False)]


def print_text(data: str) -> None:
    """Data as it is, but for what a terminal would obey."""
    _write(escape_controls(data if data.endswith("\n") else data + "\n"))


def print_json(data: Any) -> None:
    """Data for machines; records are written with their wire names."""
    import msgspec

    # What JSON lets through and a terminal obeys is escaped too: in a string \\u009b means the same.
    _write(escape_controls(msgspec.json.format(msgspec.json.encode(data), indent=2).decode()) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Data for people: aligned columns without frames, so that `grep` and `awk` can read it too."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, show_edge=False, header_style="bold", show_header=any(columns))
    for column in columns:
        made.add_column(column.upper(), overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    print_rich(made)


def print_rich(what: RenderableType) -> None:
    """Anything rich can draw, to stdout; in a pipe as wide as it needs, so that nothing is cut or broken."""
    console = console_of(sys.stdout.isatty())
    with console.capture() as capture:
        console.print(_Cleaned(what))
    _write("\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n")


class _Cleaned:
    """What is drawn, without anything in its texts that a terminal would obey; rich adds its colours afterwards."""

    def __init__(self, what: RenderableType) -> None:
        self._what = what

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        for one in console.render(self._what, options):
            yield one if one.control else Segment(escape_controls(one.text), one.style)


def console_of(terminal: bool) -> Console:
    from rich.console import Console

    return Console(file=sys.stdout, width=None if terminal else 1000, soft_wrap=False, highlight=False, emoji=False)


def _write(data: str) -> None:
    try:
        sys.stdout.write(data)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, less) has all it wants. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
