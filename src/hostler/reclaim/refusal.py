"""How a rule says no: refused for a reason, a fact is missing, or others go first. Pure."""

from __future__ import annotations

from typing import TypeVar

from hostler.host.facts import Fact, Known, Unknown
from hostler.reclaim.reasons import Reason

T = TypeVar("T")


class Refused(Exception):
    """A reclaim is not possible; caught in this package only."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


class NotKnown(Exception):
    """A fact is missing; caught in this package only. Its text can follow a colon, `sentence` begins one."""

    @property
    def sentence(self) -> str:
        text = str(self)
        return text[:1].upper() + text[1:]


class Waits(Exception):
    """It may be returned, but others go first; caught in this package only. The last rule: all others hold."""


def require(fact: Fact[T], unknown: str, reason: Reason, absent: str) -> T:
    """The value of a fact. Raises NotKnown with `unknown` and why, Refused where it is known that there is none."""
    match fact:
        case Unknown(why):
            raise NotKnown(f"{unknown}: {why}")
        case Known(value):
            if not value:
                raise Refused(reason, absent)
            return value
