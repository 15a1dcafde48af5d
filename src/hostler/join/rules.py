"""How a rule came out, with its sentence. Pure."""

from __future__ import annotations

from hostler.join.model import Outcome, Rule, RuleName


def holds(name: RuleName, why: str) -> Rule:
    return Rule(name, Outcome.HOLDS, why)


def fails(name: RuleName, why: str) -> Rule:
    return Rule(name, Outcome.FAILS, why)


def unknown(name: RuleName, why: str) -> Rule:
    return Rule(name, Outcome.UNKNOWN, why)
