"""What every list has in common: its flags, sorting, what is printed again, and how it fits a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from hostler.cli import listing
from hostler.cli.columns import Cell, Tone, fit
from hostler.cli.columns import Column as Layout
from hostler.cli.listing import (
    Column,
    Listed,
    Table,
    View,
    nothing_in,
    qualified,
    read_selector,
    sentence,
    show_list,
    takes_view,
)
from hostler.cli.printing import Output, has_colour
from hostler.errors import Complaint, Exit
from tests.unit.command_table import COMMANDS


@dataclass(frozen=True)
class Pod:
    name: str
    restarts: int
    why: str = ""


PODS: Table[Pod] = Table(
    name=lambda pod: f"pod/{pod.name}",
    columns=(
        Column("pod", lambda pod: pod.name, needed=True),
        Column("restarts", lambda pod: str(pod.restarts), sort=lambda pod: pod.restarts),
        Column("age", lambda pod: "3m", ages=True),
        Column("node", lambda pod: "w1", wide=True),
        sentence("why", lambda pod: pod.why),
    ),
)
ROWS = [Pod("b", 10, "It waits."), Pod("a", 9, "It runs.")]
AT_CLUSTER: Any = SimpleNamespace(connection=SimpleNamespace(namespace="team-a"))


def shown(view: View, capsys: pytest.CaptureFixture[str], rows: list[Pod] = ROWS) -> str:
    show_list(view, lambda: Listed(rows, nothing="There is no pod."), PODS)
    return capsys.readouterr().out


def test_a_list_is_printed_as_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(View(), capsys) == (
        "POD  RESTARTS  AGE  WHY\nb    10        3m   It waits.\na    9         3m   It runs.\n"
    )
    assert "NODE" in shown(View(Output.WIDE), capsys)
    assert shown(View(Output.NAME), capsys) == "pod/b\npod/a\n"
    assert json.loads(shown(View(Output.JSON), capsys))[0] == {"name": "b", "restarts": 10, "why": "It waits."}
    assert shown(View(Output.YAML), capsys).startswith("- name: b\n  restarts: 10\n")


def test_an_empty_list_is_a_sentence_for_people_and_nothing_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    show_list(View(), lambda: Listed([], nothing="There is no pod."), PODS)
    assert capsys.readouterr() == ("", "There is no pod.\n")
    assert shown(View(Output.NAME), capsys, []) == ""
    assert json.loads(shown(View(Output.JSON), capsys, [])) == []


def test_numbers_are_sorted_as_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(View(Output.NAME, sort_by="restarts"), capsys) == "pod/a\npod/b\n"
    assert shown(View(Output.NAME, sort_by="pod"), capsys) == "pod/a\npod/b\n"


def test_what_only_grew_older_is_not_printed_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ages = iter(("1m", "2m", "3m"))
    table = Table(PODS.name, (PODS.columns[0], Column("age", lambda pod: next(ages, "9m"), ages=True)))
    answers: Iterator[list[Pod] | Complaint | KeyboardInterrupt] = iter((
        ROWS[:1], ROWS[:1], Complaint("It is gone.", code=Exit.UNREACHABLE), ROWS, KeyboardInterrupt(),
    ))  # fmt: skip

    def look() -> Listed[Pod]:
        answer = next(answers)
        if isinstance(answer, BaseException):
            raise answer
        return Listed(answer)

    monkeypatch.setattr(listing, "WATCH_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        show_list(View(watch=True), look, table)
    printed = capsys.readouterr()
    assert printed.out.count("POD") == 2, "once at first, once for the second pod"
    assert printed.err == "It is gone. Asking again.\n"


def test_without_watch_what_cannot_be_reached_is_an_error() -> None:
    def look() -> Listed[Pod]:
        raise Complaint("It is gone.", code=Exit.UNREACHABLE)

    with pytest.raises(Complaint):
        show_list(View(), look, PODS)


def test_a_namespace_is_read_as_kubectl_reads_it() -> None:
    assert View().namespace_of(AT_CLUSTER) == "team-a"
    assert View(namespace="b").namespace_of(AT_CLUSTER) == "b"
    assert View(namespace="b", all_namespaces=True).namespace_of(AT_CLUSTER) is None
    assert qualified("x", "", AT_CLUSTER) == "team-a/x"
    assert qualified("x", "b", AT_CLUSTER) == "b/x"
    assert qualified("b/x", "", AT_CLUSTER) == "b/x"
    with pytest.raises(typer.BadParameter, match="b/x is not in namespace c"):
        qualified("b/x", "c", AT_CLUSTER)
    assert nothing_in("Agent", "b", View()) == "There is no Agent in namespace b. Use -A to look in all namespaces."
    assert nothing_in("Agent", None, View(selector_text="a=b")) == "There is no Agent with a=b in this cluster."


def test_a_list_over_many_kinds_shows_everything_unless_a_namespace_is_given() -> None:
    assert View().is_in("b")
    assert View(namespace="b", all_namespaces=True).is_in("c")
    assert not View(namespace="b").is_in("c")
    assert not View(namespace="b").is_in(""), "a VM is in none"


def test_a_selector_that_is_none_is_a_usage_error() -> None:
    assert View(selector=read_selector("a=b")).admits({"a": "b"})
    with pytest.raises(typer.BadParameter):
        read_selector("a in (")


LISTS = {name: command for name, command in COMMANDS.items() if any(one.name == "sort_by" for one in command.params)}


def test_every_list_has_the_flags_of_lists() -> None:
    assert set(LISTS) == {
        "config", "doctor", "hosts", "fleet", "operations", "history show", "maintenance status", "vcenter show",
        "ingress status", "metal hosts", "platform status", "join csrs", "join expect", "reclaim status",
        "sandbox status",
    }  # fmt: skip
    for name, command in LISTS.items():
        flags = {flag for one in command.params for flag in one.opts}
        assert {"--watch", "-w", "--output", "-o", "--sort-by"} <= flags, name
    for name in ("metal hosts", "reclaim status", "hosts", "operations", "ingress status", "platform status"):
        assert {"--namespace", "-n", "-A"} <= {flag for one in LISTS[name].params for flag in one.opts}, name


@pytest.mark.parametrize("name", sorted(LISTS))
def test_sorting_by_no_column_names_those_there_are(name: str) -> None:
    with pytest.raises(typer.BadParameter, match="no column to sort by; these are: "):
        LISTS[name].make_context(name, ["--sort-by", "nonsense"])


@takes_view(PODS.words)
def nothing(view: View) -> View:
    return view


def test_the_command_gets_its_view() -> None:
    assert nothing(output=Output.WIDE, watch=True, sort_by="pod") == View(Output.WIDE, watch=True, sort_by="pod")


# -- colours and width


@pytest.mark.parametrize(
    ("terminal", "environment", "expected"),
    [
        (True, {}, True), (False, {}, False), (True, {"NO_COLOR": "1"}, False), (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)  # fmt: skip
def test_a_terminal_has_colours_a_pipe_and_no_color_have_none(
    terminal: bool, environment: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    assert has_colour() is expected


def test_a_state_is_coloured_and_its_columns_stay_aligned() -> None:
    columns = (Layout("state"), Layout("why"))
    rows = [(Cell("bad", Tone.BAD), "x"), (Cell("in service", Tone.GOOD), "y")]
    plain, coloured = fit(columns, rows, None), fit(columns, rows, None, colour=True)
    assert coloured[1] == "\x1b[31mbad\x1b[0m         x"
    assert plain[1] == "bad         x"


def test_what_a_cell_says_is_not_obeyed_and_stays_on_its_line() -> None:
    assert fit((Layout("why"),), [(Cell("a\x1b[2J\nb", Tone.BAD),)], None, colour=True)[1] == (
        "\x1b[31ma^[[2J b\x1b[0m"
    )  # fmt: skip


SENTENCE = "The PodDisruptionBudget team-a/budget allows no disruption now: 2 of 3 pods are healthy."
WIDE = (
    Layout("node", needed=True),
    Layout("vm", order=1),
    Layout("state", needed=True),
    Layout("why", order=9, least=28, needed=True, wrap=True),
)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_columns_are_dropped_before_a_word_is_broken(width: int) -> None:
    lines = fit(WIDE, [("worker-0001.example.org", "gpu-worker-0001", "draining", SENTENCE)], width)
    assert max(map(len, lines)) <= width
    words = {word for line in lines[1:] for word in line.split()}
    assert set(SENTENCE.split()) <= words, "no word was broken or lost"
    assert "worker-0001.example.org" in words
    assert ("gpu-worker-0001" in words) is (width >= 80)


def test_where_nothing_is_left_to_drop_the_widest_gives_way() -> None:
    lines = fit(WIDE, [("worker-0001.example.org", "gpu", "draining", SENTENCE)], 30)
    assert max(map(len, lines)) <= 30
