"""Whoever else keeps a host from maintenance: VMs that are not ours, run, and do not move by themselves. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from hostler.host.facts import Known, fresh
from hostler.instant import Instant
from hostler.maintenance.hosts import Is, cannot_move, stands
from hostler.maintenance.model import Hanging, Policy, Site, World


def hanging(world: World, policy: Policy, now: Instant) -> Iterator[Hanging]:
    """VMs that are not ours, run, cannot move, and sit on a host that goes into maintenance under one of ours."""
    ours: dict[tuple[str, str], list[str]] = {}
    known: set[tuple[str, str]] = set()
    sites: dict[str, Site] = {}
    for subject in world.subjects:
        if not isinstance(subject.vm, Known):
            continue
        known.add((subject.vcenter, subject.vm.value.moref))
        site = fresh(world.sites[subject.vcenter], now, policy.max_age)
        if not isinstance(site, Known):
            continue
        sites[subject.vcenter] = site.value
        here = site.value.host(subject.vm.value.host)
        origin = next(iter(site.value.hosts_named(subject.origin)), None) if subject.origin else None
        for one in {one.moref for one in (here, origin) if one is not None}:
            ours.setdefault((subject.vcenter, one), []).append(subject.name)
    for (vcenter, moref), nodes in sorted(ours.items()):
        there = sites[vcenter]
        host = there.host(moref)
        if host is None or stands(there, host).what is not Is.ENTERING:
            continue
        vms = [vm for vm in there.vms_on(moref) if (vcenter, vm.moref) not in known]
        reasons = {vm.name: cannot_move(there, vm, policy.vgpu_vmotion) for vm in vms}
        stuck = tuple(sorted(f"{name} ({why})" for name, why in reasons.items() if why))
        if stuck:
            yield Hanging(vcenter, host.name, stuck, tuple(sorted(set(nodes))))
