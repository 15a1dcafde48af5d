"""The table of mutants is in step with the code; that each is found is tried in tests/mutants."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants.runner import PACKAGE, Mutant, Outcome
from tests.mutants.table import MUTANTS

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_applies_to_the_code_as_it_is(mutant: Mutant) -> None:
    changed = mutant.apply((PACKAGE / mutant.module).read_text(encoding="utf-8"))
    ast.parse(changed)
    file, _, name = mutant.test.partition("::")
    there = {node.name for node in ast.walk(ast.parse((TESTS / file).read_text())) if isinstance(node, ast.FunctionDef)}
    assert name in there, f"tests/{file} has no test {name!r}"


def test_a_mutant_whose_text_is_gone_says_so() -> None:
    gone = Mutant("host/holds.py", "no such text", "", "nothing", "unit/test_mutants.py")
    with pytest.raises(LookupError, match=r"host/holds\.py has the text of this mutant 0 times.*take the mutant along"):
        gone.apply("other text")
    with pytest.raises(LookupError, match="2 times"):
        gone.apply("no such text, no such text")


def test_mutants_are_many_and_different() -> None:
    assert len(MUTANTS) >= 20
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len([mutant for mutant in MUTANTS if not mutant.slow]) >= 20


@pytest.mark.parametrize(
    ("code", "output", "found"),
    [
        (1, "x\n1 failed, 2 passed in 0.1s", True),
        (0, "2 passed in 0.1s", False),
        (1, "1 failed, 1 error in 0.1s", False),
        (2, "ERROR collecting\n1 error in 0.1s", False),
        (1, "1 error in 0.1s", False),
        (-14, "", False),
    ],
)
def test_only_a_test_that_fails_has_found_something(code: int, output: str, found: bool) -> None:
    assert Outcome(code, output).found is found
