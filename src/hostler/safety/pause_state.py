"""What Pause objects say, as data and as sentences: pure. `safety.pauses` reads them from the watch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from hostler.apis.fleet import PAUSES_SHOWN, SHOWN_REASON_LIMIT, WHO_LIMIT, ObservedPause, Pause
from hostler.host.conditions import count, cut

PAUSED = "Paused"  # the condition of the Fleet
NAMED = 5  # pauses that a sentence names


class PauseReason(StrEnum):
    """Why writes are stopped or allowed; also the reason of the Fleet's condition `Paused`."""

    NO_PAUSE = "NoPause"
    NO_KIND = "NoPauseKind"
    PAUSE_EXISTS = "PauseExists"
    NOT_READ = "PausesNotRead"
    FORBIDDEN = "PausesForbidden"
    SILENT = "PausesSilent"
    FLEET_UNKNOWN = "FleetUnknown"


ALLOWING = frozenset({PauseReason.NO_PAUSE, PauseReason.NO_KIND})
KNOWN = ALLOWING | {PauseReason.PAUSE_EXISTS}


@dataclass(frozen=True, slots=True)
class SeenPause:
    """One Pause object. `uid` and `version` are empty and 0 for one that cannot be decoded."""

    name: str
    uid: str = ""
    version: int = 0
    by: str = ""
    why: str = ""
    going: bool = False  # it is being deleted, and something keeps it: it pauses until it is gone


@dataclass(frozen=True, slots=True)
class PauseState:
    """Whether writes are stopped. What is not known stops them too."""

    reason: PauseReason
    why: str
    pauses: tuple[SeenPause, ...] = ()

    @property
    def stopped(self) -> bool:
        return self.reason not in ALLOWING

    @property
    def known(self) -> bool:
        return self.reason in KNOWN


def seen_pauses(pauses: Iterable[Pause], unreadable: dict[str, str]) -> tuple[SeenPause, ...]:
    """Every Pause, newest first. One that is being deleted pauses until it is gone; so does one we cannot decode."""
    seen = [
        SeenPause(
            name=pause.metadata.name,
            uid=pause.metadata.uid,
            version=int(pause.metadata.resource_version or 0),
            by=pause.spec.by,
            why=pause.spec.why,
            going=bool(pause.metadata.deletion_timestamp),
        )
        for pause in pauses
    ]
    seen += [SeenPause(name, why=f"it cannot be decoded ({error})") for name, error in unreadable.items()]
    return tuple(sorted(seen, key=lambda pause: (-pause.version, pause.name)))


def paused_sentence(pauses: tuple[SeenPause, ...]) -> str:
    """Which pauses stop writes, who they claim to be from, and why; and what ends them."""
    named = "; ".join(pause_phrase(pause) for pause in pauses[:NAMED])
    more = f"; and {len(pauses) - NAMED} more" if len(pauses) > NAMED else ""
    which = "Pause" if len(pauses) == 1 else f"{count(len(pauses), 'pause')}:"
    return (
        f"Hostler is paused by {which} {named}{more}. `hostler resume` deletes yours, `hostler resume --all` every one."
    )


def pause_phrase(pause: SeenPause) -> str:
    """`NAME (claims to be ada): why`. A name proves nothing: the creator of a Pause writes it."""
    by = f" (claims to be {pause.by})" if pause.by else ""
    going = ", which is being deleted" if pause.going else ""
    return f"{pause.name}{by}{going}: {cut(pause.why, SHOWN_REASON_LIMIT) or 'no reason given'}"


def observed_pauses(pauses: tuple[SeenPause, ...]) -> tuple[ObservedPause, ...]:
    """As the Fleet's status lists them: `hostler pause` finds its own there by its UID."""
    return tuple(
        ObservedPause(
            name=pause.name, uid=pause.uid, claimed_by=cut(pause.by, WHO_LIMIT), why=cut(pause.why, SHOWN_REASON_LIMIT)
        )
        for pause in pauses[:PAUSES_SHOWN]
    )
