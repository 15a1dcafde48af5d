"""Holds: who keeps a node out of service, why, since when, and whose cordon it is. Pure.

The list is the annotation `hostler.dev/holds`; it changes together with `spec.unschedulable` in one merge patch that
carries the resourceVersion it was decided on, so a crash leaves either all of a change or none, and a decision on a
stale node is refused by the API server. docs/holds.md has every case as a table.

Invariants: a cordon that stood before our first hold is never undone by us; when the last hold leaves, a node that
was schedulable before is schedulable again; on a list that cannot be read nothing is released or uncordoned.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import msgspec

from hostler.host.conditions import cut
from hostler.host.facts import Unknown
from hostler.host.maintenance import SINCE, STATE
from hostler.instant import Instant, iso
from hostler.kube.records import Node

HOLDS: Final = "hostler.dev/holds"
MAINTENANCE: Final = "maintenance"
WHY_LIMIT = 256
HOLDER_LIMIT = 128


@dataclass(frozen=True, slots=True)
class Hold:
    """One holder's wish that a node stay out of service.

    `recordoned`: somebody uncordoned the node and this hold has insisted, once. `yielded`: somebody did it again, and
    since then the cordon is the people's: the hold is still there to be seen, but neither cordons nor uncordons.
    `implied`: read from the seed's state, not yet written as a hold. `extra`: keys we do not know, kept as they are.
    """

    holder: str
    why: str
    since: str
    cordoned_before: bool
    recordoned: str = ""
    yielded: str = ""
    implied: bool = False
    extra: dict[str, Any] = field(default_factory=dict)

    def said(self) -> str:
        return f"{self.holder} ({self.why})" if self.why else self.holder


@dataclass(frozen=True, slots=True)
class Patch:
    """One merge patch for the Node, and the sentence that goes with it (a log line, an event)."""

    body: dict[str, Any]
    why: str


@dataclass(frozen=True, slots=True)
class Nothing:
    """The node is already as asked for."""

    why: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """It must not be done; a person has to look."""

    why: str


Change: TypeAlias = Patch | Nothing | Refusal


# -- reading


def holds_of(node: Node) -> tuple[Hold, ...] | Unknown:
    """The holds of a node, the seed's implied one among them; Unknown where the annotation cannot be read."""
    text = node.metadata.annotations.get(HOLDS, "")
    found: list[Hold] = []
    if text.strip():
        try:
            entries = msgspec.json.decode(text, type=list[dict[str, Any]])
            found = [_read(entry) for entry in entries]
        except (msgspec.MsgspecError, ValueError) as error:
            return Unknown(
                f"annotation {HOLDS} of node {node.metadata.name} cannot be read ({error}); mend it, or remove it and "
                f"see to the cordon by hand"
            )
    # The seed's controller cordons without writing holds: its state alone says that the cordon is maintenance's.
    state = node.metadata.annotations.get(STATE, "")
    if state and not any(hold.holder == MAINTENANCE for hold in found):
        since = node.metadata.annotations.get(SINCE, "")
        # Beside holds that have yielded, the cordon may be a person's: then it is not ours to undo.
        lifted = bool(found) and node.spec.unschedulable
        before = next((hold.cordoned_before for hold in found if not hold.yielded), lifted)
        found.append(Hold(MAINTENANCE, f"state {state}, without a hold", since, before, implied=True))
    return tuple(found)


def _read(entry: dict[str, Any]) -> Hold:
    """One entry. ValueError where it does not say what an uncordon depends on; other oddities are kept."""
    rest = dict(entry)
    holder, before = rest.pop("holder", None), rest.pop("cordonedBefore", None)
    if not isinstance(holder, str) or not holder:
        raise ValueError("a hold does not name its holder")
    if not isinstance(before, bool):
        raise ValueError(f"the hold of {holder} does not say whether the node was cordoned before")
    why, since, recordoned, yielded = (
        printable(str(rest.pop(key, "") or "")) for key in ("why", "since", "recordoned", "yielded")
    )
    if not holder.isprintable():
        raise ValueError("a hold's holder is not printable text")
    return Hold(holder, why, since, before, recordoned, yielded, extra=rest)


def printable(text: str) -> str:
    """Without what would move a terminal's cursor: whoever may annotate a node must not write on admins' screens."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def active(holds: tuple[Hold, ...]) -> tuple[Hold, ...]:
    """The holds that answer for the cordon."""
    return tuple(hold for hold in holds if not hold.yielded)


def held_by(node: Node, holder: str) -> Hold | Unknown | None:
    """This holder's hold on the node, if it has one."""
    match holds_of(node):
        case Unknown() as unknown:
            return unknown
        case holds:
            return next((hold for hold in holds if hold.holder == holder), None)


def lost(node: Node | None, name: str, holder: str) -> str | None:
    """Why `name` is no longer this holder's to empty; None while it is held, cordoned and there."""
    if node is None:
        return f"There is no node {name} any more; nothing more is evicted."
    hold = held_by(node, holder)
    if isinstance(hold, Unknown):
        return f"{hold.why}; nothing more is evicted."
    if hold is None:
        return f"{name} is no longer held by {holder}: somebody released it, so nothing more is evicted."
    if hold.yielded or not node.spec.unschedulable:
        return f"{name} was uncordoned by hand, so new pods may come; nothing more is evicted."
    return None


# -- changing: every function here is pure and safe to repeat


def place(
    node: Node,
    holder: str,
    why: str,
    now: Instant,
    *,
    also: Mapping[str, str | None] | None = None,
    anew: bool = False,
) -> Change:
    """Hold a node: cordon it and say for whom. `also` are annotations to set (or, None, to clear) in the same patch.

    `anew`: somebody asks for it now, so a hold of theirs that had yielded to a hand begins again. Without it a hold
    that yielded stays so: what repeats itself every pass must not fight with people.
    """
    name, also = node.metadata.name, also or {}
    if not holder.strip() or not holder.isprintable() or len(holder) > HOLDER_LIMIT:
        return Refusal(f"A hold needs the name of its holder, printable and at most {HOLDER_LIMIT} characters.")
    holds = holds_of(node)
    if isinstance(holds, Unknown):
        return Refusal(f"{name} is not held: {holds.why}.")
    mine = next((hold for hold in holds if hold.holder == holder), None)
    if anew and mine is not None and mine.yielded:
        holds, mine = tuple(hold for hold in holds if hold is not mine), None
    why = cut(printable(why), WHY_LIMIT)
    if mine is not None and not mine.implied:
        # Held and yet schedulable is for `keep` to decide, not for whoever repeats a request.
        if mine.why == why and _stands(node, also):
            return Nothing(f"{name} is already held by {mine.said()} since {mine.since}")
        listed = tuple(replace(hold, why=why) if hold is mine else hold for hold in holds)
        return Patch(_body(node, listed, None, also), f"{name} stays held by {holder}: {why}")
    others = tuple(_lifted(node, hold) for hold in holds if hold is not mine)
    before = mine.cordoned_before if mine is not None else _cordoned_before(node, others)
    since = (mine.since if mine is not None else "") or iso(now)
    placed = Hold(holder, why, since, before)
    note = " (it was cordoned before us and will stay so)" if before else ""
    return Patch(_body(node, (*others, placed), True, also), f"{name} is held by {holder}: {why}{note}")


def _cordoned_before(node: Node, others: tuple[Hold, ...]) -> bool:
    """Whose cordon a new hold joins: that of the holds which answer for it, else what stands now is somebody's."""
    answering = active(others)
    if answering:
        return any(hold.cordoned_before for hold in answering)
    return node.spec.unschedulable


def _lifted(node: Node, hold: Hold) -> Hold:
    """A held node that is schedulable was uncordoned by hand: the cordon that stood before us is gone with it."""
    return hold if node.spec.unschedulable or hold.yielded else replace(hold, cordoned_before=False)


def release(node: Node, holder: str | None, *, also: Mapping[str, str | None] | None = None) -> Change:
    """End one holder's hold, or with None every hold; the last to leave uncordons, unless the cordon is not ours.

    Asking again is harmless. Whether this caller may end that hold is asked before (`may_release`).
    """
    name, also = node.metadata.name, also or {}
    holds = holds_of(node)
    if isinstance(holds, Unknown):
        return Refusal(f"{name} stays as it is: {holds.why}.")
    leaving = tuple(hold for hold in holds if holder is None or hold.holder == holder)
    state = node.metadata.annotations.get(STATE, "")
    if state and also.get(STATE, state) and any(hold.holder == MAINTENANCE for hold in leaving):
        return Refusal(
            f"{name} is in maintenance (state {state}); its hold ends with the maintenance. "
            f"Take the ESXi host out of maintenance mode, or cancel the task."
        )
    if not leaving:
        if not _stands(node, also):
            return Patch(_body(node, None, None, also), f"{name} has no hold of {holder or 'anybody'} left")
        return Nothing(f"{name} has no hold of {holder}" if holder else f"{name} is not held")
    staying = tuple(hold for hold in holds if hold not in leaving)
    end = _cordon_after(node, active(leaving), active(staying))
    who = " and ".join(hold.holder for hold in leaving)
    return Patch(_body(node, staying, end, also), f"{who} released {name}: {_said_after(node, holds, staying, end)}")


def _cordon_after(node: Node, leaving: tuple[Hold, ...], staying: tuple[Hold, ...]) -> bool | None:
    """False: uncordon. None: leave the cordon as it is."""
    ours = bool(leaving) and not staying and not any(hold.cordoned_before for hold in leaving)
    return False if ours and node.spec.unschedulable else None


def _said_after(node: Node, holds: tuple[Hold, ...], staying: tuple[Hold, ...], end: bool | None) -> str:
    if staying and active(staying):
        return f"still held by {', '.join(hold.said() for hold in active(staying))}"
    if end is False:
        return "it is schedulable again"
    if not node.spec.unschedulable:
        return "it is schedulable"
    if not active(holds):
        return "it stays cordoned, because somebody else cordoned it since"
    return "it stays cordoned, because it was so before us"


def may_hold(holder: str, capabilities: Collection[str]) -> Refusal | None:
    """Whether a person may hold in this name: a hold in the name of a capability would be one that nothing ends."""
    if holder.strip().lower() not in capabilities:
        return None
    return Refusal(
        f'"{holder}" is a capability of Hostler, which places and ends its holds itself. Hold in another name: '
        "--holder NAME"
    )


def may_release(node: Node, who: str, *, holder: str = "", everybody: bool = False) -> Refusal | None:
    """Whether a person may release: their own hold always, somebody else's only if asked for by name."""
    holds = holds_of(node)
    if isinstance(holds, Unknown) or everybody or holder:
        return None  # an unreadable list is refused by `release` itself
    if holds and not any(hold.holder == who for hold in holds):
        others = ", ".join(hold.said() for hold in holds)
        return Refusal(
            f"{node.metadata.name} is held by {others}, not by {who}. "
            f"Release that hold with --holder {shlex.quote(holds[0].holder)}, or every hold with --all."
        )
    return None


def keep(node: Node, now: Instant) -> Change:
    """Somebody uncordoned a held node: each hold insists once, then it yields and the cordon is the people's."""
    name = node.metadata.name
    holds = holds_of(node)
    if isinstance(holds, Unknown):
        return Refusal(f"{name} is left as it is: {holds.why}.")
    written = tuple(hold for hold in active(holds) if not hold.implied)
    if not written:
        # An implied hold was never cordoned by us: maintenance places its own hold when it takes over.
        return Nothing(f"{name} has no hold that answers for its cordon")
    if node.spec.unschedulable:
        return Nothing(f"{name} is cordoned, as its holds ask")
    who = ", ".join(hold.said() for hold in written)
    insisting = any(not hold.recordoned for hold in written)
    listed = tuple(_answer(hold, insisting, now) if hold in written else hold for hold in holds)
    if insisting:
        return Patch(
            _body(node, listed, True, {}),
            f"{name} was uncordoned by hand while held by {who}, and is cordoned again, once. "
            f"To put it back into service, {_way_out(name, written)}",
        )
    return Patch(_body(node, listed, None, {}), overridden(name, written))


def _answer(hold: Hold, insisting: bool, now: Instant) -> Hold:
    if insisting:
        # Whatever cordon stood before us was lifted by that hand; what we put back is ours alone to undo.
        return replace(hold, recordoned=hold.recordoned or iso(now), cordoned_before=False)
    return replace(hold, yielded=iso(now))


def overridden(name: str, holds: tuple[Hold, ...]) -> str:
    """The sentence for a node whose holds were overruled by hand."""
    who = ", ".join(hold.said() for hold in holds)
    return (
        f"{name} was uncordoned by hand again while held by {who}; it is left schedulable. "
        f"New pods may land on it; {_way_out(name, holds)}, or cordon it"
    )


def _way_out(name: str, holds: tuple[Hold, ...]) -> str:
    """What ends the first of these holds. A maintenance's cannot be released by hand: it would only begin again."""
    if holds[0].holder == MAINTENANCE:
        return "take its ESXi host out of maintenance (cancel the task)"
    return f"release the hold (hostler release {name} --holder {holds[0].holder})"


# -- writing


def _body(
    node: Node, holds: tuple[Hold, ...] | None, unschedulable: bool | None, also: Mapping[str, str | None]
) -> dict[str, Any]:
    annotations: dict[str, str | None] = dict(also)
    if holds is not None:
        annotations[HOLDS] = write(holds)
    body: dict[str, Any] = {"metadata": {"resourceVersion": node.metadata.resource_version, "annotations": annotations}}
    if unschedulable is not None:
        # null removes the field: `false` would stay in the object and differ from a node never cordoned.
        body["spec"] = {"unschedulable": True if unschedulable else None}
    return body


def _stands(node: Node, also: Mapping[str, str | None]) -> bool:
    return all(node.metadata.annotations.get(key) == value for key, value in also.items())


def write(holds: tuple[Hold, ...]) -> str | None:
    """The annotation's text; None, which removes it, where there are none."""
    if not holds:
        return None
    return msgspec.json.encode([_written(hold) for hold in holds]).decode()


def _written(hold: Hold) -> dict[str, Any]:
    entry: dict[str, Any] = {"holder": hold.holder, "why": hold.why, "since": hold.since}
    entry["cordonedBefore"] = hold.cordoned_before
    if hold.recordoned:
        entry["recordoned"] = hold.recordoned
    if hold.yielded:
        entry["yielded"] = hold.yielded
    return entry | {key: value for key, value in hold.extra.items() if key not in entry}
