"""A VM that we stopped comes back: our model prefers a host, vCenter decides, and its own host will do at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostler.host.facts import Unknown
from hostler.host.holds import HOLDS
from hostler.maintenance.decision import Blocked, BlockedBy, Phase, PowerOff, PowerOn, Relocate, ShutDown
from hostler.maintenance.hosts import Origin, read_origin
from hostler.maintenance.model import BOOT_BEFORE, HOST, ORIGIN, POLICY, SINCE, STATE, TARGET, Mark, Marked, stamp_of
from hostler.maintenance.placement import MOVE, STOP
from hostler.vsphere.records import NOT_SAID, RELOCATE, Backing, Cluster, Host, Task, Unread, Vm, VmDevice
from tests.unit.maintenance_world import DYNAMIC, NO_DEVICE, NOW, VC, Play, fixed, hardware

SECRET: Any = Unknown("vCenter would not tell")
UNNAMED = VmDevice(Backing.DYNAMIC)  # allowedDevice is optional in the API
VGPU = VmDevice(Backing.VGPU, profile="grid_a100-40c")


def alone(drs: str = "off", **worker: Any) -> Play:
    """A worker on esx1, which has two devices, and esx2 without any."""
    play = Play()
    play.cluster(drs)
    play.host("esx1", 2)
    play.host("esx2", 0)
    play.worker("a", "esx1", **worker)
    return play


def stopped(play: Play) -> Play:
    play.enter("esx1")
    for _ in range(60):
        if play.state("a") == "powered-off":
            break
        play.tick()
    play.run(8)
    assert play.vm("a").power == "poweredOff"
    return play


def comes_home(play: Play) -> None:
    play.leave("esx1")
    play.run(25)
    assert play.in_service("a"), play.decide().decisions[0]
    assert play.vm("a").host == "host-esx1"


def secretive_neighbour(play: Play) -> None:
    play.worker("x", "esx1", devices=SECRET)
    del play.nodes["x"]


MODEL_SAYS_NO: dict[str, Callable[[Play], object]] = {
    "too few logical CPUs": lambda play: play.put(Vm, "vm-a", cpus=1000),
    "too little memory": lambda play: play.put(Vm, "vm-a", memory_mb=1 << 30),
    "a neighbour whose devices are unreadable": secretive_neighbour,
    "its own devices are unreadable": lambda play: play.put(Vm, "vm-a", devices=SECRET),
    "a port group that the host no longer lists": lambda play: play.put(Host, "host-esx1", networks=()),
    "a datastore that the host no longer lists": lambda play: play.put(Host, "host-esx1", datastores=()),
    "a dynamic device without allowed devices": lambda play: play.put(Vm, "vm-a", devices=(UNNAMED,)),
    "a GPU that the host's PCI list lacks": lambda play: play.put(Host, "host-esx1", pci=()),
    "a profile that nobody offers": lambda play: play.put(Vm, "vm-a", devices=(VGPU,)),
    "a connection that vCenter calls inaccessible": lambda play: play.put(Vm, "vm-a", connection="inaccessible"),
    "holds that nobody can read": lambda play: annotate(play, {HOLDS: "broken"}),
}


def annotate(play: Play, annotations: dict[str, str | None]) -> None:
    node = play.nodes["a"]
    kept = {name: word for name, word in {**node.metadata.annotations, **annotations}.items() if word is not None}
    metadata = msgspec.structs.replace(node.metadata, annotations=kept)
    play.nodes["a"] = msgspec.structs.replace(node, metadata=metadata)


@pytest.mark.parametrize("how", MODEL_SAYS_NO)
def test_whatever_the_model_says_it_is_started_on_its_own_host(how: str) -> None:
    play = stopped(alone())
    MODEL_SAYS_NO[how](play)
    play.leave("esx1")
    play.run(25)
    assert play.vm("a").power == "poweredOn", play.decide().decisions[0]
    assert (play.vm("a").host, play.refused) == ("host-esx1", [])


@pytest.mark.parametrize("cpus", [40, 64])
def test_vcpus_are_compared_with_logical_cpus(cpus: int) -> None:
    """The hosts have 32 cores and 64 logical CPUs: ESXi starts a VM of 64 vCPUs there."""
    play = alone(cpus=cpus)
    play.host("esx2")
    play.enter("esx1")
    play.run(40)
    assert play.in_service("a")
    assert (play.vm("a").host, play.did(PowerOn)[0].why) == ("host-esx2", "VM a is started on esx2")


# -- which host is its own


def test_a_renamed_host_is_known_by_its_id() -> None:
    """The name is the predecessor's contract; a device by address is on this very host, however it is called."""
    play = stopped(alone(devices=(fixed(),)))
    noted = play.nodes["a"].metadata.annotations
    assert (noted[HOST], read_origin(noted[ORIGIN])) == ("esx1", Origin("", "host-esx1", hardware("esx1"), "esx1"))
    play.put(Host, "host-esx1", name="gpu-07.example.com")
    comes_home(play)


def test_a_host_that_is_renamed_while_it_is_emptied_has_not_moved_its_vm() -> None:
    play = alone(pods=6)
    play.enter("esx1")
    play.run(3)
    play.put(Host, "host-esx1", name="gpu-07.example.com")
    play.run(20)
    assert (play.state("a"), len(play.did(ShutDown))) == ("powered-off", 1)
    play.leave("esx1")
    play.run(15)
    assert play.in_service("a")


def test_ids_of_an_earlier_maintenance_do_not_beat_the_name_of_this_one() -> None:
    """The predecessor took over, ended that maintenance and parked the node for another host; it knows no ids."""
    play = stopped(alone(devices=(fixed(),)))
    play.put(Vm, "vm-a", host="host-esx2")
    annotate(play, {HOST: "esx2"})
    assert read_origin(play.nodes["a"].metadata.annotations[ORIGIN]) is not None
    play.put(Host, "host-esx2", in_maintenance=False)
    play.run(20)
    assert not play.did(Relocate)
    assert {one.host for one in play.did(PowerOn)} == {"host-esx2"}


def test_a_vm_whose_datastores_are_not_told_is_not_stopped() -> None:
    play = alone()
    play.put(Vm, "vm-a", datastores=(), disks=(), unread=(Unread("datastore", "NoPermission"),))
    play.enter("esx1")
    found = play.run(90)
    assert not play.did(ShutDown)
    assert not play.did(PowerOff)
    assert "on which datastores" in found.decisions[0].why


def test_a_host_that_was_added_again_is_known_by_its_hardware() -> None:
    """Removed from vCenter and added under another name: another id. The VM is registered elsewhere meanwhile."""
    play = stopped(alone(devices=(fixed(),)))
    play.put(Vm, "vm-a", host="host-esx2")
    play.put(Host, "host-esx1", name="old", uuid="", connection="disconnected")
    annotate(play, {ORIGIN: Origin("another-vcenter", "host-esx1", hardware("esx1"), "esx1").text()})
    play.host("new", uuid=hardware("esx1"))
    play.run(20)
    assert [one.host for one in play.did(Relocate)] == ["host-new"]
    assert play.vm("a").power == "poweredOn"


@pytest.mark.parametrize("here", [True, False])
def test_two_hosts_of_one_name_are_a_doubt_unless_the_vm_is_on_one(here: bool) -> None:
    play = stopped(alone(annotations={POLICY: "wait"}))
    play.host("twin", uuid="")
    play.put(Host, "host-twin", name="esx1")
    annotate(play, {ORIGIN: None})
    play.marks.clear()
    if not here:
        play.put(Vm, "vm-a", host="host-esx2")
        play.enter("esx2")
    play.leave("esx1")
    one = play.run(25).decisions[0]
    assert play.in_service("a") is here
    if not here:
        assert "2 hosts may be its own: esx1 (host-esx1), esx1 (host-twin)" in one.why


def test_registered_elsewhere_it_is_moved_back_first() -> None:
    """An administrator evacuated the powered-off VM: esx2 has no device for it, so it goes home."""
    play = stopped(alone())
    play.put(Vm, "vm-a", host="host-esx2")
    comes_home(play)
    assert [one.host for one in play.did(Relocate)] == ["host-esx1"]


def test_the_ids_of_its_own_host_end_with_the_maintenance() -> None:
    play = stopped(alone())
    comes_home(play)
    assert ORIGIN not in play.nodes["a"].metadata.annotations


def test_without_its_node_the_mark_names_its_own_host_by_id() -> None:
    play = stopped(alone(devices=(fixed(),)))
    assert play.marks["a"].host_id == "host-esx1"
    del play.nodes["a"]
    play.put(Host, "host-esx1", name="gpu-07.example.com")
    play.put(Vm, "vm-a", host="host-esx2")
    play.leave("esx1")
    play.run(10)
    assert play.vm("a").power == "poweredOn"
    assert play.vm("a").host == "host-esx1"


def test_a_state_that_nobody_can_read_holds_back_no_return() -> None:
    play = stopped(alone())
    annotate(play, {STATE: "odd"})
    play.leave("esx1")
    play.run(10)
    assert play.vm("a").power == "poweredOn"


# -- vCenter decides


def crowded(drs: str, **worker: Any) -> Play:
    """esx2 has a device for it; but what another VM there holds is unreadable, so our model places nobody there."""
    play = alone(drs, **worker)
    play.host("esx2", 2)
    play.worker("x", "esx2", devices=SECRET)
    del play.nodes["x"]
    return play


def test_drs_is_asked_where_our_model_finds_no_host() -> None:
    play = crowded("fullyAutomated")
    play.enter("esx1")
    play.run(40)
    assert play.in_service("a")
    assert (play.vm("a").host, play.did(Relocate)) == ("host-esx2", [])


@pytest.mark.parametrize("how", ["wait", "stay-off", "fixed", "unreadable", "partial"])
def test_drs_is_not_asked_for_a_vm_that_has_to_wait(how: str) -> None:
    wish = {POLICY: how} if how in ("wait", "stay-off") else {}
    devices: Any = {"fixed": (fixed(),), "unreadable": SECRET}.get(how, (DYNAMIC,))
    play = crowded("partiallyAutomated" if how == "partial" else "fullyAutomated", annotations=wish, devices=devices)
    stopped(play)
    assert not play.did(PowerOn)
    play.leave("esx1")
    play.run(20)
    assert play.in_service("a") is (how != "stay-off")


def test_a_refusal_is_told_in_vcenters_words_and_tried_later_and_later() -> None:
    """1, 2, 4 ... 60 s, then every 10 minutes; at once when something changes that could matter."""
    play = stopped(alone("fullyAutomated"))
    for _ in range(400):
        play.tick()
    one = play.decide().decisions[0]
    assert (one.phase, one.blocked) == (Phase.WAITING_FOR_HOST, Blocked(BlockedBy.NO_HOST, NO_DEVICE))
    assert one.why == f"VM a could not be started: {NO_DEVICE}"
    assert len(play.refused) == 8, "the eighth is followed by ten minutes of rest"
    play.host("esx2", 1)  # somebody has put a GPU into it
    play.run(2)
    assert play.vm("a").power == "poweredOn"


@pytest.mark.parametrize("changes", ["host", "network", "neighbour", "VM", "task", "right"])
def test_what_could_matter_is_a_reason_to_try_again_at_once(changes: str) -> None:
    play = stopped(alone())
    play.worker("x", "esx1")
    play.worker("y", "esx1")  # they hold both devices
    del play.nodes["x"], play.nodes["y"]
    play.leave("esx1")
    play.run(400)
    tries = len(play.refused)
    play.run(30)
    assert len(play.refused) == tries, "it rests"
    match changes:
        case "host":
            play.put(Host, "host-esx2", in_maintenance=True)
        case "network":
            play.put(Host, "host-esx1", networks=("net", "other"))
        case "neighbour":
            play.worker("z", "esx2")
            del play.nodes["z"]
        case "VM":
            play.put(Vm, "vm-a", cpus=2)
        case "task":
            play.put(Task, "task-9", kind="VirtualMachine.reconfigure", state="success", entity="vm-a")
        case "right":
            play.lacks("a", MOVE)
    play.run(3)
    assert len(play.refused) == tries + 1


def test_a_try_is_a_reservation() -> None:
    """Two come home to a host with one device left: the second is not promised what the first is about to have."""
    play = alone(annotations={POLICY: "wait"})
    play.policy = replace(play.policy, max_drains=2)
    play.worker("b", "esx1", annotations={POLICY: "wait"})
    play.enter("esx1")
    play.run(20)
    play.put(Vm, "vm-a", networks=("gone",))  # our model places a nowhere
    play.leave("esx1")
    found = play.run(1)
    while not any(isinstance(one.action, PowerOn) for one in found.decisions):
        found = play.tick()
    assert [one.target for one in found.decisions] == [(VC, "host-esx1")] * 2
    play.run(15)
    assert play.in_service("a")
    assert play.in_service("b")


# -- in every world


@st.composite
def worlds(draw: st.DrawFn) -> Play:
    """A VM that carries our mark, its policy allows it, and its own host has been in service for ten minutes."""

    def any_of(*values: Any) -> Any:
        return draw(st.sampled_from(values))

    play = alone(any_of("off", "fullyAutomated", "partiallyAutomated"))
    if any_of(False, False, True):
        play.put(Cluster, "domain-1", drs_enabled=NOT_SAID)
    play.host(
        "esx2", any_of(0, 1), in_maintenance=any_of(False, True), networks=any_of((), ("net",)),
    )  # fmt: skip
    play.put(Host, "host-esx2", name=any_of("esx2", "esx1"))
    play.put(
        Vm, "vm-a", power="poweredOff", host=any_of("host-esx1", "host-esx1", "host-esx2"),
        devices=any_of((DYNAMIC,), (fixed(),), (), SECRET, (UNNAMED,), (VGPU,)), cpus=any_of(4, 1000),
        memory_mb=any_of(1024, 1 << 30), networks=any_of(("net",), ("gone",)), datastores=any_of(("ds",), ("gone",)),
        connection=any_of("connected", "inaccessible", "orphaned", "invalid"),
    )  # fmt: skip
    play.put(Host, "host-esx1", name=any_of("esx1", "renamed"), pci=any_of((), None) or ())
    if any_of(False, True):
        secretive_neighbour(play)
    play.marks["a"] = Mark("a", "esx1", "", any_of(Marked.STOPPED, Marked.ASKED), any_of("migrate", "wait"), "-",
                           "host-esx1")  # fmt: skip
    annotate(play, {
        STATE: any_of("powered-off", "powered-off", "migrated", "draining", "odd", None),
        HOST: "esx1", SINCE: stamp_of(NOW - 900), BOOT_BEFORE: "boot-0-a",
        ORIGIN: any_of(Origin("", "host-esx1", hardware("esx1"), "esx1").text(), "somebody edited it", None),
        POLICY: any_of(None, "migrate", "wait"), HOLDS: any_of(None, "broken"),
        TARGET: any_of(None, "esx2", "gone"),
    })  # fmt: skip
    play.lacks("a", *any_of((), (MOVE,), STOP))
    if any_of(False, False, True):
        play.rights["vm-a"] = Unknown("no answer")
    play.failing["a"] = any_of(0, 0, 2)
    if any_of(False, False, True):
        del play.nodes["a"]
    play.out_since = {(VC, "host-esx1"): NOW - 600, (VC, "host-esx2"): NOW - 600}
    return play


@settings(deadline=None, derandomize=True, max_examples=300)
@given(worlds())
def test_in_every_world_what_we_stopped_is_asked_to_come_back(play: Play) -> None:
    asked_to_come_back(play)


@pytest.mark.full
@pytest.mark.timeout(3600)
@settings(deadline=None, max_examples=20_000)
@given(worlds())
def test_in_twenty_thousand_worlds_what_we_stopped_is_asked_to_come_back(play: Play) -> None:
    asked_to_come_back(play)


def asked_to_come_back(play: Play) -> None:
    """A PowerOn, or a relocate to a host that is in service; notes on the node come first."""
    for _ in range(8):
        found = play.tick()
        towards = [one for one in play.did(Relocate) if one.host in ("host-esx1", "host-esx2")]
        if play.did(PowerOn) or towards:
            return
    raise AssertionError(found.decisions)


def test_a_task_under_way_is_waited_for() -> None:
    """The one thing of vCenter's own that holds a return: a power or relocate task on the VM."""
    play = stopped(alone())
    play.put(Task, "task-9", kind=RELOCATE, state="running", entity="vm-a")
    play.leave("esx1")
    play.run(20)
    assert not play.did(PowerOn)
    play.put(Task, "task-9", state="success")
    play.run(15)
    assert play.in_service("a")


@pytest.mark.parametrize("vmotion", [True, False])
def test_a_vgpu_vm_gets_the_time_that_drs_needs_to_move_it(vmotion: bool) -> None:
    play = alone("fullyAutomated", devices=(VGPU,))
    play.policy = replace(play.policy, vgpu_vmotion=vmotion)
    play.enter("esx1")
    one = play.decide().decisions[0]
    assert (one.blocked, play.state("a")) == (Blocked(BlockedBy.DRS) if vmotion else None, "")
    play.run(4)
    assert play.state("a") == ("" if vmotion else "draining")


@pytest.mark.parametrize("first", [5, 6, 13])
def test_two_crashes_in_a_row_give_no_node_back_early(first: int) -> None:
    """HA started it on esx2, where it came up; then that host dies too, and its last Ready outlives it."""
    play = Play()
    play.cluster()
    for host in ("esx1", "esx2", "esx3"):
        play.host(host)
    play.worker("a", "esx1")
    play.enter("esx1")
    for second in range(60):
        if second in (first, first + 1):
            play.crash(play.inventory.name(play.vm("a").host))
        play.tick()  # asserts that no node is given back before its kubelet is up
    for host in ("esx1", "esx2", "esx3"):
        play.recover(host)
    play.run(90)
    assert play.in_service("a")
