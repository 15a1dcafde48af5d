"""Which host can take a VM, and the one line why another cannot: a row per reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostler.host.facts import Unknown
from hostler.maintenance.decision import Relocate
from hostler.maintenance.hosts import HostMode, judge_host, vm_doubt, why_not_moved_live
from hostler.maintenance.model import Wish
from hostler.maintenance.placement import POOL, Ask, Placement, find_places, is_tied_to_host
from hostler.vsphere.devices import KINDS, can_vmotion
from hostler.vsphere.records import NOT_SAID, Backing, Cluster, Host, Pci, Unread, Vm, VmDevice
from tests.sizes import examples
from tests.unit.maintenance_world import DYNAMIC, Play, fixed

OTHER = VmDevice(Backing.DYNAMIC, allowed=("10de:20b5",))
VGPU = VmDevice(Backing.VGPU, profile="grid_a100-40c")


def yard(devices: tuple[VmDevice, ...] = (DYNAMIC,), **target: Any) -> Play:
    """A worker on esx1, and esx2 as the only other host."""
    play = Play()
    play.cluster()
    play.host("esx1")
    play.host("esx2", **target)
    play.worker("a", "esx1", devices=devices)
    play.enter("esx1")
    return play


def found(play: Play, promised: tuple[str, ...] = (), **ask: Any) -> Placement:
    known = {"host-esx2": [play.vm(one) for one in promised]}
    return find_places(Ask(play.vm("a"), "esx1", "host-esx1", **ask), play.inventory, known)


def why_not(placement: Placement, host: str = "esx2") -> str:
    assert host not in [one.name for one in placement.hosts]
    return next(one.why for one in placement.rejected if one.host == host)


def test_a_free_device_of_the_same_kind_will_do() -> None:
    placement = found(yard())
    assert [one.name for one in placement.hosts] == ["esx2"]
    assert why_not(placement, "esx1") == "it is entering maintenance"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"connection": "notResponding"}, "vCenter has no connection to it (notResponding)"),
        ({"in_maintenance": True}, "it is in maintenance"),
        ({"in_maintenance": NOT_SAID}, "vCenter has not said"),
        (
            {"unread": (Unread("runtime.inMaintenanceMode", "no"),)},
            "vCenter does not report runtime.inMaintenanceMode: no",
        ),
        ({"power": "standBy"}, "it is not running (standBy)"),
        ({"standby": "entering"}, "it is not running (entering)"),
        ({"datastores": ()}, "it does not reach datastore ds"),
        ({"networks": ("other",)}, "it does not reach network net"),
        ({"cpu_threads": 2}, "it has 2 logical CPUs, the VM needs 4"),
        ({"memory_mb": 512}, "it has 512 MB of memory left, the VM needs 1024"),
        ({"pci": (), "passthrough": ()}, "it has no device 8086:56c0"),
    ],
)
def test_why_a_host_cannot(fields: dict[str, Any], why: str) -> None:
    assert why_not(found(yard(**fields))) == why


def test_another_cluster_is_not_even_looked_at_unless_it_is_allowed() -> None:
    play = yard(cluster="domain-2")
    play.put(Cluster, "domain-2", name="other", drs_enabled=False)
    assert found(play).hosts == ()
    one = found(play, clusters=("other",))
    assert (one.hosts, why_not(one)) == ((), "its resource pool is unknown")
    play.put(Cluster, "domain-2", pool="pool-2")
    assert [one.name for one in found(play, clusters=("other",)).hosts] == ["esx2"]


def test_a_device_that_runs_somebody_is_not_free_and_he_is_named() -> None:
    play = yard()
    play.worker("b", "esx2")
    assert why_not(found(play)) == "no device 8086:56c0 is free: 1 there, taken by b"
    play.off("b")
    assert found(play).best is not None, "off, it holds nothing"


def test_a_promise_counts_like_a_running_vm() -> None:
    play = yard()
    play.worker("b", "esx1")
    assert why_not(found(play, promised=("b",))) == "no device 8086:56c0 is free: 1 there, taken by b (promised)"
    play.host("esx2", devices=2)
    assert found(play, promised=("b",)).best is not None


def test_the_own_promise_does_not_count_against_itself() -> None:
    play = yard()
    assert found(play, promised=("a",)).best is not None


def test_what_a_running_vm_holds_must_be_known() -> None:
    play = yard()
    play.worker("b", "esx2", devices=Unknown("not read"))  # type: ignore[arg-type]
    assert why_not(found(play)) == "cannot tell which devices b holds"


def test_two_devices_need_two_and_the_matching_is_not_greedy() -> None:
    """b may have either kind, a only one of them: first come would leave a without."""
    play = yard(
        devices=(DYNAMIC,), pci=(Pci("p1", "8086", "56c0"), Pci("p2", "10de", "20b5")), passthrough=("p1", "p2")
    )
    either = VmDevice(Backing.DYNAMIC, allowed=("10de:20b5", "8086:56c0"))
    play.worker("b", "esx1", devices=(either,))
    assert found(play, promised=("b",)).best is not None
    play.put(Vm, "vm-a", devices=(DYNAMIC, DYNAMIC))
    assert "no device" in why_not(found(play))


def test_an_address_held_now_is_of_no_use_elsewhere() -> None:
    play = yard(devices=(VmDevice(Backing.DYNAMIC, "0000:77:00.0", ("8086:56c0",)),))
    assert found(play).best is not None


def test_another_kind_of_device_does_not_fit() -> None:
    assert why_not(found(yard(devices=(OTHER,)))) == "it has no device 10de:20b5"


def test_a_vgpu_goes_where_its_profile_is_offered() -> None:
    assert why_not(found(yard(devices=(VGPU,)))) == "it does not offer the vGPU profile grid_a100-40c"
    assert found(yard(devices=(VGPU,), vgpu_profiles=("grid_a100-40c",))).best is not None


def test_a_fixed_address_exists_on_one_host() -> None:
    play = yard(devices=(fixed(),))
    assert is_tied_to_host(play.vm("a")) is True
    assert why_not(found(play)) == "the VM holds a device that only esx1 has"
    play.leave("esx1")
    assert [one.name for one in found(play).hosts] == ["esx1"]


@pytest.mark.parametrize(
    ("device", "ties", "moves"),
    [
        (fixed(), True, False),
        (DYNAMIC, False, False),
        (VGPU, False, True),
        (VmDevice(Backing.SRIOV), False, False),
        (VmDevice(Backing.SRIOV, "0000:5e:00.0"), True, False),
        (VmDevice(Backing.USB), True, False),
        (VmDevice(Backing.USB_REMOTE), True, True),
        (VmDevice(Backing.OTHER), True, False),
    ],
)
def test_what_a_kind_of_device_means(device: VmDevice, ties: bool, moves: bool) -> None:
    play = yard(devices=(device,))
    assert (is_tied_to_host(play.vm("a")), can_vmotion((device,))) == (ties, moves)
    assert not can_vmotion((VGPU,), vgpu=False), "a setting says that the clusters cannot"
    assert {one.backing for one in (device,)} <= KINDS.keys()


def test_a_hardware_label_must_be_the_same() -> None:
    """Two kinds of use of one model: an administrator labelled the devices, and the VM names the label."""
    labelled = VmDevice(Backing.DYNAMIC, allowed=("8086:56c0",), label="training")
    play = yard(devices=(labelled,))
    assert why_not(found(play)) == "it has no device 8086:56c0 labelled training"
    play.put(Host, "host-esx2", labels=(("0000:00:00.0", "inference"),))
    assert "no device" in why_not(found(play))
    play.put(Host, "host-esx2", labels=(("0000:00:00.0", "training"),))
    assert found(play).best is not None
    play.put(Vm, "vm-a", devices=(DYNAMIC,))
    assert found(play).best is not None, "without a label any will do"


# -- standalone hosts


def standalone(**target: Any) -> Play:
    """Two hosts that are in no cluster, each with a root resource pool of its own."""
    play = yard(**target)
    for host in ("esx1", "esx2"):
        play.put(Cluster, f"domain-s{host}", name=host, standalone=True, pool=f"pool-{host}")
        play.put(Host, f"host-{host}", cluster=f"domain-s{host}")
    return play


def test_a_vm_moves_between_standalone_hosts() -> None:
    play = standalone()
    assert [one.name for one in found(play).hosts] == ["esx2"]
    play.enter("esx1")
    play.run(40)
    assert (play.in_service("a"), play.vm("a").host) == (True, "host-esx2")
    assert [one.pool for one in play.did(Relocate)] == ["pool-esx2"]


def test_a_standalone_host_of_another_datacenter_reaches_none_of_its_datastores() -> None:
    assert why_not(found(standalone(datastores=("ds-of-dc2",)))) == "it does not reach datastore ds"


def test_without_the_right_on_the_pool_it_waits_for_its_own_host() -> None:
    play = standalone()
    play.rights["pool-esx2"] = (POOL,)
    play.run(20)
    assert (play.state("a"), play.did(Relocate)) == ("powered-off", [])
    play.leave("esx1")
    play.run(15)
    assert (play.in_service("a"), play.vm("a").host) == (True, "host-esx1")


@pytest.mark.parametrize("clustered", ["esx1", "esx2"])
def test_into_or_out_of_a_cluster_only_by_setting(clustered: str) -> None:
    play = standalone()
    play.put(Cluster, f"domain-s{clustered}", name="compute", standalone=False, drs_enabled=False)
    assert found(play).hosts == ()
    named = "compute" if clustered == "esx2" else "esx2"
    assert [one.name for one in found(play, clusters=(named,)).hosts] == ["esx2"]


def test_waiting_means_its_own_host_or_where_it_was_put() -> None:
    play = yard()
    assert why_not(found(play, wish=Wish.WAIT)) == "the node's policy is to wait for its own host"
    play.put(Vm, "vm-a", host="host-esx2", power="poweredOff")
    assert [one.name for one in found(play, wish=Wish.WAIT).hosts] == ["esx2"]


def test_unknown_devices_count_as_tied_to_the_own_host() -> None:
    play = yard()
    play.put(Vm, "vm-a", devices=Unknown("not read"))
    assert why_not(found(play)) == "the VM's devices are unknown: not read"
    play.leave("esx1")
    assert [one.name for one in found(play).hosts] == ["esx1"]


def test_the_order_is_own_host_then_reserved_then_the_emptiest() -> None:
    play = yard(devices=(DYNAMIC,))
    play.host("esx2", devices=3)
    play.host("esx3", devices=3)
    play.worker("b", "esx2")
    assert [one.name for one in found(play).hosts] == ["esx3", "esx2"]
    assert [one.name for one in found(play, reserved="esx2").hosts] == ["esx2", "esx3"]
    assert [one.name for one in found(play, failed=("host-esx3",)).hosts] == ["esx2", "esx3"]
    play.leave("esx1")
    assert [one.name for one in found(play, reserved="esx2").hosts] == ["esx1", "esx2", "esx3"]


# -- hosts and VMs in doubt


def test_how_a_host_stands() -> None:
    play = yard()
    inventory = play.inventory
    assert judge_host(inventory, inventory.host("host-esx1")).what is HostMode.ENTERING
    play.enter("esx2", state="queued")
    assert judge_host(inventory, inventory.host("host-esx2")).what is HostMode.ENTERING, "queued counts too"
    play.cancel("esx2")
    assert judge_host(inventory, inventory.host("host-esx2")).what is HostMode.IN_SERVICE
    assert judge_host(inventory, None).what is HostMode.UNKNOWN
    play.put(Host, "host-esx2", in_maintenance=True, connection="disconnected")
    assert judge_host(inventory, inventory.host("host-esx2")).what is HostMode.UNKNOWN


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"unread": (Unread("runtime.powerState", "NoPermission"),)}, "does not report these properties of VM a"),
        ({"power": ""}, "has not reported where VM a is"),
        ({"connection": "orphaned"}, "VM a is orphaned"),
        ({"host": "host-gone"}, "does not show the host of VM a"),
        ({}, ""),
    ],
)
def test_a_vm_in_doubt(fields: dict[str, Any], said: str) -> None:
    play = yard()
    play.put(Vm, "vm-a", **fields)
    doubt = vm_doubt(play.inventory, play.vm("a"))
    assert (said in doubt) if said else doubt == ""


def test_who_keeps_a_host_waiting() -> None:
    play = yard(devices=())
    assert why_not_moved_live(play.inventory, play.vm("a")) == "DRS does not move it"
    play.cluster("fullyAutomated")
    assert why_not_moved_live(play.inventory, play.vm("a")) == ""
    play.put(Vm, "vm-a", devices=(VGPU,))
    assert why_not_moved_live(play.inventory, play.vm("a")) == "", "DRS may move it"
    play.put(Vm, "vm-a", devices=(DYNAMIC,))
    assert why_not_moved_live(play.inventory, play.vm("a")) == "it holds a device of the host"
    play.off("a")
    assert why_not_moved_live(play.inventory, play.vm("a")) == ""


# -- what a pass asks for: the same hosts, judged only where they may have what the VM needs

ADDRESSES = ("0000:00:00.0", "0000:01:00.0")
ON_A_HOST = st.sampled_from(
    [
        (DYNAMIC,), (replace(DYNAMIC, id=ADDRESSES[0]),), (replace(DYNAMIC, id=ADDRESSES[1]),), (fixed(),), (VGPU,),
        (OTHER,), (DYNAMIC, DYNAMIC), (), Unknown("not read"),
    ]
)  # fmt: skip
A_VM = st.tuples(st.integers(0, 8), ON_A_HOST, st.sampled_from(("poweredOn", "poweredOn", "poweredOff")))
A_HOST = st.tuples(
    st.integers(0, 2), st.sampled_from(("domain-1", "domain-1", "domain-2", "alone-1", "alone-2")), st.booleans(),
    st.sampled_from(((), (VGPU.profile,))),
)  # fmt: skip


@given(
    st.lists(A_HOST, min_size=1, max_size=9), st.lists(A_VM, max_size=8), A_VM, st.sets(st.integers(0, 7)),
    st.sampled_from((Wish.MIGRATE, *Wish)), st.sampled_from(((), ("other",))), st.data(),
)  # fmt: skip
@settings(max_examples=examples(1000))
def test_a_brief_look_finds_the_same_hosts(
    hosts: list[Any], vms: list[Any], vm: Any, promised: set[int], wish: Wish, clusters: tuple[str, ...], data: Any
) -> None:
    play = Play()
    play.cluster()
    play.put(Cluster, "domain-2", name="other", pool="pool-2")
    for alone in ("alone-1", "alone-2"):
        play.put(Cluster, alone, name=alone, pool=f"pool-{alone}", standalone=True)
    for number, (devices, cluster, away, profiles) in enumerate(hosts):
        play.host(f"esx{number}", devices, cluster=cluster, in_maintenance=away, vgpu_profiles=profiles)
    for number, (host, devices, power) in enumerate([vm, *vms]):
        play.worker(f"w{number}", f"esx{host % len(hosts)}", devices=devices, power=power)
    if vms and data.draw(st.booleans()):  # a change after the index was asked
        find_places(Ask(play.vm("w0"), "", "", wish), play.inventory, {}, brief=True)
        moved = data.draw(st.integers(0, len(vms)))
        play.put(Vm, f"vm-w{moved}", host=f"host-esx{data.draw(st.integers(0, len(hosts) - 1))}")
        play.put(Host, "host-esx0", passthrough=data.draw(st.sampled_from(((), ADDRESSES[:1]))))
    ahead = {"host-esx0": [play.vm(f"w{number}") for number in promised if number <= len(vms)]}
    ask = Ask(play.vm("w0"), "esx0", data.draw(st.sampled_from(("host-esx0", ""))), wish, clusters=clusters)
    whole, brief = (find_places(ask, play.inventory, ahead, brief=how) for how in (False, True))
    assert brief.hosts == whole.hosts
    assert brief.why_none() == whole.why_none()
    assert len(brief.rejected) + brief.more == len(whole.rejected)
    assert brief.rejected == whole.rejected[: len(brief.rejected)]
