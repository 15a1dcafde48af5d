"""How ESXi hosts and VMs stand by vCenter's word, and which host is a VM's own. Pure.

The name of a VM's own host is the predecessor's contract and stays on the node; people rename hosts. So the ids are
kept beside it: the managed object id, which means something only within one vCenter, and the hardware's UUID, which
outlives both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from hostler.host.conditions import names
from hostler.host.facts import Known, Unknown, fresh
from hostler.instant import Instant
from hostler.maintenance.decision import Hanging
from hostler.maintenance.model import HOST, ORIGIN, Marked, Policy, Site, State, Subject, Wish, World
from hostler.vsphere.devices import can_vmotion
from hostler.vsphere.records import Host, Place, Unread, Vm

_SAYS = ("runtime.inMaintenanceMode", "runtime.connectionState", "recentTask")
_VM_SAYS = ("runtime.powerState", "runtime.host", "runtime.connectionState")


class HostMode(StrEnum):
    IN_SERVICE = "in service"
    ENTERING = "entering maintenance"
    IN_MAINTENANCE = "in maintenance"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class HostStanding:
    what: HostMode
    why: str  # a clause: "it is entering maintenance"

    @property
    def leaving(self) -> bool:
        """It takes no VM and lets none stay."""
        return self.what in (HostMode.ENTERING, HostMode.IN_MAINTENANCE)


def judge_host(site: Site, host: Host | None) -> HostStanding:
    """Unknown wins over everything that could lead to an act; maintenance wins over being away."""
    if host is None:
        return HostStanding(HostMode.UNKNOWN, "vCenter does not show it")
    refused = _unread_properties(host.unread, _SAYS)
    if refused:
        return HostStanding(HostMode.UNKNOWN, f"vCenter does not report {refused}")
    if isinstance(host.in_maintenance, Unknown):
        return HostStanding(HostMode.UNKNOWN, host.in_maintenance.why)
    if host.connection != "connected":
        return HostStanding(HostMode.UNKNOWN, f"vCenter has no connection to it ({host.connection or 'unknown'})")
    if host.in_maintenance:
        return HostStanding(HostMode.IN_MAINTENANCE, "it is in maintenance")
    if site.entering(host.moref) is not None:
        return HostStanding(HostMode.ENTERING, "it is entering maintenance")
    return HostStanding(HostMode.IN_SERVICE, "it is in service")


def is_in_service(site: Site, host: Host | None) -> bool:
    return judge_host(site, host).what is HostMode.IN_SERVICE


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
        return f"vCenter has no connection to {host.name}, the host of VM {vm.name} ({host.connection or 'unknown'})"
    return f"VM {vm.name} is disconnected in vCenter" if vm.connection == "disconnected" else ""


def power_doubt(vm: Vm) -> str:
    """Why nobody knows whether this VM runs, or where it is registered; "" where that is known."""
    refused = _unread_properties(vm.unread, _VM_SAYS)
    if refused:
        return f"vCenter does not report these properties of VM {vm.name or vm.moref}: {refused}"
    if not vm.power or not vm.host:
        return f"vCenter has not reported where VM {vm.name or vm.moref} is or whether it runs"
    return ""


def reboots_in_maintenance(site: Site, vm: Vm) -> bool:
    """The VM is off, and its host is known to be in maintenance and away: most likely it reboots.

    vCenter keeps the last `inMaintenanceMode` of a host that it has no connection to, and calls its VMs disconnected.
    """
    host = site.host(vm.host)
    away = host is not None and host.in_maintenance is True and host.connection in ("disconnected", "notResponding")
    told = not _unread_properties(vm.unread, _VM_SAYS) and vm.connection in ("connected", "disconnected")
    return away and told and vm.power == "poweredOff"


def _unread_properties(unread: Iterable[Unread], paths: Collection[str]) -> str:
    """Which of these properties vCenter would not tell, and why; "" where it told all of them."""
    return names([str(refusal) for refusal in unread if refusal.path in paths], 2)


# -- which host is a VM's own, however it is called by now

_NOT_TOLD = "-"


@dataclass(frozen=True, slots=True)
class Origin:
    """The annotation `hostler.dev/maintenance-origin`: vCenter's instance UUID, host's id, hardware UUID and name.

    The name is the one in the predecessor's annotation. Where that says another by now, the predecessor (or a person)
    has written it since, and what is here is of an earlier maintenance.
    """

    vcenter: str = ""
    host: str = ""
    uuid: str = ""
    name: str = ""

    def text(self) -> str:
        return "/".join(part or _NOT_TOLD for part in (self.vcenter, self.host, self.uuid, self.name))


def read_origin(text: str) -> Origin | None:
    """None where it is missing or was edited: then the host's name decides."""
    parts = text.split("/", 3)
    if len(parts) != 4 or not all(parts):
        return None
    return Origin(*("" if part == _NOT_TOLD else part for part in parts))


def origin_of(site: Site, host: str, name: str) -> str:
    """What is written down of a VM's own host before the VM is stopped, beside its name in the other annotation."""
    found = site.host(host)
    return Origin(site.instance, host, found.uuid if found is not None else "", name).text()


def has_origin(subject: Subject) -> bool:
    """The ids are on the node, and of the maintenance that the host's name is of."""
    found = read_origin(subject.annotations.get(ORIGIN, ""))
    return found is not None and found.name == subject.annotations.get(HOST)


def _recorded_origin(subject: Subject) -> Origin:
    """From the node; for a VM without a node its mark, which has the host's id alone."""
    found = read_origin(subject.annotations.get(ORIGIN, ""))
    if found is not None:
        return found if has_origin(subject) else Origin()
    return Origin(host=subject.mark.host_id) if subject.mark is not None else Origin()


def is_to_return(subject: Subject) -> bool:
    """We stopped its VM, by its node's state or by the VM's own mark, and the VM is off: nothing but its return is due.

    Which nodes claim the VM by now, or whether a node's state can be read, does not matter for that.
    """
    if not isinstance(subject.vm, Known) or subject.vm.value.power != "poweredOff":
        return False
    stopped = subject.mark is not None and subject.mark.what is not Marked.DRAINING
    return stopped or (subject.node is not None and isinstance(subject.state, State))


def own_hosts(subject: Subject, site: Site) -> tuple[Host, ...]:
    """Every host that may be the VM's own: by id, else by hardware UUID, else by name. Two answers are a doubt."""
    known = _recorded_origin(subject)
    if known.host and known.vcenter in ("", site.instance) and (by_id := site.host(known.host)) is not None:
        return (by_id,)
    if known.uuid and (by_uuid := site.hosts_with_uuid(known.uuid)):
        return tuple(by_uuid)
    return tuple(site.hosts_named(subject.origin)) if subject.origin else ()


def own_host(subject: Subject, site: Site, vm: Vm) -> Host | None:
    """The VM's own host. Where two answer, it is the one that the VM is registered on; else nobody can tell.

    Before a maintenance has begun that is where it runs, whatever a mark of an earlier one says.
    """
    begun = subject.node is None or subject.state is not None or vm.power != "poweredOn"
    if not subject.origin or not begun:
        return site.host(vm.host)
    found = own_hosts(subject, site)
    if len(found) == 1:
        return found[0]
    return next((host for host in found if host.moref == vm.host), None)


def is_at_home(subject: Subject, site: Site, vm: Vm) -> bool:
    """The VM is registered on its own host."""
    found = own_hosts(subject, site)
    if not found:  # gone, or a name that vCenter does not show
        return bool(subject.origin) and site.name(vm.host) == subject.origin
    return any(host.moref == vm.host for host in found)


def own_host_missing(subject: Subject, site: Site) -> str:
    """Why nobody can tell which host is the VM's own; "" where that is known."""
    found = own_hosts(subject, site)
    if len(found) > 1:
        return f"{len(found)} hosts may be its own: {', '.join(f'{host.name} ({host.moref})' for host in found)}"
    return "" if found else f"vCenter does not show its own host {subject.origin}"


def is_not_back(subject: Subject, world: World) -> bool:
    """We stopped its VM, its policy lets it come back, its own host is in service, and it is off."""
    site = world.sites.get(subject.vcenter)
    if not isinstance(subject.vm, Known) or not isinstance(site, Known) or subject.vm.value.power != "poweredOff":
        return False
    stopped = subject.state in (State.POWERED_OFF, State.MIGRATED)
    if not stopped and (subject.mark is None or subject.mark.what is Marked.DRAINING):
        return False
    if subject.wish in (Wish.STAY_OFF, Wish.IGNORE):
        return False
    return is_in_service(site.value, own_host(subject, site.value, subject.vm.value))


def why_not_moved_live(site: Site, vm: Vm, vgpu_vmotion: bool = True) -> str:
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
    found = [_judge_datastore(site, vm, moref) for moref in vm.disks or vm.datastores]
    worst = next((each for each in found if each.never), None) or next((each for each in found if each.unknown), None)
    return worst or Restart()


def _judge_datastore(site: Site, vm: Vm, moref: str) -> Restart:
    name, host = site.name(moref), site.name(vm.host)
    place = site.place(moref) or Place(moref)
    if place.accessible is False:
        return Restart(never=f"datastore {name} of VM {vm.name} is inaccessible")
    if not isinstance(place.cut_off, Unknown) and vm.host in place.cut_off:
        return Restart(never=f"datastore {name} of VM {vm.name} is inaccessible on {host}")
    if isinstance(place.accessible, Unknown) or isinstance(place.cut_off, Unknown):
        return Restart(unknown=f"cannot tell whether datastore {name} of VM {vm.name} is accessible on {host}")
    return Restart()


# -- VMs that are not ours


def find_foreign_vms(world: World, policy: Policy, now: Instant) -> Iterator[Hanging]:
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
        for host_id in {host.moref for host in (here, origin) if host is not None}:
            ours.setdefault((subject.vcenter, host_id), []).append(subject.name)
    for (vcenter, moref), nodes in sorted(ours.items()):
        there = sites[vcenter]
        host = there.host(moref)
        if host is None or judge_host(there, host).what is not HostMode.ENTERING:
            continue
        vms = [vm for vm in there.vms_on(moref) if (vcenter, vm.moref) not in known]
        reasons = {vm.name: why_not_moved_live(there, vm, policy.vgpu_vmotion) for vm in vms}
        stuck = tuple(sorted(f"{name} ({why})" for name, why in reasons.items() if why))
        if stuck:
            yield Hanging(vcenter, host.name, stuck, tuple(sorted(set(nodes))))
