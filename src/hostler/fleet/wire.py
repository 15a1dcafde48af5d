"""The shapes of the read API, shared by the operator that serves it and the CLI that asks."""

from __future__ import annotations

import msgspec

from hostler import __version__
from hostler.fleet.model import FleetStatus
from hostler.settings.model import Settings

VERSION_HEADER = "Hostler-Version"
UNKNOWN_KIND, UNKNOWN_NAME = REASONS = ("UnknownKind", "UnknownName")


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
        tuple(Shown(one.setting.name, one.shown, one.source, one.setting.room) for one in settings),
    )
