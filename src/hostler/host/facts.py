"""What we know, since when, or why we do not know it. Unknown is not absent. Pure.

Powering off, deleting, wiping and uncordoning need fresh known facts; everything else may go on with less.
Use in a `match`:

    match fresh(facts.pods, now, max_age=60):
        case Unknown(why):
            return wait(f"the pods are not known: {why}")
        case Known(pods):
            ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from hostler.instant import Instant

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """A value, and the moment it was true by the clock of the machine that observed it."""

    value: T
    at: Instant


@dataclass(frozen=True, slots=True)
class Unknown:
    """No value, and the reason in words: "vCenter vc-1 is unreachable since 02:14"."""

    why: str


Fact: TypeAlias = Known[T] | Unknown


def age(fact: Known[T], now: Instant) -> float:
    """Seconds since the fact was observed; never negative, a clock may have been set back."""
    return max(0.0, now - fact.at)


def fresh(fact: Fact[T], now: Instant, max_age: float) -> Fact[T]:
    """The fact itself, or Unknown where it is older than `max_age` seconds."""
    match fact:
        case Known() if age(fact, now) > max_age:
            return Unknown(f"last seen {age(fact, now):.0f} s ago, older than the {max_age:g} s allowed")
        case _:
            return fact


def then(fact: Fact[T], change: Callable[[T], U]) -> Fact[U]:
    """The same knowledge, seen through a function; its age stays."""
    match fact:
        case Known(value, at):
            return Known(change(value), at)
        case Unknown():
            return fact


def both(one: Fact[T], other: Fact[U]) -> Fact[tuple[T, U]]:
    """Known only if both are, and as old as the older; the first reason wins."""
    match one, other:
        case Known(a, at), Known(b, at_other):
            return Known((a, b), min(at, at_other))
        case Unknown() as unknown, _:
            return unknown
        case _, Unknown() as unknown:
            return unknown
    raise AssertionError("a fact is Known or Unknown")


def value_or(fact: Fact[T], default: T) -> T:
    """For words and counts only: a decision that could do harm matches on the fact instead."""
    return fact.value if isinstance(fact, Known) else default
