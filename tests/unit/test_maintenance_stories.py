"""Whole maintenances in the small world: every row of the transition table, and where each rule bites."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from hostler.host.conditions import Status
from hostler.host.facts import Unknown
from hostler.host.holds import HOLDS
from hostler.kube.records import NodeSpec
from hostler.maintenance.decision import (
    Blocked,
    BlockedBy,
    CancelTask,
    Decision,
    Evictions,
    PatchNode,
    Phase,
    PowerOff,
    PowerOn,
    Relocate,
    ShutDown,
)
from hostler.maintenance.model import (
    BOOT_BEFORE,
    HOST,
    LATE_STOP_SECONDS,
    MIGRATED_TO,
    POLICY,
    RELEASE_SECONDS,
    SHUTDOWN_SINCE,
    SINCE,
    STATE,
    TARGET,
    TRANSITIONS,
    Mark,
    Marked,
    State,
    read_mark,
)
from hostler.maintenance.status import conditions_of
from hostler.vsphere.decode import Change
from hostler.vsphere.inventory import Batch
from hostler.vsphere.records import RELOCATE, Backing, Host, Task, Unread, Vm, VmDevice
from tests.unit.maintenance_world import NOW, Play, blocked_text, fixed, pair


def seen(play: Play) -> list[str]:
    """The events of the Nodes, in order."""
    return [action.event for _, action in play.done if isinstance(action, PatchNode) and action.event]


def test_the_whole_story() -> None:
    play = pair()
    play.enter("esx1")
    first = play.tick()
    assert play.nodes["a"].metadata.annotations[TARGET] == "esx2"
    assert first.decisions[0].state is State.DRAINING
    play.run(25)
    assert play.in_service("a")
    assert play.vm("a").host == "host-esx2"
    assert seen(play) == ["Draining", "Drained", "PoweredOff", "Relocating", "PoweringOn", "Migrated", "BackInService"]
    assert not play.did(PowerOff), "the guest shut itself down"
    host = play.inventory.host("host-esx1")
    assert host is not None
    assert host.in_maintenance is True


def test_repeating_a_finished_world_does_nothing() -> None:
    play = pair()
    play.enter("esx1")
    play.run(25)
    done = len(play.done)
    play.run(10)
    assert len(play.done) == done


def test_everything_of_the_table_happens() -> None:
    """Each row, by a story that takes it; the events are what the Node shows."""
    taken: set[tuple[str, str]] = set()

    def follow(play: Play, seconds: int) -> None:
        for _ in range(seconds):
            before = play.state("a")
            play.tick()
            if before != play.state("a"):
                taken.add((before, play.state("a")))

    play = pair()
    play.enter("esx1")
    follow(play, 3)
    play.cancel("esx1")
    follow(play, 6)  # none -> draining -> none
    play = pair()
    play.enter("esx1")
    follow(play, 25)  # none -> draining -> powered-off -> migrated -> none
    play = pair(pods=30)
    play.enter("esx1")
    follow(play, 3)
    play.put(Vm, "vm-a", host="host-esx2")
    follow(play, 1)  # draining -> migrated
    play.off("a")
    follow(play, 1)  # migrated -> powered-off
    play = alone()
    play.enter("esx1")
    follow(play, 12)
    play.put(Vm, "vm-a", power="poweredOn")
    follow(play, 1)  # powered-off -> draining: it runs on a host in maintenance
    play.off("a")
    follow(play, 2)
    play.leave("esx1")
    follow(play, 10)  # powered-off -> none
    play = pair()
    play.enter("esx1")
    while play.state("a") != "migrated":
        follow(play, 1)
    play.enter("esx2")
    follow(play, 1)  # migrated -> draining
    wanted = {(row.before or "", row.after or "") for row in TRANSITIONS}
    assert {(str(one), str(two)) for one, two in wanted} <= taken


def alone() -> Play:
    """Nobody else can take the worker."""
    play = Play()
    play.cluster()
    play.host("esx1")
    play.host("esx2", devices=0)
    play.worker("a", "esx1")
    return play


def test_no_free_host_waits_and_comes_back() -> None:
    play = alone()
    play.enter("esx1")
    found = play.run(15)
    one = found.decisions[0]
    assert play.state("a") == "powered-off"
    assert "no host can take it" in one.why
    assert "esx1 leaves maintenance" in one.next
    assert {rejected.host: rejected.why for rejected in one.rejected} == {
        "esx1": "it is in maintenance", "esx2": f"it has no device {'8086:56c0'}",
    }  # fmt: skip
    play.leave("esx1")
    play.run(10)
    assert play.in_service("a")
    assert not play.did(Relocate)


def test_drs_chooses() -> None:
    play = pair()
    play.cluster("fullyAutomated")
    play.enter("esx1")
    play.run(25)
    assert play.in_service("a")
    assert not play.did(Relocate)
    assert [one.drs for one in play.did(PowerOn)] == [True]


def test_a_fixed_device_waits_for_its_host() -> None:
    play = pair(devices=(fixed(),))
    play.enter("esx1")
    found = play.run(15)
    assert "waits for esx1" in found.decisions[0].why
    assert "only esx1 has" in blocked_text(found.decisions[0])
    play.leave("esx1")
    play.run(10)
    assert play.in_service("a")


def test_a_stubborn_guest_is_powered_off_after_its_time_and_not_before() -> None:
    play = pair()
    play.stubborn.add("a")
    play.enter("esx1")
    while not play.did(ShutDown):
        play.tick()
    asked = play.memory.of("a").shutdown_at
    while play.now < asked + play.policy.guest_shutdown:
        assert not play.did(PowerOff)
        play.tick()
    play.tick()
    assert len(play.did(PowerOff)) == 1
    assert len(play.did(ShutDown)) == 1


def test_a_guest_whose_tools_are_starting_is_asked() -> None:
    play = pair(tools="guestToolsExecutingScripts")
    play.stubborn.add("a")
    play.enter("esx1")
    while not (play.did(ShutDown) or play.did(PowerOff)):
        play.tick()
    assert play.did(ShutDown)
    play.run(4)
    assert not play.did(PowerOff), "it has its time"
    play.run(4)
    assert len(play.did(PowerOff)) == 1


def test_without_tools_nobody_is_asked() -> None:
    play = pair(tools="guestToolsNotRunning")
    play.enter("esx1")
    play.run(10)
    assert not play.did(ShutDown)
    assert len(play.did(PowerOff)) == 1


def test_cancelled_after_power_off_it_is_started_again() -> None:
    play = alone()
    play.enter("esx1")
    while play.state("a") != "powered-off":
        play.tick()
    play.leave("esx1")
    play.run(10)
    assert play.in_service("a")


def test_cancelled_while_the_guest_shuts_down_it_is_waited_for() -> None:
    play = pair()
    play.stubborn.add("a")
    play.enter("esx1")
    while not play.did(ShutDown):
        play.tick()
    play.cancel("esx1")
    found = play.run(5)
    assert "may do so" in found.decisions[0].why
    play.off("a")  # it did
    play.run(12)
    assert play.in_service("a")
    assert play.vm("a").host == "host-esx1"


@pytest.mark.parametrize("sign", ["alive", "reported"])
def test_ready_must_be_fresh(sign: str) -> None:
    """The last Ready outlives its machine: a new boot, a lease renewed or Ready said under our eyes counts."""
    play = pair()
    play.enter("esx1")
    while play.state("a") != "powered-off":
        play.tick()
    play.put(Vm, "vm-a", power="poweredOn", host="host-esx2")  # no kubelet reports yet, Ready is still True
    found = play.run(5)
    assert play.state("a") == "migrated"
    assert "from before it was stopped" in found.decisions[0].why
    assert found.decisions[0].pulse
    play.booting.clear()  # it is up, and its boot id says nothing
    if sign == "reported":
        play.report("a", "Unknown")
        play.report("a", "True")
        play.tick()
        assert not play.state("a")
    else:
        play.run(2)
        assert play.state("a"), "one renewal may have been on its way"
    play.run(4)
    assert play.in_service("a")


def asked() -> Play:
    """Its guest was asked to shut down and takes its time."""
    play = pair()
    play.stubborn.add("a")
    play.enter("esx1")
    while not play.did(ShutDown):
        play.tick()
    return play


def test_pods_that_came_before_the_guest_was_asked_are_evicted_first() -> None:
    """Written down, then vCenter was away for long, and somebody uncordoned the node meanwhile."""
    play = pair()
    play.enter("esx1")
    while not play.nodes["a"].metadata.annotations.get(SHUTDOWN_SINCE):
        play.tick()
    play.unknown_site = "vCenter is away"
    play.run(3)
    play.pods["a"] = 2
    node = play.nodes["a"]
    play.nodes["a"] = msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, unschedulable=False))
    play.unknown_site = ""
    one = play.run(3).decisions[0]
    assert "was uncordoned by hand" in one.why
    assert not play.did(ShutDown)
    node = play.nodes["a"]
    play.nodes["a"] = msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, unschedulable=True))
    while not play.did(ShutDown):
        play.tick()
        assert not (play.pods["a"] and play.did(ShutDown)), "not while it has pods"
    play.run(30)
    assert play.in_service("a")


def test_tools_that_end_in_a_shutdown_do_not_cut_it_short() -> None:
    """VMware Tools are among the first that a guest stops: that is no guest that cannot be asked."""
    play = asked()
    play.put(Vm, "vm-a", tools="guestToolsNotRunning")
    until = play.memory.of("a").shutdown_at + play.policy.guest_shutdown
    while play.now < until:
        play.tick()
        assert not play.did(PowerOff)
    play.run(2)
    assert len(play.did(PowerOff)) == 1


def test_after_a_restart_a_guest_without_tools_may_be_one_that_shuts_down() -> None:
    play = asked()
    play.put(Vm, "vm-a", tools="guestToolsNotRunning")
    play.run(3)
    play.forget()
    began = play.now
    while play.now < began + play.policy.guest_shutdown:
        one = play.tick().decisions[0]
        assert not play.did(PowerOff)
    assert "may have been asked to shut down" in one.why
    play.run(2)
    assert len(play.did(PowerOff)) == 1


def test_a_guest_that_was_asked_and_then_moved_while_it_ran_may_still_go_off() -> None:
    play = asked()
    play.put(Vm, "vm-a", host="host-esx2")
    found = play.run(6)
    assert play.state("a") == "migrated"
    assert "may do so" in found.decisions[0].why
    play.run(20)
    assert play.in_service("a")
    assert play.marks["a"].what is Marked.ASKED
    play.off("a")
    play.run(10)
    assert play.vm("a").power == "poweredOn"


def test_a_drain_that_took_long_does_not_shorten_how_long_a_late_stop_is_waited_for() -> None:
    play = pair(pods=60)
    play.policy = replace(play.policy, drain=replace(play.policy.drain, timeout=LATE_STOP_SECONDS + 500))
    play.stuck.add("a")
    play.stubborn.add("a")
    play.enter("esx1")
    play.run(3)
    play.now += LATE_STOP_SECONDS + 500
    while not play.did(ShutDown):
        play.tick()
    play.cancel("esx1")
    play.run(30)
    assert (play.state("a"), play.marks["a"].what) == ("", Marked.ASKED)
    play.off("a")
    play.run(10)
    assert play.vm("a").power == "poweredOn"


def test_a_node_made_anew_while_its_guest_shuts_down_is_not_forgotten() -> None:
    """Deleted and registered again, it has no state; while it may not be drained, its guest goes off."""
    play = asked()
    node = play.nodes["a"]
    play.nodes["a"] = msgspec.structs.replace(
        node, metadata=msgspec.structs.replace(node.metadata, annotations={}), spec=type(node.spec)()
    )
    play.lacks("a", "VirtualMachine.Interact.PowerOff")
    play.run(3)
    assert (play.state("a"), play.marks["a"].what) == ("", Marked.STOPPED)
    play.off("a")
    play.run(20)
    assert play.vm("a").power == "poweredOn"
    assert play.vm("a").host == "host-esx2"


def test_ha_starts_it_elsewhere_and_its_kubelet_does_not_come_up() -> None:
    """vCenter never shows it off, and its dead machine's last Ready lasts: it stays cordoned, and that is said."""
    play = pair(pods=60)
    play.policy = replace(play.policy, power_on=100.0, drain=replace(play.policy.drain, timeout=100.0))
    play.mute.add("a")
    play.enter("esx1")
    play.run(12)
    assert play.memory.of("a").reported, "it was alive while it was emptied"
    play.crash("esx1")
    assert play.world().subjects[0].ready, "its last Ready is of a machine that is dead"
    found = play.run(30)
    assert (play.state("a"), play.nodes["a"].spec.unschedulable, play.vm("a").host) == ("migrated", True, "host-esx2")
    assert "a is not back yet: its Ready may be from before it was stopped" in found.decisions[0].why
    found = play.run(60)
    assert "a is not back yet: it is not Ready" in found.decisions[0].why
    assert not found.decisions[0].overdue
    found = play.run(20)
    assert "a is not back 100 s after its VM runs again" in found.decisions[0].overdue
    play.mute.clear()
    play.run(8)
    assert play.in_service("a")


def test_a_second_boot_that_ended_is_not_taken_for_the_next() -> None:
    """Started, came up, and went off again: its last Ready and its boot id are of a machine that is off."""
    play = alone()
    play.enter("esx1")
    play.run(12)
    play.leave("esx1")
    while play.vm("a").power != "poweredOn":
        play.tick()
    play.off("a")  # before anybody has seen it Ready; its boot id is a new one
    play.failing["a"] = 1
    for _ in range(40):
        play.tick()
        assert play.state("a") or play.vm("a").power == "poweredOn"
    assert play.in_service("a")


def test_a_kubelet_that_is_quicker_than_vcenter_is_not_written_down_as_ended() -> None:
    play = pair()
    play.enter("esx1")
    while play.state("a") != "powered-off":
        play.tick()
    play.start("a")
    play.put(Vm, "vm-a", power="poweredOff", host="host-esx2")  # the push is late
    play.tick()
    assert play.nodes["a"].metadata.annotations[BOOT_BEFORE] == "boot-0-a"
    play.put(Vm, "vm-a", power="poweredOn")
    play.booting.clear()  # it was up all the time
    play.run(3)
    assert play.in_service("a")


def test_migrated_needs_a_vm_that_runs() -> None:
    """The seed's controller says migrated after a power-on that failed; it is started all the same."""
    play = pair(annotations={STATE: "migrated", HOST: "esx1", MIGRATED_TO: "esx2", SINCE: "2023-11-14T22:00:00Z"})
    play.put(Vm, "vm-a", host="host-esx2", power="poweredOff")
    play.put(Host, "host-esx1", in_maintenance=True)
    play.run(12)
    assert play.in_service("a")
    assert seen(play)[:2] == ["TakenOver", "PoweredOff"]


@pytest.mark.parametrize("state", ["draining", "powered-off", "migrated"])
def test_a_take_over_from_the_seed(state: str) -> None:
    """Only the seed's annotations and its cordon: the hold is written, and it goes on to the end."""
    play = pair(annotations={STATE: state, HOST: "esx1", SINCE: "2023-11-14T22:13:10Z"})
    play.nodes["a"] = msgspec.structs.replace(play.nodes["a"], spec=NodeSpec(unschedulable=True))
    play.enter("esx1")
    if state != "draining":
        play.off("a")
        play.put(Vm, "vm-a", host="host-esx2" if state == "migrated" else "host-esx1")
    play.tick()
    assert HOLDS in play.nodes["a"].metadata.annotations
    play.run(25)
    assert play.in_service("a")


def test_a_foreign_cordon_stays() -> None:
    play = pair()
    play.nodes["a"] = msgspec.structs.replace(play.nodes["a"], spec=NodeSpec(unschedulable=True))
    play.enter("esx1")
    play.run(25)
    assert play.state("a") == ""
    assert play.nodes["a"].spec.unschedulable


def test_two_on_one_host_are_two_and_never_share_a_device() -> None:
    play = Play()
    play.cluster()
    play.host("esx1", 2)
    play.host("esx2", 1)
    play.host("esx3", 1)
    play.worker("a", "esx1")
    play.worker("b", "esx1")
    play.enter("esx1")
    first = play.tick()
    assert [one.state for one in first.decisions] == [State.DRAINING, None]
    assert first.decisions[1].blocked == Blocked(BlockedBy.SLOT)
    play.run(40)
    assert play.in_service("a")
    assert play.in_service("b")
    assert {play.vm("a").host, play.vm("b").host} == {"host-esx2", "host-esx3"}


def test_parked_nodes_do_not_hold_a_slot() -> None:
    play = alone()
    play.host("esx1", 2)
    play.worker("b", "esx1")
    play.enter("esx1")
    play.run(30)
    assert play.state("a") == play.state("b") == "powered-off"


def test_whoever_cannot_go_on_keeps_nobody_waiting() -> None:
    """a cannot be read in the middle of its stop: b has its turn."""
    play = alone()
    play.host("esx1", 2)
    play.worker("b", "esx1")
    play.stubborn.add("a")
    play.enter("esx1")
    while not play.did(ShutDown):
        play.tick()
    play.put(Vm, "vm-a", unread=(Unread("runtime.powerState", "NoPermission"),))
    play.run(15)
    assert play.state("a") == "draining"
    assert play.state("b") == "powered-off"
    told = Change(Vm, "vm-a", {"power": "poweredOn"}, told=("runtime.powerState",))
    play.inventory.apply(Batch((told,), play.now))
    play.run(10)
    assert play.state("a") == "powered-off"


def test_pods_left_at_the_deadline_are_let_go_once_the_machine_is_off() -> None:
    play = pair()
    play.stuck.add("a")
    play.enter("esx1")
    tainted_while_on = False
    for _ in range(60):
        tainted_while_on |= bool(play.nodes["a"].spec.taints) and play.vm("a").power == "poweredOn" and not play.boots
        play.tick()
    assert not tainted_while_on
    assert "OutOfService" in seen(play)
    (taint,) = [one for one in play.did(PatchNode) if one.event == "OutOfService"]
    assert taint.off == "vm-a", "vCenter is asked once more, right before"
    assert "DrainTimeout" in seen(play)
    assert play.in_service("a")


@pytest.mark.parametrize(("word", "state"), [("wait", "powered-off"), ("stay-off", "powered-off"), ("ignore", "")])
def test_policies(word: str, state: str) -> None:
    play = pair(annotations={POLICY: word})
    play.enter("esx1")
    play.run(20)
    assert play.state("a") == state
    assert not play.did(Relocate)
    play.leave("esx1")
    found = play.run(15)
    if word == "stay-off":
        assert play.state("a") == "powered-off"
        assert "stay-off" in found.decisions[0].why
    else:
        assert play.in_service("a")


def test_a_policy_nobody_knows_does_nothing_and_says_so() -> None:
    play = pair(annotations={POLICY: "mirgate"})
    play.enter("esx1")
    found = play.run(5)
    assert not play.done
    assert 'is "mirgate", but must be one of migrate, wait, stay-off, ignore' in found.decisions[0].why


def test_power_on_that_fails_is_tried_again() -> None:
    play = pair()
    play.failing["a"] = 3
    play.enter("esx1")
    play.run(45)
    assert play.in_service("a")
    assert len(play.did(PowerOn)) == 4


def test_overdue_is_said_and_the_node_stays_cordoned() -> None:
    play = pair()
    play.policy = replace(play.policy, power_on=10.0)
    play.failing["a"] = 1000
    play.enter("esx1")
    found = play.run(60)
    assert "is not back 10 s after" in found.decisions[0].overdue
    assert play.nodes["a"].spec.unschedulable


def test_a_relocate_has_its_time() -> None:
    play = pair()
    play.enter("esx1")
    while play.state("a") != "powered-off":
        play.tick()
    play.put(Task, "task-move", kind=RELOCATE, state="running", entity="vm-a")
    play.tick()
    play.note("a", relocating=play.now)
    found = play.run(5)
    assert found.decisions[0].phase is Phase.MOVING
    play.run(int(play.policy.relocate) + 1)
    assert [one.task for one in play.did(CancelTask)] == ["task-move"]
    play.run(10)
    assert play.in_service("a")


def test_a_stopped_vm_without_a_node_is_started_and_unmarked() -> None:
    play = pair()
    play.enter("esx1")
    while play.state("a") != "powered-off":
        play.tick()
    assert play.marks["a"].what is Marked.STOPPED
    del play.nodes["a"]
    play.run(10)
    assert play.vm("a").power == "poweredOn"
    assert play.vm("a").host == "host-esx2"
    assert not play.marks


def test_a_guest_that_still_shuts_down_is_not_forgotten_with_its_node() -> None:
    """The node is deleted between the ask and the end of the guest: the mark stays until the VM surely stayed on."""
    play = pair()
    play.stubborn.add("a")
    play.enter("esx1")
    while not play.did(ShutDown):
        play.tick()
    del play.nodes["a"]
    play.cancel("esx1")
    play.run(5)
    assert play.marks
    play.off("a")
    play.run(10)
    assert play.vm("a").power == "poweredOn"
    assert not play.marks


def test_a_guest_that_goes_off_long_after_the_maintenance_was_cancelled_is_started_again() -> None:
    play = pair()
    play.stubborn.add("a")
    play.enter("esx1")
    while not play.did(ShutDown):
        play.tick()
    play.cancel("esx1")
    for _ in range(int(play.policy.guest_shutdown) + 60):
        play.tick()
    assert play.in_service("a"), "its node is given back"
    assert play.marks["a"].what is Marked.ASKED, "but what was asked of its guest is not forgotten"
    assert not play.did(PowerOff)
    play.off("a")
    play.run(10)
    assert play.vm("a").power == "poweredOn"
    assert play.vm("a").host == "host-esx1"
    assert not play.marks


def test_the_word_of_a_guest_that_stays_on_is_forgotten_in_the_end() -> None:
    play = pair()
    play.stubborn.add("a")
    play.enter("esx1")
    while not play.did(ShutDown):
        play.tick()
    play.cancel("esx1")
    for _ in range(int(play.policy.guest_shutdown + LATE_STOP_SECONDS) + 60):
        play.tick()
    assert not play.marks
    play.off("a")
    play.run(10)
    assert play.vm("a").power == "poweredOff", "that was somebody else"


def test_a_guest_that_never_heard_the_ask_is_asked_again_and_has_its_time() -> None:
    """vCenter went away between the annotation and the ask, for longer than the guest's time."""
    play = pair()
    play.stubborn.add("a")
    play.enter("esx1")
    while not play.nodes["a"].metadata.annotations.get(SHUTDOWN_SINCE):
        play.tick()
    assert not play.did(ShutDown)
    play.unknown_site = "vCenter is away"
    play.run(int(play.policy.guest_shutdown) + 30)
    play.unknown_site = ""
    play.run(5)
    assert len(play.did(ShutDown)) == 1
    assert not play.did(PowerOff)
    play.run(int(play.policy.guest_shutdown) - 10)
    assert not play.did(PowerOff), "it has its whole time, from when it was asked"
    play.run(20)
    assert len(play.did(PowerOff)) == 1


def test_nothing_begins_before_our_privileges_were_looked_at() -> None:
    play = pair()
    play.rights["vm-a"] = None
    play.enter("esx1")
    found = play.run(5)
    assert not play.state("a")
    assert "is being asked" in found.decisions[0].why
    play.lacks("a")
    play.run(3)
    assert play.state("a") == "draining"


def test_out_of_time_is_not_drained() -> None:
    play = pair()
    play.stuck.add("a")
    play.enter("esx1")
    while not play.did(ShutDown):
        play.tick()
    said = {one.type: one for one in conditions_of(play.nodes["a"], None)}
    assert (said["Drained"].status, said["Drained"].reason) == (Status.FALSE, "DeadlinePassed")


def test_a_vm_that_was_only_being_drained_is_not_started_for_somebody_who_removed_it() -> None:
    play = pair()
    play.enter("esx1")
    play.run(3)
    assert play.marks["a"].what is Marked.DRAINING
    del play.nodes["a"]
    play.off("a")
    play.run(5)
    assert play.vm("a").power == "poweredOff"
    assert not play.marks


def test_vms_of_others_are_named() -> None:
    play = pair(pods=20)
    play.put(Vm, "vm-x", name="x", host="host-esx1", power="poweredOn", connection="connected", devices=(fixed(),))
    play.put(Vm, "vm-y", name="y", host="host-esx1", power="poweredOff", connection="connected", devices=())
    play.enter("esx1")
    found = play.run(2)
    assert [(one.host, one.vms, one.nodes) for one in found.hanging] == [
        ("esx1", ("x (it holds a device of the host)",), ("a",))
    ]


def test_the_reservation_is_looked_at_again_before_the_stop() -> None:
    play = Play()
    play.cluster()
    for host in ("esx1", "esx2", "esx3"):
        play.host(host)
    play.worker("a", "esx1", pods=4)
    play.enter("esx1")
    play.tick()
    assert play.nodes["a"].metadata.annotations[TARGET] == "esx2"
    play.put(Host, "host-esx2", connection="notResponding")
    while not play.did(ShutDown):
        play.tick()
    assert play.nodes["a"].metadata.annotations[TARGET] == "esx3"


def test_the_drain_timer_is_not_restarted() -> None:
    play = pair(pods=1000)
    play.enter("esx1")
    play.tick()
    since = play.nodes["a"].metadata.annotations[SINCE]
    play.run(20, interrupt=range(20))
    assert play.nodes["a"].metadata.annotations[SINCE] == since
    play.run(15, interrupt=range(15))
    assert SHUTDOWN_SINCE in play.nodes["a"].metadata.annotations or play.state("a") != "draining"


def test_a_cancelled_task_does_not_cost_all_the_pods() -> None:
    play = pair(pods=40)
    play.enter("esx1")
    while not play.did(Evictions):
        play.tick()
    assert len(play.did(Evictions)[0].evictions) == 10


def test_the_boot_is_written_down_before_the_stop() -> None:
    play = pair()
    play.enter("esx1")
    while not play.did(ShutDown):
        assert play.vm("a").power == "poweredOn"
        play.tick()
    assert play.nodes["a"].metadata.annotations.get(BOOT_BEFORE) == "boot-0-a"


def test_a_boot_is_called_ended_only_of_a_vm_that_is_off_right_then() -> None:
    """The push of its start may be late: the boot that is new to us is then the one that runs."""
    play = alone()
    play.enter("esx1")
    play.run(20)
    assert play.state("a") == "powered-off"
    play.report("a", "True", boot="boot-x-a")
    play.run(20)
    ended = [one for one in play.did(PatchNode) if one.body["metadata"]["annotations"].get(BOOT_BEFORE) == "boot-x-a"]
    assert [one.off for one in ended] == ["vm-a"]


def test_a_live_vm_is_left_to_drs_first() -> None:
    play = pair(devices=())
    play.cluster("fullyAutomated")
    play.enter("esx1")
    found = play.tick()
    assert found.decisions[0].blocked == Blocked(BlockedBy.DRS)
    play.note("a", entering_since=NOW)
    play.run(70)
    assert play.did(Evictions), "DRS did not, so the node is drained"


@pytest.mark.parametrize("drs", ["off", "fullyAutomated"])
def test_unknown_devices_have_a_minute_before_the_node_is_cordoned(drs: str) -> None:
    """It may be a VM that DRS moves live; a minute later its node is drained all the same."""
    play = pair(devices=Unknown("not read yet"))
    play.cluster(drs)
    play.enter("esx1")
    one = play.run(59).decisions[0]
    assert (play.done, one.blocked) == ([], Blocked(BlockedBy.LOOKING))
    assert "cannot tell which devices VM a holds: not read yet" in one.why
    play.run(3)
    assert play.state("a") == "draining"


def test_devices_that_become_known_in_time_leave_the_vm_to_drs() -> None:
    play = pair(devices=Unknown("not read yet"))
    play.cluster("fullyAutomated")
    play.enter("esx1")
    play.run(5)
    play.put(Vm, "vm-a", devices=())
    assert play.run(5).decisions[0].blocked == Blocked(BlockedBy.DRS)
    play.put(Vm, "vm-a", host="host-esx2")
    play.run(5)
    assert (play.done, play.in_service("a")) == ([], True)


@pytest.mark.parametrize("moment", ["first", "later", "restarted"])
def test_a_drain_is_given_up_when_the_vm_moves_before_the_first_eviction(moment: str) -> None:
    """After it, or where HA has started it there, the node comes back as one that was started elsewhere."""
    play = pair(pods=5)
    play.enter("esx1")
    while play.state("a") != "draining":
        play.tick()
    while moment == "later" and not play.did(Evictions):
        play.tick()
    play.put(Vm, "vm-a", host="host-esx2")
    if moment == "restarted":
        play.booting["a"] = play.now + 60
    play.run(6)
    events = {one.event for one in play.did(PatchNode)}
    assert ("MaintenanceCancelled" in events) is (moment == "first")
    assert play.in_service("a") is (moment != "restarted")
    play.run(120)
    assert play.in_service("a")
    assert not play.did(ShutDown)


def test_marks_are_sentences_that_can_be_read_again() -> None:
    for what in Marked:
        mark = Mark("gpu-1", "esx1.example.com", "2026-01-01T00:00:00Z", what, "wait", "1a2b3c4d")
        assert len(mark.text()) < 255
        assert read_mark(mark.text()) == mark
    assert read_mark("a note of somebody else") is None


def test_an_unknown_backing_is_tied() -> None:
    play = pair(devices=(VmDevice(Backing.OTHER, label="Odd"),))
    play.enter("esx1")
    play.run(15)
    assert play.state("a") == "powered-off"
    assert not play.did(Relocate)


def test_an_outage_of_vcenter_is_not_the_pods_time() -> None:
    play = pair(pods=20)
    play.enter("esx1")
    play.run(12)
    asked = len(play.did(Evictions))
    play.unknown_site = "vCenter is away"
    play.run(100)
    play.unknown_site = ""
    play.run(5)
    assert (len(play.did(Evictions)) > asked, play.did(ShutDown)) == (True, [])
    assert "DrainGoesOn" in seen(play)


def noted_down(play: Play) -> None:
    """Its stop is written down, and nobody was asked yet."""
    play.enter("esx1")
    while not play.nodes["a"].metadata.annotations.get(SHUTDOWN_SINCE):
        play.tick()
    assert not play.did(ShutDown)


def test_pods_that_came_during_an_outage_longer_than_the_deadline_are_evicted_first() -> None:
    play = pair()
    noted_down(play)
    play.unknown_site = "vCenter is away"
    play.run(100)
    play.unknown_site, play.pods["a"] = "", 3
    play.tick()
    assert seen(play)[-1] == "DrainingAgain"
    play.run(40)
    assert play.in_service("a")
    assert "DrainTimeout" not in seen(play)


def test_a_drain_that_ran_out_of_time_is_not_begun_again() -> None:
    play = pair()
    play.stuck.add("a")
    noted_down(play)
    play.unknown_site = "vCenter is away"
    play.run(100)
    play.unknown_site = ""
    play.run(40)
    assert "DrainingAgain" not in seen(play)
    assert play.in_service("a")


def test_after_a_restart_a_guest_that_was_perhaps_asked_has_its_time_before_its_node_is_emptied_again() -> None:
    """Killed after the ask, and pods came: nobody says that it was not stopped while it may be going off."""
    play = pair()
    play.stubborn.add("a")
    play.enter("esx1")
    while not play.did(ShutDown):
        play.tick()
    play.forget()
    play.pods["a"] = 2
    one = play.run(int(play.policy.guest_shutdown) - 1).decisions[0]
    assert "DrainingAgain" not in seen(play)
    assert "may have been asked to shut down" in one.why
    assert (one.action, len(play.did(ShutDown))) == (None, 1)
    play.run(4)
    assert "DrainingAgain" in seen(play)
    play.run(60)
    assert play.in_service("a")


def test_a_late_stop_is_timed_from_the_ask_not_from_a_note_of_long_ago() -> None:
    """Written down, then held back for longer than a guest's late stop: what waits for it counts from the ask."""
    play = pair()
    play.stubborn.add("a")
    noted_down(play)
    play.lacks("a", "VirtualMachine.Interact.PowerOn")
    play.run(int(LATE_STOP_SECONDS) + 100)
    play.lacks("a")
    while not play.did(ShutDown):
        play.tick()
    asked = play.now
    play.forget()
    play.cancel("esx1")
    while play.state("a"):
        play.tick()
    assert play.now >= asked + play.policy.guest_shutdown, "it may still have gone off"
    play.run(5)
    play.off("a")
    play.run(20)
    assert play.in_service("a"), "it went off late, and is started again"


def test_a_note_written_anew_does_not_hide_that_an_earlier_process_may_have_asked() -> None:
    play = pair()
    play.stubborn.add("a")
    noted_down(play)
    play.forget()  # whether it asked is not known
    play.lacks("a", "VirtualMachine.Interact.PowerOn")
    play.run(20)
    play.lacks("a")
    before = play.nodes["a"].metadata.annotations[SHUTDOWN_SINCE]
    play.run(2)  # the mark, the note
    assert play.nodes["a"].metadata.annotations[SHUTDOWN_SINCE] > before
    play.put(Vm, "vm-a", tools="guestToolsNotRunning")
    play.run(int(play.policy.guest_shutdown) - 2)
    assert not play.did(PowerOff), "a guest that may be going off has its time"
    play.run(10)
    assert play.did(PowerOff)


def test_a_taint_that_is_refused_does_not_keep_the_vm_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A webhook forbids it, or vCenter cannot be looked at right before: it is started after its time all the same."""
    play = pair()
    play.stuck.add("a")
    act = play.act

    def refuses(one: Decision) -> None:
        if not (isinstance(one.action, PatchNode) and one.action.event == "OutOfService"):
            act(one)

    monkeypatch.setattr(play, "act", refuses)
    play.enter("esx1")
    while play.state("a") != "powered-off":
        play.tick()
    play.run(int(RELEASE_SECONDS) - 5)
    assert play.state("a") == "powered-off", "it is tried for so long"
    play.run(40)
    assert play.in_service("a")


def test_what_a_machine_that_stays_off_holds_is_let_go_however_late() -> None:
    """Nobody could taint it in the first minutes, and no host can take it."""
    play = alone()
    play.stuck.add("a")
    play.enter("esx1")
    while play.state("a") != "powered-off":
        play.tick()
    play.unknown_site = "vCenter is away"
    play.run(int(RELEASE_SECONDS) + 30)
    play.unknown_site = ""
    play.run(10)
    assert "OutOfService" in seen(play)
    assert play.pods["a"] == 0
    play.leave("esx1")
    play.run(20)
    assert play.in_service("a")


def test_a_guest_that_has_no_time_at_all_is_asked_all_the_same() -> None:
    """The note is not written anew with each look."""
    play = pair()
    play.policy = replace(play.policy, guest_shutdown=0.0)
    play.enter("esx1")
    play.run(25)
    assert len(play.did(ShutDown)) == 1
    assert play.in_service("a")
