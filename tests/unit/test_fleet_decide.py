"""The Fleet's status: what it says in each case, and that it is written only when it changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostler.apis.fleet import FleetSpec, FleetStatus
from hostler.fleet.controller import FleetController, effective_limit
from hostler.fleet.decide import CONDITIONS, CapabilityFacts, FleetFacts, decide_status
from hostler.host.conditions import Condition, Status
from hostler.host.holds import HOLDS
from hostler.host.taints import OUT_OF_SERVICE_BY
from hostler.kube.records import Metadata, Node
from hostler.safety.pause_state import PauseReason, PauseState, SeenPause

FACTS = FleetFacts(
    generation=3, pause=PauseState(PauseReason.NO_PAUSE, "Nothing is paused."), leader="pod-1", version="1",
    capabilities=(CapabilityFacts("holds", True, "It is always on."), CapabilityFacts("metal", False, "It is off.")),
    nodes=10, nodes_known=True, held=1, out=("n1",), ceiling=5, limit="50%, at least 2",
)  # fmt: skip
STOPPED = PauseState(PauseReason.PAUSE_EXISTS, "Paused.", (SeenPause("ada-1", "u1", 7, "ada", "fire"),))
UNREAD = PauseState(PauseReason.FORBIDDEN, "Cannot tell.")


def condition(facts: FleetFacts, type: str) -> Condition:
    return next(one for one in decide_status(facts, FleetStatus(), 0).conditions if one.type == type)


def test_all_is_well() -> None:
    status = decide_status(FACTS, FleetStatus(), 0)
    assert [(one.type, one.status.value) for one in status.conditions] == [
        ("Ready", "True"), ("Paused", "False"), ("IncumbentFound", "False"), ("CeilingReached", "False"),
    ]  # fmt: skip
    assert condition(FACTS, "Ready").message == "At work: holds."
    assert (
        condition(FACTS, "CeilingReached").message == "Allowed out of service by us: 5 of 10 nodes (50%, at least 2)."
    )
    assert status.counts.unavailable == 1
    assert [(one.name, one.enabled, one.writes) for one in status.capabilities] == [
        ("holds", True, True),
        ("metal", False, False),
    ]


def test_paused() -> None:
    facts = replace(FACTS, pause=STOPPED)
    paused = condition(facts, "Paused")
    assert (paused.status, paused.reason, paused.message) == (Status.TRUE, "PauseExists", "Paused.")
    assert [(one.name, one.uid) for one in decide_status(facts, FleetStatus(), 0).pauses] == [("ada-1", "u1")]
    assert (condition(facts, "Ready").status, condition(facts, "Ready").reason) == (Status.FALSE, "Paused")


def test_not_known_whether_paused() -> None:
    facts = replace(FACTS, pause=UNREAD)
    assert (condition(facts, "Paused").status, condition(facts, "Paused").reason) == (Status.UNKNOWN, "PausesForbidden")
    assert condition(facts, "Ready").reason == "PauseUnknown"


def test_an_incumbent_is_named_with_its_evidence() -> None:
    metal = CapabilityFacts("metal", True, "Named.", "The provider: runs.", "the provider", "The provider: runs.")
    facts = replace(FACTS, capabilities=(metal,))
    found = condition(facts, "IncumbentFound")
    assert found.status is Status.TRUE
    assert found.message == "metal only observes. The provider: runs."
    assert condition(facts, "Ready").message == "metal may not write. The provider: runs."
    status = decide_status(facts, FleetStatus(), 0)
    assert status.capabilities[0].incumbent == "the provider"
    assert status.capabilities[0].writes is False
    unknown = replace(metal, incumbent="", incumbent_why="", incumbent_unknown="Not known.")
    assert condition(replace(FACTS, capabilities=(unknown,)), "IncumbentFound").status is Status.UNKNOWN


def test_the_ceiling_is_reached() -> None:
    facts = replace(FACTS, out=("n3", "n1", "n2"), held=3, ceiling=3)
    reached = condition(facts, "CeilingReached")
    assert reached.status is Status.TRUE
    assert reached.message == (
        "3 out of service by us, allowed 3 of 10 nodes (50%, at least 2): n1, n2 and n3. No other is taken out."
    )
    assert condition(replace(FACTS, nodes_known=False), "CeilingReached").status is Status.UNKNOWN


def test_out_of_step_and_a_bad_limit_are_not_ready() -> None:
    assert condition(replace(FACTS, unready=("pods: forbidden",)), "Ready").reason == "NotInStep"
    assert condition(replace(FACTS, limit_problem="It is odd."), "Ready").message == "It is odd."


FACT_CHANGES: list[dict[str, Any]] = [
    {}, {"pause": STOPPED}, {"pause": UNREAD}, {"unready": ("x",)}, {"nodes_known": False},
    {"ceiling": 1}, {"limit_problem": "Odd."}, {"generation": 4}, {"leader": "pod-2"},
]  # fmt: skip


@given(st.lists(st.sampled_from(FACT_CHANGES), min_size=1, max_size=6))
def test_the_same_facts_give_the_same_status_and_times_change_only_with_a_status(changes: list[dict[str, Any]]) -> None:
    before, now = FleetStatus(), 1000.0
    for change in changes:
        facts = replace(FACTS, **change)
        status = decide_status(facts, before, now)
        assert decide_status(facts, status, now + 500) == status  # nothing to write
        assert [one.type for one in status.conditions] == list(CONDITIONS)
        for one in status.conditions:
            old = next((had for had in before.conditions if had.type == one.type), None)
            if old is not None and old.status == one.status:
                assert one.last_transition_time == old.last_transition_time
            assert one.reason
            assert one.message
        before, now = status, now + 60
        assert msgspec.convert(msgspec.to_builtins(status), FleetStatus) == status


def test_a_condition_of_an_older_version_is_dropped() -> None:
    old = FleetStatus(conditions=(Condition(type="Mood", status=Status.TRUE, reason="X"),))
    assert "Mood" not in {one.type for one in decide_status(FACTS, old, 0).conditions}


@pytest.mark.parametrize(
    ("fleet", "setting", "allowed"), [(None, "", 5), (None, "3", 3), (2, "3", 2), ("30%", "3", 3), (0, "", 0)]
)
def test_the_fleet_s_limit_wins_over_the_setting(fleet: int | str | None, setting: str, allowed: int) -> None:
    limit, problem = effective_limit(FleetSpec(max_unavailable=fleet), setting)
    assert limit.of(10) == allowed
    assert not problem


def test_a_limit_that_cannot_be_read_lets_nothing_go() -> None:
    limit, problem = effective_limit(FleetSpec(max_unavailable="half"), "")
    assert limit.of(10) == 0
    assert "'half'" in problem


def test_heartbeats_do_not_concern_the_status() -> None:
    node = Node(metadata=Metadata(name="n", resource_version="1"))
    beat = Node(metadata=Metadata(name="n", resource_version="2"))
    held = Node(metadata=Metadata(name="n", resource_version="3", annotations={HOLDS: "[]"}))
    rebooted = Node(metadata=Metadata(name="n", resource_version="3", annotations={OUT_OF_SERVICE_BY: "u1"}))
    assert not FleetController.concerns(node, beat)
    assert FleetController.concerns(node, held)
    assert FleetController.concerns(node, rebooted)
    assert FleetController.concerns(None, node)
    assert FleetController.concerns(node, None)
