"""Every command that the documentation shows exists, with the flags it is shown with; so do targets of make, settings
and values of the chart."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from hostler.capabilities import SETTINGS
from hostler.cli.main import app
from hostler.ship.chart import schema

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
    found = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    blocks = [block for language, block in found if language not in ("mermaid", "yaml")]
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
        if name not in command.commands and hasattr(command, "default_command"):
            break
        if name not in command.commands:
            return f"{' '.join(path)} has no {name}"
        command = command.commands[name]
        path.append(name)
    if command.context_settings.get("ignore_unknown_options"):
        return ""  # the rest is another program's
    command = command.commands[command.default_command] if hasattr(command, "default_command") else command
    flags = {one for parameter in command.params for one in (*parameter.opts, *parameter.secondary_opts)}
    for one in rest:
        flag = re.match(r"--?[a-z][a-z0-9-]*", one)
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


# Variables of the sandbox, of the tests and of people are read where they are used.
READ = "".join(path.read_text() for path in (*(ROOT / "src").rglob("*.py"), ROOT / "tests/real/conftest.py"))
THEIRS = {"ENABLE_HOST_RECLAIM"}  # variables of other projects that a page names
VARIABLE = re.compile(
    r"\b(?:HOSTLER|VCENTERS?|HUB|CAPM3|ENABLE|GPU|DRAIN|POWER_ON|GUEST|MAX|POLL|AGENT)_[A-Z0-9_]*[A-Z0-9]\b"
)


def unknown_settings(text: str) -> list[str]:
    known = {one.name for one in SETTINGS}
    return [name for name in VARIABLE.findall(text) if name not in known | THEIRS and f'"{name}"' not in READ]


def unknown_values(text: str) -> list[str]:
    """Values of the chart that are set somewhere and that its schema does not know."""
    return [path for path in re.findall(r"--set(?:-string)? ([\w.]+)=", text) if not _has(schema(), path.split("."))]


def _has(part: dict[str, Any], path: list[str]) -> bool:
    if not path:
        return True
    inner = part.get("properties", {}).get(path[0])
    return (
        _has(inner, path[1:]) if inner is not None else "additionalProperties" in part and part["additionalProperties"]
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_setting_and_value_that_is_named_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert unknown_settings(text.replace("HOSTLER_PLATFORM_FIGHT_", "")) == []
    assert unknown_values(text) == []


def test_wrong_ones_are_found() -> None:
    assert unknown_settings("`DRAIN_TIMEOUT` and `DRAIN_TIMEOUT_SECONDS`") == ["DRAIN_TIMEOUT"]
    text = "helm upgrade --set dryRun=true --set capabilities.metall=true --set vcenter.ca=x --set podLabels.a=b"
    assert unknown_values(text) == ["capabilities.metall", "vcenter.ca"]
