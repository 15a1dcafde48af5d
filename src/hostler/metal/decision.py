"""What is decided for a machine: writes as data, words for its conditions, a sentence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hostler.kube.kinds import Kind


@dataclass(frozen=True, slots=True)
class Write:
    """One change, as data. `version`: only if the object still is that version."""

    kind: Kind
    name: str
    namespace: str
    body: dict[str, Any]
    why: str
    version: str = ""
    subresource: str | None = None
    verb: str = "patch"
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """One condition to be said, before it is compared with what is already said."""

    type: str
    true: bool
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What comes next for a machine: writes in their order, what its conditions say, and a sentence."""

    why: str
    writes: tuple[Write, ...] = ()
    said: tuple[Said, ...] = ()
    status: dict[str, Any] = field(default_factory=dict)  # further fields of its status
    wake: float | None = None
