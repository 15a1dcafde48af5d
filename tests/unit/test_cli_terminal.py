"""Nothing that an object says makes a terminal do anything: names, messages and reasons are their writers' choice."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text
from rich.tree import Tree

from hostler.cli.failures import escape_controls, print_note
from hostler.cli.printing import print_json, print_rich, print_table, print_text

# Clears the screen; sets the window's title; C1's form of the first; turns the text around.
ATTACKS = ("\x1b[2J\x1b[H", "\x1b]0;owned\x07", "\x9b2J", "\u202eevil")


def obeyed(text: str) -> list[str]:
    """Characters that a terminal acts upon or that reorder what it shows."""
    return [one for one in text if (ord(one) < 32 and one not in "\n\t") or 127 <= ord(one) < 160 or one == "\u202e"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_is_printed_is_not_obeyed(attack: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"node-1{attack}"
    print_table(("node", "why"), [(name, f"because {attack}")])
    tree = Tree(Text(name))
    tree.add(Text(attack))
    print_rich(tree)
    print_text(f"kind: Node\nname: {name}")
    print_note(f"There is no node {name}.")
    shown = capsys.readouterr()
    assert obeyed(shown.out + shown.err) == []
    assert "node-1" in shown.out


@pytest.mark.parametrize("attack", ATTACKS)
def test_json_says_the_same_without_being_obeyed(attack: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": attack})
    shown = capsys.readouterr().out
    assert obeyed(shown) == []
    assert json.loads(shown) == {"name": attack}


@given(st.text())
def test_any_text_comes_out_harmless_and_plain_text_as_it_is(text: str) -> None:
    assert obeyed(escape_controls(text)) == []
    if not obeyed(text) and text.isascii():
        assert escape_controls(text) == text
