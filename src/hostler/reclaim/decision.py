"""What a decision consists of: its actions, one record each, and how a rule speaks against a reclaim. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from hostler.drain import model as drain_model
from hostler.host.facts import Fact, Known, Unknown
from hostler.instant import Instant
from hostler.reclaim.model import Cause, Cluster, Host, Pin, Reason, SpokeNode, Transition


@dataclass(frozen=True, slots=True)
class NoteCluster:
    """Keep the cluster and the node on the Agent, while it is bound and installed."""

    cluster: Cluster


@dataclass(frozen=True, slots=True)
class Enter:
    """A transition: state, stage start and condition go into one status patch."""

    transition: Transition
    reason: Cause
    message: str


@dataclass(frozen=True, slots=True)
class SetCondition:
    """Only the condition changes."""

    reason: Cause
    message: str


@dataclass(frozen=True, slots=True)
class WarnNotOneShot:
    """The condition `NotOneShot` and a Warning: a later restart of this host starts discovery again."""

    message: str


@dataclass(frozen=True, slots=True)
class Deploy:
    """Put the agent on the node, and whatever it needs; repeated until it is all there.

    Only before the reboot: the pod spec has the boot id this began in, and must not learn another one afterwards.
    """

    node: SpokeNode


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Take everything of ours for this host off the old cluster; repeated until it is gone."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Cordon the node in our name, to empty it."""

    node: SpokeNode


@dataclass(frozen=True, slots=True)
class Release:
    """End our hold; the node is schedulable again unless another controller or a user cordoned it."""

    node: SpokeNode


@dataclass(frozen=True, slots=True)
class Evict:
    """Ask for these evictions, and do not wait for them."""

    pods: tuple[drain_model.Evict, ...]


@dataclass(frozen=True, slots=True)
class RemoveNode:
    """Delete the Node of the old cluster, if it is still this very one."""

    node: SpokeNode


@dataclass(frozen=True, slots=True)
class ForgetCluster:
    """Clear `status.deprovision_info`: the host is in discovery and nothing of it is left in the old cluster."""


@dataclass(frozen=True, slots=True)
class AnswerRetry:
    """Note that a request for another attempt was answered, whichever way."""

    request: str


@dataclass(frozen=True, slots=True)
class ClearCancel:
    """Take the request to cancel off the Agent: it is done, and must not stop the next attempt."""


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Put our finalizer on the Agent, before anything is put into the old cluster: a deletion waits for its removal.

    With it goes which node this stage is about: another one of its name, or another boot of it, is not touched.
    """

    pin: Pin


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Take our finalizer off again."""


Action = (
    NoteCluster | Enter | SetCondition | AddFinalizer | Hold | Evict | Deploy | Withdraw | Release | RemoveNode
    | ForgetCluster | RemoveFinalizer | AnswerRetry | ClearCancel | WarnNotOneShot
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, why, and when to look again if nothing changes before."""

    actions: tuple[Action, ...]
    why: str
    wake: Instant | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What was last decided of a host, and from what: for `explain`, `plan` and the picture of hosts."""

    host: Host
    decision: Decision
    at: Instant


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


def require_fact(fact: Fact[T], unknown: str, reason: Reason, absent: str) -> T:
    """The value of a fact. Raises NotKnown with `unknown` and why, Refused where it is known that there is none."""
    match fact:
        case Unknown(why):
            raise NotKnown(f"{unknown}: {why}")
        case Known(value):
            if not value:
                raise Refused(reason, absent)
            return value
