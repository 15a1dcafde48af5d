"""Why a machine cannot take a host: the reason as data, and the text that people read. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hostler.apis.metal3 import BareMetalHost
from hostler.metal import names


class Refused(StrEnum):
    """Each value is the text of the reason, with {} where its details stand."""

    SELECTOR = "its labels do not meet {}"
    RESERVED = "it is reserved for {}"
    DOMAIN = "it is in failure domain {}"
    CONSUMER = "its consumer is {}"
    TAKING = "{} is taking it"
    IMAGE = "it has an image already"
    DELETED = "it is being deleted"
    MOVED = "it was moved to another management cluster"
    ERROR = "it reports {}"
    UNSETTLED = "it showed an error a moment ago"
    NOT_OK = "its operational status is {}"
    PAUSED = "it is paused by {}"
    UNHEALTHY = "it is marked as unhealthy"
    POWERED_OFF = "it is kept off by a remediation"
    DETACHED = "it is detached"
    EXTERNAL = "it is provisioned by another party"
    STATE = "it is {}"
    NO_STATE = "it has no state yet"
    NOT_NEEDED = "not needed"
    NOT_CHOSEN = "it would do too, but another was chosen"


@dataclass(frozen=True, slots=True)
class Refusal:
    reason: Refused
    details: str = ""

    @property
    def text(self) -> str:
        return self.reason.value.format(self.details)


# How a summary names reasons: in this order, and as texts that do not change with every host.
_GROUPS: Final = {
    "some have another consumer": (Refused.CONSUMER, Refused.IMAGE, Refused.TAKING),
    "some do not meet the selector": (Refused.SELECTOR,),
    "some are in another failure domain": (Refused.DOMAIN,),
    "some are reserved for others": (Refused.RESERVED,),
    "some report an error": (Refused.ERROR, Refused.UNSETTLED, Refused.NOT_OK),
    "some are paused, detached or marked unhealthy": (
        Refused.PAUSED, Refused.DETACHED, Refused.UNHEALTHY, Refused.POWERED_OFF,
    ),
    "some are not available yet": (
        Refused.STATE, Refused.NO_STATE, Refused.DELETED, Refused.MOVED, Refused.EXTERNAL,
    ),
}  # fmt: skip
_GROUP_OF: Final = {reason: group for group, reasons in _GROUPS.items() for reason in reasons}


def group_refusals(refusals: Iterable[Refusal]) -> tuple[str, ...]:
    """The groups of these reasons, in the order of a summary."""
    found = {_GROUP_OF.get(one.reason) for one in refusals}
    return tuple(group for group in _GROUPS if group in found)


def summarize_groups(groups: tuple[str, ...]) -> str:
    """Why no host fits: groups of reasons, and no numbers."""
    return f"no host is available now: {'; '.join(groups)}" if groups else "there is no host in this namespace"


def count_refusals(refusals: Iterable[Refusal]) -> list[tuple[str, int]]:
    """How often each group of reasons came, the most frequent first."""
    return Counter(_GROUP_OF.get(one.reason, one.text) for one in refusals).most_common()


def why_shut(host: BareMetalHost, *, our_pause: bool = True) -> Refusal | None:
    """Why no machine at all could have this host now, its consumer apart; None: it is open.

    Without `our_pause` a pause of ours is no reason: it ends by itself.
    """
    meta, status = host.metadata, host.status
    if meta.deletion_timestamp:
        return Refusal(Refused.DELETED)
    if names.DELETE_FOR_MOVE in meta.annotations:
        return Refusal(Refused.MOVED)
    if host.failing:
        what = status.error_type or "an error"
        return Refusal(Refused.ERROR, f"{what}: {status.error_message[:200]}" if status.error_message else what)
    by = meta.annotations.get(names.PAUSED)
    if by is not None and (our_pause or by != names.OUR_PAUSE):
        return Refusal(Refused.PAUSED, by or "another party")
    if any(name in meta.annotations for name in names.UNHEALTHY):
        return Refusal(Refused.UNHEALTHY)
    if any(name.startswith(names.REMEDIATION_POWER_OFF) for name in meta.annotations):
        return Refusal(Refused.POWERED_OFF)
    if names.DETACHED in meta.annotations or status.operational_status == "detached":
        return Refusal(Refused.DETACHED)
    return Refusal(Refused.EXTERNAL) if host.spec.externally_provisioned else None


def why_not_free(host: BareMetalHost) -> Refusal | None:
    """Why it could not be taken even by a machine that it suits; `available` alone does not mean free."""
    if (shut := why_shut(host)) is not None:
        return shut
    if not host.available:
        return Refusal(Refused.STATE, host.state) if host.state else Refusal(Refused.NO_STATE)
    if host.status.operational_status not in ("OK", ""):
        return Refusal(Refused.NOT_OK, host.status.operational_status)
    return Refusal(Refused.IMAGE) if host.imaged else None
