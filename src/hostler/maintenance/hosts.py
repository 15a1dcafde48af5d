"""How an ESXi host stands: in service, on its way into maintenance, in it, or not known. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from hostler.host.conditions import names
from hostler.host.facts import Unknown
from hostler.maintenance.model import Site
from hostler.vsphere.devices import can_vmotion
from hostler.vsphere.records import Host, Unread, Vm

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
