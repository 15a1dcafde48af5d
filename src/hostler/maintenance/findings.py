"""What `hostler doctor` says of the vCenters as the operator sees them: by its network and login, not by ours here."""

from __future__ import annotations

from collections.abc import Iterator

from hostler.explain.doctor import RIGHTS_UNREAD, Finding, Level
from hostler.host.conditions import names
from hostler.host.facts import Fact, Unknown
from hostler.maintenance.wire import MaintenanceStatus

UNTOLD = (
    "HOSTLER_MAINTENANCE_SKIP_REMEDIATION=true tells Machines in this cluster. Elsewhere their owner annotates them "
    "with cluster.x-k8s.io/skip-remediation for the time of a maintenance, or pauses the MachineHealthCheck."
)
BY_UUID = "HOSTLER_VM_IDENTITY=uuid: anyone who has the key of one kubelet can have the VM of another machine stopped."
PROVEN = "Set HOSTLER_VM_IDENTITY=proven; docs/maintenance.md (Which VM a node is) says how a node is proven."
MEND = "See docs/vsphere.md. With the operator's VCENTER_ settings, `hostler doctor` tries the same from this machine."

CERTIFICATE = "docs/vsphere.md, Who vCenter is, says how its certificate is judged and where that is kept."


def findings(found: Fact[MaintenanceStatus]) -> Iterator[Finding]:
    """One of each vCenter that the operator follows."""
    if isinstance(found, Unknown):
        why = f"How the operator stands with its vCenters could not be asked: {found.why}"
        yield Finding(Level.WARNING, "maintenance", why, "hostler maintenance status")
        return
    for one in found.value.vcenters:
        what = f"vCenter {one.vcenter}, for the operator"
        yield (
            Finding(Level.FINE, what, one.sentence)
            if one.connected
            else Finding(Level.PROBLEM, what, one.sentence, MEND)
        )
        if one.certificate_warning:
            yield Finding(Level.WARNING, what, one.certificate_warning, CERTIFICATE)
        if one.rights_unknown:
            why = f"It does not say what the operator's user may do: {one.rights_unknown}."
            yield Finding(Level.WARNING, what, why, RIGHTS_UNREAD)
    for refused in found.value.refused:
        yield Finding(Level.WARNING, f"which VM {refused.node} is", f"{refused.why}.", refused.remedy)
    if found.value.by_uuid:
        yield Finding(Level.WARNING, "which VM a node is", BY_UUID, PROVEN)
    if found.value.untold_machines:
        machines = found.value.untold_machines
        why = f"{names(machines)} may be replaced by a MachineHealthCheck while off for maintenance."
        yield Finding(Level.WARNING, "Cluster API", why, UNTOLD)
