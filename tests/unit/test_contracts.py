"""Nothing that others rely on changes by accident, and nothing new stays out of the snapshot."""

from __future__ import annotations

import re
import shutil
from functools import cache
from typing import Any

import pytest

from tests.contracts.snapshot import FOLDER, SOURCE, TITLES, collect, differences, read_kept, write_text
from tests.contracts.source import UNKNOWN, Source
from tests.contracts.words import (
    answers_asked,
    collect_conditions,
    collect_events,
    collect_keys,
    collect_metrics,
    collect_routes,
    collect_words,
)


@cache
def source_now() -> Source:
    return Source(SOURCE)


@cache
def code_now() -> dict[str, Any]:
    return collect(source_now())


@pytest.mark.parametrize("name", TITLES)
def test_no_contract_changes_by_accident(name: str) -> None:
    told = differences(name, read_kept(name), write_text(name, code_now()[name]))
    assert not told, told


def test_every_snapshot_is_compared() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(TITLES) == set(code_now())


def test_a_difference_names_the_line_and_the_way_out() -> None:
    told = differences("keys", "a:\n- one\n- two\n", "a:\n- one\n- three\n")
    assert "\n-- two\n+- three\n" in told
    assert "run `make contracts`" in told
    assert differences("keys", "same\n", "same\n") == ""


ADDED = """
from hostler.host.conditions import Condition, Status

_OWN = "hostler.dev"
STRANGE = f"{_OWN}/strange"
OTHER, ANOTHER = "hostler.dev/other", _OWN + "/another"
STRANGE_FINALIZER = "strange.hostler.dev"


class Strange:
    def __init__(self, recorder, registry, server):
        Gauge("hostler_strange", "Strange.", ["how"], registry=registry)
        server.add_get("/v1/strange", None)
        self._recorder = recorder

    def act(self, node, bad):
        self._recorder.event(node, node.metadata, "Warning", "StrangeThing" if bad else "Fine", "Act", "note")
        for reason in ("HandedOver",):
            self.say(reason)
        return made("StrangeType", "StrangeReason")

    def say(self, reason):
        return Condition(type="StrangeType", status=Status.TRUE, reason=reason, message="")


def made(kind, why):
    return Condition(type=kind, status=Status.TRUE, reason=why, message="")
"""


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """The code with a module more, which has one of everything."""
    root = tmp_path_factory.mktemp("scratch")
    for package in ("host", "kube"):
        shutil.copytree(SOURCE / "hostler" / package, root / "hostler" / package)
    (root / "hostler/metal").mkdir()
    (root / "hostler/metal/strange.py").write_text(ADDED)
    return Source(root)


def test_a_key_is_found_however_it_is_written(changed: Source) -> None:
    keys = collect_keys(changed)
    assert {f"hostler.dev/{one}" for one in ("strange", "other", "another")} <= {
        *keys["annotations, labels, taints and resources"]
    }
    assert "strange.hostler.dev" in keys["finalizers"]


def test_conditions_and_events_are_found_through_helpers(changed: Source) -> None:
    assert "StrangeReason" in collect_conditions(changed)["StrangeType"]
    events = collect_events(changed)
    assert events["StrangeThing"] == events["Fine"] == ["Warning"]
    assert {"HandedOver", "StrangeReason", "StrangeThing", "StrangeType"} <= {*collect_words(changed)["metal"]}


def test_metrics_and_routes_are_found(changed: Source) -> None:
    assert collect_metrics(changed)["hostler_strange"] == {"type": "gauge", "labels": ["how"]}
    assert "GET /v1/strange" in collect_routes(changed)


def test_every_answer_of_the_read_api_has_its_schema() -> None:
    source = source_now()
    served = [
        one.removeprefix("GET /v1/").split("/")[0] for one in collect_routes(source) if one.startswith("GET /v1/")
    ]
    asked = [re.split("[/?]", path.removeprefix("/v1/"))[0] for path in answers_asked(source)]
    if UNKNOWN in asked:  # /v1/VERB/KIND/NAME of `explain` and `plan`
        asked += ["explain", "plan"]
    assert sorted(set(served) - set(asked)) == [], "the CLI asks for these nowhere, so their schema is not known"
    assert {"StatusAnswer", "Config", "Answer"} <= set(code_now()["answers"]["records"])


def test_every_metric_is_made_where_it_can_be_seen() -> None:
    hidden = [name for name, about in code_now()["metrics"].items() if isinstance(about, str)]
    assert not hidden, "these names look like metrics and are made by no plain call"
