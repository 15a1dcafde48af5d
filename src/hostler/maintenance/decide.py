"""What to do with every node whose ESXi host goes into maintenance. One pass, in the order of names. Pure.

Never shuts down, powers off, moves or uncordons on an unknown fact; safe to repeat at any point. At most one action
per node and pass: what follows from it is decided afresh from the facts it leaves behind.
"""

from __future__ import annotations

from dataclasses import replace

from hostler.drain import model as drain
from hostler.drain.blockers import said_of
from hostler.host.facts import Known, Unknown, fresh
from hostler.host.holds import MAINTENANCE, Refusal, held_by
from hostler.instant import Instant, iso
from hostler.maintenance import returning
from hostler.maintenance.decision import (
    Blocked,
    BlockedBy,
    Decision,
    Evictions,
    Pass,
    Phase,
    TellMachine,
    adopted,
    frozen,
    machine_of,
    moved,
    noted,
    refused,
    released,
    told_machine,
    wait,
)
from hostler.maintenance.drain_clock import clocked, started
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
from hostler.maintenance.marking import leftover_of, marked
from hostler.maintenance.model import (
    DRAIN_HELD,
    HOST,
    MIGRATED_TO,
    ORIGIN,
    POWER_ON_SINCE,
    RELOCATE_SINCE,
    SHUTDOWN_GRACE,
    SHUTDOWN_SINCE,
    SINCE,
    STATE,
    TARGET,
    InDoubt,
    Marked,
    Policy,
    State,
    Subject,
    Wish,
    World,
    cleared,
    stamp,
)
from hostler.maintenance.placement import EVER
from hostler.maintenance.reservations import Reservations
from hostler.maintenance.stopping import barred, before_stop, refilled, stopping
from hostler.maintenance.stray import has_stray_hold, name_stray_hold, release_stray_hold
from hostler.maintenance.view import View

# So many pods are asked to go before the node is looked at again: a cancelled task must not cost the rest of them.
EVICTIONS_MOST = 10
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
            return returning.powered_off(view)
        case State.MIGRATED:
            return returning.migrated(view)


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


# -- draining


def _draining(view: View) -> Decision:
    subject, vm = view.subject, view.vm
    if vm.power == "poweredOff":
        return returning.now_off(view, f"VM {vm.name} is off")
    if vm.power != "poweredOn":
        return frozen(subject, State.DRAINING, f"VM {vm.name} is {vm.power}, which is neither on nor off")
    if view.here.what is Is.UNKNOWN:
        return frozen(subject, State.DRAINING, f"ESXi host {view.host_name}: {view.here.why}")
    if not view.at_home:
        return _elsewhere(view)
    if not view.here.leaving:
        return _cancelled(view)
    wish = subject.wish
    if isinstance(wish, Unknown):
        return frozen(subject, State.DRAINING, wish.why)
    since = subject.annotations.get(SHUTDOWN_SINCE)
    if since and subject.remembered.shutdown_asked == since:
        return stopping(view)
    if wish is Wish.IGNORE:
        return _called_off(view, f"the policy of {subject.name} says now to ignore the maintenance")
    hold = held_by(view.node, MAINTENANCE)
    if hold is not None and not isinstance(hold, Unknown) and hold.yielded:
        why = f"{subject.name} was uncordoned by hand twice, so it is not emptied"
        release = f"take {subject.origin} out of maintenance, or stop VM {view.vm.name} by hand"
        return wait(subject, State.DRAINING, Phase.OVERRULED, why, release, blocked=BlockedBy.UNCORDONED)
    if not view.node.spec.unschedulable:
        why = f"{subject.name} was uncordoned by hand; nothing is evicted before it is cordoned again"
        return wait(
            subject, State.DRAINING, Phase.WAITING, why, "the hold cordons it again, once", blocked=BlockedBy.UNCORDONED
        )
    if since:
        return refilled(view) or stopping(view)
    return barred(view, State.DRAINING) or _emptying(view)


def _elsewhere(view: View) -> Decision:
    """It was moved while it ran: by an admin, by HA, by DRS."""
    subject, host = view.subject, view.host_name
    if view.here.leaving:
        why = f"VM {view.vm.name} is on {host} by now, which goes into maintenance too"
        notes = {HOST: host, TARGET: None, MIGRATED_TO: host, ORIGIN: origin_of(view.site, view.vm.host, host)}
        patch = noted(view.node, notes, why, "HostChanged")
        return Decision(subject.name, State.DRAINING, Phase.DRAINING, why, "its pods are evicted", patch)
    return _given_up(view) or returning.now_elsewhere(view)


def _given_up(view: View) -> Decision | None:
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
        return _release(view, why)
    release = "it is released when its kubelet shows that it is alive"
    return replace(wait(subject, State.DRAINING, Phase.WAITING, why, release, wake=settled), pulse=True)


def _cancelled(view: View) -> Decision:
    """The host stays in service."""
    subject = view.subject
    settled = view.settled(view.vm.host)
    if settled is not None:
        why = f"{subject.origin} seems to stay in service"
        return wait(subject, State.DRAINING, Phase.SETTLING, why, "if that lasts, the node is released", wake=settled)
    return _called_off(view, f"the maintenance of {subject.origin} was cancelled")


def _called_off(view: View, because: str) -> Decision:
    """Before the guest was asked to stop that ends it; after it, or where that is not sure, the guest is waited for."""
    subject, began = view.subject, view.subject.at(SHUTDOWN_SINCE)
    if not subject.annotations.get(SHUTDOWN_SINCE) or began is None:
        because = f"{because} before VM {view.vm.name} was stopped"
        if subject.annotations.get(MIGRATED_TO) and not (subject.ready and subject.remembered.alive):
            # It was started since it was last in service, by HA perhaps: its node's Ready may be from before that.
            release = "its kubelet shows that it is alive"
            return replace(wait(subject, State.DRAINING, Phase.WAITING, because, release), pulse=subject.ready)
        return _release(view, because)
    sure = max(began, subject.remembered.shutdown_at) + view.policy.guest_shutdown + SHUTDOWN_GRACE
    if view.now < sure:
        why = f"{because}, but the guest of VM {view.vm.name} may have been asked to shut down, and may do so"
        return wait(subject, State.DRAINING, Phase.WAITING, why, "it is given back if it still runs then", wake=sure)
    if not (subject.ready and subject.remembered.alive):
        why = f"{because}, and VM {view.vm.name} still runs"
        return replace(
            wait(subject, State.DRAINING, Phase.WAITING, why, "its kubelet shows that it is alive"), pulse=subject.ready
        )
    late = marked(view, Marked.ASKED)  # it may still go off: then the mark says that we start it again
    if late is not None:
        return late
    return _release(view, f"{because}, and VM {view.vm.name} did not stop")


def _release(view: View, why: str) -> Decision:
    subject = view.subject
    patch = released(view.node, why, "MaintenanceCancelled")
    if isinstance(patch, Refusal):
        return frozen(subject, State.DRAINING, patch.why)
    return Decision(subject.name, None, Phase.ENDING, patch.why, "it is in service again", patch)


def _emptying(view: View) -> Decision:
    subject = view.subject
    marking = marked(view, Marked.DRAINING)
    if marking is not None:
        return marking
    machine = told_machine(subject.annotations)
    if machine and subject.remembered.machine_told != machine:
        tell = TellMachine(machine, f"Machine {machine} is told of the maintenance, so that nobody replaces it")
        return Decision(subject.name, State.DRAINING, Phase.DRAINING, tell.why, "its pods are evicted", tell,
                        target=view.reserved())  # fmt: skip
    found = view.reservations.drained(subject, view.policy, view.now)
    one = Decision(subject.name, State.DRAINING, Phase.DRAINING, found.why.rstrip("."), wake=found.wake, drain=found,
                   target=view.reserved())  # fmt: skip
    match found.state:
        case drain.State.UNKNOWN:
            return replace(frozen(subject, State.DRAINING, found.why.rstrip(".")), drain=found)
        case drain.State.REFUSED:
            release = "delete or move those pods, or allow it by setting"
            return replace(one, phase=Phase.REFUSED, next=release, blocked=Blocked(BlockedBy.REFUSED))
        case drain.State.DRAINED | drain.State.DEADLINE_PASSED:
            return before_stop(view, found)
    if not view.reservations.take_slot(subject.name):
        others = ", ".join(view.reservations.drains)
        why = f"{found.why.rstrip('.')}; {others} is emptied first (limit {view.reservations.limit})"
        slot = Blocked(BlockedBy.SLOT)
        return replace(one, why=why, phase=Phase.WAITING, next="it is its turn next", blocked=slot, wake=None)
    began = subject.at(SINCE)
    counts = started(subject, began, view.now, view.world.resumed) if began is not None else None
    deadline = view.policy.drain.deadline(counts) if counts is not None else None
    nxt = "VM is stopped when it is empty" + (f", or at {iso(deadline)}" if deadline is not None else "")
    blocked = Blocked(BlockedBy.BUDGET, said_of(found.blockers)) if found.blockers else None
    if found.state is drain.State.WAITING_FOR_VOLUMES:
        blocked = Blocked(BlockedBy.VOLUMES, found.why.rstrip("."))
    action = Evictions(found.actions[:EVICTIONS_MOST], found.why) if found.actions else None
    return replace(one, next=nxt, blocked=blocked, action=action)
