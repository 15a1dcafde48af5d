"""Runs tests against the package with one change in it. The working tree is never written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/hostler"
SECONDS = 300


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug: `old` becomes `new` in a module of the package; `test` must notice."""

    module: str  # below src/hostler
    old: str
    new: str
    bug: str  # what a user would have suffered
    test: str  # FILE::NAME below tests
    slow: bool = False  # takes more than a second: only in `make test-full`

    @property
    def name(self) -> str:
        """Of the test that is about it."""
        return re.sub(r"\W+", "-", f"{self.module.removesuffix('.py')} {self.bug}".lower())[:90].strip("-")

    def apply(self, text: str) -> str:
        """The module with the bug in it. Raises LookupError where the text has moved."""
        found = text.count(self.old)
        if found != 1:
            raise LookupError(
                f"src/hostler/{self.module} has the text of this mutant {found} times, not once: {self.old!r}. "
                "The code has moved or changed: take the mutant along in tests/mutants/table.py."
            )
        return text.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the tests ended: all passed, or some failed; anything else is a fault of the run itself."""

    code: int
    output: str

    @property
    def passed(self) -> bool:
        return self.code == 0

    @property
    def found(self) -> bool:
        """A test failed. One that could not even be collected, or whose fixture broke, found nothing."""
        return self.code == 1 and re.search(r"\b\d+ failed\b", self.output) is not None and " error" not in self.last

    @property
    def last(self) -> str:
        return (self.output.strip().splitlines() or [""])[-1]


class Worker:
    """A process that has loaded everything but the package, and forks for each run: most of a run is imports."""

    def __init__(self) -> None:
        told = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.worker"], cwd=ROOT, env=told, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def run_tests(self, tests: Sequence[str], place: Path, mutant: Mutant | None = None) -> Outcome:
        """The outcome of these tests with the mutant in the package; without one, with the package as it is."""
        if not tests:
            raise ValueError("without a test pytest would run all of them")
        _copy_package(place / "hostler", mutant)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job = {"place": str(place), "tests": [f"tests/{one}" for one in tests]}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the process that runs the mutants has ended")
        return Outcome(int(answer), (place / "output").read_text(encoding="utf-8"))

    def stop(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(SECONDS)
        self._process.stdout.close()


def _copy_package(target: Path, mutant: Mutant | None) -> None:
    """The package as links, so that it costs nothing; only the changed module is a file of its own."""
    changed = Path(mutant.module).parts if mutant is not None else ()
    source, here = PACKAGE, target
    for depth in range(max(len(changed), 1)):
        here.mkdir()
        keep = changed[depth] if changed else ""
        for entry in source.iterdir():
            if entry.name not in (keep, "__pycache__"):
                (here / entry.name).symlink_to(entry)
        source, here = source / keep, here / keep
    if mutant is not None:
        here.write_text(mutant.apply(source.read_text(encoding="utf-8")), encoding="utf-8")
