"""Properties of the pure core: no harm on anything unknown, and a good end from everywhere once facts settle."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostler.drain import model as drain
from hostler.host.facts import Known, Unknown
from hostler.maintenance.decide import decide
from hostler.maintenance.decision import (
    BlockedBy,
    CancelTask,
    Evictions,
    PatchNode,
    Phase,
    PowerOff,
    PowerOn,
    Relocate,
    ShutDown,
)
from hostler.maintenance.hosts import HostMode, Restart, judge_host, judge_restart, return_doubt, vm_doubt
from hostler.maintenance.model import (
    BOOT_BEFORE,
    HOST,
    POLICY,
    RELOCATE_SINCE,
    SETTLE_SECONDS,
    SHUTDOWN_SINCE,
    TARGET,
    Lacks,
    Marked,
    Remembered,
    State,
    Unanswered,
    Wish,
    World,
)
from hostler.maintenance.placement import MOVE, STOP, drs_of
from hostler.vsphere.records import NOT_SAID, POWER_ON, RELOCATE, Host, Place, Unread, Vm
from tests.unit.maintenance_any_world import ANY, BYTES, QUICK, Facts, any_world, some_world
from tests.unit.maintenance_world import DYNAMIC, NOW, VC, Play, blocked_text, pair

# -- no harm


def uncordons(action: Any) -> bool:
    return (
        isinstance(action, PatchNode)
        and "unschedulable" in action.body.get("spec", {})
        and not action.body["spec"]["unschedulable"]
    )


def lets_go(action: Any) -> bool:
    """Kubernetes is told that nothing runs there."""
    return isinstance(action, PatchNode) and action.event == "OutOfService"


def drastic(action: Any) -> bool:
    acts = isinstance(action, (ShutDown, PowerOff, Relocate, PowerOn, CancelTask, Evictions))
    return acts or uncordons(action) or lets_go(action)


def begins_to_stop(action: Any) -> bool:
    """It is written down that the VM is stopped. That a note of before is made readable is something else."""
    if not isinstance(action, PatchNode) or action.event == "TakenOver":
        return False
    return bool(action.body["metadata"].get("annotations", {}).get(SHUTDOWN_SINCE))


def turns(drs: str, stubborn: bool, cancel: bool) -> list[tuple[Play, Any]]:
    """Every moment of a whole story at which something drastic is about to be done."""
    found: list[tuple[Play, Any]] = []
    play = Play()
    play.cluster(drs)
    play.host("esx1")
    play.host("esx2")
    play.worker("a", "esx1")
    if stubborn:
        play.stubborn.add("a")
    play.enter("esx1")
    for second in range(40):
        if cancel and second == 4:
            play.cancel("esx1")
        action = play.decide().decisions[0].action
        if drastic(action):
            found.append((copy.deepcopy(play), action))
        play.tick()
    return found


def spoil_vm(**fields: Any) -> Callable[[Play, World], World]:
    def spoil(play: Play, world: World) -> World:
        play.put(Vm, "vm-a", **fields)
        return play.world()

    return spoil


def spoil_host(**fields: Any) -> Callable[[Play, World], World]:
    def spoil(play: Play, world: World) -> World:
        play.put(Host, play.vm("a").host, **fields)
        return play.world()

    return spoil


def spoil_subject(**fields: Any) -> Callable[[Play, World], World]:
    return lambda play, world: replace(world, subjects=(replace(world.subjects[0], **fields),))


def spoil_datastore(**fields: Any) -> Callable[[Play, World], World]:
    def spoil(play: Play, world: World) -> World:
        play.put(Place, "ds", **fields)
        return play.world()

    return spoil


def hide_datastore(play: Play, world: World) -> World:
    play.put(Vm, "vm-a", datastores=("ds-hidden",))
    for host in ("host-esx1", "host-esx2"):
        play.put(Host, host, datastores=("ds-hidden",))
    return play.world()


def spoil_rights(lacks: Any) -> Callable[[Play, World], World]:
    def spoil(play: Play, world: World) -> World:
        play.rights["vm-a"] = lacks
        return play.world()

    return spoil


SPOILT: dict[str, Callable[[Play, World], World]] = {
    "vCenter is away": lambda play, world: replace(world, sites={VC: Unknown("away")}),
    "vCenter was last heard long ago": lambda play, world: replace(
        world, sites={VC: Known(play.inventory, play.now - 1e4)}
    ),
    "nodes are not known": lambda play, world: replace(world, unknown="nodes are still being read"),
    "which VM it is is not known": spoil_subject(vm=Unknown("two VMs have its UUID")),
    "its power state is denied": spoil_vm(unread=(Unread("runtime.powerState", "NoPermission"),)),
    "its host is denied": spoil_vm(unread=(Unread("runtime.host", "NoPermission"),)),
    "its power state was never said": spoil_vm(power=""),
    "the VM is disconnected": spoil_vm(connection="disconnected"),
    "the VM is suspended": spoil_vm(power="suspended"),
    "its host is disconnected": spoil_host(connection="disconnected"),
    "its host does not respond": spoil_host(connection="notResponding"),
}


@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize(("drs", "stubborn", "cancel"), [("off", True, False), ("fullyAutomated", False, False),
                                                         ("off", False, True)])  # fmt: skip
def test_one_spoilt_fact_stops_everything_drastic(how: str, drs: str, stubborn: bool, cancel: bool) -> None:
    """Each moment of a story at which something drastic is due, with just one fact unknown or stale: it is not done."""
    moments = turns(drs, stubborn, cancel)
    assert moments
    for play, action in moments:
        world = SPOILT[how](play, play.world())
        one = decide(world, play.policy, play.now).decisions[0]
        assert not drastic(one.action), (how, action, one)
        assert one.why
        assert one.next


@pytest.mark.parametrize("spoilt", [
    spoil_host(in_maintenance=NOT_SAID), spoil_host(unread=(Unread("runtime.inMaintenanceMode", "NoPermission"),)),
])  # fmt: skip
def test_a_host_that_does_not_say_how_it_stands(spoilt: Callable[[Play, World], World]) -> None:
    """A running VM on it is left alone; one that is off may still go elsewhere."""
    for play, _ in turns("off", True, False):
        if play.vm("a").power == "poweredOn":
            world = spoilt(play, play.world())
            one = decide(world, play.policy, play.now).decisions[0]
            assert not drastic(one.action)
            assert one.unknown, "and it says that it does not know"


@pytest.mark.parametrize("fields", [{"in_maintenance": NOT_SAID}, {"connection": "notResponding"}])
def test_a_node_in_service_on_a_host_that_does_not_say_how_it_stands(fields: dict[str, Any]) -> None:
    play = pair()
    play.put(Host, "host-esx1", **fields)
    one = play.decide().decisions[0]
    assert (one.action, one.unknown) == (None, True), one


NO_STOP: dict[str, Callable[[Play, World], World]] = {
    "the VM is inaccessible": spoil_vm(connection="inaccessible"),
    "the VM is orphaned": spoil_vm(connection="orphaned"),
    "whether the VM is connected was never said": spoil_vm(connection=""),
    "its datastore is inaccessible": spoil_datastore(accessible=False),
    "its datastore is inaccessible on its host": spoil_datastore(cut_off=("host-esx1",)),
    "whether its datastore is accessible was never said": spoil_datastore(accessible=NOT_SAID),
    "which hosts reach its datastore was never said": spoil_datastore(cut_off=NOT_SAID),
    "vCenter does not show its datastore": hide_datastore,
    "our user may not start it": spoil_rights((STOP[1],)),
    "what our user may do is not known": spoil_rights(Unknown("no answer")),
    "what our user may do was not looked at": spoil_rights(None),
}


@pytest.mark.parametrize("how", NO_STOP)
def test_nothing_is_stopped_that_vcenter_says_cannot_be_started_again(how: str) -> None:
    """Neither stopped nor emptied for it; a VM that is off already is started all the same."""
    stops = returns = 0
    for play, action in turns("off", True, False):
        world = NO_STOP[how](play, play.world())
        one = decide(world, play.policy, play.now).decisions[0]
        if isinstance(action, (Relocate, PowerOn)):
            returns += 1
            assert isinstance(one.action, (Relocate, PowerOn)), (how, one)
        elif isinstance(action, (ShutDown, PowerOff, Evictions)):
            stops += 1
            assert one.action is None or isinstance(one.action, PatchNode), (how, one)
            assert not begins_to_stop(one.action)
            assert one.why
            assert one.next
    assert stops
    assert returns


def test_a_vm_whose_devices_are_not_known_counts_as_tied_to_its_own_host() -> None:
    for play, action in turns("off", False, False):
        if isinstance(action, (Relocate, PowerOn)):
            play.put(Vm, "vm-a", devices=Unknown("not read"), host="host-esx1")
            one = play.decide().decisions[0]
            assert (drastic(one.action), one.phase) == (False, Phase.WAITING_FOR_HOST), one
            assert "the VM's devices are unknown: not read" in blocked_text(one)
            play.leave("esx1")
            play.run(8)
            assert play.did(PowerOn)


@pytest.mark.parametrize("late", [0, 1000])
def test_pods_that_are_not_known_are_not_evicted_and_their_machine_is_not_stopped(late: int) -> None:
    """Nor past the deadline, nor where the stop is written down already and may be a restart ago."""
    looked = 0
    for second in range(8):
        play = pair()
        play.enter("esx1")
        play.run(second)
        play.now += late
        subject = play.world().subjects[0]
        if subject.drain is None or subject.state is not State.DRAINING:
            continue
        looked += 1
        forgotten = Remembered(running_since=play.now - 1000)
        unread = replace(subject.drain, pods=Unknown("not read"))
        world = spoil_subject(drain=unread, remembered=forgotten)(play, play.world())
        one = decide(world, play.policy, play.now).decisions[0]
        assert not drastic(one.action), one
        assert not begins_to_stop(one.action), one
    assert looked > 3


def test_the_worlds_come_to_every_act() -> None:
    """What is tried on them would hold of worlds in which nothing ever happens, too."""
    chance, seen = random.Random(4), set[str]()
    wanted = {one.__name__ for one in (Evictions, ShutDown, PowerOff, Relocate, PowerOn, CancelTask)}
    wanted |= {"uncordons draining", "uncordons powered-off", "uncordons migrated", "lets go", "begins to stop"}
    for _ in range(5000):
        world = some_world(Facts(chance.randbytes(BYTES)))
        action = decide(world, Play().policy, NOW).decisions[0].action
        words = {
            uncordons: f"uncordons {world.subjects[0].state}",
            lets_go: "lets go",
            begins_to_stop: "begins to stop",
        }
        seen |= {type(action).__name__} | {word for is_so, word in words.items() if is_so(action)}
        if wanted <= seen:
            return
    raise AssertionError(f"never seen: {wanted - seen}")


@settings(QUICK, max_examples=400)
@given(any_world())
def test_no_harm_on_an_unknown_fact(world: World) -> None:
    no_harm(world)


@pytest.mark.full
@pytest.mark.timeout(3600)
@settings(ANY, max_examples=10_000)
@given(any_world())
def test_no_harm_on_an_unknown_fact_ten_thousand_times(world: World) -> None:
    no_harm(world)


def assert_may_stop(rights: Lacks) -> None:
    """Our user may start it again, as vCenter said lately; or vCenter would not say for a minute."""
    if isinstance(rights, Unanswered):
        assert rights.since <= NOW - 60
        return
    assert isinstance(rights, Known), "what our user may do is known"
    assert rights.at >= NOW - 60, "and fresh"
    assert not set(rights.value) & set(STOP), "it can be started again"


def no_harm(world: World) -> None:
    """Whatever may hurt needs its facts known and fresh: the VM, its host, the pods, and that nothing is in doubt."""
    play_policy = Play().policy
    one = decide(world, play_policy, NOW).decisions[0]
    assert one.bug is None
    action, subject, site = one.action, world.subjects[0], world.sites[VC]
    if begins_to_stop(action):
        assert subject.drain is not None
        assert isinstance(subject.drain.pods, Known), "nothing is stopped under pods that nobody has seen"
    if not (drastic(action) or begins_to_stop(action)):
        assert one.why
        return
    assert not world.unknown
    assert isinstance(subject.vm, Known)
    assert isinstance(site, Known)
    assert NOW - site.at <= play_policy.max_age
    vm = subject.vm.value
    returns = isinstance(action, (Relocate, PowerOn))
    assert (return_doubt if returns else vm_doubt)(site.value, vm) == ""
    here = judge_host(site.value, site.value.host(vm.host))
    if isinstance(action, (ShutDown, PowerOff, Evictions)) or begins_to_stop(action):
        assert here.leaving, "only on a host that goes into maintenance"
        assert judge_restart(site.value, vm) == Restart(), "and only what can be started again"
    if isinstance(action, (ShutDown, PowerOff)):
        assert vm.power == "poweredOn"
        assert subject.state is State.DRAINING
        assert subject.annotations.get(SHUTDOWN_SINCE), "written down before"
        assert subject.annotations.get(HOST) == site.value.name(vm.host)
        assert_may_stop(world.rights[(VC, vm.moref)])
        assert [one.on for one in action.needs] == [vm.moref], "and is looked at once more"
    if isinstance(action, PowerOff):
        known, since = subject.remembered, subject.annotations[SHUTDOWN_SINCE]
        time = NOW - play_policy.guest_shutdown
        in_time = known.shutdown_asked == since and max(known.shutdown_at, world.resumed) <= time
        nobody_asked = known.stop_noted == since and (known.shutdown_asked != since or known.shutdown_refused)
        passed = max(known.running_since or NOW, world.resumed) <= time
        assert in_time or nobody_asked or passed, "a guest in its shutdown has its time, and none of it in a pause"
    if isinstance(action, Relocate):
        rights = world.rights.get((VC, vm.moref), Unknown("not looked at"))
        assert isinstance(rights, Unknown) or MOVE not in rights.value
        assert not isinstance(drs_of(site.value, vm), Unknown), "whose choice it is, is known"
    if isinstance(action, CancelTask):
        began = max(subject.at(RELOCATE_SINCE) or NOW, world.resumed)
        assert site.value.tasks_of(vm.moref)[0].kind == RELOCATE
        assert began + play_policy.relocate <= NOW, "it has had its time"
    if isinstance(action, Evictions):
        assert_may_stop(world.rights[(VC, vm.moref)])
        assert subject.drain is not None
        assert isinstance(subject.drain.pods, Known)
    if lets_go(action):
        assert (vm.power, subject.state) == ("poweredOff", State.POWERED_OFF)
        assert isinstance(action, PatchNode)
        assert action.off == vm.moref, "and it is looked at once more"
        assert not [one for one in site.value.tasks_of(vm.moref) if one.kind == POWER_ON], "nobody starts it"
        assert subject.drain is not None
        assert isinstance(subject.drain.pods, Known)
    if isinstance(action, (Relocate, PowerOn)):
        assert vm.power == "poweredOff"
        assert not site.value.tasks_of(vm.moref), "nobody else is at it"
        where = action.host if isinstance(action, Relocate) else (one.target or ("", ""))[1]
        if where or not (isinstance(action, PowerOn) and action.drs):
            assert judge_host(site.value, site.value.host(where)).what is HostMode.IN_SERVICE
    if uncordons(action) and subject.state is State.DRAINING:
        assert vm.power == "poweredOn"
        cancelled = here.what is HostMode.IN_SERVICE and world.out_since[VC, vm.host] <= NOW - SETTLE_SECONDS
        assert cancelled or (here.leaving and subject.wish is Wish.IGNORE), "the host has been in service for a while"
        if asked := subject.at(SHUTDOWN_SINCE):
            assert asked + play_policy.guest_shutdown <= NOW, "a guest that was asked has its time"
            assert subject.ready
            assert subject.remembered.alive, "and its kubelet lives"
    if uncordons(action) and subject.state in (State.POWERED_OFF, State.MIGRATED):
        assert here.what is HostMode.IN_SERVICE
        assert vm.power == "poweredOn"
        assert subject.ready
        boot = subject.node.status.node_info.boot_id if subject.node is not None else ""
        known = subject.remembered
        assert known.alive or known.reported or subject.annotations.get(BOOT_BEFORE, boot) != boot, "Ready anew"


@QUICK
@given(any_world())
def test_every_decision_is_a_sentence_and_repeats_itself(world: World) -> None:
    policy = Play().policy
    one, again = decide(world, policy, NOW), decide(world, policy, NOW)
    assert one == again
    for decision in one.decisions:
        assert decision.why
        if decision.action is None and decision.phase is not Phase.IN_SERVICE:
            assert decision.next, decision


# -- a good end


HAPPENS = (
    "enter", "enter", "cancel", "leave", "away", "back", "off", "delete", "crash", "pause", "resume", "hide", "show",
)  # fmt: skip


@st.composite
def any_story(draw: st.DrawFn) -> tuple[Play, list[tuple[int, str, str]], set[int], bool]:
    play = Play()
    play.policy = replace(
        play.policy, drain=drain.Policy(timeout=8.0), guest_shutdown=3.0, max_drains=draw(st.integers(1, 2))
    )
    play.cluster(draw(st.sampled_from(["off", "off", "fullyAutomated"])))
    hosts = ["esx1", "esx2", "esx3"]
    for host in hosts:
        play.host(host, devices=draw(st.integers(1, 2)))
    for name in draw(st.sampled_from([("a",), ("a", "b"), ("a", "b", "c")])):
        host = draw(st.sampled_from([h for h in hosts if free(play, h)]))
        word = draw(st.sampled_from(["", "", "wait"]))
        devices = (DYNAMIC,)
        play.worker(
            name, host, pods=draw(st.integers(0, 3)), devices=devices, annotations={POLICY: word} if word else {}
        )
        for chosen, book in ((draw(st.integers(0, 4)), play.stuck), (draw(st.integers(0, 4)), play.stubborn)):
            if chosen == 0:
                book.add(name)
        play.failing[name] = draw(st.sampled_from([0, 0, 1, 3]))
        play.slow[name] = draw(st.sampled_from([0.0, 0.0, 3.0, 45.0]))
        if draw(st.integers(0, 4)) == 0:
            play.mute.add(name)
    happens = draw(
        st.lists(
            st.tuples(
                st.integers(0, 40),
                st.sampled_from(HAPPENS),
                st.sampled_from(hosts),
            ),
            max_size=6,
        )
    )
    home = play.vm("a").host.removeprefix("host-")
    happens.append((0, "enter", home))  # a story in which nobody's host enters shows little
    if draw(st.booleans()):
        happens.append((draw(st.integers(4, 16)), "crash", home))
    killed = draw(st.sets(st.integers(0, 60), max_size=30))
    return play, sorted(happens), killed, draw(st.booleans())


def free(play: Play, host: str) -> bool:
    found = play.inventory.host(f"host-{host}")
    assert found is not None
    return len(play.inventory.vms_on(found.moref)) < len(found.passthrough)


def happen(play: Play, what: str, host: str) -> None:
    match what:
        case "enter":
            found = play.inventory.host(f"host-{host}")
            if found is not None and found.in_maintenance is False:
                play.enter(host)
        case "cancel":
            play.cancel(host)
        case "leave":
            play.leave(host)
        case "away":
            play.unknown_site = "vCenter is away"
        case "back":
            play.unknown_site = ""
        case "off":  # an administrator switches off a VM that is being emptied
            for name in play.nodes:
                if play.state(name) == "draining" and play.vm(name).host == f"host-{host}":
                    play.off(name)
        case "crash":
            play.crash(host)
        case "hide":
            play.hide(host)
        case "show":
            play.show()
        case "pause":
            play.paused = True
        case "resume" if play.paused:
            play.resume()
        case "delete":
            for name in [one for one in play.nodes if play.state(one) == "powered-off"][:1]:
                del play.nodes[name]


Told = tuple[Play, list[tuple[int, str, str]], set[int], bool]


@settings(QUICK, max_examples=30)
@given(any_story())
def test_every_story_ends_well(story: Told) -> None:
    ends_well(story)


@pytest.mark.full
@pytest.mark.timeout(3600)
@settings(ANY, max_examples=1000)
@given(any_story())
def test_every_story_ends_well_a_thousand_times(story: Told) -> None:
    ends_well(story)


def ends_well(story: Told) -> None:
    """Killed at any pass, vCenter away at any time: when it settles, everybody serves or waits with a sentence.

    Hosts crash, kubelets come up late or not at all; that none is given back before its own is up, `Play` asserts.
    """
    play, happens, killed, everybody_leaves = story
    for second in range(45):
        for when, what, host in happens:
            if when == second:
                happen(play, what, host)
        play.tick(interrupt=second in killed)
        assert sum(play.state(one) == "draining" for one in play.nodes) <= 3
    play.unknown_site = ""
    play.show()
    if play.paused:
        play.resume()
    play.mute.clear()
    for host in ("esx1", "esx2", "esx3"):
        play.recover(host)
    if everybody_leaves:
        for host in ("esx1", "esx2", "esx3"):
            play.leave(host)
    quiet = 0
    for _ in range(400):
        done = len(play.done)
        found = play.tick()
        quiet = quiet + 1 if len(play.done) == done else 0
        if quiet > 50:
            break
    found = play.decide()
    for name in play.nodes:
        one = found.of(name)
        if play.in_service(name) or (one is not None and one.phase is Phase.OFF and not play.state(name)):
            continue
        assert not everybody_leaves, f"{name}: {one}"
        assert one is not None
        assert one.why
        assert one.next, one
        asks_again = isinstance(one.action, PowerOn) and one.action.drs  # what DRS refused is tried again and again
        waits = one.blocked is not None and one.blocked.by in (BlockedBy.NO_HOST, BlockedBy.POWER_ON)
        assert asks_again or waits, one
        if POLICY not in play.nodes[name].metadata.annotations:
            assert not room_somewhere(play), f"{name} waits although a device is free: {one}"
    if everybody_leaves:
        assert all(mark.what is Marked.ASKED for mark in play.marks.values()), "that one ends by itself, later"


def room_somewhere(play: Play) -> list[str]:
    """Hosts in service with a device that nobody runs on."""
    return [host.name for host in play.inventory.hosts() if play.free(host)]


def test_called_off_before_anything_was_stopped_a_node_goes_back_as_it_was() -> None:
    """HA has just started its machine, which no kubelet tells of yet; its cordon is all that we added."""
    play = Play()
    play.cluster()
    for host in ("esx1", "esx3"):
        play.host(host)
    play.worker("a", "esx1")
    play.mute.add("a")
    play.crash("esx1")
    play.enter("esx3")
    play.tick()
    assert play.state("a") == "draining"
    play.cancel("esx3")
    play.run(5)
    assert not play.state("a")
    assert not play.nodes["a"].spec.unschedulable


def test_killed_after_every_single_action_it_ends_the_same() -> None:
    """The plain story, once for each point at which the process can die."""
    for crash in range(40):
        play = Play()
        play.cluster()
        play.host("esx1")
        play.host("esx2")
        play.worker("a", "esx1")
        play.enter("esx1")
        play.run(40, interrupt={crash})
        assert play.in_service("a"), crash
        assert play.vm("a").host == "host-esx2"
        assert len(play.did(PowerOn)) == len(play.did(Relocate)) == 1


def test_a_task_that_is_repeated_within_moments_is_one_maintenance() -> None:
    """vLCM cancels its task and asks again: between the two nobody is given back, whenever that is."""
    for moment in range(1, 9):
        play = pair(pods=9)
        play.enter("esx1")
        play.run(moment)
        play.cancel("esx1")
        play.run(int(SETTLE_SECONDS) - 1)
        assert play.state("a") == "draining", moment
        play.enter("esx1")
        play.run(40)
        assert (play.in_service("a"), play.vm("a").host) == (True, "host-esx2"), moment
        assert [one.event for one in play.did(PatchNode)].count("Draining") == 1


def plain(play: Play) -> None:
    """Emptied slowly, so that every moment of it has its turn."""
    play.stuck.add("a")


def at_once(play: Play) -> None:
    """Emptied at once, so that it is back elsewhere within the moments that are tried."""


def cancelled(play: Play) -> None:
    """Its guest was asked and does not care; the task is cancelled, and its kubelet has to show that it lives."""
    play.stubborn.add("a")
    while not play.did(ShutDown):
        play.tick()
    play.cancel("esx1")


def once_more(play: Play) -> None:
    """As before, and when it is in service again its host enters anew: what was seen of its kubelet was then."""
    cancelled(play)
    play.run(20)
    assert play.in_service("a")
    play.stuck.add("a")
    play.enter("esx1")


def moved(play: Play) -> None:
    """Its guest was asked and does not care; somebody moves it live, and it may still go off."""
    play.stubborn.add("a")
    while not play.did(ShutDown):
        play.tick()
    play.put(Vm, "vm-a", host="host-esx2")


@pytest.mark.parametrize("begin", [plain, at_once, cancelled, once_more, moved])
def test_whenever_its_host_crashes_nobody_believes_the_dead_machine(begin: Callable[[Play], None]) -> None:
    """HA starts it elsewhere between two looks: it was never seen off, its last Ready and its lease stand still."""
    crashed = 0
    for moment in range(18):
        play = Play()
        play.cluster()
        for host in ("esx1", "esx2", "esx3"):
            play.host(host)
        play.worker("a", "esx1")
        play.enter("esx1")
        begin(play)
        play.run(moment + 1)
        if not play.state("a"):
            break
        if play.vm("a").power != "poweredOn":
            continue  # HA starts nothing that was off
        crashed += 1
        play.mute.add("a")
        play.crash(play.vm("a").host.removeprefix("host-"))
        play.run(30)  # `Play` asserts that it is not given back
        assert not play.in_service("a"), moment
        play.mute.clear()
        play.run(20)
        assert play.in_service("a"), moment
    assert crashed > 5


def test_a_placement_that_two_want_is_given_once() -> None:
    """Two hosts enter together and one device is left: one moves, the other waits and says for what."""
    play = Play()
    play.policy = replace(play.policy, max_drains=2)
    play.cluster()
    for host in ("esx1", "esx2", "esx3"):
        play.host(host)
    play.worker("a", "esx1")
    play.worker("b", "esx2")
    play.enter("esx1")
    play.enter("esx2")
    found = play.run(40)
    assert play.in_service("a")
    assert play.state("b") == "powered-off"
    one = found.of("b")
    assert one is not None
    assert "taken by a" in blocked_text(one)
    play.leave("esx2")
    play.run(15)
    assert play.in_service("b")


def test_a_reservation_holds_against_whoever_is_quicker() -> None:
    """b reserves the last device and takes long to empty; a, empty at once and first by name, must not take it."""
    play = Play()
    play.policy = replace(play.policy, max_drains=2)
    play.cluster()
    for host in ("esx1", "esx2", "esx3"):
        play.host(host)
    play.worker("b", "esx1", pods=20)
    play.worker("a", "esx2", pods=0)
    play.enter("esx1")
    play.tick()
    assert play.nodes["b"].metadata.annotations[TARGET] == "esx3"
    play.enter("esx2")
    found = play.run(12)
    assert play.state("a") == "powered-off"
    one = found.of("a")
    assert one is not None
    assert "b (promised)" in blocked_text(one)
    play.run(40)
    assert play.vm("b").host == "host-esx3"
    assert play.in_service("b")
