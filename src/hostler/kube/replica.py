"""Who this replica is among others, and what stands in for a `Leadership` where there are no others."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Told = Callable[[bool], None]


def new_identity(name: str = "") -> str:
    """Unique per process, so that a restarted one never mistakes its predecessor's lease for its own."""
    return f"{name or socket.gethostname()}_{uuid.uuid4()}"


def pod_of(identity: str) -> str:
    """The pod or host name in an identity of ours."""
    return identity.rsplit("_", 1)[0]


class Alone:
    """In place of a Leadership where there is none: a dry run, or a single replica without election. Always leads."""

    holder = ""
    token = 0

    def held(self) -> bool:
        return True

    def gate(self) -> str | None:
        return None

    @contextmanager
    def acting(self) -> Iterator[None]:
        yield

    def listen(self, told: Told) -> None:
        told(True)

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def stop(self, within: float = 20.0) -> bool:
        return True

    async def yield_to_others(self, seconds: float, within: float = 20.0) -> bool:
        return False  # there is nobody else
