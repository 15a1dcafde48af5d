"""The shape of `/v1/history`, shared by the operator that serves it and the CLI. Pure."""

from __future__ import annotations

import msgspec

from hostler.history.model import Entry


class HistoryAnswer(msgspec.Struct, rename="camel", frozen=True):
    """The newest first. `names`: the host of each layer that still has one, by key."""

    entries: tuple[Entry, ...]
    names: dict[str, str]
    complete: bool  # False: there are more than were asked for
    notes: tuple[str, ...] = ()
    trouble: str = ""  # why new entries are not stored at the moment
