"""What the VM itself is made to say, and when that is tried again. Pure."""

from __future__ import annotations

from hostler.host.facts import Unknown
from hostler.instant import Instant, parse
from hostler.maintenance.decision import Decision, Phase, SetMark, wait
from hostler.maintenance.hosts import Is
from hostler.maintenance.model import (
    LATE_STOP_SECONDS,
    NO_HOST,
    SHUTDOWN_GRACE,
    SHUTDOWN_SINCE,
    SINCE,
    Mark,
    Marked,
    State,
    Wish,
)
from hostler.maintenance.power_on import start
from hostler.maintenance.view import View

MARK_TRIES = 3


def marked(view: View, what: Marked) -> Decision | None:
    """The VM itself says why; before the first eviction, and before it is stopped."""
    subject, known = view.subject, view.subject.remembered.mark
    if subject.refused is not None:
        return None  # a mark is evidence: nobody gets it on a kubelet's word
    wish, state = subject.wish, subject.state if isinstance(subject.state, State) else None
    since = SHUTDOWN_SINCE if what is Marked.ASKED else SINCE  # a drain may take longer than a guest's late stop
    mark = Mark(subject.name, subject.origin, subject.annotations.get(since, ""), what,
                str(wish) if not isinstance(wish, Unknown) else str(Wish.MIGRATE), view.world.cluster,
                view.own.moref if view.own is not None else NO_HOST)  # fmt: skip
    if mark in (subject.mark, subject.remembered.marked) or (
        known.number >= MARK_TRIES and view.now < known.not_before
    ):
        return None
    if known.number and view.now < known.not_before and what is Marked.DRAINING:
        return None  # while draining nothing depends on it
    if known.number and view.now < known.not_before:
        why = f"VM {view.vm.name} could not be marked: {known.why}"
        return wait(subject, state, Phase.STOPPING, why, "it is tried again", wake=known.not_before)
    action = SetMark(view.vm.moref, mark, f"VM {view.vm.name} says why its host waits")
    return Decision(subject.name, state, Phase.MARKING, action.why, "", action, target=view.reserved())


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
