"""What we keep of a vCenter: small frozen records with only the fields that somebody uses.

Managed objects are named by their id ("host-21", "vm-60"), unique within one vCenter. A text that vCenter did not
tell is "", and a fact whose absence could do harm is `Unknown`. Times are vCenter's clock: never compare with ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from hostler.host.facts import Unknown
from hostler.instant import Instant
from hostler.vsphere.outcomes import Fault

NOT_SAID = Unknown("vCenter has not said")
NOT_READ = Unknown("not read: its host offers no passthrough device and nobody follows this VM")
ENTER_MAINTENANCE = "HostSystem.enterMaintenanceMode"
POWER_ON, POWER_OFF = "VirtualMachine.powerOn", "VirtualMachine.powerOff"
RELOCATE = "VirtualMachine.relocate"
Names: TypeAlias = tuple[str, ...]


class Backing(StrEnum):
    """How a VM holds a device."""

    FIXED = "fixed"  # by address: starts on this host only
    DYNAMIC = "dynamic"  # any device of the allowed vendor:device
    VGPU = "vgpu"  # a share of a GPU, by profile
    OTHER = "other"  # a kind we do not know: treat as one that cannot start elsewhere


@dataclass(frozen=True, slots=True)
class Pci:
    """A PCI device of a host. `vendor` and `device` are four hex digits."""

    id: str
    vendor: str = ""
    device: str = ""
    name: str = ""
    passthrough: bool = False  # enabled and active: a VM may have it


@dataclass(frozen=True, slots=True)
class VmDevice:
    """A device that ties a VM to hosts. `allowed` are "vendor:device" pairs; `id` is the address, if any."""

    backing: Backing
    id: str = ""
    allowed: Names = ()
    label: str = ""
    profile: str = ""


@dataclass(frozen=True, slots=True)
class Host:
    moref: str
    name: str = ""
    cluster: str = ""  # the id of its cluster, or of its own compute resource where it stands alone
    connection: str = ""  # connected, disconnected, notResponding
    power: str = ""  # poweredOn, poweredOff, standBy, unknown
    in_maintenance: bool | Unknown = NOT_SAID
    standby: str = ""  # none, entering, in, exiting
    version: str = ""
    build: str = ""
    cpu_mhz: int = 0
    cpu_cores: int = 0
    memory_mb: int = 0
    passthrough: Names = ()  # addresses of the devices a VM may have
    pci: tuple[Pci, ...] = ()
    vgpu_profiles: Names = ()
    datastores: Names = ()
    networks: Names = ()
    vms: Names = ()
    unread: Names = ()  # what vCenter would not tell, with why

    @property
    def offers_devices(self) -> bool:
        return bool(self.passthrough or self.vgpu_profiles)

    @property
    def devices(self) -> tuple[Pci, ...]:
        """The devices a VM may have. One whose vendor is not known yet has an empty vendor and fits nobody."""
        known = {pci.id: pci for pci in self.pci}
        return tuple(
            Pci(id, one.vendor, one.device, one.name, True)
            for id in self.passthrough
            for one in [known.get(id, Pci(id))]
        )


@dataclass(frozen=True, slots=True)
class Vm:
    moref: str
    name: str = ""
    uuid: str = ""
    instance_uuid: str = ""
    host: str = ""
    power: str = ""  # poweredOn, poweredOff, suspended
    connection: str = ""  # connected, disconnected, inaccessible, orphaned, invalid
    tools: str = ""  # guestToolsRunning, guestToolsNotRunning, guestToolsExecutingScripts
    hardware_version: str = ""  # vmx-19
    cpus: int = 0
    memory_mb: int = 0
    template: bool = False
    datastores: Names = ()
    networks: Names = ()
    attributes: tuple[tuple[int, str], ...] = ()  # custom attributes by key; `Inventory.attribute` knows the names
    devices: tuple[VmDevice, ...] | Unknown = NOT_READ
    unread: Names = ()

    @property
    def tools_run(self) -> bool:
        return self.tools == "guestToolsRunning"


@dataclass(frozen=True, slots=True)
class Task:
    moref: str
    kind: str = ""  # info.descriptionId: "HostSystem.enterMaintenanceMode"
    state: str = ""  # queued, running, success, error
    entity: str = ""
    cancelled: bool = False  # somebody asked for its end
    queued: Instant | None = None
    started: Instant | None = None
    error: Fault | None = None
    unread: Names = ()

    @property
    def under_way(self) -> bool:
        return self.state in ("queued", "running")


@dataclass(frozen=True, slots=True)
class Cluster:
    moref: str
    name: str = ""
    drs_enabled: bool | Unknown = NOT_SAID
    drs_behaviour: str = ""  # fullyAutomated, partiallyAutomated, manual
    overrides_allowed: bool = True
    drs_vms: tuple[tuple[str, bool, str], ...] = ()  # vm, enabled, behaviour ("" = the cluster's)
    pool: str = ""  # its root resource pool: a VM that comes from another cluster needs it
    unread: Names = ()

    def drs(self, vm: str) -> str | Unknown:
        """What DRS does with this VM: "off", "manual", "partiallyAutomated" or "fullyAutomated"."""
        if isinstance(self.drs_enabled, Unknown):
            return self.drs_enabled
        if not self.drs_enabled:
            return "off"
        for key, enabled, behaviour in self.drs_vms:
            if key == vm and self.overrides_allowed:
                return (behaviour or self.drs_behaviour) if enabled else "off"
        return self.drs_behaviour


@dataclass(frozen=True, slots=True)
class Place:
    """A datastore or a network: only its name matters."""

    moref: str
    name: str = ""
    unread: Names = ()


@dataclass(frozen=True, slots=True)
class Fields:
    """The custom attributes that are defined, as (key, name); one object per vCenter."""

    moref: str
    names: tuple[tuple[int, str], ...] = ()
    unread: Names = ()


Record: TypeAlias = Host | Vm | Task | Cluster | Place | Fields


@dataclass(frozen=True, slots=True)
class Change:
    """What one object's update says. `fields` None: the object is gone."""

    kind: type[Record]
    moref: str
    fields: Mapping[str, Any] | None
    unread: Names = ()  # "path: why" of what was refused
    told: Names = ()  # the paths that were told: what was refused before is known now


@dataclass(frozen=True, slots=True)
class Entering:
    """A host is on its way into maintenance. vLCM repeats the task: all of them are one."""

    host: str
    tasks: Names
    since: Instant | None  # vCenter's clock
