"""A hold of maintenance on a node without a state: released where all is well, else named with the command."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from hostler.capabilities import BY_NAME
from hostler.explain.doctor import Facts, Level, examine
from hostler.host.facts import Known, Unknown
from hostler.host.holds import HOLDS, Refusal, may_hold
from hostler.kube.events import Recorder
from hostler.maintenance.decision import Pass, PatchNode
from hostler.maintenance.status import EventReporter, MaintenanceMetrics
from tests.unit.maintenance_world import Play, pair
from tests.unit.maintenance_yard import UUIDS, Yard

OURS = '[{"holder":"maintenance","why":"w","since":"","cordonedBefore":false}]'
BEFORE = '[{"holder":"maintenance","why":"w","since":"","cordonedBefore":true}]'
MEND = "hostler release a --holder maintenance"


def held(holds: str = OURS) -> Play:
    play = pair(annotations={HOLDS: holds})
    cordon(play)
    return play


def cordon(play: Play) -> None:
    node = play.nodes["a"]
    play.nodes["a"] = msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, unschedulable=True))


def test_it_is_released_when_the_node_is_ready_by_fresh_evidence() -> None:
    play = held()
    first = play.tick()
    assert not first.decisions[0].blocked, "evidence is being gathered: nothing for a person to do"
    play.run(20)
    assert play.in_service("a")
    assert HOLDS not in play.nodes["a"].metadata.annotations
    assert [one.event for one in play.did(PatchNode)] == ["HoldReleased"]


def test_a_cordon_from_before_stays() -> None:
    play = held(BEFORE)
    play.run(20)
    assert HOLDS not in play.nodes["a"].metadata.annotations
    assert play.nodes["a"].spec.unschedulable


def test_a_hold_of_somebody_else_stays() -> None:
    play = held(OURS[:-1] + ',{"holder":"alice","why":"fan","since":"","cordonedBefore":false}]')
    play.run(20)
    assert "alice" in play.nodes["a"].metadata.annotations[HOLDS]
    assert play.nodes["a"].spec.unschedulable


@pytest.mark.parametrize("what", ["off", "not ready", "unknown"])
def test_where_that_is_not_sure_it_is_named_with_the_command(what: str) -> None:
    play = held()
    play.mute.add("a")
    if what == "off":
        play.off("a")
    elif what == "not ready":
        play.booting["a"] = float("inf")
        play.report("a", "False")
    else:
        play.unknown_site = "vCenter is away"
    events: list[tuple[str, str]] = []

    class Notes:
        def event(
            self, kind: Any, regarding: Any, type: str, reason: str, action: str, note: str, refusing: str = ""
        ) -> None:
            events.append((reason, note))

    teller = EventReporter(cast(Recorder, Notes()), MaintenanceMetrics(CollectorRegistry()))
    for _ in range(30):
        found = play.tick()
        world = play.world()
        teller.tell(world, teller.lasting(world, Pass(found.decisions), play.now))
    assert not play.done
    assert [reason for reason, _ in events] == ["StrayHold"], events
    assert MEND in events[0][1]
    assert what == "unknown" or MEND in play.decide().decisions[0].next


def test_its_host_goes_into_maintenance_and_it_goes_its_way() -> None:
    play = held()
    play.enter("esx1")
    play.run(40)
    assert play.in_service("a")
    assert play.vm("a").host == "host-esx2"


def test_such_a_node_is_looked_at_though_nothing_else_is_wrong() -> None:
    yard = Yard()
    yard.host()
    yard.vm("a", UUIDS[0])
    yard.node("a", UUIDS[0], labelled=False, annotations={HOLDS: OURS})
    yard.vm("b", UUIDS[1])
    yard.node("b", UUIDS[1])
    assert yard.seen() == ["a"]


def test_the_doctor_names_it() -> None:
    node = held().nodes["a"]
    facts = Facts(
        "1", Known("v1.30", 0.0), Known(True, 0.0), Known(True, 0.0), Unknown("no operator"), Known((node,), 0.0)
    )
    found = next(one for one in examine(facts, 0.0) if one.what == "node/a")
    assert found.level is Level.WARNING
    assert found.fix.endswith(MEND)


def test_nobody_holds_in_the_name_of_a_capability() -> None:
    assert all(isinstance(may_hold(name, BY_NAME), Refusal) for name in (*BY_NAME, " Maintenance"))
    assert may_hold("alice", BY_NAME) is None
