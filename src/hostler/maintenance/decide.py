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
    adopted,
    frozen,
    machine_of,
    moved,
    refused,
    released,
    wait,
)
from hostler.maintenance.hosts import (
    Is,
    hanging,
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
    cleared,
    has_stray_hold,
    mend_command,
    stamp,
)
from hostler.maintenance.placement import EVER
from hostler.maintenance.power_on import migrated, powered_off, start
from hostler.maintenance.shutdown import _draining, barred, clocked
from hostler.maintenance.view import MARK_TRIES, Reservations, View

_TIMES = (SHUTDOWN_SINCE, POWER_ON_SINCE, RELOCATE_SINCE, DRAIN_HELD)


def decide(world: World, policy: Policy, now: Instant) -> Pass:
    """One pass. What is counted (drains, the ceiling, devices) is counted once, over everybody."""
    reservations = Reservations(world, policy, now)
    decisions: list[Decision] = []
    for subject in world.subjects:
        try:
            one = _one(subject, world, reservations, policy, now)
            if not world.unknown:
                one = clocked(subject, one, now, world.resumed)
        except Exception as bug:  # noqa: BLE001  # one bad node never stops the others; the controller logs it
            why = "Hostler has a bug that shows on this node; nothing is done to it"
            one = Decision(subject.name, None, Phase.FAILED, why, "Report it with the operator's log.", bug=bug)
        if one.bug is None and subject.name in reservations.bugs:
            one = replace(one, bug=reservations.bugs[subject.name])
        decisions.append(one)
        if one.target is not None and isinstance(subject.vm, Known):
            reservations.promise(*one.target, subject.vm.value)
    return Pass(tuple(decisions), tuple(hanging(world, policy, now)))


def _one(subject: Subject, world: World, reservations: Reservations, policy: Policy, now: Instant) -> Decision:
    state = subject.state
    returns = is_to_return(subject)
    if isinstance(state, Unknown) and not returns:
        return frozen(subject, None, state.why)
    state = state if isinstance(state, State) else None
    if subject.busy is not None:
        return wait(subject, state, Phase.AT_WORK, "the last step is still under way", "its answer is waited for")
    if world.unknown:
        return frozen(subject, state, world.unknown)
    if isinstance(subject.vm, InDoubt) and subject.vm.reason is not None:
        return refused(subject, state, subject.vm)
    if isinstance(subject.vm, Unknown):
        return frozen(subject, state, subject.vm.why)
    known = world.sites[subject.vcenter]
    site = fresh(known, now, policy.max_age)
    if isinstance(site, Unknown):
        # No age in it: each word of it is written on the node, and would be written again with every second.
        why = f"vCenter {subject.vcenter} has said nothing for longer than {policy.max_age:g} s"
        return frozen(subject, state, site.why if site is known else why)
    vm = subject.vm.value
    doubt = return_doubt(site.value, vm) if returns else vm_doubt(site.value, vm)
    stopped = state is not None or subject.mark is not None
    if doubt and stopped and reboots_in_maintenance(site.value, vm):
        return _host_reboots(subject, state, site.value.name(vm.host))
    if doubt:
        return frozen(subject, state, doubt)
    view = View(subject, site.value, vm, world, reservations, policy, now, site.at)
    if subject.refused is not None and vm.power != "poweredOff" and view.here.what is not Is.OUT:
        return refused(subject, state, subject.refused)  # only what ends a maintenance goes on
    if subject.node is None or state is None:
        return _without_state(view)
    unready = _adopt(view, state)
    if unready is not None and not (unready.unknown and returns):
        return unready  # holds that cannot be read keep the cordon, and hold back no return
    match state:
        case State.DRAINING:
            return _with_doubt(view, _draining(view))
        case State.POWERED_OFF:
            return powered_off(view)
        case State.MIGRATED:
            return migrated(view)


def _with_doubt(view: View, one: Decision) -> Decision:
    """What our model doubts is told while the VM is emptied and stopped; with the setting it holds the stop instead."""
    going = one.state is State.DRAINING and view.vm.power == "poweredOn" and not view.policy.only_proven
    return replace(one, doubt=view.doubt()) if going and view.here.leaving else one


def _host_reboots(subject: Subject, state: State | None, host: str) -> Decision:
    """Nothing is done while its host is away, and nothing is wrong: it is in maintenance."""
    why = f"{host} is in maintenance, and vCenter has no connection to it: it may be rebooting"
    release = f"{host} is connected again"
    return wait(subject, state, Phase.WAITING_FOR_HOST, why, release, blocked=BlockedBy.NO_HOST, details=why)


def _adopt(view: View, state: State) -> Decision | None:
    """What a state must have before anything else: a hold of ours, a host, times. The seed's may lack some."""
    subject, node = view.subject, view.node
    hold = held_by(node, MAINTENANCE)
    if isinstance(hold, Unknown):
        return frozen(subject, state, hold.why)
    lacking: dict[str, str | None] = {}
    if not subject.annotations.get(HOST):
        lacking[HOST] = view.host_name
    # A time that nobody can read begins now: what it bounds neither ends at once nor never.
    lacking |= {one: stamp(view.now) for one in _TIMES if subject.annotations.get(one) and subject.at(one) is None}
    if subject.at(SINCE) is None:
        lacking[SINCE] = stamp(view.now)
    if hold is not None and not hold.implied and not lacking:
        return None
    if not has_origin(subject) and (own := view.own) is not None:
        lacking[ORIGIN] = origin_of(view.site, own.moref, subject.origin or view.host_name)
    patch = adopted(node, subject.origin or view.host_name, view.now, lacking)
    if isinstance(patch, Refusal):
        return frozen(subject, state, patch.why)
    return Decision(subject.name, state, Phase.TAKEN_OVER, patch.why, "it goes on from its annotations", patch)


# -- no state yet


def _without_state(view: View) -> Decision:
    subject, vm = view.subject, view.vm
    if subject.mark is not None:
        leftover = leftover_of(view, subject.mark)
        if leftover is not None:
            return leftover
    if subject.node is None:
        return wait(subject, None, Phase.NOT_OURS, "its VM has no node", "nothing is done")
    stray = has_stray_hold(subject.node)
    if vm.power != "poweredOn":
        why = f"VM {vm.name} is off, and not by us"
        return name_stray_hold(subject, why) if stray else wait(subject, None, Phase.OFF, why, "nothing is done to it")
    here = view.here
    if here.what is Is.UNKNOWN:
        return frozen(subject, None, f"ESXi host {view.host_name}: {here.why}")
    if not here.leaving and stray:
        return release_stray_hold(view)
    if not here.leaving:
        return Decision(subject.name, None, Phase.IN_SERVICE, f"its ESXi host {view.host_name} is in service")
    return _begin(view)


def _begin(view: View) -> Decision:
    """Its host goes into maintenance: cordon it and reserve a place, if everything allows it."""
    subject, node, host = view.subject, view.node, view.host_name
    goes = f"ESXi host {host} goes into maintenance"
    wish = subject.wish
    if isinstance(wish, Unknown):
        return wait(
            subject, None, Phase.WAITING, f"{goes}, but {wish.why}", "mend the annotation", blocked=BlockedBy.POLICY
        )
    if wish is Wish.IGNORE:
        why = f"{goes}, but the node's policy is to ignore that"
        return wait(subject, None, Phase.IGNORED, why, "the vCenter task hangs until somebody stops the VM")
    # Cordoned on what was last known, which hurts nobody; looked at anew before the first eviction.
    if (why_not := barred(view, None, EVER)) is not None:
        return why_not
    patience = view.live_move()
    if patience is not None and isinstance(view.vm.devices, Unknown):
        why = f"{goes}; which devices VM {view.vm.name} holds is not known: {view.vm.devices.why}"
        release = "it is drained if that is not known in time, and comes back on its own host"
        return wait(subject, None, Phase.WAITING, why, release, wake=patience, blocked=BlockedBy.LOOKING)
    if patience is not None:
        why = f"{goes}, and nothing ties VM {view.vm.name} to it: DRS is given time to move it live"
        return wait(
            subject, None, Phase.WAITING, why, "it is drained if DRS does not", wake=patience, blocked=BlockedBy.DRS
        )
    reservations = view.reservations
    if not reservations.room.admits(subject.name):
        return wait(subject, None, Phase.WAITING, f"{goes}, but {reservations.room.why_not(subject.name)}",
                    "another node comes back, or MAX_UNAVAILABLE is raised", blocked=BlockedBy.CEILING)  # fmt: skip
    if not reservations.take_slot(subject.name):
        others = ", ".join(reservations.drains)
        return wait(subject, None, Phase.WAITING, f"{goes}, but {others} is being emptied (limit {reservations.limit})",
                    "it is its turn next, or MAX_CONCURRENT_DRAINS is raised", blocked=BlockedBy.SLOT)  # fmt: skip
    placement = view.placement()
    target = placement.best if placement is not None else None
    also = {
        **cleared(*_KEPT), TARGET: target.name if target is not None else None,
        ORIGIN: origin_of(view.site, view.vm.host, host),
    }  # fmt: skip
    why = f"{goes}: {subject.name} is cordoned and emptied"
    machine = machine_of(node) if view.policy.skip_remediation else ""
    patch = moved(node, State.DRAINING, host, view.now, why, event="Draining", also=also, machine=machine)
    if isinstance(patch, Refusal):
        return wait(
            subject, None, Phase.WAITING, f"{goes}, but {patch.why}", "see to its holds", blocked=BlockedBy.HOLDS
        )
    reservations.room = reservations.room.after(subject.name)
    return _with_doubt(view, Decision(
        subject.name, State.DRAINING, Phase.BEGINNING, why, "its pods are evicted", patch,
        rejected=placement.rejected if placement is not None else (),
        target=(subject.vcenter, target.moref) if target is not None else None,
    ))  # fmt: skip


_KEPT = (STATE, HOST, SINCE)


# -- marks without a maintenance


# -- marks without a maintenance


def leftover_of(view: View, mark: Mark) -> Decision | None:
    """A VM that still carries our mark: started again if we stopped it, else the mark goes."""
    vm, subject = view.vm, view.subject
    if vm.power == "poweredOff" and mark.what is not Marked.DRAINING:
        return start(view)
    if view.here.leaving and subject.node is not None and vm.power == "poweredOn":
        return None  # it is about to be drained (again): the mark is right, or will be; its guest may still go off
    if mark.what is Marked.ASKED and vm.power == "poweredOn" and (until := _may_still_stop(view, mark)) is not None:
        why = f"VM {vm.name} was asked to stop for a maintenance that was cancelled, and runs"
        return wait(subject, None, Phase.IN_SERVICE, why, "if it still goes off it is started again", wake=until)
    if subject.node is None and vm.power == "poweredOn" and (until := _perhaps_stopping(view, mark)) is not None:
        why = f"VM {vm.name} runs and has no node, but its guest may still be shutting down"
        return wait(subject, None, Phase.WAITING, why, "if it goes off it is started again", wake=until)
    if subject.remembered.mark.number >= MARK_TRIES and view.now < subject.remembered.mark.not_before:
        return None
    what = SetMark(vm.moref, None, f"VM {vm.name} is no longer kept by Hostler")
    return Decision(subject.name, None, Phase.UNMARKING, what.why, "its mark is taken away", what)


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
    if view.here.what is not Is.OUT:
        return view.now + view.policy.guest_shutdown
    since = known.running_since if known.running_since is not None else view.now
    until = since + view.policy.guest_shutdown + SHUTDOWN_GRACE
    return until if view.now < until else None


# -- holds without a maintenance
#
# A person may have taken the state away, or held the node in the name of `maintenance`. Nothing else would ever end
# such a hold, and the node would stay cordoned in silence.


def name_stray_hold(subject: Subject, because: str) -> Decision:
    """We cannot tell that the node is well, so a person decides."""
    why = f"{subject.name} carries a hold of maintenance without a state: {because}"
    mend = f"if it is to be in service: {mend_command(subject.name)}"
    return wait(subject, None, Phase.HELD, why, mend, blocked=BlockedBy.STRAY_HOLD, details=mend)


def release_stray_hold(view: View) -> Decision:
    """The VM runs on a host in service: the hold goes once the node is known to be Ready by fresh evidence."""
    subject, known, host = view.subject, view.subject.remembered, view.host_name
    runs = f"VM {view.vm.name} runs on {host}"
    if (until := view.settled(view.vm.host)) is not None:
        why = f"{subject.name} carries a hold of maintenance without a state, and {host} seems to be in service"
        return wait(subject, None, Phase.SETTLING, why, "if that lasts, the hold is released", wake=until)
    if not subject.ready:
        return name_stray_hold(subject, f"{runs}, but the node is not Ready")
    if not (known.reported or known.alive):
        why = f"{subject.name} carries a hold of maintenance without a state, and seems to be well"
        nxt = "its kubelet shows that it is alive, then the hold is released"
        return replace(wait(subject, None, Phase.CHECKING, why, nxt), pulse=True)
    patch = released(view.node, f"{runs}, and no maintenance of {subject.name} is under way", "HoldReleased")
    if isinstance(patch, Refusal):
        return frozen(subject, None, patch.why)
    return Decision(subject.name, None, Phase.ENDING, patch.why, "it is in service again", patch)
