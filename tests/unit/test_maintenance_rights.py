"""What our vCenter user may not do: what could not be started again, or not moved where it is to go, is not stopped."""

from __future__ import annotations

import pytest

from hostler.host.facts import Unknown
from hostler.maintenance.conditions import conditions_of
from hostler.maintenance.ledger import Ledger
from hostler.maintenance.model import POLICY, SHUTDOWN_SINCE, Attempts, PowerOff, Relocate, ShutDown, State
from hostler.maintenance.rights import MOVE, POOL, STOP, missing
from hostler.vsphere.records import Cluster
from tests.unit.maintenance_world import Play, fixed, pair
from tests.unit.test_maintenance_stories import alone


def test_only_what_is_needed_counts() -> None:
    assert missing((MOVE, POOL), moves=False) == ()
    assert missing((MOVE, POOL), moves=True) == (MOVE,)
    assert missing((MOVE, POOL), moves=True, pool=True) == (MOVE, POOL)
    assert missing(STOP, moves=False) == STOP


def test_what_may_not_be_moved_is_not_stopped() -> None:
    play = pair()
    play.note("a", lacks=(MOVE,))
    play.enter("esx1")
    found = play.run(20)
    one = found.decisions[0]
    assert (play.state("a"), play.done) == ("", [])
    assert one.blocked == f"privileges: our vCenter user lacks {MOVE}"
    assert "which is to move to esx2; it is not stopped" in one.why
    assert f"grant {MOVE} to its role, or set {POLICY}=wait" in one.next
    play.note("a", lacks=())
    play.run(40)
    assert play.in_service("a")
    assert play.vm("a").host == "host-esx2"


def test_what_it_holds_must_be_known_before_it_may_do_without_the_right() -> None:
    play = pair(devices=Unknown("not read"))
    play.note("a", lacks=(MOVE,))
    play.enter("esx1")
    one = play.run(5).decisions[0]
    assert (one.state, play.done) == (None, [])
    assert "which is to move to another host" in one.why


@pytest.mark.parametrize("how", ["wait", "fixed", "drs", "nowhere"])
def test_what_need_not_be_moved_by_us_is_stopped(how: str) -> None:
    """It waits for its own host, or DRS starts it elsewhere: neither takes the right to move a VM."""
    play = alone() if how == "nowhere" else pair(devices=(fixed(),)) if how == "fixed" else pair()
    if how == "wait":
        play = pair(annotations={POLICY: "wait"})
    if how == "drs":
        play.cluster("fullyAutomated")
    play.note("a", lacks=(MOVE, POOL))
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


@pytest.mark.parametrize("right", [MOVE, STOP[1]])
def test_a_right_that_goes_while_it_is_emptied_keeps_it_running(right: str) -> None:
    play = pair(pods=5)
    play.enter("esx1")
    while play.state("a") != "draining":
        play.tick()
    play.note("a", lacks=(right,))
    found = play.run(60)
    one = found.decisions[0]
    assert (play.state("a"), one.phase, play.did(ShutDown), play.did(PowerOff)) == ("draining", "waiting", [], [])
    (drain, *_) = conditions_of(play.nodes["a"], one)
    assert (drain.reason, right in drain.message) == ("Blocked", True)
    play.note("a", lacks=())
    play.run(30)
    assert play.in_service("a")


def test_written_down_but_never_asked_it_waits_for_the_right() -> None:
    """Killed between the note and the ask, and then the right is gone: nobody is asked before it is back."""
    play = pair()
    play.stubborn.add("a")
    play.enter("esx1")
    while "hostler.dev/guest-shutdown-since" not in play.nodes["a"].metadata.annotations:
        play.tick()
    play.remembered.clear()
    play.note("a", lacks=(STOP[1],))
    play.run(20)
    assert not play.did(ShutDown)
    assert not play.did(PowerOff)
    play.note("a", lacks=())
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
    play.note("a", lacks=(MOVE,))
    play.run(40)
    assert (play.state("a"), play.in_service("b")) == ("draining", True)


def test_off_already_it_is_not_moved_without_the_right_but_comes_back_with_its_host() -> None:
    play = alone()
    play.enter("esx1")
    play.run(12)
    assert play.state("a") == "powered-off"
    play.note("a", lacks=(MOVE,))
    play.host("esx2")
    found = play.run(5)
    assert found.decisions[0].blocked == f"privileges: lacks {MOVE}"
    assert not play.did(Relocate)
    play.leave("esx1")
    play.run(15)
    assert play.in_service("a")


def test_another_cluster_takes_the_right_to_its_pool() -> None:
    play = alone()
    play.policy = type(play.policy)(play.policy.drain, guest_shutdown=5.0, clusters=("spare",))
    play.put(Cluster, "domain-2", name="spare", pool="pool-2")
    play.host("esx9", cluster="domain-2")
    play.note("a", lacks=(POOL,))
    play.enter("esx1")
    found = play.run(5)
    assert found.decisions[0].state is None
    assert POOL in found.decisions[0].blocked
    play.note("a", lacks=())
    play.tick()
    assert play.decide().decisions[0].state is State.DRAINING


def test_its_own_host_will_do_where_it_may_not_be_moved() -> None:
    """One failed start makes its own host the last choice; without the right to move it is the only one."""
    play = pair()
    play.enter("esx1")
    while play.state("a") != "powered-off":
        play.tick()
    play.note("a", lacks=(MOVE,), power=Attempts(1, 0.0, "busy", None, ("host-esx1",)))
    play.leave("esx1")
    play.run(40)
    assert play.in_service("a")
    assert play.vm("a").host == "host-esx1"


def test_a_stop_that_was_only_written_down_keeps_nobody_waiting_without_the_right() -> None:
    play = pair()
    play.enter("esx1")
    while not play.nodes["a"].metadata.annotations.get(SHUTDOWN_SINCE):
        play.tick()
    known = play.world().subjects[0].remembered
    play.note("a", lacks=STOP, shutdown_asked="")
    assert known.lacks == ()
    assert Ledger(play.world(), play.policy, play.now).drains == ()
