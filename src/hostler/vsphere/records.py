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
    """How a VM holds a device. What each kind means for moving the VM is in `devices`."""

    FIXED = "fixed"  # by address
    DYNAMIC = "dynamic"  # any device of the allowed vendor:device
    VGPU = "vgpu"  # a share of a GPU, by profile
    SRIOV = "sriov"  # a virtual function of a network card; `id` where the physical function is given by address
    USB = "usb"  # a USB device of the host
    USB_REMOTE = "usb-remote"  # as USB, and the VM may run on another host meanwhile
    OTHER = "other"  # a kind we do not know


@dataclass(frozen=True, slots=True)
class Pci:
    """A PCI device of a host. `vendor` and `device` are four hex digits."""

    id: str
    vendor: str = ""
    device: str = ""
    name: str = ""
    passthrough: bool = False  # enabled and active: a VM may have it
    label: str = ""  # the hardware label that an administrator gave it


@dataclass(frozen=True, slots=True)
class VmDevice:
    """A device of a host that a VM has. `allowed` are "vendor:device" pairs; `id` is the address, if any."""

    backing: Backing
    id: str = ""
    allowed: Names = ()
    label: str = ""
    profile: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Unread:
    """A property that vCenter would not tell, and why."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


@dataclass(frozen=True, slots=True)
class Host:
    moref: str
    name: str = ""
    uuid: str = ""  # of the hardware: the same after the host was renamed, or removed and added again
    cluster: str = ""  # the id of its cluster, or of its own compute resource where it stands alone
    connection: str = ""  # connected, disconnected, notResponding
    power: str = ""  # poweredOn, poweredOff, standBy, unknown
    in_maintenance: bool | Unknown = NOT_SAID
    standby: str = ""  # none, entering, in, exiting
    version: str = ""
    build: str = ""
    cpu_mhz: int = 0
    cpu_cores: int = 0
    cpu_threads: int = 0  # logical CPUs: what ESXi compares a VM's vCPUs with
    memory_mb: int = 0
    passthrough: Names = ()  # addresses of the devices a VM may have
    labels: tuple[tuple[str, str], ...] = ()  # hardware labels of those that have one, by address
    pci: tuple[Pci, ...] = ()
    vgpu_profiles: Names = ()
    datastores: Names = ()
    networks: Names = ()
    vms: Names = ()
    unread: tuple[Unread, ...] = ()

    @property
    def offers_devices(self) -> bool:
        return bool(self.passthrough or self.vgpu_profiles)

    @property
    def devices(self) -> tuple[Pci, ...]:
        """The devices a VM may have. One whose vendor is not known yet has an empty vendor and fits nobody."""
        known, labels = {pci.id: pci for pci in self.pci}, dict(self.labels)
        return tuple(
            Pci(id, one.vendor, one.device, one.name, True, labels.get(id, ""))
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
    guest_name: str = ""  # the host name that the guest reports; "" while its Tools do not run
    tools: str = ""  # guestToolsRunning, guestToolsNotRunning, guestToolsExecutingScripts
    hardware_version: str = ""  # vmx-19
    cpus: int = 0
    memory_mb: int = 0
    template: bool = False
    datastores: Names = ()
    disks: Names = ()  # the datastores of its disks; told with its devices
    networks: Names = ()
    attributes: tuple[tuple[int, str], ...] = ()  # custom attributes by key; `Inventory.attribute` knows the names
    devices: tuple[VmDevice, ...] | Unknown = NOT_READ
    unread: tuple[Unread, ...] = ()

    @property
    def tools_run(self) -> bool:
        return self.tools == "guestToolsRunning" or self.tools_start

    @property
    def tools_start(self) -> bool:
        """VMware Tools are starting: the guest may be asked, and may not be able to answer yet."""
        return self.tools == "guestToolsExecutingScripts"


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
    unread: tuple[Unread, ...] = ()

    @property
    def under_way(self) -> bool:
        return self.state in ("queued", "running")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster, or what stands in its place for a host that is in none."""

    moref: str
    name: str = ""
    drs_enabled: bool | Unknown = NOT_SAID
    drs_behaviour: str = ""  # fullyAutomated, partiallyAutomated, manual
    overrides_allowed: bool = True
    drs_vms: tuple[tuple[str, bool, str], ...] = ()  # vm, enabled, behaviour ("" = the cluster's)
    pool: str = ""  # its root resource pool: a VM that comes from another cluster or host needs it
    standalone: bool = False  # no cluster: the compute resource of one host
    unread: tuple[Unread, ...] = ()

    def drs(self, vm: str) -> str | Unknown:
        """What DRS does with this VM: "off", "manual", "partiallyAutomated" or "fullyAutomated"."""
        if self.standalone:
            return "off"
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
    """A datastore or a network. Whether it can be reached is told of datastores only."""

    moref: str
    name: str = ""
    accessible: bool | Unknown = NOT_SAID  # by any host
    cut_off: Names | Unknown = NOT_SAID  # ids of hosts that mount it and cannot reach it
    unread: tuple[Unread, ...] = ()


@dataclass(frozen=True, slots=True)
class Fields:
    """The custom attributes that are defined, as (key, name); one object per vCenter."""

    moref: str
    names: tuple[tuple[int, str], ...] = ()
    unread: tuple[Unread, ...] = ()


Record: TypeAlias = Host | Vm | Task | Cluster | Place | Fields


@dataclass(frozen=True, slots=True)
class Change:
    """What one object's update says. `fields` None: the object is gone."""

    kind: type[Record]
    moref: str
    fields: Mapping[str, Any] | None
    unread: tuple[Unread, ...] = ()
    told: Names = ()  # the paths that were told: what was refused before is known now


@dataclass(frozen=True, slots=True)
class Entering:
    """A host is on its way into maintenance. vLCM repeats the task: all of them are one."""

    host: str
    tasks: Names
    since: Instant | None  # vCenter's clock
