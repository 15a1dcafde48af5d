"""State draining: a node is emptied and its VM stopped, or all of it is called off. Pure.

Nothing is evicted or stopped that vCenter says could not be started again. What is about to be asked of the guest is
written down first, so that a restart asks again and waits for whoever may have heard of it.
"""

from __future__ import annotations

from dataclasses import replace

from hostler.drain import model as drain
from hostler.drain.blockers import said_of
from hostler.host.facts import Unknown
from hostler.host.holds import MAINTENANCE, held_by
from hostler.instant import Instant, iso
from hostler.maintenance.decision import (
    Blocked,
    BlockedBy,
    Decision,
    Evictions,
    Phase,
    PowerOff,
    ShutDown,
    TellMachine,
    patch_notes,
    patch_release,
    told_machine,
)
from hostler.maintenance.hosts import HostMode, judge_restart, origin_of
from hostler.maintenance.model import (
    ASK_TRIES,
    BOOT_BEFORE,
    DRAIN_ENDED,
    DRAIN_HELD,
    EMPTY,
    HOST,
    LATE,
    MIGRATED_TO,
    ORIGIN,
    SHUTDOWN_GRACE,
    SHUTDOWN_SINCE,
    SINCE,
    TARGET,
    Marked,
    State,
    Subject,
    Wish,
    stamp_of,
)
from hostler.maintenance.placement import RIGHTS_SECONDS, UNANSWERED_SECONDS, needs_of
from hostler.maintenance.power_on import enter_migrated, enter_powered_off
from hostler.maintenance.view import View, drain_start, mark_vm
from hostler.vsphere.records import POWER_OFF

# So many pods are asked to go before the node is looked at again: a cancelled task must not cost the rest of them.
EVICTIONS_MOST = 10


def decide_draining(view: View) -> Decision:
    """A node in state draining."""
    subject, vm = view.subject, view.vm
    if vm.power == "poweredOff":
        return enter_powered_off(view, f"VM {vm.name} is off")
    if vm.power != "poweredOn":
        return view.freeze(f"VM {vm.name} is {vm.power}, which is neither on nor off")
    if view.here.what is HostMode.UNKNOWN:
        return view.freeze(f"ESXi host {view.host_name}: {view.here.why}")
    if not view.at_home:
        return _follow_vm(view)
    if not view.here.leaving:
        return _end_cancelled(view)
    wish = subject.wish
    if isinstance(wish, Unknown):
        return view.freeze(wish.why)
    since = subject.annotations.get(SHUTDOWN_SINCE)
    if since and subject.remembered.shutdown_asked == since:
        return _stop_vm(view)
    if wish is Wish.IGNORE:
        return _call_off(view, f"the policy of {subject.name} is now to ignore the maintenance")
    hold = held_by(view.node, MAINTENANCE)
    if hold is not None and not isinstance(hold, Unknown) and hold.yielded:
        why = f"{subject.name} was uncordoned by hand twice, so it is not emptied"
        release = f"take {subject.origin} out of maintenance, or stop VM {vm.name} by hand"
        return view.wait(Phase.OVERRULED, why, release, blocked=BlockedBy.UNCORDONED)
    if not view.node.spec.unschedulable:
        why = f"{subject.name} was uncordoned by hand; nothing is evicted before it is cordoned again"
        return view.wait(Phase.WAITING, why, "the hold cordons it again, once", blocked=BlockedBy.UNCORDONED)
    if since:
        return _empty_again(view) or _stop_vm(view)
    return find_obstacle(view) or _empty_node(view)


# -- called off


def _follow_vm(view: View) -> Decision:
    """It was moved while it ran: by an admin, by HA, by DRS."""
    host = view.host_name
    if view.here.leaving:
        why = f"VM {view.vm.name} is on {host} by now, which goes into maintenance too"
        notes = {HOST: host, TARGET: None, MIGRATED_TO: host, ORIGIN: origin_of(view.site, view.vm.host, host)}
        return view.act(Phase.DRAINING, patch_notes(view.node, notes, why, "HostChanged"), "its pods are evicted")
    return _release_moved(view) or enter_migrated(view)


def _release_moved(view: View) -> Decision | None:
    """Moved live, most likely by DRS, before a pod was evicted: nothing is left to do. None where that is not so.

    HA may have started it there instead: only a kubelet that goes on renewing its lease shows that it never stopped.
    """
    subject, known = view.subject, view.subject.remembered
    evicting = subject.mark is not None or known.marked is not None or known.mark.number > 0
    if evicting or subject.annotations.get(SHUTDOWN_SINCE) or not subject.ready:
        return None
    why = f"VM {view.vm.name} was moved to {view.host_name} before a pod of {subject.name} was evicted"
    settled = view.settled(view.vm.host)
    if known.alive and settled is None:
        return _release_node(view, why)
    release = "it is released when its kubelet shows that it is alive"
    return replace(view.wait(Phase.WAITING, why, release, wake=settled), pulse=True)


def _end_cancelled(view: View) -> Decision:
    """The host stays in service."""
    if (settled := view.settled(view.vm.host)) is not None:
        why = f"{view.subject.origin} seems to stay in service"
        return view.wait(Phase.SETTLING, why, "if that lasts, the node is released", wake=settled)
    return _call_off(view, f"the maintenance of {view.subject.origin} was cancelled")


def _call_off(view: View, because: str) -> Decision:
    """Before the guest was asked to stop that ends it; after it, or where that is not sure, the guest is waited for."""
    subject, began = view.subject, view.subject.at(SHUTDOWN_SINCE)
    if not subject.annotations.get(SHUTDOWN_SINCE) or began is None:
        because = f"{because} before VM {view.vm.name} was stopped"
        if subject.annotations.get(MIGRATED_TO) and not (subject.ready and subject.remembered.alive):
            # It was started since it was last in service, by HA perhaps: its node's Ready may be from before that.
            return replace(view.wait(Phase.WAITING, because, _ALIVE), pulse=subject.ready)
        return _release_node(view, because)
    sure = max(began, subject.remembered.shutdown_at) + view.policy.guest_shutdown + SHUTDOWN_GRACE
    if view.now < sure:
        why = f"{because}, but the guest of VM {view.vm.name} may have been asked to shut down, and may do so"
        return view.wait(Phase.WAITING, why, "it is returned to service if it still runs then", wake=sure)
    if not (subject.ready and subject.remembered.alive):
        why = f"{because}, and VM {view.vm.name} still runs"
        return replace(view.wait(Phase.WAITING, why, _ALIVE), pulse=subject.ready)
    if (marking := mark_vm(view, Marked.ASKED)) is not None:  # it may still go off: then it is started again
        return marking
    return _release_node(view, f"{because}, and VM {view.vm.name} did not stop")


_ALIVE = "its kubelet shows that it is alive"


def _release_node(view: View, why: str) -> Decision:
    return view.act(Phase.ENDING, patch_release(view.node, why, "MaintenanceCancelled"), "it is in service again")


# -- emptying the node


def find_obstacle(view: View, max_age: float = RIGHTS_SECONDS) -> Decision | None:
    """What vCenter says could not be started again is neither emptied nor stopped; nor while vCenter does not say.

    What only our model doubts holds nothing, unless a setting wants it so.
    """
    found = view.reservations.judged(view.subject, view.vm).within(max_age, view.now)
    goes = f"ESXi host {view.host_name} goes into maintenance"
    if found.unseen:
        why = f"{goes}; vCenter is being asked what our user may do with {found.unseen}"
        looking = BlockedBy.LOOKING if view.state else None
        return view.wait(Phase.WAITING, why, "vCenter answers", wake=view.now + 1.0, blocked=looking)
    if found.unknown and found.holds(view.now, view.policy.unknown_rights_hold):
        until = None if view.policy.unknown_rights_hold else found.since + UNANSWERED_SECONDS
        return replace(view.freeze(f"{goes}, but {found.unknown}"), wake=until)
    if found.lacking:
        why = f"{goes}, but our vCenter user lacks {found}; it is not stopped"
        return view.wait(Phase.WAITING, why, f"grant {found}", blocked=BlockedBy.PRIVILEGES, details=str(found))
    restart = judge_restart(view.site, view.vm)
    if restart.never:
        why = f"{goes}, but {restart.never}, so it could not be started again; it is not stopped"
        release = "fix that in vCenter, or stop the VM by hand"
        return view.wait(Phase.WAITING, why, release, blocked=BlockedBy.NO_RESTART, details=restart.never)
    if restart.unknown:
        return view.freeze(f"{goes}, but {restart.unknown}; it is not stopped")
    if view.policy.only_proven and (doubt := view.doubt()):
        why = f"{goes}, but whether VM {view.vm.name} could be started again is in doubt: {doubt}; it is not stopped"
        release = "fix that, or set HOSTLER_MAINTENANCE_STOP_ONLY_PROVEN=false"
        return view.wait(Phase.WAITING, why, release, blocked=BlockedBy.NO_RESTART, details=doubt)
    return None


def _empty_node(view: View) -> Decision:
    subject = view.subject
    if (marking := mark_vm(view, Marked.DRAINING)) is not None:
        return marking
    machine = told_machine(subject.annotations)
    if machine and subject.remembered.machine_told != machine:
        tell = TellMachine(machine, f"Machine {machine} is annotated, so that no MachineHealthCheck replaces it")
        return view.act(Phase.DRAINING, tell, "its pods are evicted", target=view.reserved())
    found = view.reservations.drained(subject)
    why = found.why.rstrip(".")
    decision = Decision(
        subject.name, view.state, Phase.DRAINING, why, wake=found.wake, drain=found, target=view.reserved()
    )
    match found.state:
        case drain.State.UNKNOWN:
            return replace(view.freeze(why), drain=found)
        case drain.State.REFUSED:
            release = "delete or move those pods, or allow it by setting"
            return replace(decision, phase=Phase.REFUSED, next=release, blocked=Blocked(BlockedBy.REFUSED))
        case drain.State.DRAINED | drain.State.DEADLINE_PASSED:
            return _prepare_stop(view, found)
    if not view.reservations.take_slot(subject.name):
        others = ", ".join(view.reservations.drains)
        why = f"{why}; {others} is emptied first (limit {view.policy.max_drains})"
        slot = Blocked(BlockedBy.SLOT)
        return replace(decision, why=why, phase=Phase.WAITING, next="it is its turn next", blocked=slot, wake=None)
    began = subject.at(SINCE)
    counts = drain_start(subject, began, view.now, view.world.resumed) if began is not None else None
    deadline = view.policy.drain.deadline(counts) if counts is not None else None
    then = "VM is stopped when it is empty" + (f", or at {iso(deadline)}" if deadline is not None else "")
    blocked = Blocked(BlockedBy.BUDGET, said_of(found.blockers)) if found.blockers else None
    if found.state is drain.State.WAITING_FOR_VOLUMES:
        blocked = Blocked(BlockedBy.VOLUMES, why)
    action = Evictions(found.actions[:EVICTIONS_MOST], found.why) if found.actions else None
    return replace(decision, next=then, blocked=blocked, action=action)


# -- the clock of a drain
#
# It stands still while nothing may be evicted: that time was never the pods'. The standstill is written on the node
# when it begins, and `transition-time` moves on by its length when it ends. So no machine is stopped as out of time
# whose pods nobody asked to go, a restart changes nothing, and time that was spent with evictions stays spent.

# A process that has just started knows little for a moment: that is no standstill.
NEW_SECONDS = 10.0
_HELD = (BlockedBy.PRIVILEGES, BlockedBy.NO_RESTART, BlockedBy.SLOT, BlockedBy.REFUSED, BlockedBy.UNCORDONED)
_NOT_KNOWN = (BlockedBy.UNKNOWN, BlockedBy.LOOKING)
_GOES_ON = (Phase.DRAINING, Phase.STOPPING)


def keep_drain_clock(subject: Subject, decision: Decision, now: Instant, resumed: Instant) -> Decision:
    """The decision, or what must be written before it: that the clock stands still, or runs again."""
    began = subject.at(SINCE)
    if subject.node is None or subject.busy is not None or began is None or subject.annotations.get(SHUTDOWN_SINCE):
        return decision
    if subject.state is not State.DRAINING or decision.state is not State.DRAINING:
        return decision
    held = bool(subject.annotations.get(DRAIN_HELD))
    if not held and decision.action is None and _stands_still(subject, decision, now):
        why = f"nothing may be evicted from {subject.name}: the clock of its drain is paused"
        return replace(decision, action=patch_notes(subject.node, {DRAIN_HELD: stamp_of(now)}, why))
    if held and decision.phase in _GOES_ON:
        why = f"pods of {subject.name} may be evicted again: the clock of its drain continues"
        notes = {SINCE: stamp_of(drain_start(subject, began, now, resumed)), DRAIN_HELD: None}
        patch = patch_notes(subject.node, notes, why, "DrainGoesOn")
        return Decision(
            subject.name, State.DRAINING, Phase.DRAINING, why, "its pods are evicted", patch, target=decision.target
        )
    return decision


def _stands_still(subject: Subject, decision: Decision, now: Instant) -> bool:
    if decision.blocked is None:
        return False
    seen = subject.remembered.running_since
    lasts = seen is not None and now >= seen + NEW_SECONDS
    return decision.blocked.by in _HELD or (decision.blocked.by in _NOT_KNOWN and lasts)


# -- stopping the VM

# An ask that comes later after its note than this (and than the guest's time) was held back, and is noted again.
HELD_BACK_SECONDS = 10.0


def _prepare_stop(view: View, found: drain.Decision) -> Decision:
    """Empty, or out of time. The reservation is looked at again, then the stop is written down before it is asked."""
    subject = view.subject
    placement = view.placement()
    target = placement.best if placement is not None else None
    wanted = target.name if target is not None else None
    if subject.annotations.get(TARGET) != wanted:
        why = f"{subject.name} is to go to {wanted}" if wanted else f"no host can take {subject.name} now"
        phase, patch, then = Phase.DRAINING, patch_notes(view.node, {TARGET: wanted}, why), "then its VM is stopped"
    else:
        late = found.state is drain.State.DEADLINE_PASSED
        notes = {
            SHUTDOWN_SINCE: stamp_of(view.now), BOOT_BEFORE: view.node.status.node_info.boot_id or None,
            DRAIN_ENDED: LATE if late else EMPTY, ORIGIN: origin_of(view.site, view.vm.host, subject.origin),
        }  # fmt: skip
        why = f"{found.why.rstrip('.')}: VM {view.vm.name} is stopped"
        noted = patch_notes(view.node, notes, why, "DrainTimeout" if late else "Drained")
        phase, patch, then = Phase.STOPPING, replace(noted, warning=late), "the guest is asked to shut down"
    return view.act(
        phase, patch, then, drain=found, rejected=placement.rejected if placement is not None else (),
        target=(subject.vcenter, target.moref) if target is not None else None,
    )  # fmt: skip


def _empty_again(view: View) -> Decision | None:
    """Its stop was written down, and before anybody was asked pods have come again: it is emptied first.

    An outage of vCenter or a right that is missing may last for hours, and a user may have uncordoned it meanwhile.
    It was empty once, so these pods have a drain's time of their own; a drain that ran out of time stays ended.
    """
    subject = view.subject
    found = view.reservations.drained(subject)
    if found.state is drain.State.UNKNOWN:
        return replace(view.freeze(found.why.rstrip(".")), drain=found)
    again = subject.annotations.get(DRAIN_ENDED) == EMPTY
    late = found.state is drain.State.DEADLINE_PASSED and bool(found.left) and again
    if not late and found.state not in (drain.State.DRAINING, drain.State.BLOCKED, drain.State.REFUSED):
        return None
    since = subject.annotations[SHUTDOWN_SINCE]
    if (sure := _perhaps_asked(view, since, subject.at(SHUTDOWN_SINCE) or view.now)) is not None:
        why = f"{subject.name} has pods again, but before a restart of ours its guest may have been asked to shut down"
        waiting = view.wait(Phase.STOPPING, why, "if it still runs then, it is emptied first", wake=sure)
        return replace(waiting, drain=found, target=view.reserved())
    why = f"{subject.name} has pods again, and VM {view.vm.name} was not stopped yet: it is emptied first"
    notes: dict[str, str | None] = {SHUTDOWN_SINCE: None, BOOT_BEFORE: None, DRAIN_ENDED: None}
    if again:
        notes[SINCE] = stamp_of(view.now)
    patch = patch_notes(view.node, notes, why, "DrainingAgain")
    return view.act(Phase.DRAINING, patch, "its pods are evicted", drain=found)


def _stop_vm(view: View) -> Decision:
    """The guest is asked, and after its time the VM is switched off."""
    subject, vm, known = view.subject, view.vm, view.subject.remembered
    since = subject.annotations[SHUTDOWN_SINCE]
    asked, noted_at = known.shutdown_asked == since, subject.at(SHUTDOWN_SINCE) or view.now
    began = view.counted(noted_at)
    # The time counts from when the guest took it. Written down before it was asked, so after an outage or a restart the
    # annotation alone does not prove that it ever heard of it: then it is asked again, and has its time.
    deadline = max(began, known.shutdown_at if asked else view.now) + view.policy.guest_shutdown
    refused = _why_not_asked(view, began, asked)
    # A guest that was asked may go off whatever we do; one that was not yet, or did not, is left running.
    if (refused or not asked or view.now >= deadline) and (obstacle := find_obstacle(view)) is not None:
        return obstacle
    if (marking := mark_vm(view, Marked.STOPPED)) is not None:
        return marking
    if view.under_way(POWER_OFF):
        return view.wait(Phase.STOPPING, f"VM {vm.name} is being powered off", "vCenter says it is off")
    if view.now < known.power.not_before:
        why = f"VM {vm.name} could not be stopped: {known.power.why}"
        return view.wait(Phase.STOPPING, why, "it is tried again", wake=known.power.not_before,
                         blocked=BlockedBy.POWER_OFF, details=known.power.why)  # fmt: skip
    if refused and (sure := _perhaps_asked(view, since, began)) is not None:
        why = f"{refused}, but before a restart of ours it may have been asked to shut down, and be doing so"
        waiting = view.wait(Phase.STOPPING, why, f"it is powered off at {iso(sure)} at the latest", wake=sure)
        return replace(waiting, target=view.reserved())
    if not refused and not asked:
        return _ask_guest(view, noted_at, deadline)
    if not refused and view.now < deadline:
        release = f"it is powered off at {iso(deadline)} at the latest"
        waiting = view.wait(Phase.STOPPING, f"the guest of {vm.name} is shutting down", release, wake=deadline)
        return replace(waiting, target=view.reserved())
    why = refused or f"the guest did not shut down within {view.policy.guest_shutdown:g} s"
    off = PowerOff(vm.moref, vm.host, f"VM {vm.name} is powered off: {why}", needs_of(vm))
    return view.act(Phase.STOPPING, off, "vCenter says it is off", target=view.reserved())


def _ask_guest(view: View, noted_at: Instant, deadline: Instant) -> Decision:
    vm, since = view.vm, view.subject.annotations[SHUTDOWN_SINCE]
    held_back = view.now >= noted_at + max(view.policy.guest_shutdown, HELD_BACK_SECONDS)
    if held_back and not view.subject.remembered.power.number:
        # Whoever waits for a late stop counts from this note; it was held back for long (a right, an outage).
        why = f"the guest of {vm.name} is asked to shut down only now"
        patch = patch_notes(view.node, {SHUTDOWN_SINCE: stamp_of(view.now)}, why)
        return view.act(Phase.STOPPING, patch, "the guest is asked to shut down", target=view.reserved())
    ask = ShutDown(vm.moref, vm.host, since, f"the guest of {vm.name} is asked to shut down", needs_of(vm))
    then = f"it is powered off at {iso(deadline)} if it does not"
    return view.act(Phase.STOPPING, ask, then, wake=deadline, target=view.reserved())


def _why_not_asked(view: View, began: Instant, asked: bool) -> str:
    """Why the guest cannot be asked, so that the VM is switched off without; "" where it can, or was.

    Tools that end after the ask are the shutdown itself: then it has its time.
    """
    vm, known = view.vm, view.subject.remembered
    if asked:
        return known.shutdown_refused
    if vm.tools and not vm.tools_run:
        return "VMware Tools do not run in the guest"
    if known.power.number >= ASK_TRIES and view.now >= began + view.policy.guest_shutdown:
        return f"it could not be asked to shut down: {known.power.why}"
    return ""


def _perhaps_asked(view: View, since: str, began: Instant) -> Instant | None:
    """Until when a guest may be in a shutdown that was asked for before us; None: nobody did, or it is over."""
    known = view.subject.remembered
    if known.stop_noted == since:
        return None
    seen = known.running_since if known.running_since is not None else view.now
    until = view.counted(max(began, seen)) + view.policy.guest_shutdown
    return until if view.now < until else None
