"""A real TCP proxy in front of the real API server that cuts, stalls, delays and truncates.

Towards the API server it speaks TLS with the sandbox's own certificates, towards the client plain TCP. So the faults
fall on exact bytes of the HTTP stream: inside a JSON line, inside a chunk header, between two of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from hostler.kube.connection import Credentials
from tests.real.endings import end_connections


@dataclass(frozen=True, slots=True)
class PlainConnection:
    """A `Connection` through the proxy: the proxy holds the certificates."""

    server: str
    server_hostname: str | None = None
    proxy: str | None = None
    namespace: str = "default"

    async def credentials(self) -> Credentials:
        return Credentials({}, None)

    def rejected(self) -> None:
        pass


class Proxy:
    """`watch_budget()` says after how many bytes of an answer to a watch the connection is cut; None: never."""

    def __init__(self, upstream: str, tls: ssl.SSLContext) -> None:
        self._upstream = urlsplit(upstream)
        self._tls = tls
        self._live: dict[asyncio.StreamWriter, asyncio.StreamWriter] = {}  # client's side -> API server's side
        self._tasks: set[asyncio.Task[None]] = set()
        self.watch_budget: Callable[[], int | None] = lambda: None
        self.reset: Callable[[], bool] = lambda: False  # cut with RST instead of an orderly end
        self.stalled = False  # accept and read, but pass nothing on
        self.refusing = False
        self.spoilt: tuple[bytes, bytes] | None = None  # in every answer, this into that, of the same length
        self.instead: bytes | None = None  # the answer to everything: as a load balancer does without a backend
        self.once: dict[str, bytes] = {}  # the answer to the next request with this word in its path
        self.always: dict[str, bytes] = {}  # the answer to every request with this word in its first line
        self.delay = 0.0  # seconds added before each piece of an answer
        self.cuts: Counter[str] = Counter()  # by the path that was being watched
        self.connections = self.requests = 0
        self.port = 0

    @property
    def connection(self) -> PlainConnection:
        return PlainConnection(f"http://127.0.0.1:{self.port}")

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Proxy]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.stalled = False
            for writer, up_writer in list(self._live.items()):
                writer.transport.abort()
                up_writer.transport.abort()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await end_connections()

    def cut_all(self) -> None:
        """End every connection now, wherever it is."""
        for writer in list(self._live):
            self._cut(writer)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            if self.instead is not None:
                await self._answer(reader, writer, self.instead)
            elif not self.refusing:
                await self._pass_on(reader, writer)
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: bytes) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            writer.write_eof()
            await reader.read()  # until the client has read it and hangs up

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection(
                self._upstream.hostname, self._upstream.port, ssl=self._tls, server_hostname=self._upstream.hostname
            )
        except OSError:
            return  # the API server is down: so is the proxy
        self._live[writer] = up_writer
        watching: list[str] = []  # the path of the watch on this connection, once there is one
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(reader, writer, up_writer, watching))
                group.create_task(self._answers(up_reader, writer, up_writer, watching))
        except* OSError:
            pass  # a cut connection is what this proxy is for
        finally:
            self._live.pop(writer, None)
            up_writer.transport.abort()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, up: asyncio.StreamWriter, watching: list[str]
    ) -> None:
        while data := await reader.read(65536):
            request = data.split(b"\r\n", 1)[0].decode()
            self.requests += 1
            if (word := next((word for word in self.once if word in request), None)) is not None:
                writer.write(self.once.pop(word))
                await writer.drain()
                continue
            if (word := next((word for word in self.always if word in request), None)) is not None:
                writer.write(self.always[word])
                await writer.drain()
                continue
            if "watch=true" in request:
                watching.append(request.split("?")[0])
            up.write(data)
            await up.drain()
        up.transport.abort()  # a second close() of TLS would make a later abort() do nothing

    async def _answers(
        self,
        up: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        up_writer: asyncio.StreamWriter,
        watching: list[str],
    ) -> None:
        budget: int | None = None
        asked = False
        while data := await up.read(65536):
            while self.stalled:
                await asyncio.sleep(0.05)
            if self.delay:
                await asyncio.sleep(self.delay * random.random())
            if self.spoilt is not None:
                data = data.replace(*self.spoilt)
            if watching and not asked:
                budget, asked = self.watch_budget(), True
            if budget is not None and len(data) >= budget:
                writer.write(data[:budget])
                with contextlib.suppress(OSError):
                    await writer.drain()
                self.cuts[watching[0]] += 1
                self._cut(writer)
                up_writer.transport.abort()
                return
            if budget is not None:
                budget -= len(data)
            writer.write(data)
            await writer.drain()
        writer.close()

    def _cut(self, writer: asyncio.StreamWriter) -> None:
        if self.reset():
            raw: socket.socket | None = writer.get_extra_info("socket")
            if raw is not None:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        else:
            writer.close()
