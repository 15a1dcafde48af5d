"""Where a VM is to go, and whether our vCenter user may take it there. Pure; for the ledger and for each decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hostler.host.facts import Unknown
from hostler.instant import Instant
from hostler.maintenance.model import TARGET, Policy, Site, Subject, Wish, World
from hostler.maintenance.placement import Ask, Placement, place, pool_for, tied
from hostler.maintenance.rights import EVER, Judged, Lacks, Need, Object, judge, moves_of, needs_of
from hostler.vsphere.records import Host, Vm

Promised = Mapping[str, Sequence[Vm]]  # VMs on their way to each host, by its id
Rights = Mapping[Object, Lacks]


def drs_of(site: Site, vm: Vm) -> str | Unknown:
    host = site.host(vm.host)
    cluster = site.cluster(host.cluster) if host is not None else None
    return cluster.drs(vm.moref) if cluster is not None else "off"


def ask_for(subject: Subject, vm: Vm, site: Site, policy: Policy) -> Ask:
    wish = subject.wish
    return Ask(
        vm,
        subject.origin or site.name(vm.host),
        wish if isinstance(wish, Wish) else Wish.WAIT,
        subject.annotations.get(TARGET, ""),
        subject.remembered.power.hosts,
        policy.clusters,
    )


def permitted(placement: Placement, vm: Vm, site: Site, vcenter: str, rights: Rights, now: Instant) -> Placement:
    """Where our user may take the VM comes first; where it lacks a right only after that, for want of a better one."""

    def lacks(host: Host) -> bool:
        needs = moves_of(vm, pool_for(site, vm, host)) if host.moref != vm.host else ()
        return bool(judge(needs, rights, vcenter, now).lacking)

    return replace(placement, hosts=tuple(sorted(placement.hosts, key=lacks)))


def destination(
    subject: Subject, vm: Vm, site: Site, policy: Policy, promised: Promised, rights: Rights, now: Instant
) -> Placement | None:
    """Where the VM is to go; None where it is not for us to choose: it waits, or DRS chooses."""
    if subject.wish is not Wish.MIGRATE or drs_of(site, vm) == "fullyAutomated" or tied(vm) is True:
        return None
    found = place(ask_for(subject, vm, site, policy), site, promised)
    return permitted(found, vm, site, subject.vcenter, rights, now)


def needed(
    subject: Subject, vm: Vm, site: Site, policy: Policy, promised: Promised, rights: Rights, now: Instant
) -> tuple[Need, ...]:
    """What it takes to stop this VM and to start it where it is to go."""
    placement = destination(subject, vm, site, policy, promised, rights, now)
    best = placement.best if placement is not None else None
    # Where it is to go may not be known yet: then it may have to move.
    moves = (best is not None and best.moref != vm.host) or (placement is not None and bool(placement.unknown))
    return needs_of(vm, moves=moves, into=pool_for(site, vm, best) if best is not None else None)


def judged(
    subject: Subject, vm: Vm, site: Site, world: World, policy: Policy, promised: Promised, now: Instant,
    max_age: float = EVER,
) -> Judged:  # fmt: skip
    """Whether our user may do what this VM's maintenance takes."""
    if not policy.clusters:
        # Nearly always it may do all of it, and then nobody need look for a host, which takes long among many.
        most = judge(needs_of(vm, moves=True), world.rights, subject.vcenter, now, max_age)
        if not most.lacking:
            return most
    needs = needed(subject, vm, site, policy, promised, world.rights, now)
    return judge(needs, world.rights, subject.vcenter, now, max_age)
