"""What comes next for a host, out of the actions that `explain` and `plan` show. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from hostler.explain.registry import Action

WAIT_FOR = "wait for"


def next_sentence(actions: Sequence[Action]) -> str:
    """The first of them as a sentence; empty: nothing comes."""
    if not actions:
        return ""
    first = actions[0]
    what = " ".join(part for part in ("waits for" if first.verb == WAIT_FOR else first.verb, first.target) if part)
    why = f": {first.why.rstrip('.')}" if first.why else ""
    return f"{what[:1].upper()}{what[1:]}{why}."
