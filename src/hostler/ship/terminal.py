"""A picture of a terminal, drawn from what was printed there: `python -m hostler.ship.terminal FILE.svg < transcript`.

docs/at-work.svg was made that way of commands on the sandbox (docs/contribute.md says how).
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 118


def draw(transcript: str, title: str = "hostler") -> str:
    """An SVG of the text, colours included; it fetches no font from anywhere."""
    lines = transcript.rstrip().splitlines()
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    for line in lines:
        console.print(Text.from_ansi(line), soft_wrap=False)
    svg = console.export_svg(title=title, unique_id="hostler")
    return re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw(sys.stdin.read()), encoding="utf-8")
