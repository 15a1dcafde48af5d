"""Which ESXi host is a stopped VM's own, however it is called by now. Pure.

The host's name is the predecessor's contract and stays on the node; people rename hosts. So the ids are kept beside it:
the managed object id, which means something only within one vCenter, and the hardware's UUID, which outlives both.
"""

from __future__ import annotations

from dataclasses import dataclass

from hostler.host.facts import Known
from hostler.maintenance.hosts import in_service
from hostler.maintenance.model import HOST, ORIGIN, Site, State, Subject, Wish, World
from hostler.maintenance.vm_marks import Marked
from hostler.vsphere.records import Host, Vm

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


def _recorded(subject: Subject) -> Origin:
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
    known = _recorded(subject)
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
    return in_service(site.value, own_host(subject, site.value, subject.vm.value))
