"""Where a maintenance stands and why it does not go on: data first, and the text that people read. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final


class Phase(Enum):
    """Where a subject stands within its state. Each value is the text of the status table; nothing compares it."""

    AT_WORK = "at work"
    BEGINNING = "beginning"
    CHECKING = "checking"
    DRAINING = "draining"
    ENDING = "ending"
    FAILED = "failed"
    HELD = "held"
    HELD_BACK = "held back"
    IGNORED = "ignored"
    IN_SERVICE = "in service"
    LETTING_GO = "letting go"
    MARKING = "marking"
    MOVING = "moving"
    NOT_KNOWN = "not known"
    NOT_OURS = "not ours"
    OFF = "off"
    OVERRULED = "overruled"
    REFUSED = "refused"
    SETTLING = "settling"
    STARTED = "started"
    STARTING = "starting"
    STOPPING = "stopping"
    TAKEN_OVER = "taken over"
    UNMARKING = "unmarking"
    WAITING = "waiting"
    WAITING_FOR_HOST = "waiting for a host"


class BlockedBy(StrEnum):
    """Why it does not go on. Each value is a label of the metric hostler_maintenance_blocked."""

    BUDGET = "budget"
    VOLUMES = "volumes"
    REFUSED = "refused"
    SLOT = "slot"
    CEILING = "ceiling"
    POLICY = "policy"
    PRIVILEGES = "privileges"
    DRS = "drs"
    HOLDS = "holds"
    UNCORDONED = "uncordoned"
    UNKNOWN = "unknown"
    NO_HOST = "no host"
    NO_RESTART = "no restart"
    POWER_ON = "power-on"
    POWER_OFF = "power-off"
    LOOKING = "looking"
    STRAY_HOLD = "stray hold"
    IDENTITY = "identity"


# The text of each reason, with {} where its details stand.
_SENTENCES: Final = {
    BlockedBy.BUDGET: "{}",
    BlockedBy.VOLUMES: "{}",
    BlockedBy.REFUSED: "a setting forbids evicting pods",
    BlockedBy.PRIVILEGES: "our vCenter user lacks {}",
    BlockedBy.UNKNOWN: "{}",
    BlockedBy.NO_HOST: "{}",
    BlockedBy.NO_RESTART: "{}",
    BlockedBy.POWER_ON: "{}",
    BlockedBy.POWER_OFF: "{}",
    BlockedBy.STRAY_HOLD: "{}",
    BlockedBy.IDENTITY: "{}",
}
# Where the decision's `why` says all of it, the table shows a word.
_WORDS: Final = {
    BlockedBy.SLOT: "slot",
    BlockedBy.CEILING: "ceiling",
    BlockedBy.POLICY: "policy",
    BlockedBy.DRS: "drs",
    BlockedBy.HOLDS: "holds",
    BlockedBy.UNCORDONED: "uncordoned",
    BlockedBy.LOOKING: "looking",
}


@dataclass(frozen=True, slots=True)
class Blocked:
    by: BlockedBy
    details: str = ""

    @property
    def sentence(self) -> str:
        """What is to be said besides the decision's `why`, without a full stop; "" where that says all of it."""
        return _SENTENCES.get(self.by, "").format(self.details)

    @property
    def text(self) -> str:
        """For the status table."""
        return self.sentence or _WORDS.get(self.by, self.by.value)
