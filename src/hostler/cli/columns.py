"""A table of thousands of rows that fits a terminal: one line a row, the least telling columns cut first."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

GAP = 2
CUT = "…"


@dataclass(frozen=True, slots=True)
class Column:
    """`least`: it is cut down to this where room lacks, the lowest `order` first; and left out if that is not enough,
    unless it is `needed`. Without `least` it is always whole. `keep_end`: its beginning is what is cut."""

    title: str
    order: int = 0
    least: int | None = None
    needed: bool = False
    keep_end: bool = False


def terminal_width() -> int | None:
    """None in a pipe: nothing is cut there."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fit(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """The lines, the titles first. Columns without any text are left out."""
    shown = [place for place in range(len(columns)) if any(row[place] for row in rows)]
    widths = {place: max(len(columns[place].title), *(len(row[place]) for row in rows)) for place in shown}
    if width is not None:
        _narrow(columns, widths, width)
    titles = [column.title.upper() for column in columns]
    return [_line(columns, row, widths) for row in (titles, *rows)]


def _narrow(columns: Sequence[Column], widths: dict[int, int], width: int) -> None:
    """Cut columns down in their order, then leave them out in the same order, until a line fits."""
    cuttable = sorted((at for at in widths if columns[at].least is not None), key=lambda at: columns[at].order)
    for place in cuttable:
        least = max(columns[place].least or 0, len(columns[place].title))
        widths[place] = min(widths[place], max(least, widths[place] - _excess(widths, width)))
    for place in cuttable:
        if _excess(widths, width) and not columns[place].needed:
            del widths[place]
    for place in reversed([at for at in cuttable if at in widths]):
        widths[place] = max(len(columns[place].title), widths[place] - _excess(widths, width))


def _excess(widths: dict[int, int], width: int) -> int:
    return max(0, sum(widths.values()) + GAP * (len(widths) - 1) - width)


def _line(columns: Sequence[Column], row: Sequence[str], widths: dict[int, int]) -> str:
    cells = (_cell(columns[place], row[place], width).ljust(width) for place, width in sorted(widths.items()))
    return (" " * GAP).join(cells).rstrip()


def _cell(column: Column, text: str, width: int) -> str:
    if len(text) <= width:
        return text
    return f"{CUT}{text[len(text) - width + 1 :]}" if column.keep_end else f"{text[: width - 1]}{CUT}"
