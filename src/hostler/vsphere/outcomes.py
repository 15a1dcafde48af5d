"""What came of a call or a task, as plain data: for whoever decides and knows no client."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class Kind(StrEnum):
    """Why vCenter refused or a task failed."""

    NOT_CONNECTED = "not-connected"  # no session: unreachable, expired, wrong password; asked again it may work
    NO_PERMISSION = "no-permission"
    GONE = "gone"  # the object is not there any more
    POWER_STATE = "power-state"  # it is not in the power state the call needs
    STATE = "state"  # another wrong state: the host is entering maintenance, ...
    NO_COMPATIBLE_HOST = "no-compatible-host"
    NO_RESOURCES = "no-resources"  # CPU, memory, a passthrough device or a vGPU is not free
    IN_PROGRESS = "in-progress"  # another task works on it
    NO_TOOLS = "no-tools"  # VMware Tools do not run, so the guest cannot be asked
    HOST_AWAY = "host-away"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed-out"
    CANNOT_MOVE = "cannot-move"
    NOT_SUPPORTED = "not-supported"
    OTHER = "other"  # named by its type in the sentence


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault as we keep it. `already`: it says that what was asked for is so already."""

    kind: Kind
    name: str  # the fault's type: "InvalidPowerState"
    sentence: str
    already: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """Something is under way; how it ends is a fact of the watcher. `task` is "" for calls that have no task."""

    task: str = ""


@dataclass(frozen=True, slots=True)
class AlreadySo:
    """Nothing was to be done. For power-on that is no success by itself: look where the VM runs."""

    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    kind: Kind
    sentence: str
    privilege: str = ""  # the one that is missing, where that is why


Outcome: TypeAlias = Started | AlreadySo | Refused


@dataclass(frozen=True, slots=True)
class Asked:
    """What vCenter was asked to do to a VM. `uuid`: the VM's instance UUID, or its id where that is not known."""

    vcenter: str
    uuid: str
    what: str  # the call: power_on, ...
    sentence: str  # the same for people, with names
    outcome: Outcome


def said(outcome: Outcome) -> str:
    """For a log that people read."""
    match outcome:
        case Started(task):
            return f"{task} is under way" if task else "done"
        case AlreadySo(why):
            return why
        case Refused(sentence=sentence):
            return sentence
