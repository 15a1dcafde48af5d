"""Where and when a VM that we stopped is started again: an order of preference, and vCenter decides. Pure.

Our model of the hosts prefers and explains; it never holds back a return.
"""

from __future__ import annotations

from dataclasses import replace

from hostler.host.facts import Unknown
from hostler.instant import Instant, iso
from hostler.maintenance.decision import BlockedBy, CancelTask, Decision, Phase, PowerOn, Relocate, frozen, noted, wait
from hostler.maintenance.hosts import own_host_missing
from hostler.maintenance.model import POWER_ON_SINCE, RELOCATE_SINCE, SINCE, TARGET, Attempts, State, Wish, stamp
from hostler.maintenance.placement import Forbidden, Placement, place, pool_for, tied, tried
from hostler.maintenance.view import View
from hostler.vsphere.records import POWER_ON, RELOCATE, Host

# A refused start is asked for again so long after the refusal, at the earliest, when what it depends on has changed.
CHANGED_SECONDS = 1.0


def start(view: View) -> Decision:
    """The VM is off and ours to start, under the same checks whether or not it still has a node."""
    subject, vm, known = view.subject, view.vm, view.subject.remembered
    state = State.POWERED_OFF if isinstance(subject.state, State) else None
    wish = subject.wish
    if isinstance(wish, Unknown):
        return wait(subject, state, Phase.OFF, wish.why, "mend the annotation", blocked=BlockedBy.POLICY)
    if wish in (Wish.STAY_OFF, Wish.IGNORE):
        why = f"VM {vm.name} is off, and the policy of {subject.name} is {wish}"
        return wait(subject, state, Phase.OFF, why, "change the annotation, or start the VM by hand")
    if (moving := _moving(view, state)) is not None:
        return moving
    if view.under_way(POWER_ON):
        return wait(subject, state, Phase.STARTING, f"VM {vm.name} is being powered on", "vCenter says it runs")
    placement = view.permitted(place(view.ask(), view.site, view.promised))
    failed = known.power if known.power.not_before >= known.relocate.not_before else known.relocate
    if (until := _tried_again(view, failed)) is not None:
        one = _refused(view, state, placement, failed, until)
    else:
        one = _start_somewhere(view, state, placement)
    return replace(one, overdue=say_overdue(view, failed.why or one.why))


def _tried_again(view: View, failed: Attempts) -> Instant | None:
    """When a start that was refused is asked for again; None: now. A change of what it depends on counts at once."""
    soonest = min(failed.not_before, failed.at + CHANGED_SECONDS)
    if view.now >= failed.not_before:
        return None
    tried_in = view.subject.remembered.tried_in
    if not tried_in or tried_in == view.start_depends_on():
        return failed.not_before
    return soonest if view.now < soonest else None


def _refused(view: View, state: State | None, placement: Placement, failed: Attempts, until: Instant) -> Decision:
    """vCenter said no, in its words."""
    why = f"VM {view.vm.name} could not be started: {failed.why}"
    release = f"it is tried again at {iso(until)}, or when something changes that could matter"
    phase, by = Phase.STARTING, BlockedBy.POWER_ON
    if _only_vcenter_knows(view, placement):
        phase, by = Phase.WAITING_FOR_HOST, BlockedBy.NO_HOST
    one = wait(view.subject, state, phase, why, release, wake=until, blocked=by, details=failed.why)
    return replace(one, rejected=placement.rejected, target=view.reserved())


def _only_vcenter_knows(view: View, placement: Placement) -> bool:
    """Our model finds no host and the VM's own is not in service, but DRS may know better."""
    return view.drs_chooses and placement.best is None and not view.own_in_service


def _start_somewhere(view: View, state: State | None, placement: Placement) -> Decision:
    """An order of preference: the best host we know of; wherever DRS puts it; its own host, whatever our model says.

    vCenter decides. Our model never holds back the return of a VM that we stopped.
    """
    vm, own = view.vm, view.own if view.own_in_service else None
    if view.drs_chooses:
        return _power_on(view, state, placement.best or own, placement, drs=True)
    order = list(placement.hosts)
    if isinstance(view.drs, Unknown):
        order = [host for host in order if host.moref == vm.host]  # whose choice it is, is not known
    if own is not None and own not in order:
        order.append(own)
    if view.subject.refused is not None:
        order = [host for host in order if host.moref == vm.host]  # no proof: started where it is, never moved
    if not order:
        return _nowhere(view, state, placement)
    best = min(order, key=lambda host: tried(view.ask().failed, host))
    if own is not None and best.moref == own.moref and (until := view.settled(own.moref)) is not None:
        return _settling(view, state, own, until)
    if best.moref != vm.host:
        return _relocate(view, state, best, placement)
    return _power_on(view, state, best, placement, drs=False)


def _settling(view: View, state: State | None, own: Host, until: Instant) -> Decision:
    why = f"{own.name} seems to be in service again"
    return wait(
        view.subject, state, Phase.SETTLING, why, f"if that lasts, VM {view.vm.name} is started there", wake=until
    )


def _moving(view: View, state: State | None) -> Decision | None:
    """A relocate is under way; it has its time and is then cancelled."""
    subject, vm = view.subject, view.vm
    if not view.under_way(RELOCATE):
        return None
    began = subject.at(RELOCATE_SINCE) or subject.remembered.relocating
    until = view.counted(began) + view.policy.relocate if began is not None else None
    task = view.task(RELOCATE)
    why = f"VM {vm.name} is being moved"
    if until is None or task is None or view.now < until:
        one = wait(subject, state, Phase.MOVING, why, "vCenter says it is there", wake=until)
        return replace(one, target=view.reserved())
    if subject.refused is not None:
        return wait(subject, state, Phase.MOVING, why, "the task ends")
    if task.cancelled:
        return wait(subject, state, Phase.MOVING, f"{why}, which was cancelled", "the task ends")
    cancel = CancelTask(vm.moref, task.moref, f"moving VM {vm.name} took longer than {view.policy.relocate:g} s")
    return Decision(subject.name, state, Phase.MOVING, cancel.why, "it is tried again", cancel)


def _nowhere(view: View, state: State | None, placement: Placement) -> Decision:
    subject, origin, vm = view.subject, view.subject.origin, view.vm
    if placement.best is not None and isinstance(view.drs, Unknown):
        return frozen(subject, state, f"whether DRS places VM {vm.name} is not known: {view.drs.why}")
    if placement.forbidden:
        return _may_not_move(view, state, placement.forbidden[0])
    missing = own_host_missing(subject, view.site)
    why = f"VM {vm.name} is off, and no host can take it"
    release = f"{origin} leaves maintenance, or another host can take it"
    if subject.wish is Wish.WAIT or tied(vm):
        why, release = f"VM {vm.name} is off and waits for {origin}", f"{origin} leaves maintenance"
    if missing:
        why, release = f"{why}: {missing}", f"start VM {vm.name} by hand where it belongs"
    one = wait(
        subject, state, Phase.WAITING_FOR_HOST, why, release, blocked=BlockedBy.NO_HOST, details=placement.why_none()
    )
    return replace(one, rejected=placement.rejected)


def _may_not_move(view: View, state: State | None, to: Forbidden) -> Decision:
    why = f"VM {view.vm.name} is off, and our vCenter user lacks {to.lacks} to move it to {to.host.name}"
    release = f"grant {to.lacks}, or {view.subject.origin} leaves maintenance"
    return wait(
        view.subject, state, Phase.WAITING_FOR_HOST, why, release, blocked=BlockedBy.PRIVILEGES, details=to.lacks
    )


def _relocate(view: View, state: State | None, to: Host, placement: Placement) -> Decision:
    """Written down first, with when: a relocate is bounded, also over a restart."""
    subject, known = view.subject, view.subject.remembered
    target = (subject.vcenter, to.moref)
    why = f"VM {view.vm.name} is moved to {to.name} (compute only)"
    if subject.node is not None and state is not None:
        since = subject.annotations.get(RELOCATE_SINCE, "")
        if not since or since == known.relocate_asked or subject.annotations.get(TARGET) != to.name:
            patch = noted(view.node, {RELOCATE_SINCE: stamp(view.now), TARGET: to.name}, why, "Relocating")
            return Decision(subject.name, state, Phase.MOVING, why, f"it is started on {to.name}", patch,
                            rejected=placement.rejected, target=target)  # fmt: skip
    cluster = pool_for(view.site, view.vm, to)
    move = Relocate(view.vm.moref, to.moref, cluster.pool if cluster is not None else "", why, view.start_depends_on())
    return Decision(subject.name, state, Phase.MOVING, why, f"it is started on {to.name}", move,
                    rejected=placement.rejected, target=target)  # fmt: skip


def _power_on(view: View, state: State | None, best: Host | None, placement: Placement, *, drs: bool) -> Decision:
    """`best` is where we expect it to run; None: our model finds no host, and only vCenter may know one."""
    subject, vm, own = view.subject, view.vm, view.own
    target = (subject.vcenter, best.moref) if best is not None else None
    if own is not None and best == own and own.moref == vm.host and (until := view.settled(own.moref)) is not None:
        return _settling(view, state, own, until)
    where = "where DRS puts it" if drs else f"on {best.name if best is not None else view.host_name}"
    why = f"VM {vm.name} is started {where}"
    if best is None or best not in placement.hosts:
        why += ", though by what we know no host can take it: vCenter decides"
    noted_first = subject.node is not None and state is not None and not _only_vcenter_knows(view, placement)
    if noted_first and not subject.annotations.get(POWER_ON_SINCE):
        patch = noted(view.node, {POWER_ON_SINCE: stamp(view.now)}, why, "PoweringOn")
        return Decision(subject.name, state, Phase.STARTING, why, "its node becomes Ready", patch,
                        rejected=placement.rejected, target=target)  # fmt: skip
    on = PowerOn(vm.moref, vm.host, drs, why, view.start_depends_on())
    return Decision(subject.name, state, Phase.STARTING, why, "its node becomes Ready", on,
                    rejected=placement.rejected, target=target)  # fmt: skip


# -- how long it takes


def _awaited(view: View) -> Instant | None:
    """Since when it is to come back: since we started it, or since it runs again, whoever started it."""
    subject, runs = view.subject, view.subject.remembered.running_since
    since = subject.at(POWER_ON_SINCE)
    if since is None and runs is not None:
        since = max(runs, subject.at(SINCE) or runs)
    return view.counted(since) if since is not None else None


def due_at(view: View) -> Instant | None:
    """When POWER_ON_TIMEOUT_SECONDS passes; None where it has."""
    since = _awaited(view)
    return since + view.policy.power_on if since is not None and view.now < since + view.policy.power_on else None


def say_overdue(view: View, why: str) -> str:
    since = _awaited(view)
    if since is None or view.now < since + view.policy.power_on:
        return ""
    what = "was to be started" if view.subject.at(POWER_ON_SINCE) is not None else "runs again"
    return f"{view.subject.name} is not back {view.policy.power_on:g} s after its VM {what}: {why}"
