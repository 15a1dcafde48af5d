"""State machines as text and picture, each between two marks on the page of its capability."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from hostler.ship.machines import MACHINES, Machine

BEGIN, END = "<!-- made by `make chart`: begin -->", "<!-- end -->"


def files(root: Path) -> Iterator[tuple[Path, str]]:
    """Each page with its tables and pictures as they are now; the rest of it as it stands."""
    for page, machines in MACHINES.items():
        yield root / page, placed((root / page).read_text(encoding="utf-8"), machines)


def placed(document: str, machines: Sequence[Machine]) -> str:
    before, *rest = document.split(BEGIN)
    made = [
        f"{BEGIN}\n\n{_table(machine)}\n\n{picture(machine)}\n\n{END}{after.partition(END)[2]}"
        for machine, after in zip(machines, rest, strict=True)
    ]
    return "".join([before, *made])


def states(machine: Machine) -> set[str]:
    return {str(state) for arrow in machine for state in (*arrow.sources, arrow.target)}


def _table(machine: Machine) -> str:
    lines = ["| transition | from | to | when |", "|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {a.name} | {', '.join(a.sources)} | {a.target} | {a.when} |" for a in machine)])


def picture(machine: Machine) -> str:
    """Mermaid, which most places that show Markdown draw."""
    lines = ["```mermaid", "stateDiagram-v2"]
    for arrow in machine:
        lines += [f"    {_node(source)} --> {_node(arrow.target)}: {arrow.name}" for source in arrow.sources]
    return "\n".join([*lines, *(f'    state "{name}" as {_node(name)}' for name in sorted(states(machine))), "```"])


def _node(state: str) -> str:
    return state.replace("-", "_").replace(" ", "_")
