"""The pages that lead through maintenance name files and functions that exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/hostler"
MOST = 14  # files of maintenance that whoever follows the walk opens
HOP = re.compile(r"`((?:\w+/)*\w+\.py):(\w+)`")


def section(page: str, title: str) -> str:
    text = (ROOT / page).read_text(encoding="utf-8")
    return text.split(f"## {title}\n")[1].split("\n## ")[0]


@cache
def read_module(name: str) -> str:
    return (PACKAGE / name).read_text(encoding="utf-8")


def hops() -> list[tuple[str, str]]:
    walk = HOP.findall(section("docs/architecture.md", "A walk: Enter Maintenance to uncordon"))
    within = [(file if "/" in file else f"maintenance/{file}", name) for file, name in walk]
    return within + HOP.findall(section("docs/contribute.md", "Worked examples: drain and maintenance"))


@pytest.mark.parametrize(("file", "name"), sorted(set(hops())))
def test_every_hop_exists(file: str, name: str) -> None:
    assert re.search(rf"^\s*(?:async def|def|class) {name}\b|^{name}\b.*=", read_module(file), re.MULTILINE)


def test_the_walk_opens_few_files_of_maintenance() -> None:
    walk = HOP.findall(section("docs/architecture.md", "A walk: Enter Maintenance to uncordon"))
    assert len({file for file, _ in walk if "/" not in file}) <= MOST


def test_the_readme_names_every_module() -> None:
    readme = (PACKAGE / "maintenance/README.md").read_text(encoding="utf-8")
    modules = {path.name for path in (PACKAGE / "maintenance").glob("*.py")} - {"__init__.py"}
    assert modules == set(re.findall(r"`(\w+\.py)`", readme))
