"""Takes many small pieces in a row together: fewer wake-ups, the same order, a moment later.

The API server flushes every event by itself. In a burst the loop would wake for each: reading, decrypting, parsing and
scheduling cost three times what decoding the event does. While events come thick and fast we therefore ask the kernel
to wake us only for a large piece (SO_RCVLOWAT), for a moment: the longer the burst, the longer the moment. When it is
quiet, every event wakes us at once.
"""

from __future__ import annotations

import asyncio
import socket
import sys

import aiohttp

PIECE = 1 << 19  # wake for this many bytes at once, while we wait
FIRST, MOST = 0.02, 0.16  # how long to wait at the beginning of a burst, and at most; doubling in between
BUSY = 0.07  # pieces that come closer together than this, after the wait is over, are a burst


class ReceiveBatcher:
    """Delays reads of one response in a burst. Where the socket cannot do it, nothing changes."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        transport = response.connection.transport if response.connection is not None else None
        found = transport.get_extra_info("socket") if transport is not None else None
        self._socket = found if sys.platform == "linux" else None
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._opened = 0.0  # since when the socket wakes us for anything
        self._moment = FIRST
        self._closed = False

    def took(self, lines: int) -> None:
        """A piece with so many lines was taken; if more are sure to follow, let them gather."""
        if self._socket is None or self._closed or not lines:
            return
        now = self._loop.time()
        if now - self._opened >= BUSY:
            self._opened, self._moment = now, FIRST
            return
        self._closed = True
        self._set(PIECE)
        self._loop.call_later(self._moment, self._open)
        self._moment = min(self._moment * 2, MOST)

    def _open(self) -> None:
        self._closed = False
        self._opened = self._loop.time()
        self._set(1)

    def _set(self, size: int) -> None:
        # The connection may have gone meanwhile; then there is nothing to hold back.
        if self._socket is not None and self._transport is not None and not self._transport.is_closing():
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
