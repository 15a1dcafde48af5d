"""What is decided for a machine: writes as data, words for its conditions, a sentence. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hostler.host.conditions import Condition, Status
from hostler.kube.kinds import Kind


@dataclass(frozen=True, slots=True)
class Write:
    """One change, as data. `version`: only if the object still is that version."""

    kind: Kind
    name: str
    namespace: str
    body: dict[str, Any]
    why: str
    version: str = ""
    subresource: str | None = None
    verb: str = "patch"
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """One condition to be said, before it is compared with what is already said."""

    type: str
    true: bool
    reason: str
    message: str = ""

    def condition(self, generation: int) -> Condition:
        status = Status.TRUE if self.true else Status.FALSE
        return Condition(
            type=self.type, status=status, reason=self.reason, message=self.message, observed_generation=generation
        )


class Step(StrEnum):
    """Where a machine stands, and so which part of its life the decision is about."""

    MOVED = "moved"  # clusterctl has copied it and deletes it here
    PAUSED = "paused"
    UNREADABLE = "unreadable"  # the host that it names cannot be read
    WAIT = "wait"  # it may not have a host yet, or has lost its own
    CLAIM = "claim"  # a host is chosen for it
    KEEP = "keep"  # it has its host
    RELEASE = "release"  # it is being deleted


@dataclass(frozen=True, slots=True)
class Decision:
    """What comes next for a machine: writes in their order, what its conditions say, and a sentence."""

    why: str
    writes: tuple[Write, ...] = ()
    said: tuple[Said, ...] = ()
    status: dict[str, Any] = field(default_factory=dict)  # further fields of its status
    wake: float | None = None
    step: Step = Step.KEEP
    unpause: tuple[Write, ...] = ()  # before all others: our pause of the host is taken back
    make_movable: str = ""  # why the host is paused with its status; what is written depends on the whole host
