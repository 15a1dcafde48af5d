"""What maintenance has to say: about a node, about an ESXi host that might enter, and the table of all of them.

The same decision that runs, over facts already in memory; a plan runs it forward (`simulate.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

import msgspec

from hostler.drain.model import Memory
from hostler.drain.observe import Sources, observe
from hostler.explain.registry import Explainer, Explanation, FactSeen, Registry, RuleSeen, seen
from hostler.host.facts import Fact, Known, Unknown, fresh
from hostler.host.identity import Rank
from hostler.instant import Instant, iso, parse
from hostler.kube.client import Gate
from hostler.maintenance.controller import MaintenanceKeeper
from hostler.maintenance.decision import Decision, Pass, Phase
from hostler.maintenance.hosts import stands
from hostler.maintenance.identities import Found
from hostler.maintenance.model import HOST, OURS, POLICY, SINCE, STATE, InDoubt, Site, Subject, World, identity_doubt
from hostler.maintenance.observe import site_of
from hostler.maintenance.plan import doubt_of, explain_plan, sentence_of, shown_actions
from hostler.maintenance.simulate import simulate
from hostler.maintenance.stray import has_stray_hold
from hostler.maintenance.wire import IdentityRefused, MaintenanceStatus, Row, Standing, Waiting
from hostler.vsphere.inventory import Inventory
from hostler.vsphere.records import Host
from hostler.vsphere.vcenter import VCenter

_QUIET = (Phase.IN_SERVICE, Phase.NOT_OURS)


@dataclass(frozen=True, slots=True)
class MaintenanceExplainers:
    keeper: MaintenanceKeeper
    vcenters: tuple[VCenter, ...]
    sources: Sources
    gate: Gate
    blocked: Gate  # as `gate`, without what is different on each replica: paused, or another controller is at work
    clock: Callable[[], Instant]

    def register(self, registry: Registry) -> None:
        registry.add(Explainer("node", "maintenance", self.node, self.node))
        registry.add(Explainer("esxi", "maintenance", self.esxi, self.plan))

    # -- a node

    def node(self, name: str) -> Explanation | None:
        node = self.keeper.observer.nodes.store.get(name)
        if node is None:
            return None
        if not self.keeper.observer.looked_after(node):
            return Explanation("maintenance", f"{name} has not the label of the nodes that are looked after.")
        world, found = self.keeper.look(also=(name,))
        subject = next((one for one in world.subjects if one.name == name), None)
        one = found.of(name)
        if subject is None or one is None:
            return None  # deleted in this moment
        site, held = world.sites.get(subject.vcenter), self.gate() or ""
        names = site.value if isinstance(site, Known) else None
        actions = shown_actions(one, subject, names, self.keeper.policy)
        return Explanation(
            "maintenance",
            sentence_of(one),
            tuple(_rules(one)),
            tuple(self._facts(subject, world)),
            tuple(msgspec.structs.replace(action, held_back=held) for action in actions),
        )

    def _facts(self, subject: Subject, world: World) -> Iterator[FactSeen]:
        now = self.clock()
        for name in (*OURS, POLICY):
            if name in subject.annotations:
                yield FactSeen(name, subject.annotations[name])
        if isinstance(subject.vm, Unknown):
            yield FactSeen("VM", known=False, why=subject.vm.why)
            return
        vm = subject.vm.value
        yield seen("VM", Known(f"{vm.name} ({vm.moref} in {subject.vcenter})", subject.vm.at), now)
        if subject.node is not None and isinstance(found := self.keeper.observer.found(subject.node), Found):
            yield FactSeen("which VM it is", f"{found.why} (rank {found.rank} of {len(Rank)})")
        yield seen("power state", Known(vm.power, subject.vm.at), now)
        site = world.sites[subject.vcenter]
        if isinstance(site, Known):
            how = stands(site.value, site.value.host(vm.host))
            yield seen("ESXi host", Known(f"{site.value.name(vm.host)}: {how.why}", site.at), now)
        if isinstance(vm.devices, Unknown):
            yield FactSeen("devices", known=False, why=vm.devices.why)
        else:
            said = ", ".join(f"{one.backing} {one.profile or one.id or '/'.join(one.allowed)}" for one in vm.devices)
            yield seen("devices", Known(said or "none", subject.vm.at), now)

    # -- an ESXi host

    def esxi(self, name: str) -> Explanation | None:
        for vcenter, site in self._sites():
            for host in site.hosts_named(name):
                world, found = self.keeper.look()
                here = {vm.name for vm in site.vms_on(host.moref)}
                rows = [one for one in self.rows(world, found) if one.vm in here or one.maintenance_of == name]
                rules = tuple(RuleSeen(one.node, one.state or one.phase, f"{one.why}. {one.next}") for one in rows)
                foreign = [vm for one in found.hanging if one.host == name for vm in one.vms]
                said = f" VMs that are not ours keep it waiting: {', '.join(foreign)}." if foreign else ""
                return Explanation("maintenance", f"{name} ({vcenter}): {stands(site, host).why}.{said}", rules)
        return self._no_host(name)

    def plan(self, name: str) -> Explanation | None:
        """What would happen if this host entered maintenance now."""
        for vcenter, site in self._sites():
            for host in site.hosts_named(name):
                return self._plan(vcenter, site, host)
        return self._no_host(name)

    def _no_host(self, name: str) -> Explanation | None:
        unknown = list(self._unknown())
        if not unknown:
            return None
        return Explanation("maintenance", f"Whether there is a host {name} is not known: {'; '.join(unknown)}.")

    def _plan(self, vcenter: str, site: Inventory, host: Host) -> Explanation:
        now = self.clock()
        # All of them in one world: each device is promised once, and none is a stranger to the others.
        world, _ = self.keeper.look(also=sorted(self._on(vcenter, host)))
        here = {vm.moref for vm in site.vms_on(host.moref)}
        members = tuple(
            one for one in world.subjects
            if one.vcenter == vcenter and isinstance(one.vm, Known) and one.vm.value.moref in here
        )  # fmt: skip
        refused = self._refused(world, vcenter, here)
        if not members:
            return Explanation("maintenance", f"No managed node is on {host.name}; nothing would be done.", refused)
        pods = {
            one.name: one.drain or observe(self.sources, one.name, now, Memory(), now)
            for one in world.subjects if one.node is not None
        }  # fmt: skip
        forecast = simulate(world, self.keeper.policy, now, vcenter, host.moref, pods)
        stands_now = stands(site, host)
        already = stands_now.why if stands_now.leaving else ""
        plan = explain_plan(forecast, members, site, host, self.keeper.policy, already)
        return msgspec.structs.replace(plan, rules=(*plan.rules, *refused))

    def _refused(self, world: World, vcenter: str, here: Collection[str]) -> tuple[RuleSeen, ...]:
        """The nodes that say they are a VM on that host, and that nobody believes."""
        doubts = [(one.name, one.vm) for one in world.subjects if isinstance(one.vm, InDoubt) and one.vm.vm is not None]
        return tuple(
            RuleSeen(name, "refused", f"{doubt.why}. To change that: {doubt.remedy}.")
            for name, doubt in doubts
            if doubt.vm is not None and doubt.vm[0] == vcenter and doubt.vm[1] in here
        )

    def _on(self, vcenter: str, host: Host) -> Iterator[str]:
        """The managed nodes whose VM is registered on that host, running or not."""
        observer = self.keeper.observer
        here = {vm.moref for name, site in self._sites() if name == vcenter for vm in site.vms_on(host.moref)}
        for node in observer.nodes.store.values():
            found = observer.found(node) if observer.looked_after(node) else None
            if isinstance(found, Found) and found.vcenter == vcenter and found.moref in here:
                yield node.metadata.name

    # -- everything

    def rows(self, world: World, found: Pass) -> tuple[Row, ...]:
        subjects = {one.name: one for one in world.subjects}
        held = self.blocked() or ""
        shown = (one for one in found.decisions if one.state is not None or one.phase not in _QUIET)
        listed = (one for one in shown if _listed(subjects[one.subject], one))
        return tuple(_held_back(_row(subjects[one.subject], one, world), one, held) for one in listed)

    def status(self, notes: Iterable[str]) -> MaintenanceStatus:
        world, found = self.keeper.look()
        return MaintenanceStatus(
            self.rows(world, found),
            tuple(Waiting(one.host, one.vcenter, one.vms) for one in found.hanging),
            tuple(
                Standing(
                    one.name,
                    one.link.connected,
                    one.link.sentence,
                    self.keeper.unanswered(one.name),
                    one.certificate_warning,
                )
                for one in self.vcenters
            ),
            tuple(dict.fromkeys(filter(None, (*notes, self.blocked(), world.unlabelled)))),
            tuple(filter(None, (world.unknown, *self._unknown()))),
            self.keeper.untold_machines(),
            tuple(self._identities_refused(world)),
            self.keeper.observer.identities.by_uuid,
        )

    def _identities_refused(self, world: World) -> Iterator[IdentityRefused]:
        for one in world.subjects:
            if (doubt := identity_doubt(one)) is not None and doubt.reason is not None:
                yield IdentityRefused(one.name, str(doubt.reason), doubt.why, doubt.remedy)

    def _facts_of(self, vcenter: VCenter) -> Fact[Site]:
        return fresh(site_of(vcenter), self.clock(), self.keeper.policy.max_age)

    def _sites(self) -> Iterator[tuple[str, Inventory]]:
        for vcenter in self.vcenters:
            if isinstance(self._facts_of(vcenter), Known):
                yield vcenter.name, vcenter.inventory

    def _unknown(self) -> Iterator[str]:
        """Of which vCenters nothing is known now, and why."""
        for vcenter in self.vcenters:
            if isinstance(vcenter.facts(), Unknown):
                yield str(vcenter.link)
            elif isinstance(facts := self._facts_of(vcenter), Unknown):
                yield f"vCenter {vcenter.name} was {facts.why}"


def _held_back(row: Row, one: Decision, why: str) -> Row:
    """What is decided is not done while `why`: then the status must not say that it is under way."""
    if not why or one.action is None:
        return row
    held = Phase.HELD_BACK.value
    return msgspec.structs.replace(row, phase=held, blocked_by=why, next=f"then: {one.action.why}")


def _listed(subject: Subject, one: Decision) -> bool:
    """A node in service whose VM nobody knows is no maintenance; `explain` says so where it is asked."""
    doubted = isinstance(subject.vm, InDoubt)
    kept = bool(subject.annotations.get(STATE)) or subject.mark is not None or has_stray_hold(subject.node)
    return kept or doubted or not one.unknown


def _row(subject: Subject, one: Decision, world: World) -> Row:
    site = world.sites.get(subject.vcenter)
    vm = subject.vm.value if isinstance(subject.vm, Known) else None
    host = site.value.name(vm.host) if vm is not None and isinstance(site, Known) else ""
    target = site.value.name(one.target[1]) if one.target is not None and isinstance(site, Known) else ""
    return Row(
        node=subject.name,
        vm=vm.name if vm is not None else "",
        host=host,
        state=subject.annotations.get(STATE, ""),
        phase=one.phase.value,
        since=_since(subject.annotations.get(SINCE, "") or (subject.mark.since if subject.mark else "")),
        blocked_by=one.blocked.text if one.blocked is not None else "",
        next=one.next,
        why=one.why,
        vcenter=subject.vcenter,
        maintenance_of=subject.annotations.get(HOST, "") or host,
        target=target,
        rejected=tuple(f"{r.host}: {r.why}" for r in one.rejected),
    )


def _since(text: str) -> str:
    at = parse(text)
    return iso(at) if at is not None else text


def _rules(one: Decision) -> Iterator[RuleSeen]:
    """What the decision found on its way."""
    if one.blocked is not None:
        yield RuleSeen("blocked", one.blocked.by.value, one.blocked.text, decided=True)
    yield from doubt_of(one)
    yield from (RuleSeen(f"host {r.host}", "cannot take it", r.why) for r in one.rejected)
