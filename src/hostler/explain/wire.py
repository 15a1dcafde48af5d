"""The shapes of the read API, shared by the operator that serves it and the CLI that asks."""

from __future__ import annotations

import msgspec

from hostler import __version__
from hostler.apis.fleet import FleetStatus
from hostler.explain.callers import Refusal
from hostler.settings.model import Settings

VERSION_HEADER = "Hostler-Version"
# Through a Service any replica may be reached. Who sends this wants the one that leads; another says NOT_LEADING.
LEADER_HEADER = "X-Hostler-Leader"
UNKNOWN_KIND, UNKNOWN_NAME, NOT_LEADING, NOT_STORED, TOO_MANY_VIEWERS = _REASONS = (
    "UnknownKind", "UnknownName", "NotLeading", "HistoryUnavailable", "TooManyViewers",
)  # fmt: skip
REASONS = frozenset({*_REASONS, *Refusal})  # the operator's own, and not those of an API server on the way


class Shown(msgspec.Struct, rename="camel", frozen=True):
    """One setting as /v1/config shows it."""

    name: str
    value: str
    source: str
    room: str


class Config(msgspec.Struct, rename="camel", frozen=True):
    version: str
    settings: tuple[Shown, ...]


class StatusAnswer(msgspec.Struct, rename="camel", frozen=True):
    """The fleet's status, and what is particular to the replica that answers."""

    version: str
    identity: str
    leads: bool
    leadership: str  # a sentence
    dry_run: bool
    paused: bool
    pause: str  # a sentence
    status: FleetStatus


class Refused(msgspec.Struct, rename="camel", frozen=True):
    """Why there is no answer: a word for the CLI and a sentence for people."""

    reason: str
    message: str


def config_of(settings: Settings) -> Config:
    """Every setting, its value and its source; secrets are hidden here already."""
    return Config(
        __version__,
        tuple(Shown(one.setting.name, one.shown, one.source, one.setting.section) for one in settings),
    )
