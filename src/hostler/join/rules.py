"""How a rule came out, with its sentence."""

from __future__ import annotations

from hostler.join.model import Outcome, Rule


def holds(name: str, why: str) -> Rule:
    return Rule(name, Outcome.HOLDS, why)


def fails(name: str, why: str) -> Rule:
    return Rule(name, Outcome.FAILS, why)


def unknown(name: str, why: str) -> Rule:
    return Rule(name, Outcome.UNKNOWN, why)
