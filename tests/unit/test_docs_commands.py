"""Every command that the documentation shows exists, with the flags it is shown with; so do targets of make."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from hostler.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for where in (
        "*.md",
        "docs/*.md",
        "src/**/*.md",
        "sandbox/**/*.md",
        "chart/alerts/*.yaml",
        "chart/templates/NOTES.txt",
    )
    for path in ROOT.glob(where)
    if path.name != "CHANGELOG.md"  # it tells what was
)
COMMANDS = typer.main.get_command(app)
WORD = re.compile(r"[a-z][a-z-]*")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def code(text: str) -> list[str]:
    """Lines of blocks, and what stands in backticks; a line that goes on is one."""
    blocks = re.findall(r"^```(?!mermaid|yaml)\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return [*lines, *(" ".join(one.split()) for one in re.findall(r"`([^`]+)`", prose))]


def shown(text: str, program: str) -> list[list[str]]:
    """The words after each use of a program: up to a comment, a pipe, or the end."""
    found = []
    for line in code(text):
        for start in re.finditer(rf"(?:^|[(|;/]) *{program} +(?=[a-z-])", line):
            rest = re.split(r"\s#|[|;&)]|\s->|,\s", line[start.end() :])[0]
            try:
                found.append(shlex.split(rest))
            except ValueError:  # a quotation that goes on
                found.append(rest.split())
    return found


def wrong(words: list[str]) -> str:
    """What of a command line does not exist; empty: all of it does."""
    command: Any = COMMANDS
    path = ["hostler"]
    rest = list(words)
    while rest and hasattr(command, "commands") and not rest[0].startswith("-"):
        name = rest.pop(0).rstrip(".")
        if name not in command.commands:
            return f"{' '.join(path)} has no {name}"
        command = command.commands[name]
        path.append(name)
    flags = {one for parameter in command.params for one in (*parameter.opts, *parameter.secondary_opts)}
    for one in rest:
        flag = re.match(r"--?[a-z][a-z-]*", one)
        if flag and flag[0] not in {*flags, "--help", "-h", "--install-completion"}:
            return f"{' '.join(path)} has no {flag[0]}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_is_shown_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [found for words in shown(text, "hostler") if WORD.match(words[0]) and (found := wrong(words))] == []
    assert [words[0] for words in shown(text, "make") if words[0] not in TARGETS] == []


def test_there_are_many_and_a_wrong_one_is_found() -> None:
    assert sum(len(shown(page.read_text(encoding="utf-8"), "hostler")) for page in PAGES) > 150
    assert wrong(["join", "expct", "x"]) == "hostler join has no expct"
    assert wrong(["run", "--metall"]) == "hostler run has no --metall"
    assert wrong(["drain", "NODE", "--timeout", "90"]) == ""
