"""What every list command has in common: its flags, how it is filtered and sorted, printed, and followed.

A command describes its list once, as a `Table` of columns that read a row, and says with `Listed` what it found. Adding
a flag or a way to print is a change here and nowhere else.
"""

from __future__ import annotations

import functools
import inspect
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import typer

from hostler.cli.columns import LEAST_SENTENCE, Cell, Tone, terminal_width
from hostler.cli.columns import Column as Layout
from hostler.cli.failures import print_note
from hostler.cli.printing import Output, OutputFlag, print_columns, print_data, print_names
from hostler.errors import Complaint, Exit

if TYPE_CHECKING:
    from hostler.kube.client import Client
    from hostler.selectors import Requirement

Row = TypeVar("Row")
Returned = TypeVar("Returned")
WATCH_SECONDS = 2.0
CLEAR = "\x1b[2J\x1b[H"

NamespaceFlag = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAME", help="Only what is in this namespace.")
]
EverywhereFlag = Annotated[
    bool, typer.Option("--all-namespaces", "-A", help="In all namespaces, whatever --namespace and the context say.")
]
WatchFlag = Annotated[bool, typer.Option("--watch", "-w", help="Print again at every change, until Ctrl-C.")]
SelectorFlag = Annotated[
    str, typer.Option("--selector", "-l", metavar="SELECTOR", help="Only what has these labels, as kubectl takes them.")
]


@dataclass(frozen=True, slots=True)
class View:
    """How a list was asked for."""

    output: Output = Output.TABLE
    watch: bool = False
    sort_by: str = ""
    namespace: str = ""  # empty: not given, or all of them
    all_namespaces: bool = False
    selector: tuple[Requirement, ...] = ()
    selector_text: str = ""

    def namespace_of(self, client: Client) -> str | None:
        """As kubectl: the one that was given, else the context's; None: all of them."""
        return None if self.all_namespaces else self.namespace or client.connection.namespace

    def is_in(self, namespace: str) -> bool:
        """For lists over many kinds, which show everything unless a namespace is given."""
        return self.all_namespaces or not self.namespace or namespace == self.namespace

    def admits(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.holds(labels) for requirement in self.selector)


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column of a list: how it is read from a row, and how it gives way (see `hostler.cli.columns.Column`).

    `sort`: what is compared, where that is not its text. `ages`: it changes as time passes, which alone prints nothing
    again. `wide`: only with `-o wide`.
    """

    title: str
    read: Callable[[Row], str | Cell]
    order: int = 0
    least: int | None = None
    needed: bool = False
    keep_end: bool = False
    wrap: bool = False
    below: bool = False
    wide: bool = False
    ages: bool = False
    sort: Callable[[Row], Any] | None = None

    @property
    def word(self) -> str:
        """As `--sort-by` takes it."""
        return self.title.strip("?").replace(" ", "-")

    def text(self, row: Row) -> str:
        cell = self.read(row)
        return cell if isinstance(cell, str) else cell.text

    def layout(self) -> Layout:
        return Layout(self.title, self.order, self.least, self.needed, self.keep_end, self.wrap, self.below)


def sentence(title: str, read: Callable[[Row], str | Cell]) -> Column[Row]:
    """The column that says why: it is always there, and goes on below where the terminal ends."""
    return Column(title, read, order=90, least=LEAST_SENTENCE, needed=True, wrap=True)


@dataclass(frozen=True, slots=True)
class Table(Generic[Row]):
    """A list as people see it. `name`: what `-o name` prints of a row; the columns are in the order they are shown."""

    name: Callable[[Row], str]
    columns: tuple[Column[Row], ...]

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(column.word for column in self.columns)

    def sorted_by(self, word: str, rows: Iterable[Row]) -> list[Row]:
        """Equal rows stay in the order they came in; without a word all do."""
        chosen = next((column for column in self.columns if column.word == word), None)
        return list(rows) if chosen is None else sorted(rows, key=chosen.sort or chosen.text)

    def show(self, rows: Sequence[Row], *, wide: bool) -> None:
        columns = [column for column in self.columns if wide or not column.wide]
        cells = [[_as_cell(column.read(row)) for column in columns] for row in rows]
        print_columns([column.layout() for column in columns], cells, None if wide else terminal_width())


def _as_cell(read: str | Cell) -> Cell:
    return Cell(read) if isinstance(read, str) else read


@dataclass(frozen=True, slots=True)
class Listed(Generic[Row]):
    """What a command found. `data`: what is printed for machines, of the rows that are shown; by default those."""

    rows: Sequence[Row]
    data: Callable[[Sequence[Row]], Any] = list
    notes: Sequence[str] = ()  # for people, before the rows
    nothing: str = ""  # printed where there are no rows
    above: Callable[[], None] | None = None  # what people get to see before the rows
    below: Callable[[], None] | None = None  # and after them
    after: Sequence[str] = field(default=())  # notes below everything


def takes_view(
    sort: Sequence[str], *, namespaces: bool = False, labels: bool = False
) -> Callable[[Callable[..., Returned]], Callable[..., Returned]]:
    """Give a command the flags of a list; it gets what they say as its argument `view`."""
    own = {
        "namespace": (NamespaceFlag, "", namespaces),
        "all_namespaces": (EverywhereFlag, False, namespaces),
        "selector": (SelectorFlag, "", labels),
        "sort_by": (_sort_flag(sort), "", True),
        "watch": (WatchFlag, False, True),
        "output": (OutputFlag, Output.TABLE, True),
    }

    def decorate(command: Callable[..., Returned]) -> Callable[..., Returned]:
        @functools.wraps(command)
        def with_view(*args: Any, **given: Any) -> Returned:
            asked = {name: given.pop(name) for name in own if name in given}
            text = asked.pop("selector", "")
            view = View(**asked, selector=read_selector(text), selector_text=text)
            return command(*args, view=view, **given)

        kept = [one for one in inspect.signature(command, eval_str=True).parameters.values() if one.name != "view"]
        flags = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (annotation, default, taken) in own.items()
            if taken
        ]
        # typer reads a command's signature to know its options; this is where ours says them.
        with_view.__signature__ = inspect.Signature([*kept, *flags])  # type: ignore[attr-defined]
        with_view.__annotations__ = {parameter.name: parameter.annotation for parameter in (*kept, *flags)}
        return with_view

    return decorate


def _sort_flag(words: Sequence[str]) -> Any:
    def read(text: str) -> str:
        if text and text not in words:
            raise typer.BadParameter(f"{text} is no column to sort by; these are: {', '.join(words)}")
        return text

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return Annotated[
        str,
        typer.Option("--sort-by", metavar="COLUMN", help="Sort by this column.", parser=read, autocompletion=complete),
    ]


def read_selector(text: str) -> tuple[Requirement, ...]:
    """The requirements of `-l`; what is wrong with it is a usage error."""
    if not text:
        return ()
    from hostler.selectors import parse_selector

    try:
        return parse_selector(text)
    except ValueError as error:
        raise typer.BadParameter(f"{error}", param_hint="--selector") from None


def show_list(view: View, look: Callable[[], Listed[Row]], table: Table[Row]) -> None:
    """Print the list; with --watch again whenever more than an age of it has changed.

    Once it was shown, an API server or an operator that cannot be reached is asked again: it may be being replaced.
    """
    shown: object = None
    while True:
        try:
            found = look()
        except Complaint as complaint:
            if shown is None or not view.watch or complaint.code is not Exit.UNREACHABLE:
                raise
            print_note(f"{complaint.sentence} Asking again.")
            time.sleep(WATCH_SECONDS)
            continue
        rows = table.sorted_by(view.sort_by, found.rows)
        counts = _what_counts(table, rows, found)
        if counts != shown:
            shown = counts
            if view.watch and sys.stdout.isatty() and not view.output.is_data and view.output is not Output.NAME:
                sys.stdout.write(CLEAR)
            _print_listed(view, found, rows, table)
        if not view.watch:
            return
        time.sleep(WATCH_SECONDS)


def _what_counts(table: Table[Row], rows: Sequence[Row], found: Listed[Row]) -> object:
    cells = tuple(tuple(column.text(row) for column in table.columns if not column.ages) for row in rows)
    return cells, tuple(found.notes)


def _print_listed(view: View, found: Listed[Row], rows: Sequence[Row], table: Table[Row]) -> None:
    if view.output.is_data:
        print_data(found.data(rows), view.output)
        return
    if view.output is Output.NAME:
        print_names(table.name(row) for row in rows)
        return
    for note in found.notes:
        print_note(note)
    if found.above is not None:
        found.above()
    if rows:
        table.show(rows, wide=view.output is Output.WIDE)
    elif found.nothing:
        print_note(found.nothing)
    if found.below is not None:
        found.below()
    for note in found.after:
        print_note(note)


def nothing_in(kind: str, namespace: str | None, view: View) -> str:
    """The sentence for an empty list of a kind with namespaces: a selector or the namespace may be why."""
    where = f"namespace {namespace}" if namespace else "this cluster"
    fitting = f" with {view.selector_text}" if view.selector_text else ""
    elsewhere = " Use -A to look in all namespaces." if namespace else ""
    return f"There is no {kind}{fitting} in {where}.{elsewhere}"


def qualified(name: str, namespace: str, client: Client) -> str:
    """NAMESPACE/NAME of an object that a command names: as kubectl, of a bare name the namespace is the context's."""
    inside, slash, _ = name.partition("/")
    if not slash:
        return f"{namespace or client.connection.namespace}/{name}"
    if namespace and namespace != inside:
        raise typer.BadParameter(f"{name} is not in namespace {namespace}", param_hint="--namespace")
    return name


def age_of(time_text: str, now: float) -> str:
    """`3m` for a timestamp of an object; empty where it has none."""
    from hostler.instant import parse
    from hostler.inventory.listing import age_text

    return age_text(parse(time_text), now)


def toned(text: str, tone: Tone) -> Cell:
    return Cell(text, tone)
