"""What maintenance has to say: about a node, about an ESXi host that might enter, and the table of all of them.

The same decision that runs, over facts already in memory; a plan runs it forward (`simulate.py`). `explain` shows what
is decided now, `plan` what is decided step by step: each action looks the same in both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import assert_never

import msgspec

from hostler.drain.model import Act, Memory
from hostler.drain.observe import observe
from hostler.explain.registry import Action, Explainer, Explanation, FactSeen, Registry, RuleSeen, seen
from hostler.host.conditions import names
from hostler.host.facts import Fact, Known, Unknown, fresh
from hostler.host.identity import Rank
from hostler.instant import iso, parse
from hostler.inventory.operations import EsxiName
from hostler.kube.client import Gate
from hostler.maintenance.controller import MaintenanceController
from hostler.maintenance.decision import (
    CancelTask,
    Decision,
    Evictions,
    Hanging,
    Pass,
    PatchNode,
    Phase,
    PowerOff,
    PowerOn,
    Rejected,
    Relocate,
    SetMark,
    ShutDown,
    TellMachine,
    as_sentence,
)
from hostler.maintenance.hosts import judge_host
from hostler.maintenance.identities import Found
from hostler.maintenance.model import (
    HOST,
    OURS,
    POLICY,
    SINCE,
    STATE,
    InDoubt,
    Policy,
    Site,
    Subject,
    World,
    has_stray_hold,
    identity_doubt,
)
from hostler.maintenance.observe import site_of
from hostler.maintenance.placement import Placement
from hostler.maintenance.simulate import Forecast, HostLeaves, LiveMove, Step, simulate
from hostler.maintenance.status import IdentityRefused, MaintenanceStatus, Row, Standing, Waiting
from hostler.vsphere.inventory import Inventory
from hostler.vsphere.records import Host
from hostler.vsphere.vcenter import VCenter

_QUIET = (Phase.IN_SERVICE, Phase.NOT_OURS)


@dataclass(frozen=True, slots=True)
class MaintenanceExplainers:
    controller: MaintenanceController
    gate: Gate
    blocked: Gate  # as `gate`, without what is different on each replica: paused, or another controller is at work

    def register(self, registry: Registry) -> None:
        registry.add(Explainer("node", "maintenance", self.node, self.node))
        registry.add(Explainer("esxi", "maintenance", self.esxi, self.plan))

    # -- a node

    def node(self, name: str) -> Explanation | None:
        node = self.controller.observer.nodes.store.get(name)
        if node is None:
            return None
        if not self.controller.observer.is_managed(node):
            label = self.controller.observer.label.text
            return Explanation("maintenance", f"{name} is not managed: it lacks the label {label}.")
        world, found = self.controller.look(also=(name,))
        subject = next((subject for subject in world.subjects if subject.name == name), None)
        decision = found.of(name)
        if subject is None or decision is None:
            return None  # deleted in this moment
        site, held = world.sites.get(subject.vcenter), self.gate() or ""
        names = site.value if isinstance(site, Known) else None
        actions = shown_actions(decision, subject, names, self.controller.policy)
        return Explanation(
            "maintenance",
            sentence_of(decision),
            tuple(_rules_of(decision)),
            tuple(self._facts(subject, world)),
            tuple(msgspec.structs.replace(action, held_back=held) for action in actions),
        )

    def _facts(self, subject: Subject, world: World) -> Iterator[FactSeen]:
        now = self.controller.clock()
        for name in (*OURS, POLICY):
            if name in subject.annotations:
                yield FactSeen(name, subject.annotations[name])
        if isinstance(subject.vm, Unknown):
            yield FactSeen("VM", known=False, why=subject.vm.why)
            return
        vm = subject.vm.value
        yield seen("VM", Known(f"{vm.name} ({vm.moref} in {subject.vcenter})", subject.vm.at), now)
        if subject.node is not None and isinstance(found := self.controller.observer.found(subject.node), Found):
            yield FactSeen("which VM it is", f"{found.why} (rank {found.rank} of {len(Rank)})")
        yield seen("power state", Known(vm.power, subject.vm.at), now)
        site = world.sites[subject.vcenter]
        if isinstance(site, Known):
            how = judge_host(site.value, site.value.host(vm.host))
            yield seen("ESXi host", Known(f"{site.value.name(vm.host)}: {how.why}", site.at), now)
        if isinstance(vm.devices, Unknown):
            yield FactSeen("devices", known=False, why=vm.devices.why)
        else:
            said = ", ".join(
                f"{device.backing} {device.profile or device.id or '/'.join(device.allowed)}" for device in vm.devices
            )
            yield seen("devices", Known(said or "none", subject.vm.at), now)

    # -- an ESXi host

    def esxi(self, name: str) -> Explanation | None:
        for vcenter, site in self._sites():
            if any(site.hosts_named(name)):
                return self.esxi_hosts([(vcenter, name)])[vcenter, name]
        return self._no_host(name)

    def esxi_hosts(self, wanted: Collection[EsxiName]) -> Mapping[EsxiName, Explanation]:
        """What is decided about each of these hosts, from one pass; one that is not known is left out."""
        world, found = self.controller.look()
        rows, explained = self.rows(world, found), dict[EsxiName, Explanation]()
        for vcenter, site in self._sites():
            for name in (name for where, name in wanted if where == vcenter):
                if (host := next(iter(site.hosts_named(name)), None)) is not None:
                    explained[vcenter, name] = _explain_host(vcenter, site, host, rows, found.hanging)
        return explained

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
        return Explanation("maintenance", f"Cannot tell whether there is an ESXi host {name}: {'; '.join(unknown)}.")

    def _plan(self, vcenter: str, site: Inventory, host: Host) -> Explanation:
        now = self.controller.clock()
        # All of them in one world: each device is promised once, and none is a stranger to the others.
        world, _ = self.controller.look(also=sorted(self._on(vcenter, host)))
        here = {vm.moref for vm in site.vms_on(host.moref)}
        members = tuple(
            subject for subject in world.subjects
            if subject.vcenter == vcenter and isinstance(subject.vm, Known) and subject.vm.value.moref in here
        )  # fmt: skip
        refused = self._refused(world, vcenter, here)
        if not members:
            return Explanation("maintenance", f"No managed node is on {host.name}; nothing would be done.", refused)
        pods = {
            subject.name: subject.drain or observe(self.controller.observer.sources, subject.name, now, Memory(), now)
            for subject in world.subjects if subject.node is not None
        }  # fmt: skip
        forecast = simulate(world, self.controller.policy, now, vcenter, host.moref, pods)
        stands_now = judge_host(site, host)
        already = stands_now.why if stands_now.leaving else ""
        plan = explain_plan(forecast, members, site, host, self.controller.policy, already)
        return msgspec.structs.replace(plan, rules=(*plan.rules, *refused))

    def _refused(self, world: World, vcenter: str, here: Collection[str]) -> tuple[RuleSeen, ...]:
        """The nodes that say they are a VM on that host, and that nobody believes."""
        doubts = [
            (subject.name, subject.vm)
            for subject in world.subjects
            if isinstance(subject.vm, InDoubt) and subject.vm.vm is not None
        ]
        return tuple(
            RuleSeen(name, "refused", f"{doubt.why}. To change that: {doubt.remedy}.")
            for name, doubt in doubts
            if doubt.vm is not None and doubt.vm[0] == vcenter and doubt.vm[1] in here
        )

    def _on(self, vcenter: str, host: Host) -> Iterator[str]:
        """The managed nodes whose VM is registered on that host, running or not."""
        observer = self.controller.observer
        here = {vm.moref for name, site in self._sites() if name == vcenter for vm in site.vms_on(host.moref)}
        for node in observer.nodes.store.values():
            found = observer.found(node) if observer.is_managed(node) else None
            if isinstance(found, Found) and found.vcenter == vcenter and found.moref in here:
                yield node.metadata.name

    # -- everything

    def rows(self, world: World, found: Pass) -> tuple[Row, ...]:
        subjects = {subject.name: subject for subject in world.subjects}
        held = self.blocked() or ""
        shown = (decision for decision in found.decisions if decision.state is not None or decision.phase not in _QUIET)
        listed = (decision for decision in shown if _is_listed(subjects[decision.subject], decision))
        return tuple(_make_row(subjects[decision.subject], decision, world, held) for decision in listed)

    def status(self, notes: Iterable[str]) -> MaintenanceStatus:
        world, found = self.controller.look()
        return MaintenanceStatus(
            self.rows(world, found),
            tuple(Waiting(foreign.host, foreign.vcenter, foreign.vms) for foreign in found.hanging),
            tuple(map(self._standing_of, self.controller.observer.vcenters.values())),
            tuple(dict.fromkeys(filter(None, (*notes, self.blocked(), world.unlabelled)))),
            tuple(filter(None, (world.unknown, *self._unknown()))),
            self.controller.untold_machines(),
            tuple(self._identities_refused(world)),
            self.controller.observer.identities.by_uuid,
        )

    def _standing_of(self, vcenter: VCenter) -> Standing:
        rights_unknown, link = self.controller.unanswered(vcenter.name), vcenter.link
        return Standing(vcenter.name, link.connected, link.sentence, rights_unknown, vcenter.certificate_warning)

    def _identities_refused(self, world: World) -> Iterator[IdentityRefused]:
        for subject in world.subjects:
            if (doubt := identity_doubt(subject)) is not None and doubt.reason is not None:
                yield IdentityRefused(subject.name, str(doubt.reason), doubt.why, doubt.remedy)

    def _facts_of(self, vcenter: VCenter) -> Fact[Site]:
        return fresh(site_of(vcenter), self.controller.clock(), self.controller.policy.max_age)

    def _sites(self) -> Iterator[tuple[str, Inventory]]:
        for vcenter in self.controller.observer.vcenters.values():
            if isinstance(self._facts_of(vcenter), Known):
                yield vcenter.name, vcenter.inventory

    def _unknown(self) -> Iterator[str]:
        """Of which vCenters nothing is known now, and why."""
        for vcenter in self.controller.observer.vcenters.values():
            if isinstance(vcenter.facts(), Unknown):
                yield str(vcenter.link)
            elif isinstance(facts := self._facts_of(vcenter), Unknown):
                yield f"vCenter {vcenter.name} was {facts.why}"


def _is_listed(subject: Subject, decision: Decision) -> bool:
    """A node in service whose VM nobody knows is no maintenance; `explain` says so where it is asked."""
    doubted = isinstance(subject.vm, InDoubt)
    kept = bool(subject.annotations.get(STATE)) or subject.mark is not None or has_stray_hold(subject.node)
    return kept or doubted or not decision.unknown


def _make_row(subject: Subject, decision: Decision, world: World, held: str) -> Row:
    """`held`: why what is decided is not done. Then the status must not say that it is under way."""
    site = world.sites.get(subject.vcenter)
    vm = subject.vm.value if isinstance(subject.vm, Known) else None
    host = site.value.name(vm.host) if vm is not None and isinstance(site, Known) else ""
    row = Row(
        node=subject.name,
        vm=vm.name if vm is not None else "",
        host=host,
        state=subject.annotations.get(STATE, ""),
        phase=decision.phase.value,
        since=_format_since(subject.annotations.get(SINCE, "") or (subject.mark.since if subject.mark else "")),
        blocked_by=decision.blocked.text if decision.blocked is not None else "",
        next=decision.next,
        why=decision.why,
        vcenter=subject.vcenter,
        maintenance_of=subject.annotations.get(HOST, "") or host,
        target=site.value.name(decision.target[1]) if decision.target is not None and isinstance(site, Known) else "",
        rejected=tuple(f"{rejected.host}: {rejected.why}" for rejected in decision.rejected),
    )
    if not held or decision.action is None:
        return row
    then = f"then: {decision.action.why}"
    return msgspec.structs.replace(row, phase=Phase.HELD_BACK.value, blocked_by=held, next=then)


def _format_since(text: str) -> str:
    at = parse(text)
    return iso(at) if at is not None else text


def _rules_of(decision: Decision) -> Iterator[RuleSeen]:
    """What the decision found on its way."""
    if decision.blocked is not None:
        yield RuleSeen("blocked", decision.blocked.by.value, decision.blocked.text, decided=True)
    yield from doubt_of(decision)
    yield from (RuleSeen(f"host {host.host}", "cannot take it", host.why) for host in decision.rejected)


def _explain_host(
    vcenter: str, site: Inventory, host: Host, rows: Iterable[Row], hanging: Iterable[Hanging]
) -> Explanation:
    name, here = host.name, {vm.name for vm in site.vms_on(host.moref)}
    mine = [row for row in rows if row.vcenter in ("", vcenter) and (row.vm in here or row.maintenance_of == name)]
    rules = tuple(RuleSeen(row.node, row.state or row.phase, f"{row.why}. {row.next}") for row in mine)
    foreign = [vm for one in hanging if (one.vcenter, one.host) == (vcenter, name) for vm in one.vms]
    said = f" VMs that are not ours keep it waiting: {', '.join(foreign)}." if foreign else ""
    return Explanation("maintenance", f"{name} ({vcenter}): {judge_host(site, host).why}.{said}", rules)


# -- how decisions and a simulated maintenance look: steps, the end, and why

# Patches of a Node by their Event; any other patch notes something on it.
_PATCHES = {
    "Draining": "hold", "DrainingAgain": "hold", "TakenOver": "hold",
    "BackInService": "release", "MaintenanceCancelled": "release", "HoldReleased": "release",
    "OutOfService": "taint", "OutOfServiceEnded": "untaint",
}  # fmt: skip
_NOTE, _MARK, _UNMARK = "note on", "mark", "unmark"
BOOKKEEPING = (_NOTE, _MARK, _UNMARK)  # a plan leaves it out
_NOWHERE = "vCenter refuses it while no host can take the VM"


def explain_plan(
    forecast: Forecast, members: tuple[Subject, ...], site: Site, host: Host, policy: Policy, already: str
) -> Explanation:
    """`members`: the nodes in question. `already`: how the host stands where it is in or entering maintenance."""
    rules: list[RuleSeen] = []
    for subject in members:
        decision = forecast.first.of(subject.name)
        if decision is not None:
            rules.append(RuleSeen(subject.name, decision.phase.value, sentence_of(decision), decided=True))
            rules += doubt_of(decision)
            rules += [
                RuleSeen(f"{subject.name} to {r.host}", "cannot take it", r.why)
                for r in _rejected_hosts(forecast, subject)
            ]
    rules += _foreign_rules(forecast.first.hanging, host)
    subjects = {subject.name: subject for subject in members}
    asked: set[str] = set()
    actions = [
        action
        for number, step in enumerate(forecast.steps) if step.subject in subjects
        for action in _step_actions(step, forecast.steps[number + 1 :], subjects[step.subject], site, policy, asked)
    ]  # fmt: skip
    actions += [action for subject in members for action in _left_as_is(forecast, subject)]
    said = f" ({already} already)" if already else ""
    outcome = f"If {host.name} entered maintenance now{said}: {_describe_ends(forecast, members, site, host)}."
    if forecast.hangs_for:
        outcome += f" The task would hang: {names(forecast.hangs_for)} would go on running there."
    return Explanation("maintenance", outcome, tuple(rules), actions=tuple(actions))


def sentence_of(decision: Decision) -> str:
    sentence = f"{as_sentence(decision.why, decision.subject)}."
    return f"{sentence} Next: {decision.next}." if decision.next else sentence


def doubt_of(decision: Decision) -> Iterator[RuleSeen]:
    if decision.doubt:
        stopped = f"{decision.doubt}. vCenter decides; it is stopped all the same."
        yield RuleSeen(decision.subject, "return in doubt", stopped)


def _rejected_hosts(forecast: Forecast, subject: Subject) -> Iterable[Rejected]:
    """Each host once, with the first reason that a decision gave."""
    found: dict[str, Rejected] = {}
    for step in forecast.of(subject.name):
        for rejected in step.decision.rejected:
            found.setdefault(rejected.host, rejected)
    return found.values()


def _foreign_rules(hanging: Iterable[Hanging], host: Host) -> Iterator[RuleSeen]:
    for foreign in hanging:
        for vm in foreign.vms if foreign.host == host.name else ():
            yield RuleSeen(vm, "is not ours", "It keeps the task waiting until a user stops or moves it.")


# -- steps


def _step_actions(
    step: Step, after: tuple[Step, ...], subject: Subject, site: Site, policy: Policy, asked: set[str]
) -> Iterator[Action]:
    """One step as people see it; notes on the Node and marks on the VM are left out. `asked`: shown already."""
    match step.what:
        case LiveMove(why=why):
            yield Action("wait for", "DRS", f"VM {_vm_name(subject)}: {why}")
        case HostLeaves(host=which, why=why):
            if any(step.subject == subject.name for step in after):
                others = tuple(rejected for rejected in step.decision.rejected if rejected.host != site.name(which))
                reasons = f" ({Placement((), others).why_none()})" if others else ""
                yield Action("wait for", site.name(which), f"{why}{reasons}")
        case _:
            refused = {blocker.pod: blocker.why for blocker in step.refused}
            for action in shown_actions(step.decision, subject, site, policy):
                again = isinstance(step.what, Evictions) or not step.done
                if action.verb in BOOKKEEPING or (again and f"{action.verb} {action.target}" in asked):
                    continue
                if again:
                    asked.add(f"{action.verb} {action.target}")
                held = refused.get(action.target, "") if step.done else _NOWHERE
                yield msgspec.structs.replace(action, held_back=held)


def shown_actions(decision: Decision, subject: Subject, site: Site | None, policy: Policy) -> Iterator[Action]:
    """What is decided now, as people see it: one action, or one per pod that is evicted. `site`: for names of hosts."""
    vm, what = f"VM {_vm_name(subject)}", decision.action
    match what:
        case None:
            return
        case PatchNode(event=event, why=why):
            yield Action(_PATCHES.get(event, _NOTE), subject.name, why)
        case TellMachine(machine=machine, why=why):
            yield Action("annotate", f"Machine {machine}", why)
        case Evictions(evictions):
            verdicts = decision.drain.verdicts if decision.drain is not None else ()
            priority = {each.key: each.pod.spec.priority for each in verdicts if each.act is Act.EVICT}
            yield from (Action("evict", pod.key, f"priority {priority.get(pod.key, 0)}") for pod in evictions)
        case SetMark(mark=mark, why=why):
            yield Action(_MARK if mark is not None else _UNMARK, vm, why)
        case ShutDown():
            yield Action("shut down", vm, f"within {policy.guest_shutdown:g} s, else powered off")
        case PowerOff(why=why):
            yield Action("power off", vm, why)
        case Relocate(host=to):
            yield Action("move", vm, f"to {_host_name(site, to)} (compute only)")
        case PowerOn(host=at, drs=drs):
            yield Action("power on", vm, "where DRS puts it" if drs else f"on {_host_name(site, at)}")
        case CancelTask(why=why):
            yield Action("cancel a task of", vm, why)
        case _:
            assert_never(what)


def _left_as_is(forecast: Forecast, subject: Subject) -> Iterator[Action]:
    """What stays as it is when all is over, though its host was in maintenance."""
    last, power = forecast.last.of(subject.name), forecast.power.get(subject.name, "")
    first = forecast.first.of(subject.name)
    if last is None or first is None:
        return
    if power == "poweredOff":
        yield Action("leave", f"VM {_vm_name(subject)} off", last.why)
    elif not forecast.of(subject.name) or all(isinstance(step.what, HostLeaves) for step in forecast.of(subject.name)):
        yield Action("leave", f"VM {_vm_name(subject)} running", first.why)


# -- the end


def _describe_ends(forecast: Forecast, members: tuple[Subject, ...], site: Site, host: Host) -> str:
    by_end: dict[str, list[str]] = {}
    for subject in members:
        by_end.setdefault(_describe_end(forecast, subject, site, host), []).append(subject.name)
    return "; ".join(f"{names(some, len(members))} would {end}" for end, some in by_end.items())


def _describe_end(forecast: Forecast, subject: Subject, site: Site, host: Host) -> str:
    steps = [step.what for step in forecast.of(subject.name)]
    stopped = any(isinstance(step, (ShutDown, PowerOff)) for step in steps)
    started = next(
        (step.what for step in forecast.of(subject.name) if isinstance(step.what, PowerOn) and step.done), None
    )
    off = forecast.power.get(subject.name) == "poweredOff"
    if any(isinstance(step, LiveMove) for step in steps) and not stopped:
        return "be moved live by DRS"
    if not stopped and started is None:
        return "stay off" if off else "be left running"
    how = "be emptied and stopped" if stopped else "stay off until then"
    if started is None:
        return f"{how}, and stay off" if off else how
    if started.drs:
        return f"{how}, and started where DRS puts it" if stopped else "be started where DRS puts it"
    at = site.name(started.host)
    where = f"on {at} when it is back" if at == host.name else f"on {at}"
    return f"{how}, and started {where}" if stopped else f"be started {where}"


def _host_name(site: Site | None, moref: str) -> str:
    return site.name(moref) if site is not None else moref


def _vm_name(subject: Subject) -> str:
    return subject.vm.value.name if isinstance(subject.vm, Known) else subject.name
