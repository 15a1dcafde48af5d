"""A pause is nobody's fault: no time that ran out in it leads to anything harsher when it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hostler.kube.clock import Steps
from hostler.maintenance.decision import CancelTask, Decision, Evictions, PatchNode, PowerOff, PowerOn, ShutDown
from hostler.maintenance.model import RELEASE_SECONDS, SHUTDOWN_SINCE, SINCE, Attempts
from hostler.vsphere.records import RELOCATE, Task
from tests.unit.maintenance_world import Play, pair

LONG = 310  # longer than any time of the policy that is looked at
both = pytest.mark.parametrize("restart", [False, True])


def entered(*, pods: int = 2, stubborn: bool = False) -> Play:
    play = pair(pods=pods)
    if stubborn:
        play.stubborn.add("a")
    play.enter("esx1")
    return play


def ticked(play: Play, what: Callable[[], Any]) -> Play:
    for _ in range(60):
        if what():
            return play
        play.tick()
    raise AssertionError("it never came to that")


def of(play: Play) -> Decision:
    one = play.decide().of("a")
    assert one is not None
    return one


@both
def test_the_pods_have_a_drains_time_anew(restart: bool) -> None:
    play = entered(pods=50)
    ticked(play, lambda: play.did(Evictions))
    asked, since = len(play.did(Evictions)), play.nodes["a"].metadata.annotations[SINCE]
    play.pause(LONG, restart)
    assert len(play.did(Evictions)) == asked, "nothing is done in a pause"
    play.stuck.add("a")
    play.run(29)
    assert len(play.did(Evictions)) > asked
    assert (play.did(ShutDown), play.nodes["a"].metadata.annotations.get(SHUTDOWN_SINCE)) == ([], None)
    play.run(5)
    assert play.did(ShutDown), "and no more than that"
    assert play.nodes["a"].metadata.annotations[SINCE] >= since


def test_what_is_said_of_the_deadline_is_true_after_a_pause() -> None:
    play = entered(pods=50)
    ticked(play, lambda: play.did(Evictions))
    play.stuck.add("a")
    before = of(play).wake
    play.pause(LONG)
    one = of(play)
    assert before is not None
    assert one.wake is not None
    assert (before < play.now, one.wake) == (True, play.resumed + 30.0)


@both
def test_a_drain_that_stood_still_before_the_pause_loses_nothing(restart: bool) -> None:
    play = entered(pods=50)
    play.run(12)
    play.lacks("a", "VirtualMachine.Interact.PowerOn")
    play.run(5)
    play.pause(LONG, restart)
    play.lacks("a")
    play.stuck.add("a")
    play.run(25)
    assert not play.did(ShutDown)
    play.run(10)
    assert play.did(ShutDown)


@both
def test_a_guest_in_its_shutdown_has_its_time_anew(restart: bool) -> None:
    play = entered(stubborn=True)
    ticked(play, lambda: play.did(ShutDown))
    play.pause(LONG, restart)
    play.run(4)
    assert not play.did(PowerOff)
    play.run(4)
    assert play.did(PowerOff)


def test_a_guest_that_could_not_be_asked_is_not_switched_off_for_it_at_once() -> None:
    play = entered(stubborn=True)
    ticked(play, lambda: play.nodes["a"].metadata.annotations.get(SHUTDOWN_SINCE))
    play.note("a", power=Attempts(3, play.now, "the host is away"))
    play.pause(LONG)
    one = of(play)
    assert not isinstance(one.action, PowerOff), one
    play.run(8)
    assert play.did(ShutDown), "it is asked first"


def test_a_guest_without_tools_that_may_have_been_asked_has_its_time() -> None:
    play = entered(stubborn=True)
    ticked(play, lambda: play.did(ShutDown))
    play.put(type(play.vm("a")), "vm-a", tools="guestToolsNotRunning")
    play.pause(LONG, restart=True)
    play.run(4)
    assert not play.did(PowerOff)
    play.run(4)
    assert play.did(PowerOff)


def set_forward(play: Play, seconds: float) -> None:
    """The clock of our machine is set by so much; nobody had that time."""
    steps = Steps(wall=lambda: play.now, ticks=lambda: 0.0)
    play.now += seconds
    play.resumed = steps.last(play.now)


def test_a_clock_set_forward_ends_no_drain_early() -> None:
    play = entered(pods=50)
    ticked(play, lambda: play.did(Evictions))
    play.stuck.add("a")
    set_forward(play, 3600.0)
    play.run(29)
    assert not play.did(ShutDown), "its pods had no hour to go"
    play.run(5)
    assert play.did(ShutDown)


def test_a_clock_set_forward_switches_no_guest_off() -> None:
    play = entered(stubborn=True)
    ticked(play, lambda: play.did(ShutDown))
    set_forward(play, 3600.0)
    play.run(4)
    assert not play.did(PowerOff)
    play.run(4)
    assert play.did(PowerOff)


def test_a_move_has_its_time_anew() -> None:
    play = entered()
    ticked(play, lambda: play.state("a") == "powered-off" and "hostler.dev/relocate-since" in of_node(play))
    play.put(Task, "task-move", kind=RELOCATE, state="running", entity="vm-a")
    play.policy = replace(play.policy, relocate=10.0)
    play.pause(LONG)
    play.run(9)
    assert not play.did(CancelTask)
    play.run(3)
    assert play.did(CancelTask)


def of_node(play: Play) -> dict[str, str]:
    return play.nodes["a"].metadata.annotations


def test_what_a_stopped_machine_holds_is_let_go_before_it_starts_elsewhere() -> None:
    play = entered(pods=3)
    play.stuck.add("a")
    ticked(play, lambda: play.state("a") == "powered-off")
    play.done.clear()
    play.pause(int(RELEASE_SECONDS) * 2)
    ticked(play, lambda: play.did(PowerOn))
    assert [one.event for one in play.did(PatchNode)][:1] == ["OutOfService"], "before anything else"


def test_nobody_is_called_late_for_a_pause() -> None:
    play = entered()
    play.mute.add("a")
    ticked(play, lambda: play.state("a") == "migrated")
    play.pause(LONG)
    assert not of(play).overdue
    play.run(int(play.policy.power_on) + 1)
    assert of(play).overdue
