"""Why something was or was not done: the registry every capability adds to, and the shape of an answer.

The operator serves it read-only (`explain.read_api`), the CLI prints it. An explanation is data: every rule that was
looked at, in order, with the facts it saw, so that the reader needs no source code to follow the decision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from hostler.host.facts import Fact, Known, age
from hostler.instant import Instant


class FactSeen(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """One fact: known, with its age in seconds, or unknown, with the reason."""

    name: str
    value: Any = None
    known: bool = True
    age_seconds: float | None = None
    why: str = ""


class RuleSeen(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """One rule, whether it decided, and a sentence saying what it found."""

    name: str
    outcome: str  # "holds", "does not hold", "unknown", or the rule's own word
    why: str
    decided: bool = False
    facts: tuple[FactSeen, ...] = ()


class Action(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """One thing that would be done next, and why."""

    verb: str
    target: str
    why: str = ""
    held_back: str = ""  # why it will not be done now (paused, dry run, ceiling); empty: it will


class Explanation(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """What one capability has to say about one thing."""

    capability: str
    outcome: str  # the sentence: what is the case, why, and what would change it
    rules: tuple[RuleSeen, ...] = ()
    facts: tuple[FactSeen, ...] = ()
    actions: tuple[Action, ...] = ()


class Answer(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """What all capabilities have to say about one thing. `notes` are what limits the answer as a whole."""

    kind: str
    name: str
    explanations: tuple[Explanation, ...] = ()
    notes: tuple[str, ...] = ()


# A function of the capability, over facts already in memory; None means that it knows nothing of that name.
Explain = Callable[[str], Explanation | None]


@dataclass(frozen=True, slots=True)
class Explainer:
    """What one capability can say about one kind of thing: `kind` as in `hostler explain KIND/NAME`."""

    kind: str
    capability: str
    explain: Explain
    plan: Explain | None = None


class UnknownKind(Exception):
    """Nobody explains such a thing; the sentence lists what can be explained."""


class UnknownName(Exception):
    """There is no such thing, as far as anybody here knows."""


class Registry:
    """Every capability's explainers, asked in the order they were added."""

    def __init__(self) -> None:
        self._explainers: list[Explainer] = []

    def add(self, explainer: Explainer) -> None:
        if any((one.kind, one.capability) == (explainer.kind, explainer.capability) for one in self._explainers):
            raise ValueError(f"{explainer.capability} already explains {explainer.kind}")
        self._explainers.append(explainer)

    @property
    def kinds(self) -> list[str]:
        return sorted({explainer.kind for explainer in self._explainers})

    def explain(self, kind: str, name: str, notes: tuple[str, ...] = ()) -> Answer:
        asked = [(one.capability, one.explain) for one in self._about(kind)]
        return self._ask(kind, name, asked, notes)

    def plan(self, kind: str, name: str, notes: tuple[str, ...] = ()) -> Answer:
        asked = [(one.capability, one.plan) for one in self._about(kind) if one.plan is not None]
        if not asked:
            raise UnknownKind(f"Nothing plans anything for {kind.lower()}; `hostler explain` says what is the case.")
        return self._ask(kind, name, asked, notes)

    def _about(self, kind: str) -> list[Explainer]:
        found = [one for one in self._explainers if one.kind == kind.lower()]
        if not found:
            known = ", ".join(self.kinds) or "nothing yet"
            raise UnknownKind(f'Nothing here explains a "{kind}". What can be explained: {known}.')
        return found

    def _ask(self, kind: str, name: str, asked: list[tuple[str, Explain]], notes: tuple[str, ...]) -> Answer:
        said = [explanation for _, ask in asked if (explanation := ask(name)) is not None]
        if not said:
            who = ", ".join(capability for capability, _ in asked)
            raise UnknownName(f'No {kind.lower()} named "{name}" is known here (asked: {who}).')
        return Answer(kind.lower(), name, tuple(said), notes)


def seen(name: str, fact: Fact[Any], now: Instant) -> FactSeen:
    """A fact as an explanation shows it."""
    if isinstance(fact, Known):
        return FactSeen(name, msgspec.to_builtins(fact.value), age_seconds=round(age(fact, now), 1))
    return FactSeen(name, known=False, why=fact.why)
