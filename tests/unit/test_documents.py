"""YAML of strangers is read within bounds, by every command that reads any."""

from __future__ import annotations

from pathlib import Path

import pytest

from hostler.cli.main import execute
from hostler.documents import MOST_VALUES, NotReadable, compose_yaml, read_yaml
from hostler.errors import Exit

LEVELS = [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 30)]
BOMB = "\n".join(["l0: &l0 [x]", *LEVELS])
CHAIN = "\n".join(["l0: &l0 [x]", *(f"l{i}: &l{i} [*l{i - 1}]" for i in range(1, 3000))])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (BOMB, f"stands for more than {MOST_VALUES} values"),
        (f"<<: &a [x]\n{BOMB}", f"stands for more than {MOST_VALUES} values"),
        ("a: &a [*a]", f"stands for more than {MOST_VALUES} values"),
        (CHAIN, f"stands for more than {MOST_VALUES} values"),
        ("[" * 1200 + "]" * 1200, "is nested too deeply"),
        ("a: b: c", "is not YAML: mapping values are not allowed here"),
        ("a: 2024-99-99", "is not YAML: month must be in 1..12"),
        ("a: \x00", "is not YAML"),
        ("x" * (1 << 20) + "x", "is larger than 1024 KiB"),
        ("a: 1\n---\nb: 2", "is not YAML"),
    ],
)
def test_what_is_out_of_bounds_is_one_sentence(text: str, why: str) -> None:
    with pytest.raises(NotReadable, match="^" + why.replace(".", r"\.")):
        read_yaml(text)


def test_aliases_within_bounds_are_read() -> None:
    assert read_yaml("a: &a [1, 2]\nb: *a\nc: {<<: {d: 3}}") == {"a": [1, 2], "b": [1, 2], "c": {"d": 3}}
    with pytest.raises(NotReadable, match="aliases"):
        read_yaml("a: &a [1]\nb: *a", aliases=False)
    assert read_yaml("") is None
    assert compose_yaml("") is None


@pytest.mark.parametrize("command", [("install", "plan"), ("config", "--config"), ("sandbox", "up", "--fleet")])
def test_no_command_hangs_on_a_bomb(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bomb.yaml"
    file.write_text(BOMB)
    assert execute([*command, str(file)]) in (Exit.SETTING, Exit.REFUSED, Exit.USAGE)
    assert "stands for more than" in capsys.readouterr().err
