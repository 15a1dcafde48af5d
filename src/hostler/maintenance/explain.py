"""What maintenance has to say: about a node, about an ESXi host that might enter, and the table of all of them.

The same decision that runs, over facts already in memory; a plan only pretends that one more host is entering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from hostler.drain.blockers import foreseen
from hostler.drain.decide import decide as decide_drain
from hostler.drain.model import Act, Memory
from hostler.drain.observe import Sources, observe
from hostler.drain.order import rank
from hostler.fleet.registry import Action, Explainer, Explanation, FactSeen, Registry, RuleSeen, seen
from hostler.host.facts import Fact, Known, Unknown, fresh
from hostler.instant import Instant, iso, parse
from hostler.kube.client import Gate
from hostler.maintenance.controller import MaintenanceKeeper
from hostler.maintenance.decide import decide
from hostler.maintenance.hosts import stands
from hostler.maintenance.ledger import Ledger
from hostler.maintenance.model import (
    HOST,
    OURS,
    POLICY,
    SINCE,
    STATE,
    Decision,
    InDoubt,
    Pass,
    Site,
    Subject,
    Wish,
    World,
)
from hostler.maintenance.observe import site_of
from hostler.maintenance.placement import Placement, place
from hostler.maintenance.view import View
from hostler.maintenance.wire import MaintenanceStatus, Row, Standing, Waiting
from hostler.vsphere.records import Cluster, Entering, Host, Place, Task, Vm
from hostler.vsphere.vcenter import VCenter

_QUIET = ("in service", "not ours", "off")


class Supposing:
    """A vCenter as it would be if one host were entering maintenance now."""

    def __init__(self, site: Site, host: str) -> None:
        self._site, self._host = site, host

    def host(self, moref: str) -> Host | None:
        return self._site.host(moref)

    def vm(self, moref: str) -> Vm | None:
        return self._site.vm(moref)

    def task(self, moref: str) -> Task | None:
        return self._site.task(moref)

    def cluster(self, moref: str) -> Cluster | None:
        return self._site.cluster(moref)

    def hosts(self) -> Iterator[Host]:
        return self._site.hosts()

    def hosts_named(self, name: str) -> list[Host]:
        return self._site.hosts_named(name)

    @property
    def instance(self) -> str:
        return self._site.instance

    def hosts_with_uuid(self, uuid: str) -> list[Host]:
        return self._site.hosts_with_uuid(uuid)

    def place(self, moref: str) -> Place | None:
        return self._site.place(moref)

    def vms_on(self, host: str) -> list[Vm]:
        return self._site.vms_on(host)

    def tasks_of(self, entity: str) -> list[Task]:
        return self._site.tasks_of(entity)

    def entering(self, host: str) -> Entering | None:
        return Entering(host, (), None) if host == self._host else self._site.entering(host)

    def name(self, moref: str) -> str:
        return self._site.name(moref)


@dataclass(frozen=True, slots=True)
class MaintenanceExplainers:
    keeper: MaintenanceKeeper
    vcenters: tuple[VCenter, ...]
    sources: Sources
    gate: Gate
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
            return Explanation("maintenance", f"{name} is in service, and its ESXi host too.")
        rules = [RuleSeen(f"host {r.host}", "cannot take it", r.why) for r in one.rejected]
        action = self._action(one)
        return Explanation(
            "maintenance", _sentence(one), tuple(rules), tuple(self._facts(subject, world)), (action,) if action else ()
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

    def _action(self, one: Decision) -> Action | None:
        if one.action is None:
            return None
        return Action(_verb(one.action), one.subject, one.action.why, held_back=self.gate() or "")

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

    def _plan(self, vcenter: str, site: Site, host: Host) -> Explanation:
        now = self.clock()
        members = sorted(self._on(vcenter, host))
        if not members:
            return Explanation("maintenance", f"No node that is looked after is on {host.name}; nothing would be done.")
        rules: list[RuleSeen] = []
        actions: list[Action] = []
        # All of them in one world: each device is promised once, and none is a stranger to the others.
        world, _ = self.keeper.look(also=members)
        supposed = self._suppose(world, vcenter, site, host)
        found = decide(supposed, self.keeper.policy, now)
        foreign = next((h.vms for h in found.hanging if h.host == host.name), ())
        ledger = Ledger(supposed, self.keeper.policy, now)
        for name in members:
            subject = next(one for one in supposed.subjects if one.name == name)
            one = found.of(name)
            if one is None or not isinstance(subject.vm, Known):
                continue
            rules.append(RuleSeen(name, one.phase, _sentence(one), decided=True))
            if one.doubt:
                rules.append(
                    RuleSeen(name, "return in doubt", f"{one.doubt}. vCenter decides; it is stopped all the same.")
                )
            placement = self._placement(subject, subject.vm.value, supposed, vcenter, now, ledger)
            if isinstance(placement, Placement) and placement.best is not None:
                ledger.promise(vcenter, placement.best.moref, subject.vm.value)
            rules += _hosts(name, placement)
            actions += self._steps(subject, subject.vm.value, placement, one, now)
        left = "It keeps the task waiting until somebody stops or moves it."
        rules += [RuleSeen(vm, "is not ours", left) for vm in foreign]
        already = stands(site, host)
        said = f" ({already.why} already)" if already.leaving else ""
        outcome = f"If {host.name} entered maintenance now{said}: {', '.join(members)} would be emptied and stopped."
        return Explanation("maintenance", outcome, tuple(rules), actions=tuple(actions))

    def _suppose(self, world: World, vcenter: str, site: Site, host: Host) -> World:
        fact = world.sites[vcenter]
        at = fact.at if isinstance(fact, Known) else self.clock()
        sites: dict[str, Fact[Site]] = {**world.sites, vcenter: Known(Supposing(site, host.moref), at)}
        return replace(world, sites=sites)

    def _on(self, vcenter: str, host: Host) -> Iterator[str]:
        observer = self.keeper.observer
        for node in observer.nodes.store.values():
            found = observer.found(node) if observer.looked_after(node) else None
            if found is not None and not isinstance(found, Unknown) and found.vcenter == vcenter:
                vm = next((one for one in self._vms(vcenter, host.moref) if one.moref == found.moref), None)
                if vm is not None and vm.power == "poweredOn":
                    yield node.metadata.name

    def _vms(self, vcenter: str, host: str) -> list[Vm]:
        return next(site.vms_on(host) for name, site in self._sites() if name == vcenter)

    def _placement(
        self, subject: Subject, vm: Vm, world: World, vcenter: str, now: Instant, ledger: Ledger
    ) -> Placement | str:
        fact = world.sites[vcenter]
        assert isinstance(fact, Known)
        view = View(subject, fact.value, vm, world, ledger, self.keeper.policy, now, now)
        if subject.wish in (Wish.STAY_OFF, Wish.IGNORE):
            return f"the policy is {subject.wish}"
        found = place(view.ask(), fact.value, view.promised)
        if view.drs_chooses:
            return "DRS would choose the host at power-on"
        return view.permitted(found)

    def _steps(
        self, subject: Subject, vm: Vm, placement: Placement | str, one: Decision, now: Instant
    ) -> Iterator[Action]:
        name = subject.name
        held = one.blocked and one.why
        yield Action("hold", name, "cordoned, with the state draining in the same write", held_back=held or "")
        facts = observe(self.sources, name, now, Memory(), now)
        drained = decide_drain(facts, self.keeper.policy.drain, now)
        budgets = facts.budgets.value if isinstance(facts.budgets, Known) else ()
        blocked = {one.pod: one.why for one in foreseen(drained.verdicts, budgets)}
        leaving = [one for one in drained.verdicts if one.act is Act.EVICT]
        for verdict in sorted(leaving, key=lambda one: rank(one.pod)):
            why = f"priority {verdict.pod.spec.priority}"
            yield Action("evict", verdict.key, why, held_back=blocked.get(verdict.key, ""))
        yield Action("shut down", f"VM {vm.name}", f"within {self.keeper.policy.guest_shutdown:g} s, else powered off")
        if isinstance(placement, str):
            yield Action("power on", f"VM {vm.name}", placement)
        elif placement.best is not None:
            yield Action("move", f"VM {vm.name}", f"to {placement.best.name} (compute only)")
            yield Action("power on", f"VM {vm.name}", f"on {placement.best.name}")
        else:
            origin = subject.origin or "its own host"
            yield Action("wait for", origin, f"no other host can take it: {placement.why_none()}")
        yield Action("release", name, "once its node is Ready from the new boot")

    # -- everything

    def rows(self, world: World, found: Pass) -> tuple[Row, ...]:
        subjects = {one.name: one for one in world.subjects}
        shown = (one for one in found.decisions if one.state is not None or one.phase not in _QUIET)
        return tuple(_row(subjects[one.subject], one, world) for one in shown if _listed(subjects[one.subject], one))

    def status(self, notes: Iterable[str]) -> MaintenanceStatus:
        world, found = self.keeper.look()
        return MaintenanceStatus(
            self.rows(world, found),
            tuple(Waiting(one.host, one.vcenter, one.vms) for one in found.hanging),
            tuple(
                Standing(one.name, one.link.connected, one.link.sentence, self.keeper.unanswered(one.name))
                for one in self.vcenters
            ),
            tuple(filter(None, (*notes, world.unlabelled))),
            tuple(filter(None, (world.unknown, *self._unknown()))),
            self.keeper.untold_machines(),
        )

    def _facts_of(self, vcenter: VCenter) -> Fact[Site]:
        return fresh(site_of(vcenter), self.clock(), self.keeper.policy.max_age)

    def _sites(self) -> Iterator[tuple[str, Site]]:
        for vcenter in self.vcenters:
            facts = self._facts_of(vcenter)
            if isinstance(facts, Known):
                yield vcenter.name, facts.value

    def _unknown(self) -> Iterator[str]:
        """Of which vCenters nothing is known now, and why."""
        for vcenter in self.vcenters:
            if isinstance(vcenter.facts(), Unknown):
                yield str(vcenter.link)
            elif isinstance(facts := self._facts_of(vcenter), Unknown):
                yield f"vCenter {vcenter.name} was {facts.why}"


def _listed(subject: Subject, one: Decision) -> bool:
    """A node in service whose VM nobody knows is no maintenance; `explain` says so where it is asked."""
    doubted = isinstance(subject.vm, InDoubt)
    return bool(subject.annotations.get(STATE)) or subject.mark is not None or doubted or not one.unknown


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
        phase=one.phase,
        since=_since(subject.annotations.get(SINCE, "") or (subject.mark.since if subject.mark else "")),
        blocked_by=one.blocked.partition(": ")[2] or one.blocked,
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


def _hosts(name: str, placement: Placement | str) -> list[RuleSeen]:
    if isinstance(placement, str):
        return [RuleSeen(f"{name}: host", "not ours to choose", placement)]
    if placement.unknown:
        return [RuleSeen(f"{name}: host", "not known", placement.unknown)]
    has = "It is in service, reaches datastores and networks, and has what the VM needs free."
    can = [RuleSeen(f"{name} to {one.name}", "can take it", has) for one in placement.hosts]
    return [*can, *(RuleSeen(f"{name} to {one.host}", "cannot take it", one.why) for one in placement.rejected)]


def _sentence(one: Decision) -> str:
    first = one.why[:1] if one.why.startswith(one.subject) else one.why[:1].upper()
    return f"{first}{one.why[1:]}." + (f" Next: {one.next}." if one.next else "")


_VERBS = {
    "PatchNode": "patch",
    "Evictions": "evict pods of",
    "SetMark": "mark the VM of",
    "ShutDown": "shut down the guest of",
    "PowerOff": "power off the VM of",
    "Relocate": "move the VM of",
    "PowerOn": "power on the VM of",
    "CancelTask": "cancel a task of",
}


def _verb(action: object) -> str:
    return _VERBS.get(type(action).__name__, "do")
