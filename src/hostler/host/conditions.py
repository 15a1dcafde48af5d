"""Conditions in status objects: their record, how they change, and words that are stable and bounded. Pure.

A message is compared with the one already written, so it must not change without a reason: names are sorted, numbers
of attempts and ages stay out of it, and its length is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from hostler.instant import Instant, iso
from hostler.kube import records

MESSAGE_LIMIT = 1024
ELLIPSIS = "..."


class Status(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(records.Record, frozen=True, omit_defaults=False):
    """One condition of an object of ours, as `metav1.Condition` has it."""

    type: str
    status: Status
    reason: str
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


def set_condition(conditions: Sequence[Condition], new: Condition, now: Instant) -> Sequence[Condition]:
    """The conditions with `new` in place of the one of its type.

    The transition time changes only with the status. If nothing changed the very same sequence is returned, so that
    `changed is conditions` means there is nothing to write.
    """
    message = cut(new.message)
    old = next((condition for condition in conditions if condition.type == new.type), None)
    since = old.last_transition_time if old is not None and old.status == new.status else ""
    placed = msgspec.structs.replace(new, message=message, last_transition_time=since or iso(now))
    if placed == old:
        return conditions
    if old is None:
        return [*conditions, placed]
    return [placed if condition is old else condition for condition in conditions]


def set_conditions(conditions: Sequence[Condition], new: Iterable[Condition], now: Instant) -> Sequence[Condition]:
    """`set_condition` for several, one after the other; the very same sequence if none of them changed anything."""
    for condition in new:
        conditions = set_condition(conditions, condition, now)
    return conditions


def node_condition_patch(node: records.Node, new: Condition, now: Instant) -> dict[str, Any] | None:
    """A strategic merge patch for the Node's status subresource, or None where the node already says so.

    The list is merged by `type`, so the kubelet's conditions are untouched. `observedGeneration` is left out: a
    NodeCondition has none.
    """
    message = cut(new.message)
    old = next((condition for condition in node.status.conditions if condition.type == new.type), None)
    if old is not None and (old.status, old.reason, old.message) == (new.status, new.reason, message):
        return None
    turned = old is None or old.status != new.status
    entry: dict[str, Any] = {"type": new.type, "status": str(new.status), "reason": new.reason, "message": message}
    entry["lastHeartbeatTime"] = iso(now)
    if turned or old is None or not old.last_transition_time:
        entry["lastTransitionTime"] = iso(now)
    return {"status": {"conditions": [entry]}}


def cut(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """The text, cut to `limit` characters with an ellipsis."""
    if len(text) <= limit:
        return text
    return text[: max(0, limit - len(ELLIPSIS))] + ELLIPSIS[:limit]


def names(found: Iterable[str], limit: int = 5) -> str:
    """`a, b and c`, sorted; past `limit` names: `a, b, c, d, e and 7 more`."""
    ordered = sorted(set(found))
    shown, more = ordered[:limit], len(ordered) - limit
    if more > 0:
        return f"{', '.join(shown)} and {more} more" if shown else f"{len(ordered)} in all"
    if len(shown) < 2:
        return "".join(shown)
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 pod`, `3 pods`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
