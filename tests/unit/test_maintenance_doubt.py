"""What may be relied on: a fact that is not known, a time nobody can read, a machine that somebody is starting."""

from __future__ import annotations

import msgspec
import pytest

from hostler.host.facts import Unknown
from hostler.maintenance.decision import PowerOff, Relocate, ShutDown
from hostler.maintenance.model import DRAIN_HELD, POLICY, POWER_ON_SINCE, RELOCATE_SINCE, SHUTDOWN_SINCE
from hostler.vsphere.records import NOT_SAID, POWER_ON, Cluster, Task, Vm
from tests.unit.maintenance_world import Play, pair
from tests.unit.test_maintenance_stories import alone, seen

SECRET = Unknown("vCenter would not tell")


def entered(play: Play, state: str) -> Play:
    play.enter("esx1")
    while play.state("a") != state:
        play.tick()
    return play


def annotate(play: Play, **annotations: str) -> None:
    node = play.nodes["a"]
    metadata = msgspec.structs.replace(node.metadata, annotations={**node.metadata.annotations, **annotations})
    play.nodes["a"] = msgspec.structs.replace(node, metadata=metadata)


# -- what the VM holds, and what DRS does


@pytest.mark.parametrize("moment", ["emptying", "noted", "asked"])
def test_what_it_holds_holds_back_no_stop_and_it_waits_for_its_own_host(moment: str) -> None:
    """It runs on its own host, so that can start it again; not knowing its devices is a doubt that is told."""
    play = pair(pods=5)
    play.stubborn.add("a")
    entered(play, "draining")
    while moment == "noted" and not play.nodes["a"].metadata.annotations.get(SHUTDOWN_SINCE):
        play.tick()
    while moment == "asked" and not play.did(ShutDown):
        play.tick()
    play.put(Vm, "vm-a", devices=SECRET)
    assert play.decide().decisions[0].doubt == "esx1 may refuse it: its devices are unknown: vCenter would not tell"
    play.run(40)
    assert (play.state("a"), len(play.did(PowerOff)), play.did(Relocate)) == ("powered-off", 1, [])
    play.leave("esx1")
    play.run(20)
    assert play.in_service("a")
    assert play.vm("a").host == "host-esx1"


def test_a_vm_is_not_moved_where_nobody_knows_whether_drs_places_it() -> None:
    """It goes on when that is known, or with its own host."""
    for ends in ("known", "host"):
        play = entered(pair(), "powered-off")
        play.put(Cluster, "domain-1", drs_enabled=NOT_SAID)
        one = play.run(10).decisions[0]
        assert (play.did(Relocate), one.unknown) == ([], True), one
        assert "cannot tell whether DRS places VM a" in one.why
        if ends == "known":
            play.cluster("off")
        else:
            play.leave("esx1")
        play.run(25)
        assert play.in_service("a")
        assert play.vm("a").host == ("host-esx2" if ends == "known" else "host-esx1")


# -- times that nobody can read


@pytest.mark.parametrize("name", [SHUTDOWN_SINCE, DRAIN_HELD])
def test_a_time_that_nobody_can_read_begins_anew(name: str) -> None:
    """Somebody edited it: it neither ends at once nor never."""
    play = pair(pods=3)
    play.stubborn.add("a")
    entered(play, "draining")
    while not play.did(ShutDown):
        play.tick()
    annotate(play, **{name: "soon"})
    play.forget()
    asked = len(play.did(ShutDown))
    play.run(4)
    assert not play.did(PowerOff), "it has its time"
    assert play.nodes["a"].metadata.annotations.get(name) != "soon"
    play.run(30)
    assert len(play.did(PowerOff)) == 1
    assert len(play.did(ShutDown)) <= asked + 1
    assert play.in_service("a")


def test_a_guest_that_was_asked_nobody_knows_when_is_not_given_back_before_its_time() -> None:
    """Its maintenance is cancelled, and the note of its stop cannot be read: it may still go off."""
    play = pair()
    play.stubborn.add("a")
    entered(play, "draining")
    while not play.did(ShutDown):
        play.tick()
    annotate(play, **{SHUTDOWN_SINCE: "soon"})
    play.cancel("esx1")
    play.run(int(play.policy.guest_shutdown))
    assert play.state("a") == "draining"
    play.run(20)
    assert play.in_service("a")


@pytest.mark.parametrize("name", [POWER_ON_SINCE, RELOCATE_SINCE])
def test_a_start_that_nobody_knows_the_time_of_goes_on(name: str) -> None:
    play = entered(pair(), "powered-off")
    annotate(play, **{name: "soon"})
    play.run(25)
    assert play.in_service("a")
    assert len(play.did(Relocate)) == 1


@pytest.mark.parametrize("restart", [False, True])
def test_a_stop_that_is_only_written_down_does_not_overrule_the_owner_who_says_ignore(restart: bool) -> None:
    """Nobody was asked, or that is not known: it is not asked now, and given back when it surely goes on running."""
    play = pair()
    play.stubborn.add("a")
    entered(play, "draining")
    while not play.nodes["a"].metadata.annotations.get(SHUTDOWN_SINCE):
        play.tick()
    annotate(play, **{POLICY: "ignore"})
    if restart:
        play.forget()
    play.run(int(play.policy.guest_shutdown))
    assert play.state("a") == "draining"
    play.run(20)
    assert (play.did(ShutDown), play.did(PowerOff)) == ([], [])
    assert (play.state("a"), play.nodes["a"].spec.unschedulable) == ("", False)


# -- nothing is called out of service that somebody starts


def test_what_is_being_powered_on_is_not_called_out_of_service() -> None:
    """vCenter says off until the task ends; its pods would be let go under a machine that runs."""
    play = alone()
    play.stuck.add("a")
    play.enter("esx1")
    while play.vm("a").power == "poweredOn":
        play.tick()
    play.put(Task, "task-on", kind=POWER_ON, state="running", entity="vm-a")
    one = play.run(10).decisions[0]
    assert (play.state("a"), "OutOfService" in seen(play)) == ("powered-off", False)
    assert "is being powered on" in one.why
    play.put(Task, "task-on", state="error")
    play.run(5)
    assert "OutOfService" in seen(play)
