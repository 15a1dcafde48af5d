"""Whether vCenter says that a VM could be started again on its own host. Asked before it is stopped. Pure.

Only what vCenter itself says counts here, and what it does not say holds the stop too. What our model doubts (logical
CPUs, memory, devices, networks) is `placement.doubt_at_home`: the VM runs there now, so it holds no stop by default.
"""

from __future__ import annotations

from dataclasses import dataclass

from hostler.host.facts import Unknown
from hostler.maintenance.model import Site
from hostler.vsphere.records import Place, Vm

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
