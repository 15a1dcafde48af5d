"""What our vCenter user may not do: what could not be started again, or not moved where it is to go, is not stopped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hostler.host.facts import Known, Unknown
from hostler.maintenance.decide import decide
from hostler.maintenance.decision import Blocked, BlockedBy, Evictions, PatchNode, Phase, PowerOff, Relocate, ShutDown
from hostler.maintenance.model import (
    DRAIN_HELD,
    POLICY,
    SHUTDOWN_SINCE,
    SINCE,
    TARGET,
    Attempts,
    Busy,
    Lacks,
    Need,
    State,
    Unanswered,
)
from hostler.maintenance.placement import MOVE, POOL, STOP, Judged, judge_rights, moves_of, needs_of
from hostler.maintenance.status import conditions_of
from hostler.maintenance.view import Reservations
from hostler.vsphere.records import Cluster, Vm
from tests.unit.maintenance_world import NOW, Play, fixed, pair
from tests.unit.test_maintenance_stories import alone

VM = Vm("vm-a", "a")
SPARE = Cluster("domain-2", "spare", pool="pool-2")


def judged(needs: tuple[Need, ...], lacks: tuple[str, ...], pool: tuple[str, ...] = ()) -> str:
    rights: dict[tuple[str, str], Lacks] = {("vc", "vm-a"): Known(lacks, NOW), ("vc", "pool-2"): Known(pool, NOW)}
    return str(judge_rights(needs, rights, "vc", NOW))


def test_only_what_is_needed_counts_and_on_its_own_object() -> None:
    assert judged(needs_of(VM), (MOVE, POOL)) == ""
    assert judged(moves_of(VM), (MOVE, POOL)) == f"{MOVE} on VM a"
    assert judged(moves_of(VM, SPARE), (POOL,)) == "", "that right is needed on the pool, not on the VM"
    assert judged(moves_of(VM, SPARE), (MOVE,), (POOL,)) == (
        f"{MOVE} on VM a, and {POOL} on the resource pool of cluster spare"
    )
    assert judged(needs_of(VM), STOP) == f"{STOP[0]} and {STOP[1]} on VM a"


def test_that_all_is_well_must_have_been_looked_at_lately_what_is_lacking_counts_anyhow() -> None:
    needs = moves_of(VM)
    assert judge_rights(needs, {}, "vc", NOW) == Judged(unseen="VM a")
    old: dict[tuple[str, str], Lacks] = {("vc", "vm-a"): Known((), NOW - 100)}
    assert not judge_rights(needs, old, "vc", NOW).within(100, NOW).unseen
    assert judge_rights(needs, old, "vc", NOW).within(60, NOW) == Judged(unseen="VM a")
    old[("vc", "vm-a")] = Known((MOVE,), NOW - 100)
    assert judge_rights(needs, old, "vc", NOW).within(60, NOW).lacking
    assert "it would not say" in judge_rights(needs, {("vc", "vm-a"): Unknown("it would not say")}, "vc", NOW).unknown


def other_cluster() -> Play:
    """One worker without a free device in its own cluster, and one in another that is allowed."""
    play = alone()
    play.policy = replace(play.policy, clusters=("spare",))
    play.put(Cluster, "domain-2", name="spare", pool="pool-2")
    play.host("esx9", cluster="domain-2")
    return play


@pytest.mark.parametrize("right", STOP)
def test_each_right_that_is_missing_keeps_a_node_from_being_touched_and_is_named_with_its_object(right: str) -> None:
    play = pair()
    play.rights["vm-a"] = (right,)
    play.enter("esx1")
    one = play.run(20).decisions[0]
    where = "VM a"
    assert (play.state("a"), play.nodes["a"].spec.unschedulable, play.done) == ("", False, [])
    assert f"our vCenter user lacks {right} on {where}" in one.why
    assert one.next.startswith(f"grant {right} on {where}")
    assert one.blocked == Blocked(BlockedBy.PRIVILEGES, f"{right} on {where}")
    play.rights.clear()
    play.run(40)
    assert play.in_service("a")


@pytest.mark.parametrize("how", ["unseen", "stale", "unknown"])
def test_rights_that_are_not_known_now_keep_pods_and_machine(how: str) -> None:
    """Cordoned on what was known; before anything is evicted or stopped it is looked at again."""
    play = pair()
    play.enter("esx1")
    play.tick()
    assert play.state("a") == "draining"
    play.rights["vm-a"] = {"unseen": None, "stale": Known((), play.now - 61), "unknown": Unknown("no answer")}[how]
    one = play.run(50).decisions[0]
    assert (play.did(Evictions), play.did(ShutDown), play.did(PowerOff)) == ([], [], [])
    assert "with VM a: no answer" in one.why if how == "unknown" else "is being asked" in one.why
    play.rights.clear()
    play.run(40)
    assert play.in_service("a")


@pytest.mark.parametrize("hold", [False, True])
def test_rights_that_vcenter_will_not_tell_hold_for_a_minute_or_as_long_as_set(hold: bool) -> None:
    """The predecessor never asked: a question that is refused must not freeze every node for ever."""
    play = pair()
    play.policy = replace(play.policy, unknown_rights_hold=hold)
    play.rights["vm-a"] = Unanswered("no answer", play.now)
    play.enter("esx1")
    one = play.run(58).decisions[0]
    assert (play.done, one.unknown) == ([], True)
    assert "cannot tell what our vCenter user may do with VM a: no answer" in one.why
    play.run(60)
    assert play.in_service("a") is True
    assert bool(play.did(ShutDown)) is not hold
    assert play.vm("a").host == ("host-esx1" if hold else "host-esx2")


@pytest.mark.parametrize("lacks", [(STOP[1],), Unanswered("no answer", NOW + 1000)])
def test_what_is_lacking_or_unanswered_only_since_now_still_holds(lacks: Any) -> None:
    play = other_cluster()
    play.rights["vm-a"], play.rights["pool-2"] = lacks, Unanswered("no answer", play.now)
    play.enter("esx1")
    play.run(100)
    assert (play.state("a"), play.did(Evictions)) == ("", [])


def test_a_guest_that_did_not_go_off_is_not_switched_off_without_the_right_to_start_it_again() -> None:
    play = pair()
    play.stubborn.add("a")
    play.enter("esx1")
    while not play.did(ShutDown):
        play.tick()
    play.lacks("a", STOP[1])
    one = play.run(60).decisions[0]
    assert not play.did(PowerOff)
    assert f"lacks {STOP[1]} on VM a" in one.why
    assert Reservations(play.world(), play.policy, play.now).drains == (), "and it keeps nobody waiting"
    play.lacks("a")
    play.run(30)
    assert play.in_service("a")


def test_a_node_that_may_not_be_stopped_gives_its_slot_back() -> None:
    """a was first and cannot go on; b is next."""
    play = other_cluster()
    play.worker("b", "esx1", pods=4, annotations={POLICY: "wait"})
    play.pods["a"] = 30
    play.enter("esx1")
    play.run(4)
    assert (play.state("a"), play.state("b")) == ("draining", "")
    play.lacks("a", STOP[1])
    assert Reservations(play.world(), play.policy, play.now).drains == ()
    play.run(20)
    assert play.state("b") == "powered-off"
    assert (play.state("a"), play.did(ShutDown, "a")) == ("draining", [])
    play.rights.clear()
    play.run(60)
    assert play.in_service("a")


@pytest.mark.parametrize("right", [MOVE, POOL])
def test_what_may_not_be_moved_is_stopped_with_a_doubt_and_waits_for_its_own_host(right: str) -> None:
    """It runs on its own host now, so that can start it again: a right to move it holds back no stop."""
    play = other_cluster() if right == POOL else pair()
    play.rights["pool-2" if right == POOL else "vm-a"] = (right,)
    play.enter("esx1")
    one = play.decide().decisions[0]
    where = "the resource pool of cluster spare" if right == POOL else "VM a"
    assert one.doubt == ("" if right == POOL else f"it cannot move, because our vCenter user lacks {MOVE} on VM a")
    found = play.run(20)
    assert (play.state("a"), play.did(Relocate)) == ("powered-off", [])
    assert TARGET not in play.nodes["a"].metadata.annotations, "no device is reserved that it cannot have"
    assert found.decisions[0].blocked == Blocked(BlockedBy.PRIVILEGES, f"{right} on {where}")
    assert f"grant {right} on {where}, or esx1 leaves maintenance" in found.decisions[0].next
    play.leave("esx1")
    play.run(20)
    assert play.in_service("a")
    assert play.vm("a").host == "host-esx1"


def test_only_what_is_proven_is_stopped_where_a_setting_wants_it() -> None:
    play = pair()
    play.policy = replace(play.policy, only_proven=True)
    play.lacks("a", MOVE)
    play.enter("esx1")
    one = play.run(20).decisions[0]
    assert (play.state("a"), play.done) == ("", [])
    assert one.blocked is not None
    assert one.blocked.by is BlockedBy.NO_RESTART
    assert one.blocked.text.startswith("it cannot move, because our vCenter user lacks")
    assert "HOSTLER_MAINTENANCE_STOP_ONLY_PROVEN=false" in one.next
    play.rights.clear()
    play.run(40)
    assert play.in_service("a")
    assert play.vm("a").host == "host-esx2"


@pytest.mark.parametrize("how", ["wait", "fixed", "drs", "nowhere"])
def test_what_need_not_be_moved_by_us_is_stopped(how: str) -> None:
    """It waits for its own host, or DRS starts it elsewhere: neither takes the right to move a VM."""
    play = alone() if how == "nowhere" else pair(devices=(fixed(),)) if how == "fixed" else pair()
    if how == "wait":
        play = pair(annotations={POLICY: "wait"})
    if how == "drs":
        play.cluster("fullyAutomated")
    play.lacks("a", MOVE, POOL)
    play.enter("esx1")
    play.run(30)
    if how == "drs":
        assert play.in_service("a")
        return
    assert play.state("a") == "powered-off"
    play.leave("esx1")
    play.run(20)
    assert play.in_service("a")
    assert play.vm("a").host == "host-esx1"


def test_a_right_that_goes_while_it_is_emptied_keeps_it_running() -> None:
    right = STOP[1]
    play = pair(pods=5)
    play.enter("esx1")
    while play.state("a") != "draining":
        play.tick()
    play.lacks("a", right)
    found = play.run(60)
    one = found.decisions[0]
    assert (play.state("a"), one.phase, play.did(ShutDown), play.did(PowerOff)) == ("draining", Phase.WAITING, [], [])
    (drain, *_) = conditions_of(play.nodes["a"], one)
    assert (drain.reason, right in drain.message) == ("Blocked", True)
    play.lacks("a")
    play.run(30)
    assert play.in_service("a")


def test_written_down_but_never_asked_it_waits_for_the_right() -> None:
    """Killed between the note and the ask, and then the right is gone: nobody is asked before it is back."""
    play = pair()
    play.stubborn.add("a")
    play.enter("esx1")
    while "hostler.dev/guest-shutdown-since" not in play.nodes["a"].metadata.annotations:
        play.tick()
    play.forget()
    play.lacks("a", STOP[1])
    play.run(20)
    assert not play.did(ShutDown)
    assert not play.did(PowerOff)
    play.lacks("a")
    play.run(30)
    assert play.in_service("a")


def test_it_keeps_nobody_else_waiting() -> None:
    play = Play()
    play.cluster()
    play.host("esx1", 2)
    play.host("esx2", 2)
    for name in "ab":
        play.worker(name, "esx1", pods=4)
    play.enter("esx1")
    while play.state("a") != "draining":
        play.tick()
    play.lacks("a", STOP[1])
    play.run(40)
    assert (play.state("a"), play.in_service("b")) == ("draining", True)


def test_off_already_it_is_not_moved_without_the_right_but_comes_back_with_its_host() -> None:
    play = alone()
    play.enter("esx1")
    play.run(12)
    assert play.state("a") == "powered-off"
    play.lacks("a", MOVE)
    play.host("esx2")
    found = play.run(5)
    assert found.decisions[0].blocked == Blocked(BlockedBy.PRIVILEGES, f"{MOVE} on VM a")
    assert not play.did(Relocate)
    play.leave("esx1")
    play.run(15)
    assert play.in_service("a")


def test_its_own_host_will_do_where_it_may_not_be_moved() -> None:
    """One failed start makes its own host the last choice; without the right to move it is the only one."""
    play = pair()
    play.enter("esx1")
    while play.state("a") != "powered-off":
        play.tick()
    play.lacks("a", MOVE)
    play.note("a", power=Attempts(1, 0.0, "busy", None, ("host-esx1",)))
    play.leave("esx1")
    play.run(40)
    assert play.in_service("a")
    assert play.vm("a").host == "host-esx1"


def test_a_stop_that_was_only_written_down_keeps_nobody_waiting_without_the_right() -> None:
    play = pair()
    play.enter("esx1")
    while not play.nodes["a"].metadata.annotations.get(SHUTDOWN_SINCE):
        play.tick()
    play.lacks("a", *STOP)
    assert Reservations(play.world(), play.policy, play.now).drains == ()


@pytest.mark.parametrize("how", ["lacking", "unknown", "stale"])
def test_the_drains_clock_stands_still_while_nothing_may_be_evicted(how: str) -> None:
    """Far past the deadline the right is back: the pods are asked to go, and have all the time that is left."""
    play = pair(pods=20)
    play.enter("esx1")
    play.run(12)  # so long this process knows it
    asked, since = len(play.did(Evictions)), play.nodes["a"].metadata.annotations[SINCE]
    stale = Known((), play.now - 61)
    play.rights["vm-a"] = {"lacking": (STOP[1],), "unknown": Unknown("no answer"), "stale": stale}[how]
    play.run(50)
    play.forget()
    play.run(50)
    assert len(play.did(Evictions)) == asked
    play.rights.clear()
    play.run(8)
    assert (len(play.did(Evictions)) > asked, play.did(ShutDown)) == (True, [])
    assert play.nodes["a"].metadata.annotations[SINCE] > since
    assert DRAIN_HELD not in play.nodes["a"].metadata.annotations
    play.stuck.add("a")
    play.run(30)
    assert play.did(ShutDown), "what was spent with evictions stays spent: no whole time anew"
    play.run(40)
    assert play.in_service("a")


def test_time_that_was_spent_with_evictions_is_not_given_again() -> None:
    """The deadline had passed when the right went: nothing is emptied anew when it is back."""
    play = pair()
    play.stuck.add("a")
    play.enter("esx1")
    play.run(29)
    play.lacks("a", STOP[1])
    play.run(100)
    play.lacks("a")
    play.run(8)
    assert play.did(ShutDown)


def test_the_clock_stands_still_while_it_waits_for_a_slot() -> None:
    play = Play()
    play.cluster()
    play.host("esx1", 2)
    play.host("esx2", 2)
    for name in "ab":
        play.worker(name, "esx1", pods=6)
    play.policy = replace(play.policy, max_drains=2)
    play.enter("esx1")
    play.run(3)
    assert (play.state("a"), play.state("b")) == ("draining", "draining")
    play.policy = replace(play.policy, max_drains=1)
    play.stuck.add("a")
    play.pods["b"] = 9
    while play.state("a") == "draining":
        assert not play.did(ShutDown, "b"), "out of time, and nobody asked its pods"
        play.tick()
    play.run(40)
    assert play.in_service("b")
    events = [one.event for one in play.did(PatchNode, "b")]
    assert "DrainTimeout" not in events
    assert "DrainGoesOn" in events


def test_a_bug_that_shows_where_one_node_is_to_go_does_not_end_the_pass() -> None:
    play = Play()
    play.cluster()
    play.host("esx1", 2)
    play.host("esx2", 2)
    for name in "ab":
        play.worker(name, "esx1", pods=4)
    play.policy = replace(play.policy, max_drains=2, clusters=("spare",))
    play.enter("esx1")
    play.run(3)
    assert (play.state("a"), play.state("b")) == ("draining", "draining")
    play.put(Vm, "vm-a", datastores=4)  # as nothing that decodes it would write it
    a, b = play.decide().decisions
    assert isinstance(a.bug, TypeError)
    assert (b.bug, isinstance(b.action, Evictions)) == (None, True)
    assert Reservations(play.world(), play.policy, play.now).drains == ("b",)
    world = play.world()
    busy = tuple(replace(one, busy=Busy(State.DRAINING)) for one in world.subjects)
    a, b = decide(replace(world, subjects=busy), play.policy, play.now).decisions
    assert (a.phase, isinstance(a.bug, TypeError), b.bug) == (Phase.AT_WORK, True, None), (
        "also what only the count shows"
    )


def test_it_goes_to_the_first_host_where_it_may() -> None:
    """The best host is in a cluster whose pool our user may not put VMs into; the next best will do."""
    play = other_cluster()
    play.policy = replace(play.policy, clusters=("spare", "third"))
    play.put(Cluster, "domain-3", name="third", pool="pool-3")
    play.host("esxa", cluster="domain-3")
    play.enter("esx1")
    play.tick()
    assert play.nodes["a"].metadata.annotations[TARGET] == "esx9", "the best, while nothing is lacking"
    play.rights["pool-2"] = (POOL,)
    play.run(40)
    assert play.in_service("a")
    assert play.vm("a").host == "host-esxa"


def test_off_already_it_goes_to_the_first_host_where_it_may() -> None:
    play = alone()
    play.policy = replace(play.policy, clusters=("spare", "third"))
    play.enter("esx1")
    play.run(12)
    assert play.state("a") == "powered-off"
    play.rights["pool-2"] = (POOL,)
    for cluster, pool, host in (("spare", "pool-2", "esx9"), ("third", "pool-3", "esxa")):
        play.put(Cluster, f"domain-{cluster}", name=cluster, pool=pool)
        play.host(host, cluster=f"domain-{cluster}")
    play.run(15)
    assert play.in_service("a")
    assert play.vm("a").host == "host-esxa"
