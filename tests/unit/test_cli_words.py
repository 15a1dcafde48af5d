"""What the CLI prints of an answer, and that its documentation is true."""

from __future__ import annotations

import io
import json
import logging
import re
from pathlib import Path

import structlog

from hostler import log
from hostler.capabilities import CAPABILITIES
from hostler.cli.explain import tree_of
from hostler.cli.main import app
from hostler.cli.printing import console_of
from hostler.errors import Exit
from hostler.explain.registry import Action, Answer, Explanation, FactSeen, RuleSeen
from hostler.fleet.decide import CONDITIONS

DOCS = Path(__file__).parents[2] / "docs"


def drawn(answer: Answer) -> str:
    console = console_of(terminal=False)
    with console.capture() as capture:
        console.print(tree_of(answer))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def test_an_answer_is_drawn_with_rules_facts_and_what_would_be_done() -> None:
    answer = Answer(
        "node",
        "worker-1",
        notes=("The Fleet is paused.",),
        explanations=(
            Explanation(
                "holds",
                "worker-1 is held.",
                facts=(FactSeen("power", known=False, why="vCenter is down"),),
                rules=(
                    RuleSeen(
                        "held", "holds", "By ada.", decided=True, facts=(FactSeen("cordoned", True, age_seconds=3),)
                    ),
                    RuleSeen("ready", "holds", "It is."),
                ),
                actions=(Action("cordon", "node/worker-1", "it was uncordoned", held_back="paused"),),
            ),
        ),
    )
    assert drawn(answer) == "\n".join(
        [
            "node/worker-1",
            "├── The Fleet is paused.",
            "└── holds: worker-1 is held.",
            "    ├── power: unknown, vCenter is down",
            "    ├── => held: holds. By ada.",
            "    │   └── cordoned = True (3 s ago)",
            "    ├── ready: holds. It is.",
            "    └── would cordon node/worker-1: it was uncordoned (held back: paused)",
        ]
    )


def test_words_from_the_cluster_are_shown_and_not_obeyed() -> None:
    """A node name or a reason may hold rich's markup; it is text."""
    answer = Answer("node", "[red]x[/red]", (Explanation("holds", "[bold]y[/bold] [/]"),))
    assert drawn(answer) == "node/[red]x[/red]\n└── holds: [bold]y[/bold] [/]"


def test_the_exit_codes_are_documented() -> None:
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", (DOCS / "cli.md").read_text(), re.MULTILINE)}
    assert documented == {code.value for code in Exit}


def test_every_command_is_documented() -> None:
    text = (DOCS / "cli.md").read_text()
    groups = [group.typer_instance for group in app.registered_groups if group.typer_instance and not group.name]
    commands = [command for group in groups for command in group.registered_commands if command.callback]
    names = {command.name or getattr(command.callback, "__name__", "") for command in commands}
    assert {"run", "pause", "drain"} <= names
    for name in names:
        assert re.search(rf"`{name}[ `]", text), name


def test_conditions_and_incumbents_are_documented() -> None:
    text = (DOCS / "fleet.md").read_text()
    for condition in CONDITIONS:
        assert f"| `{condition}` |" in text
    for capability in CAPABILITIES:
        assert not capability.incumbents or f"| {capability.name} |" in text


# -- logs


def test_logs_are_data() -> None:
    out = io.StringIO()
    log.set_up("json", "info", stream=out)
    structlog.get_logger("hostler.test").info("held", node="worker-1")
    structlog.get_logger("hostler.test").debug("not shown")
    logging.getLogger("aiohttp").warning("from a library: %s", "x")
    try:
        raise ValueError("odd")
    except ValueError:
        structlog.get_logger("hostler.test").exception("bug")
    ours, library, bug = [json.loads(line) for line in out.getvalue().splitlines()]
    assert (ours["event"], ours["node"], ours["level"], ours["logger"]) == ("held", "worker-1", "info", "hostler.test")
    assert list(ours) == ["timestamp", "level", "event", "logger", "node"]
    assert ours["timestamp"].endswith("Z")
    assert (library["event"], library["logger"]) == ("from a library: x", "aiohttp")
    assert "ValueError: odd" in bug["exception"]


def test_logs_for_people_are_not_coloured_in_a_pipe() -> None:
    out = io.StringIO()
    log.set_up("console", "warning", stream=out)
    structlog.get_logger("hostler.test").warning("slow", node="worker-1")
    structlog.get_logger("hostler.test").info("not shown")
    assert "\x1b" not in out.getvalue()
    assert "slow" in out.getvalue()
    assert "node=worker-1" in out.getvalue()
    assert "not shown" not in out.getvalue()


def test_auto_is_json_where_nobody_looks() -> None:
    out = io.StringIO()
    log.set_up("auto", "info", stream=out)
    structlog.get_logger("hostler.test").info("held")
    assert json.loads(out.getvalue())["event"] == "held"
