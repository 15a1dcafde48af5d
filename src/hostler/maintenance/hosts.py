"""How an ESXi host and its VMs stand by vCenter's own word: in service, leaving, able to start, in the way. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from hostler.host.conditions import names
from hostler.host.facts import Known, Unknown, fresh
from hostler.instant import Instant
from hostler.maintenance.model import Hanging, Policy, Site, World
from hostler.vsphere.devices import can_vmotion
from hostler.vsphere.records import Host, Place, Unread, Vm

_SAYS = ("runtime.inMaintenanceMode", "runtime.connectionState", "recentTask")
_VM_SAYS = ("runtime.powerState", "runtime.host", "runtime.connectionState")


class Is(StrEnum):
    OUT = "in service"
    ENTERING = "entering maintenance"
    IN = "in maintenance"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Stands:
    what: Is
    why: str  # a clause: "it is entering maintenance"

    @property
    def leaving(self) -> bool:
        """It takes no VM and lets none stay."""
        return self.what in (Is.ENTERING, Is.IN)


def stands(site: Site, host: Host | None) -> Stands:
    """Unknown wins over everything that could lead to an act; maintenance wins over being away."""
    if host is None:
        return Stands(Is.UNKNOWN, "vCenter does not show it")
    refused = _untold(host.unread, _SAYS)
    if refused:
        return Stands(Is.UNKNOWN, f"vCenter would not tell {refused}")
    if isinstance(host.in_maintenance, Unknown):
        return Stands(Is.UNKNOWN, host.in_maintenance.why)
    if host.connection != "connected":
        return Stands(Is.UNKNOWN, f"vCenter has no connection to it ({host.connection or 'not said'})")
    if host.in_maintenance:
        return Stands(Is.IN, "it is in maintenance")
    if site.entering(host.moref) is not None:
        return Stands(Is.ENTERING, "it is entering maintenance")
    return Stands(Is.OUT, "it is in service")


def vm_doubt(site: Site, vm: Vm) -> str:
    """Why nothing may be decided on this VM's record; "" where all that matters is known."""
    if found := power_doubt(vm):
        return found
    if vm.connection not in ("connected", ""):
        return f"VM {vm.name} is {vm.connection} in vCenter"
    if site.host(vm.host) is None:
        return f"vCenter does not show the host of VM {vm.name}"
    return return_doubt(site, vm)


def return_doubt(site: Site, vm: Vm) -> str:
    """Why a VM that vCenter calls off may run all the same; "" where that is known.

    A VM that is invalid, orphaned or inaccessible is off: whether it can start, vCenter says when it is asked to.
    """
    if found := power_doubt(vm):
        return found
    host = site.host(vm.host)
    if host is not None and host.connection != "connected":
        return f"vCenter has no connection to {host.name}, the host of VM {vm.name} ({host.connection or 'not said'})"
    return f"VM {vm.name} is disconnected in vCenter" if vm.connection == "disconnected" else ""


def power_doubt(vm: Vm) -> str:
    """Why nobody knows whether this VM runs, or where it is registered; "" where that is known."""
    refused = _untold(vm.unread, _VM_SAYS)
    if refused:
        return f"vCenter would not tell about VM {vm.name or vm.moref}: {refused}"
    if not vm.power or not vm.host:
        return f"vCenter has not said where VM {vm.name or vm.moref} is or whether it runs"
    return ""


def reboots_in_maintenance(site: Site, vm: Vm) -> bool:
    """The VM is off, and its host is known to be in maintenance and away: most likely it reboots.

    vCenter keeps the last `inMaintenanceMode` of a host that it has no connection to, and calls its VMs disconnected.
    """
    host = site.host(vm.host)
    away = host is not None and host.in_maintenance is True and host.connection in ("disconnected", "notResponding")
    told = not _untold(vm.unread, _VM_SAYS) and vm.connection in ("connected", "disconnected")
    return away and told and vm.power == "poweredOff"


def _untold(unread: Iterable[Unread], paths: Collection[str]) -> str:
    """Which of these properties vCenter would not tell, and why; "" where it told all of them."""
    return names([str(one) for one in unread if one.path in paths], 2)


def in_service(site: Site, host: Host | None) -> bool:
    return stands(site, host).what is Is.OUT


def cannot_move(site: Site, vm: Vm, vgpu_vmotion: bool = True) -> str:
    """Why a running VM keeps its host from maintenance; "" where vCenter moves it by itself, or that is not known."""
    if vm.power != "poweredOn" or vm.template:
        return ""
    if not isinstance(vm.devices, Unknown) and not can_vmotion(vm.devices, vgpu_vmotion):
        return "it holds a device of the host"
    host = site.host(vm.host)
    cluster = site.cluster(host.cluster) if host is not None else None
    drs = cluster.drs(vm.moref) if cluster is not None else "off"
    if isinstance(drs, Unknown) or drs == "fullyAutomated":
        return ""
    return "DRS does not move it"


# -- whether a VM could be started again, asked before it is stopped
#
# Only what vCenter itself says counts here, and what it does not say holds the stop too. What our model doubts (logical
# CPUs, memory, devices, networks) is `placement.doubt_at_home`: the VM runs there now, so it holds no stop by default.


_LOST = ("invalid", "orphaned", "inaccessible")


@dataclass(frozen=True, slots=True)
class Restart:
    """`never`: vCenter says that it could not be started again. `unknown`: vCenter does not say."""

    never: str = ""
    unknown: str = ""


def judge_restart(site: Site, vm: Vm) -> Restart:
    """By the VM's own connection and by the datastores it needs, on the host it runs on."""
    if vm.connection in _LOST:
        return Restart(never=f"VM {vm.name} is {vm.connection} in vCenter")
    if vm.connection != "connected":
        return Restart(unknown=f"vCenter does not say whether VM {vm.name} is connected ({vm.connection or 'nothing'})")
    if not vm.disks and not vm.datastores:  # each VM has its own files somewhere
        return Restart(unknown=f"vCenter does not say on which datastores VM {vm.name} is")
    found = [_judge_datastore(site, vm, one) for one in vm.disks or vm.datastores]
    worst = next((one for one in found if one.never), None) or next((one for one in found if one.unknown), None)
    return worst or Restart()


def _judge_datastore(site: Site, vm: Vm, moref: str) -> Restart:
    name, host = site.name(moref), site.name(vm.host)
    place = site.place(moref) or Place(moref)
    if place.accessible is False:
        return Restart(never=f"datastore {name} of VM {vm.name} is inaccessible")
    if not isinstance(place.cut_off, Unknown) and vm.host in place.cut_off:
        return Restart(never=f"datastore {name} of VM {vm.name} is inaccessible on {host}")
    if isinstance(place.accessible, Unknown) or isinstance(place.cut_off, Unknown):
        return Restart(unknown=f"whether datastore {name} of VM {vm.name} is accessible on {host} is not known")
    return Restart()


# -- VMs that are not ours


def hanging(world: World, policy: Policy, now: Instant) -> Iterator[Hanging]:
    """VMs that are not ours, run, cannot move, and sit on a host that goes into maintenance under one of ours."""
    ours: dict[tuple[str, str], list[str]] = {}
    known: set[tuple[str, str]] = set()
    sites: dict[str, Site] = {}
    for subject in world.subjects:
        if not isinstance(subject.vm, Known):
            continue
        known.add((subject.vcenter, subject.vm.value.moref))
        site = fresh(world.sites[subject.vcenter], now, policy.max_age)
        if not isinstance(site, Known):
            continue
        sites[subject.vcenter] = site.value
        here = site.value.host(subject.vm.value.host)
        origin = next(iter(site.value.hosts_named(subject.origin)), None) if subject.origin else None
        for one in {one.moref for one in (here, origin) if one is not None}:
            ours.setdefault((subject.vcenter, one), []).append(subject.name)
    for (vcenter, moref), nodes in sorted(ours.items()):
        there = sites[vcenter]
        host = there.host(moref)
        if host is None or stands(there, host).what is not Is.ENTERING:
            continue
        vms = [vm for vm in there.vms_on(moref) if (vcenter, vm.moref) not in known]
        reasons = {vm.name: cannot_move(there, vm, policy.vgpu_vmotion) for vm in vms}
        stuck = tuple(sorted(f"{name} ({why})" for name, why in reasons.items() if why))
        if stuck:
            yield Hanging(vcenter, host.name, stuck, tuple(sorted(set(nodes))))
