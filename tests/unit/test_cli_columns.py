"""A table fits its terminal: one line a row, the least telling columns cut first."""

from __future__ import annotations

import pytest

from hostler.cli.columns import Column, fit

COLUMNS = [
    Column("name", 3, 6, needed=True), Column("where", 1, 5, keep_end=True), Column("held by", 2, 7),
    Column("why", 4, 12, needed=True),
]  # fmt: skip
ROWS = [
    ["worker-0001", "vc/compute/esx-1", "", "It is Ready and takes pods."],
    ["worker-0002", "vc/compute/esx-22", "", "Its kubelet does not report."],
]


def test_in_a_pipe_nothing_is_cut_and_empty_columns_are_left_out() -> None:
    assert fit(COLUMNS, ROWS, None) == [
        "NAME         WHERE              WHY",
        "worker-0001  vc/compute/esx-1   It is Ready and takes pods.",
        "worker-0002  vc/compute/esx-22  Its kubelet does not report.",
    ]


def test_the_widest_gives_way_first_and_is_cut_before_a_word() -> None:
    assert fit(COLUMNS, ROWS, 50) == [
        "NAME         WHERE              WHY",
        "worker-0001  vc/compute/esx-1   It is Ready and…",
        "worker-0002  vc/compute/esx-22  Its kubelet does…",
    ]


def test_a_place_keeps_its_end_from_a_slash_on() -> None:
    assert fit(COLUMNS, ROWS, 42)[2].split("  ")[1].strip() == "…/esx-22"


@pytest.mark.parametrize("width", [20, 30, 40, 50, 60, 80, 120, 200])
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    lines = fit(COLUMNS, ROWS, width)
    assert max(map(len, lines)) <= width
    assert len(lines) == 3


def test_name_and_reason_stay_when_all_others_are_left_out() -> None:
    assert fit(COLUMNS, ROWS, 20) == ["NAME    WHY", "worke…  It is Ready…", "worke…  Its kubelet…"]
