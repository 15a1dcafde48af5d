"""Each mutant is found by the test that is named for it, and that test passes without the mutant."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutants.runner import Mutant, Worker
from tests.mutants.table import MUTANTS

QUICK = [mutant for mutant in MUTANTS if not mutant.slow]


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    found = Worker()
    yield found
    found.stop()


def named_tests(mutants: list[Mutant]) -> list[str]:
    return sorted({mutant.test for mutant in mutants})


def test_without_a_mutant_every_test_passes(worker: Worker, tmp_path: Path) -> None:
    """Through the same copy of the package: else a broken copy would look like a mutant that was found."""
    outcome = worker.run_tests(named_tests(QUICK), tmp_path)
    assert outcome.passed, outcome.output


@pytest.mark.full
def test_without_a_mutant_every_slow_test_passes(worker: Worker, tmp_path: Path) -> None:
    outcome = worker.run_tests(named_tests([mutant for mutant in MUTANTS if mutant.slow]), tmp_path)
    assert outcome.passed, outcome.output


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(one, id=one.name, marks=[pytest.mark.full] if one.slow else []) for one in MUTANTS],
)
def test_a_mutant_is_found(mutant: Mutant, worker: Worker, tmp_path: Path) -> None:
    outcome = worker.run_tests([mutant.test], tmp_path, mutant)
    assert outcome.found, f"No failure in tests/{mutant.test}, though {mutant.bug}. It said:\n{outcome.output[-3000:]}"
