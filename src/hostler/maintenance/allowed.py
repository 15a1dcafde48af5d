"""Where a VM is to go, and whether our vCenter user may take it there. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hostler.host.facts import Unknown
from hostler.instant import Instant
from hostler.maintenance.model import TARGET, Policy, Rejected, Site, Subject, Wish
from hostler.maintenance.origin import own_host
from hostler.maintenance.placement import Ask, Forbidden, Placement, place, pool_for, tied
from hostler.maintenance.rights import Lacks, Object, judge, moves_of
from hostler.vsphere.records import Host, Vm

Promised = Mapping[str, Sequence[Vm]]  # VMs on their way to each host, by its id
Rights = Mapping[Object, Lacks]


def drs_of(site: Site, vm: Vm) -> str | Unknown:
    host = site.host(vm.host)
    cluster = site.cluster(host.cluster) if host is not None else None
    return cluster.drs(vm.moref) if cluster is not None else "off"


def ask_for(subject: Subject, vm: Vm, site: Site, policy: Policy) -> Ask:
    wish, own = subject.wish, own_host(subject, site, vm)
    return Ask(
        vm,
        subject.origin or site.name(vm.host),
        own.moref if own is not None else "",
        wish if isinstance(wish, Wish) else Wish.WAIT,
        subject.annotations.get(TARGET, ""),
        (*subject.remembered.relocate.hosts, *subject.remembered.power.hosts),
        policy.clusters,
    )


def permitted(placement: Placement, vm: Vm, site: Site, vcenter: str, rights: Rights, now: Instant) -> Placement:
    """Only the hosts that our user may take the VM to; the others are named with the right that is missing."""
    lacks = {host.moref: _lacks_to(vm, host, site, vcenter, rights, now) for host in placement.hosts}
    forbidden = tuple(Forbidden(host, lacks[host.moref]) for host in placement.hosts if lacks[host.moref])
    return replace(
        placement,
        hosts=tuple(host for host in placement.hosts if not lacks[host.moref]),
        rejected=(
            *placement.rejected,
            *(Rejected(one.host.name, f"our vCenter user lacks {one.lacks}") for one in forbidden),
        ),
        forbidden=forbidden,
    )


def _lacks_to(vm: Vm, host: Host, site: Site, vcenter: str, rights: Rights, now: Instant) -> str:
    """Which rights our user lacks to move the VM to that host; "" where it has them, or nobody has looked."""
    if host.moref == vm.host:
        return ""
    found = judge(moves_of(vm, pool_for(site, vm, host)), rights, vcenter, now)
    return str(found) if found.lacking else ""


def destination(
    subject: Subject, vm: Vm, site: Site, policy: Policy, promised: Promised, rights: Rights, now: Instant
) -> Placement | None:
    """Where the VM is to go; None where it is not for us to choose: it waits, or DRS chooses."""
    if subject.wish is not Wish.MIGRATE or drs_of(site, vm) == "fullyAutomated" or tied(vm):
        return None
    found = place(ask_for(subject, vm, site, policy), site, promised)
    return permitted(found, vm, site, subject.vcenter, rights, now)
