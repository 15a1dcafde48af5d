"""Reads the pages that lead through the code: the hops `FILE.py:NAME` of a section, and whether they exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/hostler"
_HOP = re.compile(r"`((?:\w+/)*\w+\.py):(\w+)`")


def hops(page: str, title: str, room: str = "") -> list[tuple[str, str]]:
    """The files and names of a section. `room`: the package of files without a folder."""
    text = (ROOT / page).read_text(encoding="utf-8")
    section = text.split(f"## {title}\n")[1].split("\n## ")[0]
    found = [(file if "/" in file or not room else f"{room}/{file}", name) for file, name in _HOP.findall(section)]
    assert found, f"{page} has no hops under {title}"
    return found


def exists(file: str, name: str) -> bool:
    return re.search(rf"^\s*(?:async def|def|class) {name}\b|^{name}\b.*=", _text(file), re.MULTILINE) is not None


@cache
def _text(file: str) -> str:
    return (PACKAGE / file).read_text(encoding="utf-8")


def named_modules(room: str) -> set[str]:
    """The modules that the README of a package names."""
    return set(re.findall(r"`((?:\w+/)*\w+\.py)`", (PACKAGE / room / "README.md").read_text(encoding="utf-8")))


def modules(room: str) -> set[str]:
    found = (PACKAGE / room).rglob("*.py")
    return {str(path.relative_to(PACKAGE / room)) for path in found if path.name != "__init__.py"}
