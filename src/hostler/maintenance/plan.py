"""What decisions and a simulated maintenance look like to people: steps, the end, and why. Pure.

`explain` shows what is decided now, `plan` what is decided step by step: each action looks the same in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

import msgspec

from hostler.drain.model import Act
from hostler.explain.registry import Action, Explanation, RuleSeen
from hostler.host.conditions import names
from hostler.host.facts import Known
from hostler.maintenance.decision import (
    CancelTask,
    Decision,
    Evictions,
    Hanging,
    PatchNode,
    PowerOff,
    PowerOn,
    Rejected,
    Relocate,
    SetMark,
    ShutDown,
    TellMachine,
)
from hostler.maintenance.model import Policy, Site, Subject
from hostler.maintenance.placement import Placement
from hostler.maintenance.simulate import Forecast, HostLeaves, LiveMove, Step
from hostler.vsphere.records import Host

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
    for one in members:
        decision = forecast.first.of(one.name)
        if decision is not None:
            rules.append(RuleSeen(one.name, decision.phase.value, sentence_of(decision), decided=True))
            rules += doubt_of(decision)
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


def doubt_of(one: Decision) -> Iterator[RuleSeen]:
    if one.doubt:
        stopped = f"{one.doubt}. vCenter decides; it is stopped all the same."
        yield RuleSeen(one.subject, "return in doubt", stopped)


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
    match step.what:
        case LiveMove(why=why):
            yield Action("wait for", "DRS", f"VM {_vm_name(subject)}: {why}")
        case HostLeaves(host=which, why=why):
            if any(one.subject == subject.name for one in after):
                others = tuple(one for one in step.decision.rejected if one.host != site.name(which))
                reasons = f" ({Placement((), others).why_none()})" if others else ""
                yield Action("wait for", site.name(which), f"{why}{reasons}")
        case _:
            refused = {one.pod: one.why for one in step.refused}
            for action in shown_actions(step.decision, subject, site, policy):
                again = isinstance(step.what, Evictions) or not step.done
                if action.verb in BOOKKEEPING or (again and f"{action.verb} {action.target}" in asked):
                    continue
                if again:
                    asked.add(f"{action.verb} {action.target}")
                held = refused.get(action.target, "") if step.done else _NOWHERE
                yield msgspec.structs.replace(action, held_back=held)


def shown_actions(one: Decision, subject: Subject, site: Site | None, policy: Policy) -> Iterator[Action]:
    """What is decided now, as people see it: one action, or one per pod that is evicted. `site`: for names of hosts."""
    vm, what = f"VM {_vm_name(subject)}", one.action
    match what:
        case None:
            return
        case PatchNode(event=event, why=why):
            yield Action(_PATCHES.get(event, _NOTE), subject.name, why)
        case TellMachine(machine=machine, why=why):
            yield Action("tell", f"Machine {machine}", why)
        case Evictions(evictions):
            verdicts = one.drain.verdicts if one.drain is not None else ()
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


def _host_name(site: Site | None, moref: str) -> str:
    return site.name(moref) if site is not None else moref


def _vm_name(subject: Subject) -> str:
    return subject.vm.value.name if isinstance(subject.vm, Known) else subject.name
