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
    Action,
    BlockedBy,
    CancelTask,
    Decision,
    Phase,
    PowerOn,
    Relocate,
    patch_notes,
    patch_release,
    patch_state,
    patch_taint,
)
from hostler.maintenance.hosts import HostMode, has_origin, origin_of, own_host_missing, vm_doubt
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
    clear_annotations,
    stamp_of,
)
from hostler.maintenance.placement import Placement, is_tied_to_host, pool_for, tries_before
from hostler.maintenance.view import View, mark_vm
from hostler.vsphere.records import POWER_ON, RELOCATE, Host

BOOT_SECONDS = 5.0
# A refused start is asked for again so long after the refusal, at the earliest, when what it depends on has changed.
CHANGED_SECONDS = 1.0


# -- the two states


def decide_powered_off(view: View) -> Decision:
    """Off for its host's maintenance. A user may have started it meanwhile: then that is what counts."""
    vm = view.vm
    if vm.power == "poweredOn":
        return _decide_running(view)
    if vm.power != "poweredOff":
        return view.freeze(f"VM {vm.name} is {vm.power}, which is neither on nor off")
    first = _note_ended_boot(view) or _clear_node(view)
    if first is not None:
        return first
    decision = start_vm(view)
    # Nothing is under way and it stays off for now: then what it holds is let go, however late.
    stays_off = decision.phase in (Phase.OFF, Phase.WAITING_FOR_HOST)
    return (_clear_node(view, late=True) if stays_off else None) or decision


def decide_migrated(view: View) -> Decision:
    """Running elsewhere; the state alone proves nothing, vCenter's power state does."""
    vm = view.vm
    if vm.power == "poweredOff":
        return enter_powered_off(view, f"VM {vm.name} is off again")
    if vm.power != "poweredOn":
        return view.freeze(f"VM {vm.name} is {vm.power}, which is neither on nor off")
    return _decide_running(view)


def _note_ended_boot(view: View) -> Decision | None:
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
        why = f"{subject.name} reports a boot that we have not seen before, and vCenter reports its VM as off"
        return view.wait(Phase.OFF, why, "vCenter confirms it, or says that it runs", wake=view.now + BOOT_SECONDS)
    # Looked at right before: where the push of its start is late, this is the boot that runs.
    noted = patch_notes(view.node, {BOOT_BEFORE: boot}, f"the boot of {subject.name} that has ended is written down")
    return view.act(Phase.OFF, replace(noted, off=view.vm.moref), "then a place is looked for")


def _decide_running(view: View) -> Decision:
    """Powered off or migrated by its state, and it runs."""
    subject, host = view.subject, view.host_name
    if view.here.what is HostMode.UNKNOWN:
        return view.freeze(f"ESXi host {host}: {view.here.why}")
    if subject.tainted:
        patch = patch_taint(view.node, False, f"VM {view.vm.name} runs again: the out-of-service taint goes")
        return view.act(Phase.STARTING, patch, "its node becomes Ready")
    if view.here.leaving:
        why = f"VM {view.vm.name} runs on {host}, which goes into maintenance: it is emptied again"
        also = {
            **clear_annotations(STATE, HOST, SINCE), ORIGIN: origin_of(view.site, view.vm.host, host), MIGRATED_TO: host
        }  # fmt: skip
        again = patch_state(
            view.node, State.DRAINING, host, view.now, why, event="DrainingAgain", also=also, warning=True
        )
        return view.act(Phase.DRAINING, again, "its pods are evicted")
    if view.state is State.POWERED_OFF and not view.at_home:
        return enter_migrated(view)
    return _follow_vm(view) or _end_maintenance(view)


def _follow_vm(view: View) -> Decision | None:
    """It runs on a third host by now: HA may have started it there, so the boot that we know may have ended too.

    Its node is still called Ready for a while, by a boot that is newer than the stop.
    """
    host, before = view.host_name, view.subject.annotations.get(MIGRATED_TO, "")
    if view.state is not State.MIGRATED or not before or before == host:
        return None
    why = f"VM {view.vm.name} runs on {host} by now, no longer on {before}: its node may have been started again"
    notes = {MIGRATED_TO: host, BOOT_BEFORE: view.node.status.node_info.boot_id or None}
    return view.act(Phase.STARTING, patch_notes(view.node, notes, why), "its node shows that it is back")


# -- how they are entered


def enter_powered_off(view: View, why: str) -> Decision:
    """vCenter says that it is off: that, and nothing less, makes the state."""
    subject = view.subject
    boot = view.node.status.node_info.boot_id or None
    if view.state is State.DRAINING and subject.annotations.get(BOOT_BEFORE):
        boot = subject.annotations[BOOT_BEFORE]  # written before the stop
    also = {BOOT_BEFORE: boot, MIGRATED_TO: None, POWER_ON_SINCE: None,
            RELOCATE_SINCE: None, SHUTDOWN_SINCE: None}  # fmt: skip
    origin = subject.origin or view.host_name
    if not has_origin(subject) and view.own is not None:
        also[ORIGIN] = origin_of(view.site, view.own.moref, origin)
    patch = patch_state(view.node, State.POWERED_OFF, origin, view.now, why, event="PoweredOff", also=also)
    if isinstance(patch, Refusal):
        return start_vm(view)  # its holds cannot be read: that keeps the cordon, and holds back no start
    return view.act(Phase.OFF, patch, "a place to start it is looked for")


def enter_migrated(view: View) -> Decision:
    """It runs on another host that is in service, whoever did that."""
    subject, host = view.subject, view.host_name
    why = f"VM {view.vm.name} runs on {host} now"
    also: dict[str, str | None] = {MIGRATED_TO: host, TARGET: None, RELOCATE_SINCE: None}
    since = subject.remembered.running_since
    ran_before = (since is not None and since < view.now) or subject.annotations.get(TARGET, host) != host
    if view.state is State.POWERED_OFF and ran_before:
        # It ran on another host, which may have crashed since: HA has started it again after the boot we see.
        also[BOOT_BEFORE] = view.node.status.node_info.boot_id or None
    patch = patch_state(view.node, State.MIGRATED, subject.origin, view.now, why, event="Migrated", also=also)
    return view.act(Phase.STARTED, patch, "its node becomes Ready")


# -- where it is started


def start_vm(view: View) -> Decision:
    """The VM is off and ours to start, under the same checks whether or not it still has a node."""
    view = replace(view, state=State.POWERED_OFF if view.state is not None else None)
    vm, known, wish = view.vm, view.subject.remembered, view.subject.wish
    if isinstance(wish, Unknown):
        return view.wait(Phase.OFF, wish.why, "mend the annotation", blocked=BlockedBy.POLICY)
    if wish in (Wish.STAY_OFF, Wish.IGNORE):
        why = f"VM {vm.name} is off, and the policy of {view.subject.name} is {wish}"
        return view.wait(Phase.OFF, why, "change the annotation, or start the VM by hand")
    if (moving := _await_move(view)) is not None:
        return moving
    if view.under_way(POWER_ON):
        return view.wait(Phase.STARTING, f"VM {vm.name} is being powered on", "vCenter says it runs")
    placement = view.places()
    failed = known.power if known.power.not_before >= known.relocate.not_before else known.relocate
    if (until := _refused_until(view, failed)) is not None:
        decision = _report_refusal(view, placement, failed, until)
    else:
        decision = _start_somewhere(view, placement)
    return replace(decision, overdue=overdue_sentence(view, failed.why or decision.why))


def _refused_until(view: View, failed: Attempts) -> Instant | None:
    """When a start that was refused is asked for again; None: now. A change of what it depends on counts at once."""
    soonest = min(failed.not_before, failed.at + CHANGED_SECONDS)
    if view.now >= failed.not_before:
        return None
    tried_in = view.subject.remembered.tried_in
    if not tried_in or tried_in == view.start_depends_on():
        return failed.not_before
    return soonest if view.now < soonest else None


def _report_refusal(view: View, placement: Placement, failed: Attempts, until: Instant) -> Decision:
    """vCenter said no, in its words."""
    why = f"VM {view.vm.name} could not be started: {failed.why}"
    release = f"it is tried again at {iso(until)}, or when something changes that could matter"
    phase, by = Phase.STARTING, BlockedBy.POWER_ON
    if _only_vcenter_knows(view, placement):
        phase, by = Phase.WAITING_FOR_HOST, BlockedBy.NO_HOST
    decision = view.wait(phase, why, release, wake=until, blocked=by, details=failed.why)
    return replace(decision, rejected=placement.rejected, target=view.reserved())


def _only_vcenter_knows(view: View, placement: Placement) -> bool:
    """Our model finds no host and the VM's own is not in service, but DRS may know better."""
    return view.drs_chooses and placement.best is None and not view.own_in_service


def _start_somewhere(view: View, placement: Placement) -> Decision:
    """An order of preference: the best host we know of; wherever DRS puts it; its own host, whatever our model says.

    vCenter decides. Our model never holds back the return of a VM that we stopped.
    """
    vm, own = view.vm, view.own if view.own_in_service else None
    if view.drs_chooses:
        return _power_on_vm(view, placement.best or own, placement, drs=True)
    order = list(placement.hosts)
    if isinstance(view.drs, Unknown):
        order = [host for host in order if host.moref == vm.host]  # whose choice it is, is not known
    if own is not None and own not in order:
        order.append(own)
    if view.subject.refused is not None:
        order = [host for host in order if host.moref == vm.host]  # no proof: started where it is, never moved
    if not order:
        return _wait_for_host(view, placement)
    best = min(order, key=lambda host: tries_before(view.ask().failed, host))
    if own is not None and best.moref == own.moref and (until := view.settled(own.moref)) is not None:
        return _wait_for_settling(view, own, until)
    if best.moref != vm.host:
        return _relocate_vm(view, best, placement)
    return _power_on_vm(view, best, placement, drs=False)


def _wait_for_settling(view: View, own: Host, until: Instant) -> Decision:
    why, release = f"{own.name} seems to be in service again", f"if that lasts, VM {view.vm.name} is started there"
    return view.wait(Phase.SETTLING, why, release, wake=until)


def _await_move(view: View) -> Decision | None:
    """A relocate is under way; it has its time and is then cancelled."""
    subject, vm = view.subject, view.vm
    if not view.under_way(RELOCATE):
        return None
    began = subject.at(RELOCATE_SINCE) or subject.remembered.relocating
    until = view.counted(began) + view.policy.relocate if began is not None else None
    task = view.task(RELOCATE)
    why = f"VM {vm.name} is being moved"
    if until is None or task is None or view.now < until:
        waiting = view.wait(Phase.MOVING, why, "vCenter says it is there", wake=until)
        return replace(waiting, target=view.reserved())
    if subject.refused is not None:
        return view.wait(Phase.MOVING, why, "the task ends")
    if task.cancelled:
        return view.wait(Phase.MOVING, f"{why}, which was cancelled", "the task ends")
    cancel = CancelTask(vm.moref, task.moref, f"moving VM {vm.name} took longer than {view.policy.relocate:g} s")
    return view.act(Phase.MOVING, cancel, "it is tried again")


def _wait_for_host(view: View, placement: Placement) -> Decision:
    subject, origin, vm = view.subject, view.subject.origin, view.vm
    if placement.best is not None and isinstance(view.drs, Unknown):
        return view.freeze(f"cannot tell whether DRS places VM {vm.name}: {view.drs.why}")
    if placement.forbidden:
        host, lacks = placement.forbidden[0].host, placement.forbidden[0].lacks
        why = f"VM {vm.name} is off, and our vCenter user lacks {lacks} to move it to {host.name}"
        release = f"grant {lacks}, or {origin} leaves maintenance"
        return view.wait(Phase.WAITING_FOR_HOST, why, release, blocked=BlockedBy.PRIVILEGES, details=lacks)
    why = f"VM {vm.name} is off, and no host can take it"
    release = f"{origin} leaves maintenance, or another host can take it"
    if subject.wish is Wish.WAIT or is_tied_to_host(vm):
        why, release = f"VM {vm.name} is off and waits for {origin}", f"{origin} leaves maintenance"
    if missing := own_host_missing(subject, view.site):
        why, release = f"{why}: {missing}", f"start VM {vm.name} by hand where it belongs"
    details = placement.why_none()
    waiting = view.wait(Phase.WAITING_FOR_HOST, why, release, blocked=BlockedBy.NO_HOST, details=details)
    return replace(waiting, rejected=placement.rejected)


def _relocate_vm(view: View, to: Host, placement: Placement) -> Decision:
    """Written down first, with when: a relocate is bounded, also over a restart."""
    subject, known = view.subject, view.subject.remembered
    why = f"VM {view.vm.name} is moved to {to.name} (compute only)"
    since = subject.annotations.get(RELOCATE_SINCE, "")
    is_noted = since not in ("", known.relocate_asked) and subject.annotations.get(TARGET) == to.name
    action: Action
    if subject.node is not None and view.state is not None and not is_noted:
        action = patch_notes(view.node, {RELOCATE_SINCE: stamp_of(view.now), TARGET: to.name}, why, "Relocating")
    else:
        pool = pool_for(view.site, view.vm, to)
        seen = view.start_depends_on()
        action = Relocate(view.vm.moref, to.moref, pool.pool if pool is not None else "", why, seen)
    return view.act(
        Phase.MOVING, action, f"it is started on {to.name}", rejected=placement.rejected,
        target=(subject.vcenter, to.moref),
    )  # fmt: skip


def _power_on_vm(view: View, best: Host | None, placement: Placement, *, drs: bool) -> Decision:
    """`best` is where we expect it to run; None: our model finds no host, and only vCenter may know one."""
    subject, vm, own = view.subject, view.vm, view.own
    if own is not None and best == own and own.moref == vm.host and (until := view.settled(own.moref)) is not None:
        return _wait_for_settling(view, own, until)
    where = "where DRS puts it" if drs else f"on {best.name if best is not None else view.host_name}"
    why = f"VM {vm.name} is started {where}"
    if best is None or best not in placement.hosts:
        why += ", though by what we know no host can take it: vCenter decides"
    action: Action
    noted_first = subject.node is not None and view.state is not None and not _only_vcenter_knows(view, placement)
    if noted_first and not subject.annotations.get(POWER_ON_SINCE):
        action = patch_notes(view.node, {POWER_ON_SINCE: stamp_of(view.now)}, why, "PoweringOn")
    else:
        action = PowerOn(vm.moref, vm.host, drs, why, view.start_depends_on())
    return view.act(
        Phase.STARTING, action, "its node becomes Ready", rejected=placement.rejected,
        target=(subject.vcenter, best.moref) if best is not None else None,
    )  # fmt: skip


# -- the node is in service again


def _end_maintenance(view: View) -> Decision:
    """Uncordon on evidence that is newer than the power-on: the kubelet's last Ready outlives its machine by 40 s.

    A kubelet writes its boot id and Ready in one patch when it comes up. Where the boot that has ended is not known (a
    take-over), a new report of Ready under our eyes will do, or a lease that goes on being renewed: a kubelet that
    lives for a whole period has also said what has changed. A lease that stands still is no evidence: it is waited for.
    """
    subject, host = view.subject, view.host_name
    before, boot = subject.annotations.get(BOOT_BEFORE, ""), view.node.status.node_info.boot_id
    booted = bool(before) and bool(boot) and before != boot
    known = subject.remembered
    if not (subject.ready and (booted or known.reported or known.alive)):
        said = "it is not Ready" if not subject.ready else "its Ready may be from before it was stopped"
        why = f"VM {view.vm.name} runs on {host}, but {subject.name} is not back yet: {said}"
        release = "its kubelet reports a new boot or Ready again, or keeps renewing its lease"
        waiting = view.wait(Phase.STARTING, why, release, wake=due_at(view))
        return replace(waiting, pulse=subject.ready and not booted, overdue=overdue_sentence(view, why))
    if not booted and (asked := subject.at(SHUTDOWN_SINCE)) is not None and (late := _await_late_stop(view, asked)):
        return late
    done = patch_release(view.node, f"{subject.name} runs on {host} and is Ready again", "BackInService")
    return view.act(Phase.ENDING, done, "it is in service again")


def _await_late_stop(view: View, asked: Instant) -> Decision | None:
    """It was moved while it ran, after its guest was asked to shut down, and may still do so."""
    sure = max(asked, view.subject.remembered.shutdown_at) + view.policy.guest_shutdown + SHUTDOWN_GRACE
    if view.now < sure:
        why = f"VM {view.vm.name} was moved to {view.host_name}, but its guest was asked to shut down and may do so"
        return view.wait(Phase.WAITING, why, "if it goes off it is started again", wake=sure)
    return mark_vm(view, Marked.ASKED)


def _awaited_since(view: View) -> Instant | None:
    """Since when it is to come back: since we started it, or since it runs again, whoever started it."""
    subject, runs = view.subject, view.subject.remembered.running_since
    since = subject.at(POWER_ON_SINCE)
    if since is None and runs is not None:
        since = max(runs, subject.at(SINCE) or runs)
    return view.counted(since) if since is not None else None


def due_at(view: View) -> Instant | None:
    """When POWER_ON_TIMEOUT_SECONDS passes; None where it has."""
    since = _awaited_since(view)
    return since + view.policy.power_on if since is not None and view.now < since + view.policy.power_on else None


def overdue_sentence(view: View, why: str) -> str:
    """That POWER_ON_TIMEOUT_SECONDS has passed; "" where it has not."""
    since = _awaited_since(view)
    if since is None or view.now < since + view.policy.power_on:
        return ""
    what = "was to be started" if view.subject.at(POWER_ON_SINCE) is not None else "runs again"
    return f"{view.subject.name} is not back {view.policy.power_on:g} s after its VM {what}: {why}"


# -- what the dead machine still holds


def _clear_node(view: View, late: bool = False) -> Decision | None:
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
    until = view.counted(subject.at(SINCE) or view.now) + RELEASE_SECONDS
    if left and view.now >= until and (subject.tainted or not late):
        return None
    if left and not subject.tainted and view.under_way(POWER_ON):
        return None  # off for a moment only: it would come up as a machine on which, by the taint, nothing runs
    if left and not subject.tainted:
        why = f"VM {view.vm.name} is off, so Kubernetes may release what is left on {subject.name}: {held}"
        patch = replace(patch_taint(view.node, True, why), warning=True, off=view.vm.moref)
        return view.act(Phase.LETTING_GO, patch, "pods and volumes are released")
    if not left and subject.tainted:
        patch = patch_taint(view.node, False, f"nothing is left on {subject.name}: the out-of-service taint goes")
        return view.act(Phase.OFF, patch, "then a place is looked for")
    if left:
        why = f"VM {view.vm.name} is off, and {subject.name} still holds {held}"
        release = f"Kubernetes releases them; at {iso(until)} the maintenance goes on without that"
        return view.wait(Phase.LETTING_GO, why, release, wake=until, blocked=BlockedBy.VOLUMES, details=why)
    return None
