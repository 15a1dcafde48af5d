"""Asks once more, as late as possible, whether a write may leave.

Between our first look at the gate and the moment the bytes go, the process may have slept (SIGSTOP, a suspended
machine) while another operator took the lease. So the gate is asked again by the body as it is written, and at last by
the socket, right before the system call. What remains is the call itself: about a microsecond.
"""

from __future__ import annotations

import errno
import socket
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from hostler.kube.errors import WriteRefused

# None: go on. A sentence: do not write, and this is why.
Gate = Callable[[], str | None]


class GatedSocket(socket.socket):
    """A socket that asks before it sends, while a gated write is under way on it."""

    gate: Gate | None = None

    def send(self, data: Any, flags: int = 0, /) -> int:
        self._ask()
        return super().send(data, flags)

    def sendmsg(self, buffers: Iterable[Any], *more: Any) -> int:
        self._ask()
        return super().sendmsg(buffers, *more)

    def _ask(self) -> None:
        if self.gate is not None and (why := self.gate()) is not None:
            # asyncio closes the connection on this; half a request is no request.
            raise ConnectionAbortedError(errno.ECONNABORTED, why)


class Sockets:
    """Makes the sockets of one session, and finds each again by its number: asyncio hides them in wrappers."""

    def __init__(self) -> None:
        self._made: weakref.WeakValueDictionary[int, GatedSocket] = weakref.WeakValueDictionary()

    def make(self, address: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol = address[:3]
        made = GatedSocket(family=family, type=kind, proto=protocol)
        made.setblocking(False)
        self._made[made.fileno()] = made
        return made

    def open(self) -> bool:
        """Whether any of them is still open."""
        return any(made.fileno() >= 0 for made in self._made.values())

    def under(self, writer: AbstractStreamWriter) -> GatedSocket | None:
        transport = getattr(writer, "transport", None)
        wrapped = transport.get_extra_info("socket") if transport is not None else None
        return self._made.get(wrapped.fileno()) if wrapped is not None else None


class GatedBody(aiohttp.BytesPayload):
    """A request's body that asks the gate as it is written, and has the socket ask until the answer is there."""

    def __init__(self, data: bytes, content: str, gate: Gate, sockets: Sockets) -> None:
        super().__init__(data, content_type=content)
        self._gate, self._sockets = gate, sockets
        self._armed: GatedSocket | None = None
        self.refused: str | None = None

    async def write(self, writer: AbstractStreamWriter) -> None:
        self._check(writer)
        await super().write(writer)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self._check(writer)
        await super().write_with_length(writer, content_length)

    def answered(self) -> None:
        """The write is over; the next user of the connection brings its own gate, or needs none."""
        if self._armed is not None:
            self._armed.gate = None
            self._armed = None

    def _check(self, writer: AbstractStreamWriter) -> None:
        if self._ask() is not None:
            raise WriteRefused(self.refused or "")
        self._armed = self._sockets.under(writer)
        if self._armed is not None:
            self._armed.gate = self._ask

    def _ask(self) -> str | None:
        self.refused = self._gate()
        return self.refused
