"""How a table fits a terminal: columns are dropped before a text is broken, and a text is broken at its spaces. Pure
but for `terminal_width`."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from hostler.cli.failures import escape_controls

GAP = 2
CUT = "…"
LEAST_SENTENCE = 28  # a sentence in less than this is a ladder
LONGEST_WORD = 45  # what is longer is a hash or an address: those may be broken


class Tone(Enum):
    """What a state means to the person on call. The values are what a terminal takes for the colour."""

    NONE = ""
    GOOD = "32"
    BUSY = "33"
    BAD = "31"
    QUIET = "2"


class Cell(NamedTuple):
    text: str
    tone: Tone = Tone.NONE


@dataclass(frozen=True, slots=True)
class Column:
    """`least`: it is still useful at this width; without it the column is always whole. Where even that lacks room,
    columns that are not `needed` are dropped, the lowest `order` first; then a column that may stand `below` goes onto
    lines of its own under each row. What is longer than its column goes on in the next line if `wrap`, else it is cut:
    at its end, or with `keep_end` at its beginning."""

    title: str
    order: int = 0
    least: int | None = None
    needed: bool = False
    keep_end: bool = False
    wrap: bool = False
    below: bool = False


def terminal_width() -> int | None:
    """None in a pipe: nothing is cut there."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fit(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell | str]], width: int | None, *, colour: bool = False
) -> list[str]:
    """The lines, the titles first, unless no column has one. Columns without any text are left out."""
    cells = [[_cell(cell) for cell in row] for row in rows]
    shown = [place for place in range(len(columns)) if any(row[place].text for row in cells)]
    widths = {place: max(len(columns[place].title), *(len(row[place].text) for row in cells)) for place in shown}
    under: list[int] = []
    if width is not None:
        least = {place: _least(columns[place], widths[place], cells, place) for place in shown}
        under = _drop(columns, least, widths, width)
        _narrow(columns, least, widths, width)
    lines = []
    if any(column.title for column in columns):
        lines += _lines(columns, [Cell(column.title.upper()) for column in columns], widths, colour=False)
        if colour:
            lines = [f"\x1b[1m{line}\x1b[0m" for line in lines]
    for row in cells:
        lines += _lines(columns, row, widths, colour=colour)
        for place in under:
            if row[place].text:
                lines += _under(columns[place], row[place].text, width or 0)
    return lines


def _under(column: Column, text: str, width: int) -> list[str]:
    indent = " " * 4
    titled = f"{column.title}: {text}" if column.title else text
    wide = max(width, 2 * len(indent))
    return textwrap.wrap(titled, wide, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _cell(cell: Cell | str) -> Cell:
    text, tone = (cell, Tone.NONE) if isinstance(cell, str) else cell
    return Cell(escape_controls(" ".join(text.split())), tone)


def _drop(columns: Sequence[Column], least: dict[int, int], widths: dict[int, int], width: int) -> list[int]:
    """Take columns out until the others have the least they need; those that go below the rows are returned."""
    under = []
    by_order = sorted(widths, key=lambda at: columns[at].order)
    for place in [at for at in by_order if not columns[at].needed] + [at for at in by_order if columns[at].below]:
        if _excess(least, width):
            del least[place], widths[place]
            under += [place] if columns[place].below else []
    return under


def _narrow(columns: Sequence[Column], least: dict[int, int], widths: dict[int, int], width: int) -> None:
    """The widest gives way first, as far as it is still useful; where that is not enough, as far as its title."""
    for floor in (least, {place: max(1, len(columns[place].title)) for place in widths}):
        while _excess(widths, width):
            flexible = [place for place in widths if widths[place] > floor[place]]
            if not flexible:
                break
            widths[max(flexible, key=lambda at: widths[at])] -= 1


def _least(column: Column, natural: int, cells: Sequence[Sequence[Cell]], place: int) -> int:
    """No word of a text that may go on in the next line is broken, unless it is longer than any should be."""
    if column.least is None:
        return natural
    words = (len(word) for row in cells for word in row[place].text.split()) if column.wrap else ()
    longest = min(max(words, default=0), LONGEST_WORD)
    return min(natural, max(column.least, len(column.title), longest))


def _excess(widths: dict[int, int], width: int) -> int:
    return max(0, sum(widths.values()) + GAP * (len(widths) - 1) - width)


def _lines(columns: Sequence[Column], row: Sequence[Cell], widths: dict[int, int], *, colour: bool) -> list[str]:
    """A row, on as many lines as its longest wrapped cell needs."""
    parts = {place: _parts(columns[place], row[place].text, width) for place, width in widths.items()}
    return [
        (" " * GAP).join(_padded(parts[place], number, row[place].tone, widths[place], colour) for place in widths)
        .rstrip()
        for number in range(max((len(part) for part in parts.values()), default=1))
    ]  # fmt: skip


def _padded(parts: Sequence[str], number: int, tone: Tone, width: int, colour: bool) -> str:
    text = parts[number] if number < len(parts) else ""
    padding = " " * (width - len(text))
    return f"\x1b[{tone.value}m{text}\x1b[0m{padding}" if colour and tone.value and text else text + padding


def _parts(column: Column, text: str, width: int) -> list[str]:
    if len(text) <= width:
        return [text]
    if column.wrap:
        return textwrap.wrap(text, width, break_on_hyphens=False) or [""]
    return [_cut_start(text, width) if column.keep_end else _cut(text, width)]


def _cut_start(text: str, width: int) -> str:
    """`…/esx1`: at a slash rather than in a part of a path, where one is left."""
    kept = text[len(text) - width + 1 :]
    slash = kept.find("/")
    return f"{CUT}{kept[slash:] if 0 <= slash < len(kept) - 1 else kept}"


def _cut(text: str, width: int) -> str:
    """Before a word rather than in it, where that leaves the better half."""
    kept = text[: width - 1]
    space = kept.rfind(" ")
    if text[width - 1] != " " and space > width // 2:
        kept = kept[:space]
    return f"{kept.rstrip()}{CUT}"
