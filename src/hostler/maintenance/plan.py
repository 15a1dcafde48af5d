"""What a simulated maintenance of an ESXi host looks like to people: its steps, its end, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hostler.drain.model import Act
from hostler.explain.registry import Action, Explanation, RuleSeen
from hostler.host.conditions import names
from hostler.host.facts import Known
from hostler.maintenance.model import (
    Decision,
    Evictions,
    Hanging,
    PatchNode,
    Policy,
    PowerOff,
    PowerOn,
    Rejected,
    Relocate,
    ShutDown,
    Site,
    Subject,
    TellMachine,
)
from hostler.maintenance.placement import Placement
from hostler.maintenance.simulate import Forecast, HostLeaves, LiveMove, Step
from hostler.vsphere.records import Host

_HOLDS = ("Draining", "DrainingAgain", "TakenOver")
_RELEASES = ("BackInService", "MaintenanceCancelled")
_TAINTS = {"OutOfService": "taint", "OutOfServiceEnded": "untaint"}


def explain_plan(
    forecast: Forecast, members: tuple[Subject, ...], site: Site, host: Host, policy: Policy, already: str
) -> Explanation:
    """`members`: the nodes in question. `already`: how the host stands where it is in or entering maintenance."""
    rules: list[RuleSeen] = []
    for one in members:
        decision = forecast.first.of(one.name)
        if decision is not None:
            rules.append(RuleSeen(one.name, decision.phase.value, sentence_of(decision), decided=True))
            if decision.doubt:
                stopped = f"{decision.doubt}. vCenter decides; it is stopped all the same."
                rules.append(RuleSeen(one.name, "return in doubt", stopped))
            rules += [RuleSeen(f"{one.name} to {r.host}", "cannot take it", r.why) for r in _rejected(forecast, one)]
    rules += _strangers(forecast.first.hanging, host)
    subjects = {one.name: one for one in members}
    asked: set[str] = set()
    actions = [
        action
        for number, step in enumerate(forecast.steps) if step.subject in subjects
        for action in _actions(step, forecast.steps[number + 1 :], subjects[step.subject], site, policy, asked)
    ]  # fmt: skip
    actions += [action for one in members for action in _left(forecast, one)]
    said = f" ({already} already)" if already else ""
    outcome = f"If {host.name} entered maintenance now{said}: {_ends(forecast, members, site, host)}."
    if forecast.hangs_for:
        outcome += f" The task would hang: {names(forecast.hangs_for)} would go on running there."
    return Explanation("maintenance", outcome, tuple(rules), actions=tuple(actions))


def sentence_of(one: Decision) -> str:
    first = one.why[:1] if one.why.startswith(one.subject) else one.why[:1].upper()
    return f"{first}{one.why[1:]}." + (f" Next: {one.next}." if one.next else "")


def _rejected(forecast: Forecast, subject: Subject) -> Iterable[Rejected]:
    """Each host once, with the first reason that a decision gave."""
    found: dict[str, Rejected] = {}
    for step in forecast.of(subject.name):
        for one in step.decision.rejected:
            found.setdefault(one.host, one)
    return found.values()


def _strangers(hanging: Iterable[Hanging], host: Host) -> Iterator[RuleSeen]:
    for one in hanging:
        for vm in one.vms if one.host == host.name else ():
            yield RuleSeen(vm, "is not ours", "It keeps the task waiting until a person stops or moves it.")


# -- steps


def _actions(
    step: Step, after: tuple[Step, ...], subject: Subject, site: Site, policy: Policy, asked: set[str]
) -> Iterator[Action]:
    """One step as people see it; notes on the Node and marks on the VM are left out. `asked`: shown already."""
    name, vm, what = subject.name, f"VM {_vm_name(subject)}", step.what
    match what:
        case PatchNode(event=event, why=why):
            if event in _HOLDS:
                yield Action("hold", name, why)
            elif event in _RELEASES:
                yield Action("release", name, why)
            elif event in _TAINTS:
                yield Action(_TAINTS[event], name, why)
        case TellMachine(machine=machine, why=why):
            yield Action("tell", f"Machine {machine}", why)
        case Evictions():
            yield from _evictions(step, asked)
        case ShutDown():
            yield Action("shut down", vm, f"within {policy.guest_shutdown:g} s, else powered off")
        case PowerOff(why=why):
            yield Action("power off", vm, why)
        case Relocate(host=to):
            yield Action("move", vm, f"to {site.name(to)} (compute only)")
        case PowerOn(host=at, drs=drs):
            refused = "" if step.done else "vCenter refuses it while no host can take the VM"
            if step.done or f"{vm} refused" not in asked:
                asked.update(() if step.done else (f"{vm} refused",))
                yield Action("power on", vm, "where DRS puts it" if drs else f"on {site.name(at)}", refused)
        case LiveMove(why=why):
            yield Action("wait for", "DRS", f"{vm}: {why}")
        case HostLeaves(host=which, why=why):
            if any(one.subject == name for one in after):
                others = tuple(one for one in step.decision.rejected if one.host != site.name(which))
                reasons = f" ({Placement((), others).why_none()})" if others else ""
                yield Action("wait for", site.name(which), f"{why}{reasons}")


def _evictions(step: Step, asked: set[str]) -> Iterator[Action]:
    if not isinstance(step.what, Evictions):
        return
    drained, refused = step.decision.drain, {one.pod: one.why for one in step.refused}
    verdicts = drained.verdicts if drained is not None else ()
    priority = {one.key: one.pod.spec.priority for one in verdicts if one.act is Act.EVICT}
    for pod in step.what.evictions:
        if pod.key not in asked:
            asked.add(pod.key)
            yield Action("evict", pod.key, f"priority {priority.get(pod.key, 0)}", refused.get(pod.key, ""))


def _left(forecast: Forecast, subject: Subject) -> Iterator[Action]:
    """What stays as it is when all is over, though its host was in maintenance."""
    last, power = forecast.last.of(subject.name), forecast.power.get(subject.name, "")
    first = forecast.first.of(subject.name)
    if last is None or first is None:
        return
    if power == "poweredOff":
        yield Action("leave", f"VM {_vm_name(subject)} off", last.why)
    elif not forecast.of(subject.name) or all(isinstance(one.what, HostLeaves) for one in forecast.of(subject.name)):
        yield Action("leave", f"VM {_vm_name(subject)} running", first.why)


# -- the end


def _ends(forecast: Forecast, members: tuple[Subject, ...], site: Site, host: Host) -> str:
    by_end: dict[str, list[str]] = {}
    for one in members:
        by_end.setdefault(_end(forecast, one, site, host), []).append(one.name)
    return "; ".join(f"{names(some, len(members))} would {end}" for end, some in by_end.items())


def _end(forecast: Forecast, subject: Subject, site: Site, host: Host) -> str:
    steps = [one.what for one in forecast.of(subject.name)]
    stopped = any(isinstance(one, (ShutDown, PowerOff)) for one in steps)
    started = next((one.what for one in forecast.of(subject.name) if isinstance(one.what, PowerOn) and one.done), None)
    off = forecast.power.get(subject.name) == "poweredOff"
    if any(isinstance(one, LiveMove) for one in steps) and not stopped:
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


def _vm_name(subject: Subject) -> str:
    return subject.vm.value.name if isinstance(subject.vm, Known) else subject.name
