"""An entry of the history, and which entries are kept. Pure.

One entry per transition of a host's state, per action with its result, and per refusal whose reason differs from the
last one recorded for the same layer and operation. An entry is about the key of a layer (`inventory.model`): the
timeline of a host is the union over its layers, so a Node that is joined with its VM a minute later loses nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from hostler.instant import Instant


class What(StrEnum):
    TRANSITION = "transition"
    ACTION = "action"
    REFUSAL = "refusal"
    INFERRED = "inferred"  # a transition that nobody saw: the state differed from the last entry after a start
    GAP = "gap"  # entries were dropped before they could be stored


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


def id_order(id: str) -> tuple[int, int]:
    transitions, _, counter = id.partition(".")
    return int(transitions), int(counter)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is kept. The last `kept_per_key` entries of a layer are kept whatever their age."""

    days: float = 30.0
    per_key: int = 100
    kept_per_key: int = 20
    bytes: int = 16 * 1024 * 1024


def retain(entries: Sequence[Entry], limits: Limits, now: Instant) -> list[Entry]:
    """What is within the limits, in the order given. The size is not looked at: see `oldest_droppable`."""
    by_key = defaultdict[str, list[Entry]](list)
    for entry in sorted(entries, key=lambda entry: id_order(entry.id)):
        by_key[entry.key].append(entry)
    oldest = now - limits.days * 86400
    kept = set[str]()
    for key, found in by_key.items():
        # A gap is about no host: only its age counts.
        last = found[-limits.kept_per_key :] if key else []
        recent = [entry for entry in (found[-limits.per_key :] if key else found) if entry.at >= oldest]
        kept.update(entry.id for entry in (*last, *recent))
    return [entry for entry in entries if entry.id in kept]


def oldest_droppable(entries: Iterable[Entry], limits: Limits) -> list[Entry]:
    """What may go when the stored size is too large, the oldest first: all but the last few of each layer."""
    ordered = sorted(entries, key=lambda entry: id_order(entry.id))
    left = defaultdict[str, int](int)
    for entry in ordered:
        left[entry.key] += 1
    found = []
    for entry in ordered:
        if left[entry.key] > (limits.kept_per_key if entry.key else 0):
            left[entry.key] -= 1
            found.append(entry)
    return found
