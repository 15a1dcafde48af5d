"""Points in time as plain numbers, and their spelling in Kubernetes objects. Nothing here reads a clock."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypeAlias

# Seconds since the epoch, of one machine's wall clock. Instants of different machines are never compared.
Instant: TypeAlias = float


def iso(at: Instant) -> str:
    """As in `metadata.creationTimestamp`: whole seconds, UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def iso_micro(at: Instant) -> str:
    """As in a Lease's `renewTime`: microseconds, UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse(text: str | None) -> Instant | None:
    """The instant of a timestamp, or None where there is none or it cannot be read (a fact not known)."""
    if not text:
        return None
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
