"""Which waits are normal, and which want a person: for Events, metrics and alerts. Pure.

Normal is to wait for the own host while that is in maintenance or reboots, for a spare host, for one's turn, below the
ceiling, and for DRS. A person is wanted when the own host is back in service and the VM is not.
"""

from __future__ import annotations

from hostler.host.facts import Known
from hostler.maintenance.hosts import in_service
from hostler.maintenance.model import Decision, State, Subject, Wish, World
from hostler.maintenance.origin import own_host
from hostler.maintenance.reasons import BlockedBy
from hostler.maintenance.vm_marks import Marked

# The alert HostlerMaintenanceBlocked leaves them out.
NORMAL = (BlockedBy.NO_HOST, BlockedBy.SLOT, BlockedBy.CEILING, BlockedBy.DRS)


def is_normal_wait(subject: Subject, one: Decision, world: World) -> bool:
    return one.blocked is not None and one.blocked.by in NORMAL and not is_not_back(subject, world)


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
