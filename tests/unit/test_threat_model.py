"""The threat model names functions and tests that exist, and no border without them."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/threat-model.md").read_text()


def table(heading: str) -> list[list[str]]:
    """The rows of the table under a heading."""
    part = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[1:]]


def names_in(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def closed() -> list[tuple[str, str, str]]:
    """Every border that is closed, and every attack that failed: its name, the function, the tests."""
    borders = [(row[0], row[4], row[5]) for row in table("Borders")]
    return borders + [(row[0], row[1], row[2]) for row in table("What was tried and refused before")]


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    module = name
    rest: list[str] = []
    while module:
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            rest.insert(0, last)
            continue
        for part in rest:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def test_every_border_has_a_function_that_exists() -> None:
    for border, function, _ in closed():
        named = [one for one in names_in(function) if one.startswith(("hostler.", ".ci/", ".github/"))]
        assert named, f"{border} names no function"
        for one in named:
            assert (ROOT / one).is_file() if one.startswith(".") else resolves(one), f"{border}: there is no {one}"


def test_every_border_has_tests_that_exist() -> None:
    for border, _, tests in closed():
        assert names_in(tests), f"{border} names no test"
        for test in names_in(tests):
            file, _, name = test.partition("::")
            there = {
                node.name
                for node in ast.walk(ast.parse((ROOT / file).read_text()))
                if isinstance(node, ast.FunctionDef)
            }
            assert name in there, f"{border}: {file} has no test {name}"


def test_no_border_is_open() -> None:
    rows = table("Borders")
    assert [row[0] for row in rows if len(row) != 6] == [], "each row has six cells"
    ids = " ".join(row[0] for row in rows)
    assert [f"S{n}" for n in (*range(1, 10), 11) if not re.search(rf"\bS{n}[a-z]?\b", ids)] == []
