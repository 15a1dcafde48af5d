"""What to do with every node whose ESXi host goes into maintenance. One pass, in the order of names. Pure.

Never shuts down, powers off, moves or uncordons on an unknown fact; safe to repeat at any point. At most one action
per node and pass: what follows from it is decided afresh from the facts it leaves behind.
"""

from __future__ import annotations

from dataclasses import replace

from hostler.host.facts import Known, Unknown, fresh
from hostler.host.holds import MAINTENANCE, Refusal, held_by
from hostler.instant import Instant, parse
from hostler.maintenance.decision import (
    BlockedBy,
    Decision,
    Pass,
    Phase,
    SetMark,
    decide_to_freeze,
    decide_to_refuse,
    decide_to_wait,
    machine_of,
    patch_adoption,
    patch_release,
    patch_state,
)
from hostler.maintenance.hosts import (
    HostMode,
    find_foreign_vms,
    has_origin,
    is_to_return,
    origin_of,
    reboots_in_maintenance,
    return_doubt,
    vm_doubt,
)
from hostler.maintenance.model import (
    DRAIN_HELD,
    HOST,
    LATE_STOP_SECONDS,
    ORIGIN,
    POWER_ON_SINCE,
    RELOCATE_SINCE,
    SHUTDOWN_GRACE,
    SHUTDOWN_SINCE,
    SINCE,
    STATE,
    TARGET,
    InDoubt,
    Mark,
    Marked,
    Policy,
    State,
    Subject,
    Wish,
    World,
    clear_annotations,
    has_stray_hold,
    mend_command,
    stamp_of,
)
from hostler.maintenance.placement import EVER
from hostler.maintenance.power_on import decide_migrated, decide_powered_off, start_vm
from hostler.maintenance.shutdown import decide_draining, find_obstacle, keep_drain_clock
from hostler.maintenance.view import MARK_TRIES, Reservations, View

_TIMES = (SHUTDOWN_SINCE, POWER_ON_SINCE, RELOCATE_SINCE, DRAIN_HELD)


def decide(world: World, policy: Policy, now: Instant) -> Pass:
    """One pass. What is counted (drains, the ceiling, devices) is counted once, over everybody."""
    reservations = Reservations(world, policy, now)
    decisions: list[Decision] = []
    for subject in world.subjects:
        try:
            decision = _decide_subject(subject, reservations)
            if not world.unknown:
                decision = keep_drain_clock(subject, decision, now, world.resumed)
        except Exception as bug:  # noqa: BLE001  # one bad node never stops the others; the controller logs it
            why = "Hostler has a bug that shows on this node; nothing is done to it"
            decision = Decision(subject.name, None, Phase.FAILED, why, "Report it with the operator's log.", bug=bug)
        if decision.bug is None and subject.name in reservations.bugs:
            decision = replace(decision, bug=reservations.bugs[subject.name])
        decisions.append(decision)
        if decision.target is not None and isinstance(subject.vm, Known):
            reservations.promise(*decision.target, subject.vm.value)
    return Pass(tuple(decisions), tuple(find_foreign_vms(world, policy, now)))


def _decide_subject(subject: Subject, reservations: Reservations) -> Decision:
    """What must be known comes first, then what the state asks for."""
    world, policy = reservations.world, reservations.policy
    returns = is_to_return(subject)
    if isinstance(subject.state, Unknown) and not returns:
        return decide_to_freeze(subject, None, subject.state.why)
    state = subject.state if isinstance(subject.state, State) else None
    if subject.busy is not None:
        why = "the last step is still under way"
        return decide_to_wait(subject, state, Phase.AT_WORK, why, "its answer is waited for")
    if world.unknown:
        return decide_to_freeze(subject, state, world.unknown)
    if isinstance(subject.vm, InDoubt) and subject.vm.reason is not None:
        return decide_to_refuse(subject, state, subject.vm)
    if isinstance(subject.vm, Unknown):
        return decide_to_freeze(subject, state, subject.vm.why)
    known = world.sites[subject.vcenter]
    site = fresh(known, reservations.now, policy.max_age)
    if isinstance(site, Unknown):
        # No age in it: each word of it is written on the node, and would be written again with every second.
        why = f"vCenter {subject.vcenter} has said nothing for longer than {policy.max_age:g} s"
        return decide_to_freeze(subject, state, site.why if site is known else why)
    vm = subject.vm.value
    doubt = return_doubt(site.value, vm) if returns else vm_doubt(site.value, vm)
    stopped = state is not None or subject.mark is not None
    if doubt and stopped and reboots_in_maintenance(site.value, vm):
        return _wait_for_reboot(subject, state, site.value.name(vm.host))
    if doubt:
        return decide_to_freeze(subject, state, doubt)
    view = View(subject, state, vm, site.value, site.at, reservations)
    if subject.refused is not None and vm.power != "poweredOff" and view.here.what is not HostMode.IN_SERVICE:
        return decide_to_refuse(subject, state, subject.refused)  # only what ends a maintenance goes on
    if subject.node is None or state is None:
        return _decide_without_state(view)
    unready = _adopt_state(view, state)
    if unready is not None and not (unready.unknown and returns):
        return unready  # holds that cannot be read keep the cordon, and hold back no return
    match state:
        case State.DRAINING:
            return _add_doubt(view, decide_draining(view))
        case State.POWERED_OFF:
            return decide_powered_off(view)
        case State.MIGRATED:
            return decide_migrated(view)


def _add_doubt(view: View, decision: Decision) -> Decision:
    """What our model doubts is reported while the VM is emptied and stopped; with the setting it holds the stop."""
    going = decision.state is State.DRAINING and view.vm.power == "poweredOn" and not view.policy.only_proven
    return replace(decision, doubt=view.doubt()) if going and view.here.leaving else decision


def _wait_for_reboot(subject: Subject, state: State | None, host: str) -> Decision:
    """Nothing is done while its host is away, and nothing is wrong: it is in maintenance."""
    why = f"{host} is in maintenance, and vCenter has no connection to it: it may be rebooting"
    release = f"{host} is connected again"
    return decide_to_wait(subject, state, Phase.WAITING_FOR_HOST, why, release, blocked=BlockedBy.NO_HOST, details=why)


def _adopt_state(view: View, state: State) -> Decision | None:
    """What a state must have before anything else: a hold of ours, a host, times. The predecessor's may lack some."""
    subject, node = view.subject, view.node
    hold = held_by(node, MAINTENANCE)
    if isinstance(hold, Unknown):
        return view.freeze(hold.why)
    lacking: dict[str, str | None] = {}
    if not subject.annotations.get(HOST):
        lacking[HOST] = view.host_name
    # A time that nobody can read begins now: what it bounds neither ends at once nor never.
    lacking |= {
        name: stamp_of(view.now) for name in _TIMES if subject.annotations.get(name) and subject.at(name) is None
    }
    if subject.at(SINCE) is None:
        lacking[SINCE] = stamp_of(view.now)
    if hold is not None and not hold.implied and not lacking:
        return None
    if not has_origin(subject) and (own := view.own) is not None:
        lacking[ORIGIN] = origin_of(view.site, own.moref, subject.origin or view.host_name)
    patch = patch_adoption(node, subject.origin or view.host_name, view.now, lacking)
    return view.act(Phase.TAKEN_OVER, patch, "it goes on from its annotations")


# -- no state yet, or none any more


def _decide_without_state(view: View) -> Decision:
    subject, vm = view.subject, view.vm
    if subject.mark is not None and (kept := _end_mark(view, subject.mark)) is not None:
        return kept
    if subject.node is None:
        return view.wait(Phase.NOT_OURS, "its VM has no node", "nothing is done")
    stray = has_stray_hold(subject.node)
    if vm.power != "poweredOn":
        why = f"VM {vm.name} is off, and not by us"
        return _name_stray_hold(view, why) if stray else view.wait(Phase.OFF, why, "nothing is done to it")
    here = view.here
    if here.what is HostMode.UNKNOWN:
        return view.freeze(f"ESXi host {view.host_name}: {here.why}")
    if here.leaving:
        return _begin_maintenance(view)
    if stray:
        return _release_stray_hold(view)
    return Decision(subject.name, None, Phase.IN_SERVICE, f"its ESXi host {view.host_name} is in service")


def _begin_maintenance(view: View) -> Decision:
    """Its host goes into maintenance: cordon it and reserve a place, if everything allows it."""
    subject, node, host, vm = view.subject, view.node, view.host_name, view.vm
    goes = f"ESXi host {host} goes into maintenance"
    wish = subject.wish
    if isinstance(wish, Unknown):
        return view.wait(Phase.WAITING, f"{goes}, but {wish.why}", "mend the annotation", blocked=BlockedBy.POLICY)
    if wish is Wish.IGNORE:
        why = f"{goes}, but the node's policy is to ignore that"
        return view.wait(Phase.IGNORED, why, "the vCenter task waits until a user stops the VM")
    # Cordoned on what was last known, which hurts nobody; looked at again before the first eviction.
    if (obstacle := find_obstacle(view, EVER)) is not None:
        return obstacle
    patience = view.live_move()
    if patience is not None and isinstance(vm.devices, Unknown):
        why = f"{goes}; cannot tell which devices VM {vm.name} holds: {vm.devices.why}"
        release = "it is drained if that stays unknown for a minute, and comes back on its own host"
        return view.wait(Phase.WAITING, why, release, wake=patience, blocked=BlockedBy.LOOKING)
    if patience is not None:
        why = f"{goes}, and nothing ties VM {vm.name} to it: DRS is given time to move it live"
        return view.wait(Phase.WAITING, why, "it is drained if DRS does not", wake=patience, blocked=BlockedBy.DRS)
    reservations = view.reservations
    if not reservations.room.admits(subject.name):
        why = f"{goes}, but {reservations.room.why_not(subject.name)}"
        release = "another node comes back, or MAX_UNAVAILABLE is raised"
        return view.wait(Phase.WAITING, why, release, blocked=BlockedBy.CEILING)
    if not reservations.take_slot(subject.name):
        others = ", ".join(reservations.drains)
        why = f"{goes}, but {others} is being emptied (limit {view.policy.max_drains})"
        release = "it is its turn next, or MAX_CONCURRENT_DRAINS is raised"
        return view.wait(Phase.WAITING, why, release, blocked=BlockedBy.SLOT)
    placement = view.placement()
    target = placement.best if placement is not None else None
    also = {
        **clear_annotations(STATE, HOST, SINCE), TARGET: target.name if target is not None else None,
        ORIGIN: origin_of(view.site, vm.host, host),
    }  # fmt: skip
    why = f"{goes}: {subject.name} is cordoned and emptied"
    machine = machine_of(node) if view.policy.skip_remediation else ""
    patch = patch_state(node, State.DRAINING, host, view.now, why, event="Draining", also=also, machine=machine)
    if isinstance(patch, Refusal):
        return view.wait(Phase.WAITING, f"{goes}, but {patch.why}", "mend its holds", blocked=BlockedBy.HOLDS)
    reservations.room = reservations.room.after(subject.name)
    begun = view.act(
        Phase.BEGINNING, patch, "its pods are evicted",
        rejected=placement.rejected if placement is not None else (),
        target=(subject.vcenter, target.moref) if target is not None else None,
    )  # fmt: skip
    return _add_doubt(view, begun)


# -- marks without a maintenance


def _end_mark(view: View, mark: Mark) -> Decision | None:
    """A VM that still carries our mark: started again if we stopped it, else the mark goes."""
    vm, subject = view.vm, view.subject
    if vm.power == "poweredOff" and mark.what is not Marked.DRAINING:
        return start_vm(view)
    if view.here.leaving and subject.node is not None and vm.power == "poweredOn":
        return None  # it is about to be drained (again): the mark is right, or will be; its guest may still go off
    if mark.what is Marked.ASKED and vm.power == "poweredOn" and (until := _may_still_stop(view, mark)) is not None:
        why = f"VM {vm.name} was asked to stop for a maintenance that was cancelled, and runs"
        return view.wait(Phase.IN_SERVICE, why, "if it still goes off it is started again", wake=until)
    if subject.node is None and vm.power == "poweredOn" and (until := _perhaps_stopping(view, mark)) is not None:
        why = f"VM {vm.name} runs and has no node, but its guest may still be shutting down"
        return view.wait(Phase.WAITING, why, "if it goes off it is started again", wake=until)
    if subject.remembered.mark.number >= MARK_TRIES and view.now < subject.remembered.mark.not_before:
        return None
    unmark = SetMark(vm.moref, None, f"VM {vm.name} is no longer kept by Hostler")
    return view.act(Phase.UNMARKING, unmark, "its mark is taken away")


def _may_still_stop(view: View, mark: Mark) -> Instant | None:
    """Until when our ask may still take effect; a VM that we started since has taken no notice of it."""
    asked = parse(mark.since)
    until = (asked if asked is not None else view.now) + view.policy.guest_shutdown + LATE_STOP_SECONDS
    return until if view.now < until and not view.subject.remembered.started else None


def _perhaps_stopping(view: View, mark: Mark) -> Instant | None:
    """Until when a running VM that we asked to stop may still do so; its node, which would say more, is gone."""
    known = view.subject.remembered
    if mark.what is not Marked.STOPPED or known.started:
        return None
    if view.here.what is not HostMode.IN_SERVICE:
        return view.now + view.policy.guest_shutdown
    since = known.running_since if known.running_since is not None else view.now
    until = since + view.policy.guest_shutdown + SHUTDOWN_GRACE
    return until if view.now < until else None


# -- holds without a maintenance
#
# A person may have taken the state away, or held the node in the name of `maintenance`. Nothing else would ever end
# such a hold, and the node would stay cordoned in silence.


def _name_stray_hold(view: View, because: str) -> Decision:
    """We cannot tell that the node is well, so a person decides."""
    why = f"{view.subject.name} carries a hold of maintenance without a state: {because}"
    mend = f"to return it to service: {mend_command(view.subject.name)}"
    return view.wait(Phase.HELD, why, mend, blocked=BlockedBy.STRAY_HOLD, details=mend)


def _release_stray_hold(view: View) -> Decision:
    """The VM runs on a host in service: the hold goes once the node is known to be Ready by fresh evidence."""
    subject, known, host = view.subject, view.subject.remembered, view.host_name
    runs = f"VM {view.vm.name} runs on {host}"
    if (until := view.settled(view.vm.host)) is not None:
        why = f"{subject.name} carries a hold of maintenance without a state, and {host} seems to be in service"
        return view.wait(Phase.SETTLING, why, "if that lasts, the hold is released", wake=until)
    if not subject.ready:
        return _name_stray_hold(view, f"{runs}, but the node is not Ready")
    if not (known.reported or known.alive):
        why = f"{subject.name} carries a hold of maintenance without a state, and seems to be well"
        release = "its kubelet shows that it is alive, then the hold is released"
        return replace(view.wait(Phase.CHECKING, why, release), pulse=True)
    patch = patch_release(view.node, f"{runs}, and no maintenance of {subject.name} is under way", "HoldReleased")
    return view.act(Phase.ENDING, patch, "it is in service again")
