"""Yes only where every fact is known, fresh and harmless."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from hostler.host.facts import Known, Unknown
from hostler.inventory.model import Holder
from hostler.inventory.safe_to_stop import (
    CANNOT_KNOW,
    MAX_AGE,
    Against,
    ControlPlane,
    StopAnswer,
    StopFacts,
    judge_stop,
)

NOW = 1000.0
SAFE = StopFacts(
    holders=Known((Holder("ann"),), NOW),
    pods=Known((), NOW),
    attachments=Known((), NOW),
    control_plane=Known(ControlPlane(3, 3, is_member=False), NOW),
    last_ingress_pods=Known((), NOW),
    own_leader=Known(False, NOW),
    running_vms=Known((), NOW),
)
FACTS = [field.name for field in fields(StopFacts) if field.name != "mid_steps"]


def test_yes_says_what_hostler_cannot_know() -> None:
    answer = judge_stop(SAFE, "ann", NOW)
    assert (answer.answer, answer.at, answer.reasons) == (StopAnswer.YES, NOW, ())
    assert CANNOT_KNOW in answer.why


@pytest.mark.parametrize(
    ("against", "change", "sentence"),
    [
        (Against.MID_STEP, {"mid_steps": ("metal: It is provisioned.",)},
         "A step is under way (metal: It is provisioned)."),
        (Against.HELD, {"holders": Known((Holder("ann"), Holder("bob")), NOW)}, "It is held by bob."),
        (Against.PODS, {"pods": Known(("a/b",), NOW)}, "1 pod would be stopped: a/b."),
        (Against.VOLUMES, {"attachments": Known(("pv-1", "pv-2"), NOW)},
         "2 volumes are still attached to it: pv-1 and pv-2."),
        (Against.QUORUM, {"control_plane": Known(ControlPlane(4, 2, is_member=True), NOW)},
         "Without it 2 of 4 control-plane nodes would be Ready, which is not more than half."),
        (Against.INGRESS, {"last_ingress_pods": Known(("default",), NOW)},
         "It runs the last ready pod of ingress default."),
        (Against.LEADER, {"own_leader": Known(True, NOW)},
         "Hostler's own leader runs on it; `hostler drain` hands over first."),
        (Against.RUNNING_VMS, {"running_vms": Known(("gpu-1",), NOW)}, "1 VM is running on it: gpu-1."),
    ],
)  # fmt: skip
def test_no_names_what_is_against_it(against: Against, change: dict[str, Any], sentence: str) -> None:
    answer = judge_stop(replace(SAFE, **change), "ann", NOW)
    assert (answer.answer, answer.why) == (StopAnswer.NO, sentence)
    assert [reason.against for reason in answer.reasons] == [against]


@pytest.mark.parametrize("fact", FACTS)
def test_a_missing_or_old_fact_is_never_a_yes(fact: str) -> None:
    nothing: Any = {fact: Unknown("the watch is down")}
    missing = judge_stop(replace(SAFE, **nothing), "ann", NOW)
    assert missing.answer is StopAnswer.UNKNOWN
    assert missing.why.endswith(": the watch is down.")
    assert judge_stop(SAFE, "ann", NOW + MAX_AGE).answer is StopAnswer.YES
    old = replace(getattr(SAFE, fact), at=NOW - 1)
    assert judge_stop(replace(SAFE, **{fact: old}), "ann", NOW + MAX_AGE).answer is StopAnswer.UNKNOWN


def test_an_objection_counts_more_than_a_missing_fact() -> None:
    facts = replace(SAFE, pods=Known(("a/b",), NOW), holders=Unknown("no rights"))
    answer = judge_stop(facts, "ann", NOW)
    assert answer.answer is StopAnswer.NO
    assert [reason.against for reason in answer.reasons] == [Against.PODS, Against.MISSING_FACT]


@pytest.mark.parametrize(
    ("members", "others_ready", "safe"), [(1, 0, False), (2, 1, False), (3, 2, True), (3, 1, False), (5, 3, True)]
)
def test_more_than_half_of_the_control_plane_must_stay(members: int, others_ready: int, safe: bool) -> None:
    plane = Known(ControlPlane(members, others_ready, is_member=True), NOW)
    assert (judge_stop(replace(SAFE, control_plane=plane), "ann", NOW).answer is StopAnswer.YES) is safe
