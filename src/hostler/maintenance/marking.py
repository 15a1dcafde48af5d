"""What the VM itself is made to say, and when that is tried again. Pure."""

from __future__ import annotations

from hostler.host.facts import Unknown
from hostler.maintenance.model import SHUTDOWN_SINCE, SINCE, Decision, SetMark, State, Wish
from hostler.maintenance.reasons import Phase
from hostler.maintenance.view import View, wait
from hostler.maintenance.vm_marks import NO_HOST, Mark, Marked

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
