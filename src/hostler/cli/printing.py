"""What goes to stdout and what to stderr, and when it is coloured: on a terminal, without `NO_COLOR`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hostler.cli.failures import escape_controls as escape_controls
from hostler.cli.failures import print_note as print_note

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from hostler.cli.columns import Cell, Column


class Output(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"

    @property
    def is_data(self) -> bool:
        """For machines: the whole record."""
        return self in (Output.JSON, Output.YAML)


OutputFlag = Annotated[
    Output,
    typer.Option("--output", "-o", help="How to print: for people, for machines, or only names.", case_sensitive=False),
]


def print_answer(data: Any, output: Output, show: Callable[[], None], *, names: Iterable[str] = ()) -> None:
    """Print what a command found as the user asked: the record, its names, or what `show` prints for people."""
    if output.is_data:
        print_data(data, output)
    elif output is Output.NAME:
        print_names(names)
    else:
        show()


def print_data(data: Any, output: Output) -> None:
    """A record with its wire names, as JSON or YAML."""
    if output is Output.JSON:
        print_json(data)
        return
    import msgspec
    import yaml

    made = yaml.safe_dump(msgspec.to_builtins(data), sort_keys=False, allow_unicode=True, width=120)
    print_text(made.removesuffix("...\n"))


def print_names(names: Iterable[str]) -> None:
    """One per line, for `xargs`; nothing at all where there is none."""
    if lines := list(names):
        print_text("\n".join(lines))


def print_text(data: str) -> None:
    """Data as it is, but for what a terminal would obey."""
    _write(escape_controls(data if data.endswith("\n") else data + "\n"))


def print_json(data: Any) -> None:
    """Data for machines; records are written with their wire names."""
    import msgspec

    # What JSON lets through and a terminal obeys is escaped too: in a string \\u009b means the same.
    _write(escape_controls(msgspec.json.format(msgspec.json.encode(data), indent=2).decode()) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Cell | str]]) -> None:
    """Data for people: aligned columns without frames, so that `grep` and `awk` can read it too.

    The last column is the sentence: it continues on the next line where the terminal ends. `hostler.cli.listing` has
    more: what may be dropped, colours, sorting.
    """
    from hostler.cli.columns import LEAST_SENTENCE, Column, terminal_width

    last = len(columns) - 1
    made = [
        Column(title, least=LEAST_SENTENCE if place == last else None, needed=True, wrap=True)
        for place, title in enumerate(columns)
    ]
    print_columns(made, [tuple(row) for row in rows], terminal_width())


def print_columns(columns: Sequence[Column], rows: Sequence[Sequence[Cell | str]], width: int | None) -> None:
    """A table laid out for this width; None: as wide as it needs."""
    from hostler.cli.columns import fit

    _write("\n".join([*fit(columns, rows, width, colour=has_colour()), ""]))


def has_colour() -> bool:
    """Not in a pipe, not where `NO_COLOR` is set to anything (no-color.org), not on a terminal without colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


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
