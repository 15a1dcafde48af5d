"""State machines as text and picture, for the pages of rooms that have one: made from the tables of those rooms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hostler.maintenance import model as maintenance
from hostler.reclaim import model as reclaim

BEGIN, END = "<!-- made by `make chart`: begin -->", "<!-- end -->"
NONE = "in service"  # what a node without a state of maintenance is


@dataclass(frozen=True, slots=True)
class Arrow:
    """One transition: by its name, from any of these states to that one."""

    name: str
    sources: tuple[str, ...]
    target: str
    when: str


MACHINES: dict[str, tuple[Arrow, ...]] = {
    "docs/maintenance.md": tuple(
        Arrow(one.event, (one.before or NONE,), one.after or NONE, one.when) for one in maintenance.TRANSITIONS
    ),
    "docs/reclaim.md": tuple(Arrow(one.name, one.sources, one.target, one.when) for one in reclaim.TRANSITIONS),
}


def files(root: Path) -> Iterator[tuple[Path, str]]:
    """Each page with its table and picture as they are now; the rest of it as it stands."""
    for page, arrows in MACHINES.items():
        yield root / page, placed((root / page).read_text(encoding="utf-8"), arrows)


def placed(document: str, arrows: tuple[Arrow, ...]) -> str:
    before, _, rest = document.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{_table(arrows)}\n\n{_picture(arrows)}\n\n{END}{after}"


def _table(arrows: tuple[Arrow, ...]) -> str:
    lines = ["| transition | from | to | when |", "|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {a.name} | {', '.join(a.sources)} | {a.target} | {a.when} |" for a in arrows)])


def _picture(arrows: tuple[Arrow, ...]) -> str:
    """Mermaid, which most places that show Markdown draw."""
    lines = ["```mermaid", "stateDiagram-v2"]
    for one in arrows:
        lines += [f"    {_node(source)} --> {_node(one.target)}: {one.name}" for source in one.sources]
    names = sorted({state for one in arrows for state in (*one.sources, one.target)})
    return "\n".join([*lines, *(f'    state "{name}" as {_node(name)}' for name in names), "```"])


def _node(state: str) -> str:
    return state.replace("-", "_").replace(" ", "_")
