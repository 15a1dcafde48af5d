"""Durations as people write them, in settings and flags."""

from __future__ import annotations

import re

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from hostler.capabilities import SETTINGS
from hostler.cli.flags import duration
from hostler.durations import PATTERN, seconds_of, short
from hostler.settings.readers import rate, seconds, whole_seconds


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("90", 90), ("0.5", 0.5), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("1h5s", 3605), ("7d", 604800),
        ("1d2h3m4s", 93784), (" 10m ", 600), ("90m", 5400),
    ],
)  # fmt: skip
def test_a_duration_is_plain_seconds_or_units(text: str, means: float) -> None:
    assert seconds_of(text) == means


@pytest.mark.parametrize(
    "text", ["", "m", "10 m", "30m1h", "1h1h", "1.5h", "-1m", "1e3", "inf", "1h30", "10M", "1w", "1h 30m", "٣m"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        seconds_of(text)


@given(st.integers(0, 30 * 86400 * 10))
def test_a_duration_is_read_from_its_shortest_spelling(tenths: int) -> None:
    assert seconds_of(short(tenths / 10)) == tenths / 10


@given(st.text("0123456789dhms.", max_size=12))
def test_the_pattern_of_the_schema_is_what_is_read(text: str) -> None:
    try:
        seconds_of(text)
    except ValueError:
        assert not re.fullmatch(PATTERN, text)
    else:
        assert re.fullmatch(PATTERN, text)


def test_every_setting_of_seconds_takes_units() -> None:
    timed = [one for one in SETTINGS if one.name.endswith("_SECONDS")]
    assert len(timed) > 10
    for setting in timed:
        assert setting.reader.read("60s") == setting.reader.read("1m") == 60, setting.name


def test_a_whole_number_of_seconds_stays_one() -> None:
    assert whole_seconds(2, 3600).read("1m") == 60
    for reader, wrong in ((whole_seconds(2, 3600), "2.5"), (whole_seconds(2, 3600), "2h"), (seconds(1), "0s")):
        with pytest.raises(ValueError, match=r"^$"):
            reader.read(wrong)


def test_a_rate_is_no_duration() -> None:
    with pytest.raises(ValueError, match=r"^$"):
        rate(0, 1000).read("1m")


def test_a_flag_says_what_it_takes() -> None:
    read = duration(1, 7 * 86400)
    assert (read("90m"), read(5.0)) == (5400, 5)
    for wrong, said in (("soon", "'soon' is no duration"), ("0", "0 is not from 1s to 7d"), ("8d", "8d is not from")):
        with pytest.raises(typer.BadParameter, match=said):
            read(wrong)
