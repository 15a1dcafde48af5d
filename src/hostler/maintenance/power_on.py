"""States powered-off and migrated: where and when a VM that we stopped is started, and when its node is back. Pure.

An order of preference, and vCenter decides: our model of the hosts prefers and explains, it never holds back a return.
A node is in service again on evidence that is newer than the power-on.
"""

from __future__ import annotations

from dataclasses import replace

from hostler.drain import decide as drains
from hostler.drain import model as drain
from hostler.host.conditions import names
from hostler.host.facts import Unknown
from hostler.host.holds import Refusal
from hostler.instant import Instant, iso
from hostler.maintenance.decision import (
    BlockedBy,
    CancelTask,
    Decision,
    PatchNode,
    Phase,
    PowerOn,
    Relocate,
    frozen,
    moved,
    noted,
    released,
    tainted,
    wait,
)
from hostler.maintenance.hosts import Is, has_origin, origin_of, own_host_missing, vm_doubt
from hostler.maintenance.model import (
    BOOT_BEFORE,
    HOST,
    MIGRATED_TO,
    ORIGIN,
    POWER_ON_SINCE,
    RELEASE_SECONDS,
    RELOCATE_SINCE,
    SHUTDOWN_GRACE,
    SHUTDOWN_SINCE,
    SINCE,
    STATE,
    TARGET,
    Attempts,
    Marked,
    State,
    Wish,
    cleared,
    stamp,
)
from hostler.maintenance.placement import Forbidden, Placement, place, pool_for, tied, tried
from hostler.maintenance.view import View, marked
from hostler.vsphere.records import POWER_ON, RELOCATE, Host

BOOT_SECONDS = 5.0


# -- the two states


def powered_off(view: View) -> Decision:
    """Off for its host's maintenance. Somebody may have started it meanwhile: then that is what counts."""
    subject, vm = view.subject, view.vm
    if vm.power == "poweredOn":
        return _running(view, State.POWERED_OFF)
    if vm.power != "poweredOff":
        return frozen(subject, State.POWERED_OFF, f"VM {vm.name} is {vm.power}, which is neither on nor off")
    first = _ended_boot(view) or _clear(view)
    if first is not None:
        return first
    one = start(view)
    # Nothing is under way and it stays off for now: then what it holds is let go, however late.
    return (_clear(view, late=True) if one.phase in (Phase.OFF, Phase.WAITING_FOR_HOST) else None) or one


def _ended_boot(view: View) -> Decision | None:
    """Write down which boot has ended, so that only a later one counts as back.

    A boot id that is new to us may be of a machine that just came up and that vCenter still shows as off: it has ended
    only if vCenter says off in a word later than our first sight of it. Until that is clear nothing is started.
    """
    subject, boot = view.subject, view.node.status.node_info.boot_id
    before = subject.annotations.get(BOOT_BEFORE, "")
    if not boot or before == boot:
        return None
    seen, first = subject.remembered.boot
    if (before or subject.annotations.get(POWER_ON_SINCE)) and not (seen == boot and view.told > first + BOOT_SECONDS):
        why = f"{subject.name} has a boot that is new to us, and vCenter says that its VM is off"
        return wait(subject, State.POWERED_OFF, Phase.OFF, why, "vCenter confirms it, or says that it runs",
                    wake=view.now + BOOT_SECONDS)  # fmt: skip
    # Looked at right before: where the push of its start is late, this is the boot that runs.
    patch = replace(
        noted(view.node, {BOOT_BEFORE: boot}, f"the boot of {subject.name} that has ended is written down"),
        off=view.vm.moref,
    )
    return Decision(subject.name, State.POWERED_OFF, Phase.OFF, patch.why, "then a place is looked for", patch)


def migrated(view: View) -> Decision:
    """Running elsewhere; the state alone proves nothing, vCenter's power state does."""
    vm = view.vm
    if vm.power == "poweredOff":
        return now_off(view, f"VM {vm.name} is off again")
    if vm.power != "poweredOn":
        return frozen(view.subject, State.MIGRATED, f"VM {vm.name} is {vm.power}, which is neither on nor off")
    return _running(view, State.MIGRATED)


def _running(view: View, state: State) -> Decision:
    subject, host = view.subject, view.host_name
    if view.here.what is Is.UNKNOWN:
        return frozen(subject, state, f"ESXi host {host}: {view.here.why}")
    if subject.tainted:
        patch = tainted(view.node, False, f"VM {view.vm.name} runs again: the out-of-service taint goes")
        return Decision(subject.name, state, Phase.STARTING, patch.why, "its node becomes Ready", patch)
    if view.here.leaving:
        why = f"VM {view.vm.name} runs on {host}, which goes into maintenance: it is emptied again"
        again = moved(view.node, State.DRAINING, host, view.now, why, event="DrainingAgain",
                      also={**cleared(*_STATE), ORIGIN: origin_of(view.site, view.vm.host, host), MIGRATED_TO: host},
                      warning=True)  # fmt: skip
        return _done(view, State.DRAINING, Phase.DRAINING, again, "its pods are evicted")
    if state is State.POWERED_OFF and not view.at_home:
        return now_elsewhere(view)
    return _moved_again(view, state) or _finish(view, state)


def _moved_again(view: View, state: State) -> Decision | None:
    """It runs on a third host by now: HA may have started it there, so the boot that we know may have ended too.

    Its node is still called Ready for a while, by a boot that is newer than the stop.
    """
    host, before = view.host_name, view.subject.annotations.get(MIGRATED_TO, "")
    if state is not State.MIGRATED or not before or before == host:
        return None
    why = f"VM {view.vm.name} runs on {host} by now, no longer on {before}: its node may have been started again"
    patch = noted(view.node, {MIGRATED_TO: host, BOOT_BEFORE: view.node.status.node_info.boot_id or None}, why)
    return Decision(view.subject.name, state, Phase.STARTING, why, "its node shows that it is back", patch)


_STATE = (STATE, HOST, SINCE)


# -- transitions


def now_off(view: View, why: str) -> Decision:
    """vCenter says that it is off: that, and nothing less, makes the state."""
    subject = view.subject
    boot = view.node.status.node_info.boot_id or None
    if subject.state is State.DRAINING and subject.annotations.get(BOOT_BEFORE):
        boot = subject.annotations[BOOT_BEFORE]  # written before the stop
    also = {BOOT_BEFORE: boot, MIGRATED_TO: None, POWER_ON_SINCE: None,
            RELOCATE_SINCE: None, SHUTDOWN_SINCE: None}  # fmt: skip
    origin = subject.origin or view.host_name
    if not has_origin(subject) and view.own is not None:
        also[ORIGIN] = origin_of(view.site, view.own.moref, origin)
    patch = moved(view.node, State.POWERED_OFF, origin, view.now, why, event="PoweredOff", also=also)
    if isinstance(patch, Refusal):
        return start(view)  # its holds cannot be read: that keeps the cordon, and holds back no start
    return _done(view, State.POWERED_OFF, Phase.OFF, patch, "a place to start it is looked for")


def now_elsewhere(view: View) -> Decision:
    """It runs on another host that is in service, whoever did that."""
    subject, host = view.subject, view.host_name
    why = f"VM {view.vm.name} runs on {host} now"
    also: dict[str, str | None] = {MIGRATED_TO: host, TARGET: None, RELOCATE_SINCE: None}
    since = subject.remembered.running_since
    ran_before = (since is not None and since < view.now) or subject.annotations.get(TARGET, host) != host
    if subject.state is State.POWERED_OFF and ran_before:
        # It ran on another host, which may have crashed since: HA has started it again after the boot we see.
        also[BOOT_BEFORE] = view.node.status.node_info.boot_id or None
    patch = moved(view.node, State.MIGRATED, subject.origin, view.now, why, event="Migrated", also=also)
    return _done(view, State.MIGRATED, Phase.STARTED, patch, "its node becomes Ready")


def _done(view: View, state: State, phase: Phase, patch: PatchNode | Refusal, release: str) -> Decision:
    if isinstance(patch, Refusal):
        current = view.subject.state
        return frozen(view.subject, current if isinstance(current, State) else None, patch.why)
    return Decision(view.subject.name, state, phase, patch.why, release, patch)


# -- where it is started

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


# -- the node is in service again


def _finish(view: View, state: State) -> Decision:
    """Uncordon on evidence that is newer than the power-on: the kubelet's last Ready outlives its machine by 40 s.

    A kubelet writes its boot id and Ready in one patch when it comes up. Where the boot that has ended is not known (a
    take-over), a Ready written anew under our eyes will do, or a lease that goes on being renewed: a kubelet that lives
    for a whole period has also said what has changed. A lease that stands still is no evidence: then it is waited for.
    """
    subject, host = view.subject, view.host_name
    before, boot = subject.annotations.get(BOOT_BEFORE, ""), view.node.status.node_info.boot_id
    booted = bool(before) and bool(boot) and before != boot
    known = subject.remembered
    if not (subject.ready and (booted or known.reported or known.alive)):
        said = "it is not Ready" if not subject.ready else "its Ready may be from before it was stopped"
        why = f"VM {view.vm.name} runs on {host}, but {subject.name} is not back yet: {said}"
        release = "its kubelet reports a new boot or Ready anew, or goes on renewing its lease"
        one = wait(subject, state, Phase.STARTING, why, release)
        return replace(one, pulse=subject.ready and not booted, overdue=say_overdue(view, why), wake=due_at(view))
    if not booted and (asked := subject.at(SHUTDOWN_SINCE)) is not None and (late := _late_stop(view, state, asked)):
        return late
    done = released(view.node, f"{subject.name} runs on {host} and is Ready again", "BackInService")
    if isinstance(done, Refusal):
        return frozen(subject, state, done.why)
    return Decision(subject.name, None, Phase.ENDING, done.why, "it is in service again", done)


def _late_stop(view: View, state: State, asked: Instant) -> Decision | None:
    """It was moved while it ran, after its guest was asked to shut down, and may still do so."""
    sure = max(asked, view.subject.remembered.shutdown_at) + view.policy.guest_shutdown + SHUTDOWN_GRACE
    if view.now < sure:
        why = f"VM {view.vm.name} was moved to {view.host_name}, but its guest was asked to shut down and may do so"
        return wait(view.subject, state, Phase.WAITING, why, "if it goes off it is started again", wake=sure)
    return marked(view, Marked.ASKED)


# -- what the dead machine still holds


def _clear(view: View, late: bool = False) -> Decision | None:
    """Pods and volumes that a machine which is off cannot let go of: the taint lets Kubernetes do it.

    A start waits for that for so long and no longer, tainted or not: the taint may be refused again and again.

    Only here, where vCenter has confirmed that it is off: the taint says that nothing runs there.
    """
    subject = view.subject
    if subject.drain is None or subject.refused is not None or vm_doubt(view.site, view.vm):
        return None  # that this VM is off says nothing of a node that may be another machine
    found = drains.decide(subject.drain, replace(view.policy.drain, timeout=0.0), view.now)
    if found.state is drain.State.UNKNOWN:
        return None
    left = found.state is not drain.State.DRAINED
    held = names([*found.left, *found.volumes]) or "pods that a setting protects"
    what = f"VM {view.vm.name} is off, and {subject.name} still holds {held}"
    until = view.counted(subject.at(SINCE) or view.now) + RELEASE_SECONDS
    if left and view.now >= until and (subject.tainted or not late):
        return None
    if left and not subject.tainted and view.under_way(POWER_ON):
        return None  # off for a moment only: it would come up as a machine on which nothing is said to run
    if left and not subject.tainted:
        why = f"VM {view.vm.name} is off, so what is left on {subject.name} is let go: {held}"
        patch = replace(tainted(view.node, True, why), warning=True, off=view.vm.moref)
        return Decision(subject.name, State.POWERED_OFF, Phase.LETTING_GO, why, "pods and volumes are released", patch)
    if not left and subject.tainted:
        patch = tainted(view.node, False, f"nothing is left on {subject.name}: the out-of-service taint goes")
        return Decision(subject.name, State.POWERED_OFF, Phase.OFF, patch.why, "then a place is looked for", patch)
    if left:
        release = f"Kubernetes lets go of them, or at {iso(until)} it goes on all the same"
        return wait(subject, State.POWERED_OFF, Phase.LETTING_GO, what, release, wake=until,
                    blocked=BlockedBy.VOLUMES, details=what)  # fmt: skip
    return None


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
