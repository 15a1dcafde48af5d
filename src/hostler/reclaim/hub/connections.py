"""Connections to the hub: limited in number, counted from the first packet on, before TLS is spoken.

A connection without a request costs its owner nothing. So the one that has been idle for longest is closed when a new
one arrives at the limit: idle connections of strangers keep no host away, and use up no file descriptors.
"""

from __future__ import annotations

import asyncio
import resource
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
from aiohttp import web

log = structlog.get_logger("hostler.hub")

MOST_CONNECTIONS = 2000
# Open files that are not for hosts: the API servers, the artifacts being sent, everything else of the operator.
KEPT_FILES = 384
GREETING = 15.0  # seconds in which TLS is agreed on


def connection_limit(configured: int, files: int | None = None) -> int:
    """The configured number of connections, or what the system's limit of open files leaves."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if files is None else files
    if soft == resource.RLIM_INFINITY or configured <= soft - KEPT_FILES:
        return configured
    log.warning("fewer connections than configured: open files are limited", configured=configured, files=soft)
    return max(1, soft - KEPT_FILES)


class Connections:
    """Counts connections. Those with a request are kept; of the others the longest idle one is closed first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.dropped: Callable[[], None] = lambda: None  # called for each that was closed at the limit
        self._waiting: dict[Connection, None] = {}  # in the order they began to wait
        self._working: dict[Connection, int] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._working)

    def enter(self, connection: Connection) -> bool:
        """Whether it may stay; at the limit the longest idle one is closed for it."""
        if len(self) >= self.limit:
            self.dropped()
            longest = next(iter(self._waiting), None)
            if longest is None:
                return False
            del self._waiting[longest]
            longest.end()
        self._waiting[connection] = None
        return True

    def begin(self, connection: Connection) -> None:
        if connection in self._working:
            self._working[connection] += 1
        elif connection in self._waiting:
            del self._waiting[connection]
            self._working[connection] = 1

    def finish(self, connection: Connection) -> None:
        if connection not in self._working:
            return
        self._working[connection] -= 1
        if not self._working[connection]:
            del self._working[connection]
            self._waiting[connection] = None

    def leave(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)
        self._working.pop(connection, None)

    def end(self) -> None:
        """Close connections that have not finished TLS; the HTTP server closes the others."""
        for connection in tuple(self._waiting):
            if not connection.served:
                connection.end()


class Connection(asyncio.Protocol):
    """One connection, from its first packet to its last; what it says is for the HTTP server."""

    def __init__(self, connections: Connections, server: web.Server, tls: ssl.SSLContext | None) -> None:
        self.connections = connections
        self._server, self._tls = server, tls
        self._connection: asyncio.Transport | None = None
        self._greeting: asyncio.Task[None] | None = None
        self._http: web.RequestHandler | None = None
        self._early = b""  # what came with the end of the greeting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._connection = transport
        if not self.connections.enter(self):
            transport.abort()
        elif self._tls is None:
            self._serve(transport)
        else:
            transport.pause_reading()  # its first packet is not for us
            self._greeting = asyncio.get_running_loop().create_task(self._greet(transport, self._tls))

    async def _greet(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        secure: asyncio.Transport | None
        try:
            secure = await loop.start_tls(transport, self, tls, server_side=True, ssl_handshake_timeout=GREETING)
        except OSError:  # it speaks something else, does not trust us, says nothing, or is gone
            secure = None
        finally:
            self._greeting = None
        if secure is None or transport.is_closing():
            transport.abort()
            self.connections.leave(self)
            return
        self._serve(secure)

    def _serve(self, transport: asyncio.Transport) -> None:
        self._http = self._server()
        self._http.connection_made(transport)
        if self._early:
            self._http.data_received(self._early)
            self._early = b""

    @property
    def served(self) -> bool:
        return self._http is not None

    def end(self) -> None:
        if self._connection is not None:
            self._connection.abort()

    def data_received(self, data: bytes) -> None:
        if self._http is not None:
            self._http.data_received(data)
        else:
            self._early += data

    def eof_received(self) -> None:
        if self._http is not None:
            self._http.eof_received()

    def pause_writing(self) -> None:
        if self._http is not None:
            self._http.pause_writing()

    def resume_writing(self) -> None:
        if self._http is not None:
            self._http.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.leave(self)
        if self._http is not None:
            self._http.connection_lost(exc)


@contextmanager
def keep_open(request: web.BaseRequest) -> Iterator[None]:
    """Keep the connection of this request while it is answered."""
    connection = request.transport.get_protocol() if request.transport is not None else None
    if not isinstance(connection, Connection):  # served without us, or gone
        yield
        return
    connection.connections.begin(connection)
    try:
        yield
    finally:
        connection.connections.finish(connection)
