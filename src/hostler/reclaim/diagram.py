"""`python -m hostler.reclaim.diagram`: the table of transitions as text and picture, for the docs."""

from __future__ import annotations

import sys
from pathlib import Path

from hostler.reclaim.model import TRANSITIONS

BEGIN, END = "<!-- made by python -m hostler.reclaim.diagram: begin -->", "<!-- end -->"


def table() -> str:
    lines = ["| transition | from | to | when |", "|---|---|---|---|"]
    for one in TRANSITIONS:
        lines.append(f"| {one.name} | {', '.join(one.sources)} | {one.target} | {one.when} |")
    return "\n".join(lines)


def picture() -> str:
    """Mermaid, which most places that show Markdown draw."""
    lines = ["```mermaid", "stateDiagram-v2"]
    for one in TRANSITIONS:
        for source in one.sources:
            lines.append(f"    {_node(source)} --> {_node(one.target)}: {one.name}")
    names = sorted({state for one in TRANSITIONS for state in (*one.sources, one.target)})
    return "\n".join([*lines, *(f'    state "{name}" as {_node(name)}' for name in names), "```"])


def placed(document: str) -> str:
    """The document with the table and the picture as they are now."""
    before, _, rest = document.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{table()}\n\n{picture()}\n\n{END}{after}"


def _node(state: str) -> str:
    return state.replace("-", "_")


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.write_text(placed(place.read_text()))
