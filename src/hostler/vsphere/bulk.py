"""Reads of many objects in one call each. They block: only ever on the room's threads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hostler.uuids import canonical
from hostler.vsphere import faults, selection
from hostler.vsphere.decode import HEAVY_VM, TASK, VM, Change, change
from hostler.vsphere.session import NotConnected, Session
from hostler.vsphere.vmomi import PropertyCollector as PC
from hostler.vsphere.vmomi import Unreadable, moref, vim, vmodl


@dataclass(frozen=True, slots=True)
class Checked:
    """One VM as the node checks want it. Two VMs with one UUID are two of these."""

    uuid: str  # as it was asked for
    vm: str
    name: str
    hardware_version: str  # vmx-19
    host: str
    esxi_version: str  # 8.0.3; "" where the host would not say
    guest: str = ""  # the host name that its guest reports


def retrieve(session: Session, spec: Any) -> Iterator[Any]:
    """Every object a filter names. The server may answer in pages."""
    collector = PC(session.content.propertyCollector._moId, session.calls)
    page = collector.RetrievePropertiesEx([spec], PC.RetrieveOptions())
    while page is not None:
        yield from page.objects or ()
        page = collector.ContinueRetrievePropertiesEx(page.token) if page.token else None


def read_vms(session: Session, vms: Collection[str]) -> list[Change]:
    """All we keep of these VMs, devices too, as of now. One that is gone is a change that says so."""
    if not vms:
        return []
    wanted = [vim.VirtualMachine(one, session.calls) for one in sorted(vms)]
    found: dict[str, Change] = {}
    for content in retrieve(session, selection.of_objects(wanted, vim.VirtualMachine, (*VM, *HEAVY_VM))):
        values = [(one.name, one.val) for one in content.propSet or ()]
        refused = [
            one for one in content.missingSet or () if not isinstance(one.fault, vmodl.fault.ManagedObjectNotFound)
        ]
        one = change(content.obj, values, refused)
        if one is not None and (values or refused):
            found[one.moref] = one
    return list(found.values())


# What a maintenance is decided on. The rest may come as late as its push.
_STANDING: Mapping[Any, tuple[str, ...]] = {
    vim.HostSystem: ("runtime.connectionState", "runtime.powerState", "runtime.inMaintenanceMode"),
    vim.VirtualMachine: ("runtime.powerState", "runtime.host", "runtime.connectionState"),
    vim.Task: tuple(TASK),
}


def read_standing(
    session: Session, hosts: Collection[str], vms: Collection[str]
) -> tuple[list[Change], frozenset[str]]:
    """How these hosts and VMs stand now, and their recent tasks; one call however many they are.

    Second: the ids of all objects in the answer, also of those whose properties were refused.
    """
    found: dict[str, Change] = {}
    shown: set[str] = set()
    for content in retrieve(session, selection.of_tasks(hosts, vms, session.calls, _STANDING)):
        # What is refused here, or gone, is left to the push, which says it in all its parts.
        one = change(content.obj, [(one.name, one.val) for one in content.propSet or ()])
        if one is not None and one.fields:
            found[one.moref] = one
        shown.add(moref(content.obj))
    return list(found.values()), frozenset(shown)


def check_nodes(session: Session, uuids: Iterable[str]) -> list[Checked]:
    """Hardware and ESXi versions for many UUIDs: one read over the whole inventory, however many they are.

    A UUID that is not in the answer is not in this vCenter; one that is there twice belongs to two VMs.
    """
    asked = {canonical(uuid): uuid for uuid in uuids}
    asked.pop(None, None)
    paths: Mapping[Any, tuple[str, ...]] = {
        vim.VirtualMachine: (
            "name",
            "config.uuid",
            "config.instanceUuid",
            "config.version",
            "runtime.host",
            "guest.hostName",
        ),
        vim.HostSystem: ("config.product.version", "config.product.apiVersion"),
    }
    viewed = selection.view(session, (vim.VirtualMachine, vim.HostSystem))
    try:
        read = {
            c.obj: {p.name: p.val for p in c.propSet or ()} for c in retrieve(session, selection.of_view(viewed, paths))
        }
    finally:
        viewed.DestroyView()
    esxi = {moref(obj): _esxi(has) for obj, has in read.items()}
    found: list[Checked] = []
    for obj, has in read.items():
        own = {canonical(str(has.get(path) or "")) for path in ("config.uuid", "config.instanceUuid")}
        for uuid in sorted(asked[one] for one in own if one in asked):
            host, version = moref(has.get("runtime.host")), str(has.get("config.version", ""))
            name, guest = str(has.get("name") or ""), str(has.get("guest.hostName") or "")
            found.append(Checked(uuid, moref(obj), name, version, host, esxi.get(host, ""), guest))
    return sorted(found, key=lambda one: (one.uuid, one.vm))


def _esxi(has: Mapping[str, Any]) -> str:
    """The version of an ESXi host. An update of 6.7 shows only in the version of its API: 6.7.0 and 6.7.3."""
    said, api = (str(has.get(f"config.product.{name}", "")) for name in ("version", "apiVersion"))
    short = ".".join(api.split(".")[:3])

    def number(text: str) -> tuple[int, ...]:
        return tuple(int(part) if part.isdigit() else 0 for part in text.split("."))

    return short if said and number(short) > number(said) else said


@dataclass(frozen=True, slots=True)
class Privilege:
    """What our user needs, and for what; the sentence names it."""

    id: str
    why: str


# What docs/vsphere.md asks for. Without the optional ones all else works.
NEEDED = (
    Privilege("System.View", "to see the inventory"),
    Privilege("System.Read", "to see hosts, VMs and tasks"),
    Privilege("VirtualMachine.Interact.PowerOff", "to shut down guests and to power off"),
    Privilege("VirtualMachine.Interact.PowerOn", "to power on again"),
    Privilege("Resource.ColdMigrate", "to move a powered-off VM to another host"),
    Privilege("Resource.AssignVMToPool", "to move a VM into another host's resource pool"),
)
OPTIONAL = (
    Privilege("Global.SetCustomField", "to say on the VM itself why it is off"),
    Privilege("Global.ManageCustomFields", "to define the attribute for that, once"),
)


class NoAnswer(Exception):
    """vCenter would not say what our user may do, however it was asked; the text is what it said instead."""


def missing_at_root(session: Session, wanted: Collection[Privilege]) -> list[Privilege]:
    """Which of these our user lacks at the root of the inventory."""
    root = session.content.rootFolder
    found = _lacking(session, [vim.Folder(moref(root), session.calls)], wanted)
    if moref(root) not in found:
        raise NoAnswer("it said nothing of its root folder")
    return found[moref(root)]


def lacking_on(
    session: Session, vms: Collection[str], pools: Collection[str], wanted: Collection[Privilege]
) -> dict[str, list[Privilege]]:
    """Which of these our user lacks, by VM or resource pool. One that vCenter left out is not in the answer."""
    # A reference names the type of its object: vCenter looks objects up by both.
    objects = [vim.VirtualMachine(one, session.calls) for one in sorted(vms)]
    objects += [vim.ResourcePool(one, session.calls) for one in sorted(pools)]
    return _lacking(session, objects, wanted)


# A question that is refused or answered in a way that nobody understands; a connection that broke is neither.
_REFUSED: tuple[type[Exception], ...] = (vmodl.MethodFault, Unreadable)


def _lacking(session: Session, objects: list[Any], wanted: Collection[Privilege]) -> dict[str, list[Privilege]]:
    """By our session; what that refuses or leaves out, by our user's name, which needs less (System.View)."""
    content = session.content
    manager = vim.AuthorizationManager(content.authorizationManager._moId, session.calls)
    own = content.sessionManager.currentSession
    if own is None:
        raise NotConnected("the session is not logged in")
    lacking: dict[str, list[Privilege]] = {}
    refused = ""
    try:
        lacking = _by_session(manager, own, objects, wanted)
    except vim.fault.NotAuthenticated:
        raise
    except _REFUSED as error:
        refused = f"HasPrivilegeOnEntities: {faults.read(error).sentence}"
    left = [one for one in objects if moref(one) not in lacking]
    if not left:
        return lacking
    try:
        return lacking | _by_user(manager, own, left, wanted)
    except vim.fault.NotAuthenticated:
        raise
    except _REFUSED as error:
        if not refused:
            return lacking
        raise NoAnswer(f"{refused}; FetchUserPrivilegeOnEntities: {faults.read(error).sentence}") from error


def _by_session(
    manager: Any, own: Any, objects: list[Any], wanted: Collection[Privilege]
) -> dict[str, list[Privilege]]:
    by_id = {one.id: one for one in wanted}
    answer = manager.HasPrivilegeOnEntities(objects, own.key, list(by_id))
    return {
        moref(entity.entity): [by_id[one.privId] for one in entity.privAvailability or () if not one.isGranted]
        for entity in answer or ()
    }


def _by_user(manager: Any, own: Any, objects: list[Any], wanted: Collection[Privilege]) -> dict[str, list[Privilege]]:
    lacking: dict[str, list[Privilege]] = {}
    for one in manager.FetchUserPrivilegeOnEntities(objects, own.userName) or ():
        granted = frozenset(one.privileges or ())
        if "System.View" in granted:  # we see the object: an answer without it is not about our user
            lacking[moref(one.entity)] = [privilege for privilege in wanted if privilege.id not in granted]
    return lacking
