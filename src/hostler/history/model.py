"""An entry of the history, and which entries are kept. Pure.

One entry per transition of a host's state, per action with its result, and per refusal whose reason differs from the
last one recorded for the same layer and operation. An entry is about the key of a layer (`inventory.model`): the
timeline of a host is the union over its layers, so a Node that is joined with its VM a minute later loses nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from hostler.instant import Instant

GONE = "gone"  # the state of a layer that is no longer reported
STAYS_LIMIT = 20_000  # completed stays that are read back, the newest


class What(StrEnum):
    TRANSITION = "transition"
    ACTION = "action"
    REFUSAL = "refusal"
    INFERRED = "inferred"  # a transition that nobody saw: the state differed from the last entry after a start
    GAP = "gap"  # entries were dropped before they could be stored, or nobody recorded


class Entry(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """`id` is LEASE-TRANSITIONS.COUNTER: unique over every leader, and it tells the order of recording."""

    id: str
    at: Instant
    key: str
    what: What
    capability: str = ""
    old: str = msgspec.field(default="", name="from")
    new: str = msgspec.field(default="", name="to")
    reason: str = ""
    sentence: str = ""
    duration: float | None = None  # seconds in the state that was left
    operation: str = ""  # one per maintenance, claim or reclaim
    result: str = ""  # of an action: ok, started, already, or why not


@dataclass(frozen=True, slots=True)
class Stayed:
    """A layer was in a state for so many seconds, and left it."""

    at: Instant  # when it left
    key: str
    state: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Stored:
    """What a new leader continues from.

    `last`: of each layer the last entry with a state, and the entry with the highest id. `stays`: the newest completed
    ones.
    """

    last: tuple[Entry, ...] = ()
    stays: tuple[Stayed, ...] = ()


def stay_of(entry: Entry) -> Stayed | None:
    """The stay that an entry completes. One that was only inferred says nothing of how long it really took."""
    if entry.what is not What.TRANSITION or entry.duration is None or not entry.old:
        return None
    return Stayed(entry.at, entry.key, entry.old, entry.duration)


def id_order(id: str) -> tuple[int, int]:
    transitions, _, counter = id.partition(".")
    return int(transitions), int(counter)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is kept. The last `kept_per_key` entries of a layer are kept whatever their age, and its last state."""

    days: float = 30.0
    per_key: int = 100
    kept_per_key: int = 20
    bytes: int = 16 * 1024 * 1024


def retain_entries(entries: Sequence[Entry], limits: Limits, now: Instant) -> list[Entry]:
    """What is within the limits, in the order given. The size is not looked at: see `oldest_droppable`."""
    by_key = defaultdict[str, list[Entry]](list)
    for entry in sorted(entries, key=lambda entry: id_order(entry.id)):
        by_key[entry.key].append(entry)
    oldest = now - limits.days * 86400
    kept = set(_last_states(entries).values())
    for key, found in by_key.items():
        # A gap is about no host: only its age counts.
        last = found[-limits.kept_per_key :] if key else []
        recent = [entry for entry in (found[-limits.per_key :] if key else found) if entry.at >= oldest]
        kept.update(entry.id for entry in (*last, *recent))
    return [entry for entry in entries if entry.id in kept]


def oldest_droppable(entries: Iterable[Entry], limits: Limits) -> list[Entry]:
    """What may go when the stored size is too large, the oldest first: all but the last few of each layer."""
    ordered = sorted(entries, key=lambda entry: id_order(entry.id))
    states = _last_states(ordered)
    left = defaultdict[str, int](int)
    for entry in ordered:
        left[entry.key] += 1
    found = []
    for entry in ordered:
        if left[entry.key] > (limits.kept_per_key if entry.key else 0) and states.get(entry.key) != entry.id:
            left[entry.key] -= 1
            found.append(entry)
    return found


def _last_states(entries: Iterable[Entry]) -> Mapping[str, str]:
    """By layer, the id of the last entry that says which state it is in: a new leader continues from there."""
    found = dict[str, str]()
    for entry in entries:
        if entry.new and (entry.key not in found or id_order(found[entry.key]) < id_order(entry.id)):
            found[entry.key] = entry.id
    return found
