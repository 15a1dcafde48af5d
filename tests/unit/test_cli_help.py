"""Help pages: each ends with examples that work, and leaves out what belongs to the operator."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from hostler.cli.examples import EXAMPLES
from hostler.cli.flags import MORE
from tests.unit.command_table import COMMANDS


def shown_flags(command: str) -> set[str]:
    return {
        flag
        for one in COMMANDS[command].params
        if not getattr(one, "hidden", False)
        for flag in getattr(one, "opts", ())
    }


def test_every_help_page_has_two_or_three_examples() -> None:
    told = {name for name, one in COMMANDS.items() if "Examples: " in (one.help or "")}
    assert set(COMMANDS) - told == set(EXAMPLES)
    for name, examples in EXAMPLES.items():
        assert 2 <= len(examples) <= 3, name
        assert COMMANDS[name].epilog == "\n\n".join(("Examples:", *examples))


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_an_example_is_a_command_line_that_is_understood(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("install-config.yaml", "root-ca.crt"):
        (tmp_path / file).touch()
    (tmp_path / "sandbox").mkdir()
    words = shlex.split(line.partition(" | ")[0])[1:]
    if "--help" in words:
        return
    name = words.pop(0)
    while name not in COMMANDS:
        name = f"{name} {words.pop(0)}"
    context = COMMANDS[name].make_context(name, words)  # what is wrong with it is raised
    assert not [one for one in context.args if one.startswith("-")]


def test_settings_of_the_operator_are_taken_and_not_shown() -> None:
    for command in ("bundle", "doctor"):
        assert "--vcenter-host" not in shown_flags(command)
        assert MORE in COMMANDS[command].help
        COMMANDS[command].make_context(command, ["--vcenter-host", "vc", "--lease-name", "x"])


def test_what_a_command_needs_is_shown() -> None:
    assert {"--kubeconfig", "--context", "--max-unavailable", "--dry-run"} <= shown_flags("hold")
    assert {"--drain-timeout-seconds", "--operator"} <= shown_flags("drain")
    for command in ("run", "config", "manifests"):
        assert MORE not in COMMANDS[command].help
