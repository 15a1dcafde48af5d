"""Writes and Events as data: what a decision wants to be written, before anybody writes it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from hostler.kube.kinds import Kind


class Verb(StrEnum):
    CREATE = "create"
    APPLY = "apply"
    PATCH = "patch"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class EventNote:
    """An Event on the object that the decision is about."""

    type: Literal["Normal", "Warning"]
    reason: str
    note: str


@dataclass(frozen=True, slots=True)
class Write:
    """One write. A patch is a merge patch by its body, or a JSON patch by its operations."""

    verb: Verb
    kind: Kind
    name: str
    why: str
    namespace: str | None = None
    body: Mapping[str, Any] = field(default_factory=dict)
    operations: tuple[Mapping[str, Any], ...] = ()
    subresource: str | None = None
    uid: str = ""  # of the object to delete
