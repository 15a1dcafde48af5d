"""How a VM is stopped: what must be so before, written down, said on the VM, asked of the guest, then done. Pure."""

from __future__ import annotations

from dataclasses import replace

from hostler.drain import model as drain
from hostler.instant import Instant, iso
from hostler.maintenance.decision import BlockedBy, Decision, Phase, PowerOff, ShutDown, frozen, noted, wait
from hostler.maintenance.hosts import judge_restart, origin_of
from hostler.maintenance.marking import marked
from hostler.maintenance.model import (
    ASK_TRIES,
    BOOT_BEFORE,
    DRAIN_ENDED,
    EMPTY,
    LATE,
    ORIGIN,
    SHUTDOWN_SINCE,
    SINCE,
    TARGET,
    Marked,
    State,
    stamp,
)
from hostler.maintenance.placement import RIGHTS_SECONDS, UNANSWERED_SECONDS
from hostler.maintenance.view import View
from hostler.vsphere.records import POWER_OFF

# An ask that comes later after its note than this (and than the guest's time) was held back, and is noted anew.
HELD_BACK_SECONDS = 10.0


def barred(view: View, state: State | None, max_age: float = RIGHTS_SECONDS) -> Decision | None:
    """What vCenter says could not be started again is neither emptied nor stopped; nor while vCenter does not say.

    What only our model doubts holds nothing, unless a setting wants it so.
    """
    subject, found = view.subject, view.judged(max_age)
    goes = f"ESXi host {view.host_name} goes into maintenance"
    if found.unseen:
        why = f"{goes}; what our vCenter user may do with {found.unseen} is being looked at"
        looking = BlockedBy.LOOKING if state else None
        return wait(subject, state, Phase.WAITING, why, "vCenter says it", wake=view.now + 1.0, blocked=looking)
    if found.unknown and found.holds(view.now, view.policy.unknown_rights_hold):
        until = None if view.policy.unknown_rights_hold else found.since + UNANSWERED_SECONDS
        return replace(frozen(subject, state, f"{goes}, but {found.unknown}"), wake=until)
    if found.lacking:
        why = f"{goes}, but our vCenter user lacks {found}; it is not stopped"
        release, lacks = f"grant {found}", str(found)
        return wait(subject, state, Phase.WAITING, why, release, blocked=BlockedBy.PRIVILEGES, details=lacks)
    restart = judge_restart(view.site, view.vm)
    if restart.never:
        why = f"{goes}, but {restart.never}, so it could not be started again; it is not stopped"
        release = "mend that in vCenter, or stop the VM by hand"
        return wait(subject, state, Phase.WAITING, why, release, blocked=BlockedBy.NO_RESTART, details=restart.never)
    if restart.unknown:
        return frozen(subject, state, f"{goes}, but {restart.unknown}; it is not stopped")
    if view.policy.only_proven and (doubt := view.doubt()):
        why = f"{goes}, but whether VM {view.vm.name} could be started again is in doubt: {doubt}; it is not stopped"
        release = "mend that, or set HOSTLER_MAINTENANCE_STOP_ONLY_PROVEN=false"
        return wait(subject, state, Phase.WAITING, why, release, blocked=BlockedBy.NO_RESTART, details=doubt)
    return None


def before_stop(view: View, found: drain.Decision) -> Decision:
    """Empty, or out of time. The reservation is looked at again, then the stop is written down before it is asked."""
    subject = view.subject
    placement = view.placement()
    target = placement.best if placement is not None else None
    wanted = target.name if target is not None else None
    rejected = placement.rejected if placement is not None else ()
    held = (subject.vcenter, target.moref) if target is not None else None
    if subject.annotations.get(TARGET) != wanted:
        why = f"{subject.name} is to go to {wanted}" if wanted else f"no host can take {subject.name} now"
        patch = noted(view.node, {TARGET: wanted}, why)
        return Decision(subject.name, State.DRAINING, Phase.DRAINING, why, "then its VM is stopped", patch,
                        rejected=rejected, target=held, drain=found)  # fmt: skip
    late = found.state is drain.State.DEADLINE_PASSED
    why = f"{found.why.rstrip('.')}: VM {view.vm.name} is stopped"
    boot = view.node.status.node_info.boot_id or None
    notes = {
        SHUTDOWN_SINCE: stamp(view.now), BOOT_BEFORE: boot, DRAIN_ENDED: LATE if late else EMPTY,
        ORIGIN: origin_of(view.site, view.vm.host, subject.origin),
    }  # fmt: skip
    patch = replace(noted(view.node, notes, why, "DrainTimeout" if late else "Drained"), warning=late)
    return Decision(subject.name, State.DRAINING, Phase.STOPPING, why, "the guest is asked to shut down", patch,
                    rejected=rejected, target=held, drain=found)  # fmt: skip


def refilled(view: View) -> Decision | None:
    """Its stop was written down, and before anybody was asked pods have come again: it is emptied first.

    An outage of vCenter or a right that is missing may last for hours, and somebody may have uncordoned it meanwhile.
    It was empty once, so these pods have a drain's time of their own; a drain that ran out of time stays ended.
    """
    subject = view.subject
    found = view.reservations.drained(subject, view.policy, view.now)
    if found.state is drain.State.UNKNOWN:
        return replace(frozen(subject, State.DRAINING, found.why.rstrip(".")), drain=found)
    again = subject.annotations.get(DRAIN_ENDED) == EMPTY
    late = found.state is drain.State.DEADLINE_PASSED and bool(found.left) and again
    if not late and found.state not in (drain.State.DRAINING, drain.State.BLOCKED, drain.State.REFUSED):
        return None
    since = subject.annotations[SHUTDOWN_SINCE]
    if (sure := _perhaps_asked(view, since, subject.at(SHUTDOWN_SINCE) or view.now)) is not None:
        why = f"{subject.name} has pods again, but before a restart of ours its guest may have been asked to shut down"
        one = wait(
            subject, State.DRAINING, Phase.STOPPING, why, "if it still runs then, it is emptied first", wake=sure
        )
        return replace(one, drain=found, target=view.reserved())
    why = f"{subject.name} has pods again, and VM {view.vm.name} was not stopped yet: it is emptied first"
    notes: dict[str, str | None] = {SHUTDOWN_SINCE: None, BOOT_BEFORE: None, DRAIN_ENDED: None}
    patch = noted(view.node, notes | ({SINCE: stamp(view.now)} if again else {}), why, "DrainingAgain")
    return Decision(subject.name, State.DRAINING, Phase.DRAINING, why, "its pods are evicted", patch, drain=found)


def stopping(view: View) -> Decision:
    """The guest is asked, and after its time the VM is switched off."""
    subject, vm, known = view.subject, view.vm, view.subject.remembered
    since = subject.annotations[SHUTDOWN_SINCE]
    asked, noted_at = known.shutdown_asked == since, subject.at(SHUTDOWN_SINCE) or view.now
    began = view.counted(noted_at)
    # The time counts from when the guest took it. Written down before it was asked, so after an outage or a restart the
    # annotation alone does not prove that it ever heard of it: then it is asked again, and has its time.
    deadline = max(began, known.shutdown_at if asked else view.now) + view.policy.guest_shutdown
    refused = _unasked(view, began, asked)
    # A guest that was asked may go off whatever we do; one that was not yet, or did not, is left running.
    if (refused or not asked or view.now >= deadline) and (why_not := barred(view, State.DRAINING)) is not None:
        return why_not
    marking = marked(view, Marked.STOPPED)
    if marking is not None:
        return marking
    if view.under_way(POWER_OFF):
        return wait(
            subject, State.DRAINING, Phase.STOPPING, f"VM {vm.name} is being powered off", "vCenter says it is off"
        )
    if view.now < known.power.not_before:
        why = f"VM {vm.name} could not be stopped: {known.power.why}"
        return wait(subject, State.DRAINING, Phase.STOPPING, why, "it is tried again", wake=known.power.not_before,
                    blocked=BlockedBy.POWER_OFF, details=known.power.why)  # fmt: skip
    if refused and (sure := _perhaps_asked(view, since, began)) is not None:
        why = f"{refused}, but before a restart of ours it may have been asked to shut down, and be doing so"
        release = f"it is powered off at {iso(sure)} at the latest"
        one = wait(subject, State.DRAINING, Phase.STOPPING, why, release, wake=sure)
        return replace(one, target=view.reserved())
    if not refused and not asked:
        if not known.power.number and view.now >= noted_at + max(view.policy.guest_shutdown, HELD_BACK_SECONDS):
            # Whoever waits for a late stop counts from this note; it was held back for long (a right, an outage).
            why = f"the guest of {vm.name} is asked to shut down only now"
            patch = noted(view.node, {SHUTDOWN_SINCE: stamp(view.now)}, why)
            return Decision(subject.name, State.DRAINING, Phase.STOPPING, why, "the guest is asked to shut down", patch,
                            target=view.reserved())  # fmt: skip
        ask = ShutDown(vm.moref, vm.host, since, f"the guest of {vm.name} is asked to shut down", view.needs())
        nxt = f"it is powered off at {iso(deadline)} if it does not"
        return Decision(
            subject.name, State.DRAINING, Phase.STOPPING, ask.why, nxt, ask, deadline, target=view.reserved()
        )
    if not refused and view.now < deadline:
        why = f"the guest of {vm.name} is shutting down"
        release = f"it is powered off at {iso(deadline)} at the latest"
        one = wait(subject, State.DRAINING, Phase.STOPPING, why, release, wake=deadline)
        return replace(one, target=view.reserved())
    why = refused or f"the guest did not shut down within {view.policy.guest_shutdown:g} s"
    off = PowerOff(vm.moref, vm.host, f"VM {vm.name} is powered off: {why}", view.needs())
    return Decision(subject.name, State.DRAINING, Phase.STOPPING, off.why, "vCenter says it is off", off,
                    target=view.reserved())  # fmt: skip


def _unasked(view: View, began: Instant, asked: bool) -> str:
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
    """Until when a guest may be in a shutdown that somebody asked for before us; None: nobody did, or it is over."""
    known = view.subject.remembered
    if known.stop_noted == since:
        return None
    seen = known.running_since if known.running_since is not None else view.now
    until = view.counted(max(began, seen)) + view.policy.guest_shutdown
    return until if view.now < until else None
