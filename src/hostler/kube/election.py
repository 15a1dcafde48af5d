"""Who leads: the pure half of `kube.lease`. No I/O, and `now` is this process's own clock, never compared to others'.

The promise: no two candidates act at the same time. It rests on three things, each true on one machine's clock:
- a candidate that writes the lease at server time W may act until (the moment before that write was sent) + renew
  deadline, which is before W + renew deadline;
- a candidate that takes another's lease has seen it unchanged for a whole lease duration, counted from when it *saw*
  it, which is after W; and its write carries that resourceVersion, so that a renewal in between makes it fail;
- a candidate that creates a lease (there was none, or it was deleted) cannot know who led a moment ago, so it keeps
  renewing its own for a whole duration before it acts.
The renew deadline is shorter than the lease duration; the difference is for bytes under way and clocks that drift.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from hostler.errors import Complaint, Exit
from hostler.kube.records import Lease

NEVER = float("-inf")
# What a released lease says of its duration; also what client-go writes. Zero is not allowed by the API.
RELEASED_SECONDS = 1


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a lease lasts, how long its holder acts on it, and how often candidates look at it."""

    duration: int = 15
    renew_deadline: float = 10.0
    retry: float = 2.0

    def complaint(self) -> Complaint | None:
        """Why these three do not fit together, or None."""
        if self.retry <= 0 or self.renew_deadline <= 0:
            return _unfit("the lease's renew deadline and retry period must be more than 0 seconds")
        if self.duration < self.renew_deadline + 0.5:
            return _unfit(
                f"the lease duration ({self.duration} s) must be longer than the renew deadline"
                f" ({self.renew_deadline:g} s) by at least half a second: a leader must stop before it can be replaced"
            )
        if self.renew_deadline < 1.5 * self.retry:
            return _unfit(
                f"the renew deadline ({self.renew_deadline:g} s) must be at least one and a half times the retry period"
                f" ({self.retry:g} s): else one slow answer costs the lease"
            )
        return None


def _unfit(sentence: str) -> Complaint:
    return Complaint(f"{sentence}.", hint="The defaults are 15, 10 and 2 seconds.", code=Exit.SETTING)


@dataclass(frozen=True, slots=True)
class Seen:
    """The lease as last read or written, and since when it has been seen in exactly this version."""

    lease: Lease | None  # None: there is no such object
    since: float

    def is_of(self, who: str) -> bool:
        return self.lease is not None and self.lease.spec.holder_identity == who


@dataclass(frozen=True, slots=True)
class View:
    """Everything one candidate knows about the lease and about itself."""

    timing: Timing
    seen: Seen | None = None  # None: never looked
    fresh: bool = False  # False: look before the next write
    acts_from: float = NEVER  # after a create: when the lease has been ours for a whole duration
    acts_until: float = NEVER
    highest: int = -1  # the highest leaseTransitions ever seen: a re-created lease goes on from there
    refrain_until: float = NEVER  # handed over: let others have it until then
    leaving: bool = False  # handing over or stopping: begins nothing new
    busy: bool = False  # something begun is not finished

    def held(self, now: float) -> bool:
        return self.acts_from <= now < self.acts_until

    @property
    def holder(self) -> str:
        lease = self.seen.lease if self.seen else None
        return (lease.spec.holder_identity or "") if lease else ""


# -- what can be done; every action says why


@dataclass(frozen=True, slots=True)
class Look:
    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    until: float
    why: str


@dataclass(frozen=True, slots=True)
class Create:
    transitions: int
    why: str


@dataclass(frozen=True, slots=True)
class Take:
    version: str
    transitions: int
    why: str


@dataclass(frozen=True, slots=True)
class Renew:
    version: str
    why: str


@dataclass(frozen=True, slots=True)
class Release:
    version: str
    why: str


@dataclass(frozen=True, slots=True)
class Done:
    why: str


Write: TypeAlias = Create | Take | Renew | Release
Action: TypeAlias = Look | Wait | Write | Done


def decide_lease(view: View, me: str, now: float) -> Action:
    """What a candidate does next about the lease.

    Takes what is another's only after seeing it unchanged for its whole duration; releases only what is idle.
    """
    if view.seen is None or not view.fresh:
        return Look("the lease may have changed")
    lease, since = view.seen.lease, view.seen.since
    if view.leaving:
        return _leave(view, me, now)
    if now < view.refrain_until:
        return Wait(view.refrain_until, "handed over to another replica")
    if lease is None:
        return Create(view.highest + 1, "there is no lease")
    version = lease.metadata.resource_version
    if view.holder == me:
        return Renew(version, "ours")
    if is_free(lease):
        return Take(version, view.highest + 1, "released" if lease.spec.renew_time else "never held")
    # The longer of both: a user may have edited the duration under a holder that still counts on its own.
    free_at = since + max(view.timing.duration, lease.spec.lease_duration_seconds or 0)
    who = view.holder or "a holder whose name was rubbed out"
    if now < free_at:
        return Wait(free_at, f"{who} may still be acting")
    return Take(version, view.highest + 1, f"{who} has not renewed it for {now - since:.0f} s")


def _leave(view: View, me: str, now: float) -> Action:
    """Hand over only once what was begun is finished; until then keep the lease, so that it may finish."""
    if view.seen is None or view.seen.lease is None or view.holder != me:
        return Done("the lease is not ours")
    version = view.seen.lease.metadata.resource_version
    if view.busy:
        return Renew(version, "finishing what was begun")
    if now < view.acts_from:
        # A released lease means that its holder no longer acts. About an earlier leader we do not know that yet.
        return Done("left to run out: it was created a moment ago")
    return Release(version, "nothing is under way")


def is_free(lease: Lease) -> bool:
    """Nobody can be acting under this lease: released as we and client-go do it, or written blank by an installer.

    A holder merely rubbed out by hand does not count: the duration is left, and its process may still be acting.
    """
    spec = lease.spec
    if spec.holder_identity:
        return False
    return spec.lease_duration_seconds == RELEASED_SECONDS or (not spec.renew_time and not spec.acquire_time)


# -- what each answer changes


def looked(view: View, lease: Lease | None, me: str, now: float) -> View:
    """After a read that came back at `now`. The same version seen again keeps its `since`."""
    before = view.seen
    if before is not None and _version(before.lease) == _version(lease):
        return replace(view, fresh=True)
    seen = Seen(lease, now)
    view = replace(view, seen=seen, fresh=True, highest=max(view.highest, _transitions(lease)))
    if not seen.is_of(me):
        # Not ours (any more): stop at once, whatever the deadline says.
        return replace(view, acts_from=NEVER, acts_until=NEVER)
    if before is not None and before.is_of(me) and _uid(before.lease) == _uid(lease):
        return view  # a renewal of ours whose answer was lost
    # A create or take of ours arrived although we never heard: as after a create, let a whole duration pass.
    return replace(view, acts_from=now + view.timing.duration, acts_until=NEVER)


def wrote(view: View, action: Write, answer: Lease, sent: float, now: float) -> View:
    """After a write that succeeded: `sent` was read just before it left, its answer came at `now`."""
    view = replace(view, seen=Seen(answer, now), fresh=True, highest=max(view.highest, _transitions(answer)))
    match action:
        case Release():
            return replace(view, acts_from=NEVER, acts_until=NEVER)
        case Create():
            acts_from = now + view.timing.duration
        case Take():
            acts_from = NEVER
        case Renew():
            acts_from = view.acts_from
    return replace(view, acts_from=acts_from, acts_until=sent + view.timing.renew_deadline)


def unsure(view: View) -> View:
    """After a write that failed, or whose answer was lost: look before the next one.

    The right to act is kept until its deadline: it comes from an earlier write whose success is known.
    """
    return replace(view, fresh=False)


def let_go(view: View) -> View:
    """Before a release is sent: act no more, whatever becomes of the release."""
    return replace(view, acts_from=NEVER, acts_until=NEVER)


def _version(lease: Lease | None) -> tuple[str, ...]:
    return (lease.metadata.uid, lease.metadata.resource_version) if lease else ()


def _uid(lease: Lease | None) -> str:
    return lease.metadata.uid if lease else ""


def _transitions(lease: Lease | None) -> int:
    return (lease.spec.lease_transitions or 0) if lease else -1
