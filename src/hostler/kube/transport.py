"""HTTP to one API server: connections, credentials, the gate before a write leaves, and refusals as typed errors."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Self
from urllib.parse import urlsplit

import aiohttp

from hostler import __version__
from hostler.kube.connection import Connection
from hostler.kube.errors import (
    ApiError,
    SomethingElse,
    TooLarge,
    Unauthorized,
    Unreachable,
    WriteRefused,
    from_response,
    is_foreign,
)
from hostler.kube.gate import Gate, GatedBody, Sockets


class Transport:
    """Requests to one API server. `kube.client.Client` adds the verbs."""

    def __init__(
        self,
        connection: Connection,
        *,
        timeout: float = 30.0,
        user_agent: str = f"hostler/{__version__}",
        largest: int | None = None,
    ) -> None:
        """`largest`: bytes of one answer, where another party runs the API server. A watch has limits of its own.

        With it, a list has limits too: of its pages, and of the bytes of all of them.
        """
        self.connection = connection
        self._gate: Gate | None = None
        self._timeout = timeout
        self._agent = user_agent
        self._largest = largest
        self._sessions: dict[aiohttp.HttpVersion, aiohttp.ClientSession] = {}  # shared with every gated twin
        self._endless = aiohttp.HttpVersion10
        self._sockets = Sockets()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._sessions:
            while self._sessions:  # not over its values: a request under way may open another
                await self._sessions.popitem()[1].close()
            # A TLS connection takes some turns of the loop to close. A caller who ends the loop right after us would
            # leave its socket open.
            for _ in range(50):
                if not self._sockets.open():
                    break
                await asyncio.sleep(0.005)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content: str = "application/json",
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """One request and its whole answer, or a typed error. `headers` are further ones."""
        limit = aiohttp.ClientTimeout(total=timeout or self._timeout)
        async with self.stream(
            method, path, params=params, body=body, content=content, timeout=limit, headers=headers
        ) as response:
            try:
                return await self._whole(response)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise Unreachable(
                    f"{self.connection.server} stopped in the middle of an answer: {words_of(error)}"
                ) from error

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content: str = "application/json",
        timeout: aiohttp.ClientTimeout,
        endless: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An open response with a good status; refusals are raised as typed errors.

        An `endless` one is asked for in HTTP/1.0, whose answers come without chunks: each event of a watch is one, and
        taking them apart costs a sixth of reading a large cache. A proxy between us and the API server may not speak
        it (Envoy by default): after an answer that is not the API server's the other version is tried.
        """
        credentials = await self.connection.credentials()
        headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": self._agent,
            **(headers or {}),
            **credentials.headers,
        }
        gated = self._gate_for(method, body or b"", content)
        if body is not None and gated is None:
            headers["Content-Type"] = content
        version = self._endless if endless else aiohttp.HttpVersion11
        try:
            response = await self._session(version).request(
                method, self.connection.server + path, params=params, data=gated or body, headers=headers,
                timeout=limit_of(timeout),
                ssl=credentials.ssl if credentials.ssl is not None else True, proxy=self.connection.proxy,
                server_hostname=self.connection.server_hostname, allow_redirects=False,
            )  # fmt: skip
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if gated is not None and gated.refused is not None:
                raise WriteRefused(gated.refused) from error
            connected = isinstance(error, aiohttp.ClientError) and not isinstance(error, aiohttp.ClientConnectorError)
            if endless and connected:
                self._other_than(version)
            raise Unreachable(f"{self.connection.server} cannot be reached: {words_of(error)}") from error
        if gated is not None:
            gated.answered()
        async with response:
            if response.status >= 300:
                refusal = await self._refusal(response)
                if endless and not (isinstance(refusal, ApiError) and refusal.reason):
                    self._other_than(version)
                raise refusal
            yield response

    def _gate_for(self, method: str, body: bytes, content: str) -> GatedBody | None:
        if self._gate is None or method == "GET":
            return None
        why = self._gate()
        if why is not None:
            raise WriteRefused(why)
        return GatedBody(body, content, self._gate, self._sockets)

    async def _refusal(self, response: aiohttp.ClientResponse) -> Exception:
        try:
            body = await self._whole(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return Unreachable(f"{self.connection.server} stopped in the middle of an answer: {words_of(error)}")
        error_ = from_response(response.status, body, response.headers.get("Retry-After"))
        path = response.url.path.removeprefix(urlsplit(self.connection.server).path)
        if is_foreign(error_, body, path) and "/proxy/" not in path:  # there the pod itself may refuse
            return SomethingElse(f"what answers at {self.connection.server} is not the API server: {error_}")
        if isinstance(error_, Unauthorized):
            self.connection.rejected()
        return error_

    async def _whole(self, response: aiohttp.ClientResponse) -> bytes:
        if self._largest is None:
            return await response.read()
        found = bytearray()
        async for piece in response.content.iter_any():
            found += piece
            if len(found) > self._largest:
                raise TooLarge(self.connection.server, f"{self._largest >> 20} MiB")
        return bytes(found)

    def _other_than(self, refused: aiohttp.HttpVersion) -> None:
        """Not other than the present one: of an even number of watches refused together each would turn it back."""
        old = refused == aiohttp.HttpVersion10
        self._endless = aiohttp.HttpVersion11 if old else aiohttp.HttpVersion10

    def _session(self, version: aiohttp.HttpVersion) -> aiohttp.ClientSession:
        found = self._sessions.get(version)
        if found is None:
            # No limit on connections: every watch holds one for as long as it lives, and a bound below the
            # number of watched kinds would deadlock the writes. Writes are bounded by the budget instead.
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60, socket_factory=self._sockets.make)
            # Of a server that another party runs less is read ahead: three watches of each of many spokes add up. And
            # nothing is unpacked, which we do not ask for: a few bytes could become more than we bound.
            ours = self._largest is None
            found = self._sessions[version] = aiohttp.ClientSession(
                connector=connector, auto_decompress=ours, read_bufsize=1 << 20 if ours else 1 << 16, version=version
            )
        return found


def limit_of(timeout: aiohttp.ClientTimeout) -> aiohttp.ClientTimeout:
    """Connecting never takes longer than ten seconds, whatever the whole may take."""
    return aiohttp.ClientTimeout(
        total=timeout.total, sock_read=timeout.sock_read, sock_connect=timeout.sock_connect or 10
    )


def words_of(error: BaseException) -> str:
    """A network error as text; some have none of their own."""
    if isinstance(error, asyncio.TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError):
        cause, number = error.os_error, error.os_error.errno or 0  # its own text names an object in memory
        return os.strerror(number) if number > 0 else cause.strerror or str(cause)
    return str(error) or type(error).__name__
