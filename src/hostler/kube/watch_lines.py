"""The lines of a watch, as the API server writes them: one JSON object each, with a type and an object."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from hostler.kube.client import Page
from hostler.kube.errors import Status
from hostler.kube.records import HasMetadata, Metadata

R = TypeVar("R", bound=HasMetadata)

PREFIX = b'{"type":"'
ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = b"AMDBE"  # the letter after the prefix tells them apart
CHANGES = frozenset(("ADDED", "MODIFIED", "DELETED"))


class Event(msgspec.Struct, Generic[R], gc=False):
    object: R


class Change(msgspec.Struct, Generic[R], gc=False):
    type: str
    object: R


class Line(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class Bookmark(msgspec.Struct, gc=False):
    class Meta(msgspec.Struct, rename="camel", gc=False):
        resource_version: str = ""
        annotations: dict[str, str] = {}

    metadata: Meta = msgspec.field(default_factory=Meta)


class Named(msgspec.Struct, gc=False):
    """The little that can be read of an object whose rest does not decode."""

    metadata: Metadata


class Decoder(Generic[R]):
    """Decodes what a watch or a list sends about one kind."""

    def __init__(self, type: type[R]) -> None:
        self._changes: msgspec.json.Decoder[Change[R]] = msgspec.json.Decoder(Change[type])  # type: ignore[valid-type]
        events: msgspec.json.Decoder[Event[R]] = msgspec.json.Decoder(Event[type])  # type: ignore[valid-type]
        self.event, self.item = events.decode, msgspec.json.Decoder(type).decode

    def changes(self, piece: memoryview) -> list[Change[R]]:
        """All lines of the piece at once; empty where one is no change, or cannot be read."""
        try:
            changes = self._changes.decode_lines(piece)
        except (msgspec.MsgspecError, ValueError):
            return []
        return changes if all(change.type in CHANGES for change in changes) else []


BOOKMARKS = msgspec.json.Decoder(Event[Bookmark])  # type: ignore[type-var]
ERRORS = msgspec.json.Decoder(Event[Status])  # type: ignore[type-var]
NAMED = msgspec.json.Decoder(Event[Named])
PAGES = msgspec.json.Decoder(Page)
_LINE = msgspec.json.Decoder(Line)


def kind_of(line: bytes) -> int:
    """The first letter of a line's type; 0 for an empty line. One that is no JSON is an error."""
    if line.startswith(PREFIX):
        return line[9]
    return (_LINE.decode(line).type or "?").encode()[0] if line else 0  # the slow way, for one spelled differently
