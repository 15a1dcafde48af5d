"""The API server over HTTP: one method per verb, typed errors, nothing cached and nothing retried.

Writers of capabilities do not use this class directly but `kube.writer.Writer`, which asks the gate first.
"""

from __future__ import annotations

import asyncio
import copy
import enum
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec

from hostler import __version__
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
from hostler.kube.gate import Gate as Gate
from hostler.kube.gate import GatedBody, Sockets
from hostler.kube.kinds import POD, Kind

T = TypeVar("T")
FIELD_MANAGER = "hostler"
PAGE = 500
# Of a server that another party runs, which may answer with pages without an end.
BOUNDED_PAGE, MOST_PAGES = 100, 200
PAGES_TOGETHER = 8  # times what one answer may have


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who we are for one request. `ssl` is None for plain HTTP."""

    headers: Mapping[str, str]
    ssl: ssl.SSLContext | None


class Connection(Protocol):
    """Where an API server is and how to be let in; `kube.config` makes them."""

    @property
    def server(self) -> str: ...
    @property
    def server_hostname(self) -> str | None: ...
    @property
    def proxy(self) -> str | None: ...
    @property
    def namespace(self) -> str: ...

    async def credentials(self) -> Credentials: ...

    def rejected(self) -> None:
        """The server answered 401: forget what is cached, so that the next call reads it afresh."""


class How(enum.StrEnum):
    """The ways to patch, by their content type."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"  # JSON is YAML


class Page(msgspec.Struct, kw_only=True):
    class Meta(msgspec.Struct, rename="camel"):
        resource_version: str = ""
        continue_: str = msgspec.field(default="", name="continue")

    metadata: Meta = msgspec.field(default_factory=Meta)
    items: list[msgspec.Raw] | None = None


_PAGE = msgspec.json.Decoder(Page)
_ENCODER = msgspec.json.Encoder()


class Client:
    """One API server. Safe to share between tasks; close it once."""

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

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._sessions:
            while self._sessions:  # not over its values: who still asks meanwhile makes another
                await self._sessions.popitem()[1].close()
            # A TLS connection takes some turns of the loop to close. A caller who ends the loop right after us would
            # leave its socket open.
            for _ in range(50):
                if not self._sockets.open():
                    break
                await asyncio.sleep(0.005)

    def gated(self, gate: Gate) -> Client:
        """The same connections, but every write asks `gate` first. Close only the original."""
        twin = copy.copy(self)
        twin._gate = gate
        return twin

    # -- reads

    async def get(
        self, kind: Kind, name: str, namespace: str | None = None, *, type: type[T], subresource: str | None = None
    ) -> T:
        body = await self.request("GET", kind.path(namespace, name, subresource))
        return msgspec.json.decode(body, type=type)

    async def list(
        self, kind: Kind, namespace: str | None = None, *, type: type[T], labels: str = "", fields: str = ""
    ) -> list[T]:
        """Every object, page by page. For caches use `kube.watch`; this is for commands and checks."""
        decoder = msgspec.json.Decoder(type)
        params = {"limit": str(PAGE if self._largest is None else BOUNDED_PAGE)}
        if labels:
            params["labelSelector"] = labels
        if fields:
            params["fieldSelector"] = fields
        found: list[T] = []
        pages = size = 0
        while True:
            body = await self.request("GET", kind.path(namespace), params=params)
            pages, size = pages + 1, size + len(body)
            page = _PAGE.decode(body)
            found.extend(decoder.decode(item) for item in page.items or ())
            if not page.metadata.continue_:
                return found
            self._check_pages(pages, size)
            params["continue"] = page.metadata.continue_

    async def version(self) -> dict[str, Any]:
        return msgspec.json.decode(await self.request("GET", "/version"), type=dict[str, Any])

    # -- writes (raw: see Writer)

    async def create(
        self, kind: Kind, body: Mapping[str, Any], namespace: str | None = None, *, type: type[T], dry_run: bool = False
    ) -> T:
        data = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        params = {"fieldManager": FIELD_MANAGER, **({"dryRun": "All"} if dry_run else {})}
        answer = await self.request("POST", kind.path(namespace), params=params, body=_ENCODER.encode(data))
        return msgspec.json.decode(answer, type=type)

    async def patch(
        self,
        kind: Kind,
        name: str,
        body: Any,
        namespace: str | None = None,
        *,
        type: type[T],
        how: How = How.MERGE,
        subresource: str | None = None,
        manager: str = FIELD_MANAGER,
        force: bool = False,
        dry_run: bool = False,
    ) -> T:
        """Change just the fields in `body`. With `metadata.resourceVersion` in it, a merge patch is conditional."""
        params = {"fieldManager": manager}
        if how is How.APPLY:
            body = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
            params["force"] = "true" if force else "false"
        if dry_run:
            params["dryRun"] = "All"
        answer = await self.request(
            "PATCH",
            kind.path(namespace, name, subresource),
            params=params,
            body=_ENCODER.encode(body),
            content=how.value,
        )
        return msgspec.json.decode(answer, type=type)

    async def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_seconds: int | None = None,
        propagation: str = "",
        dry_run: bool = False,
    ) -> None:
        """Delete; with `uid`, only that very object and not one of the same name made since."""
        await self.request(
            "DELETE", kind.path(namespace, name),
            body=_ENCODER.encode(_delete_options(uid, resource_version, grace_seconds, propagation, dry_run)),
        )  # fmt: skip

    async def evict(
        self, name: str, namespace: str, *, uid: str, grace_seconds: int | None = None, dry_run: bool = False
    ) -> None:
        """Ask for one pod's eviction. TooManyRequests: a PodDisruptionBudget says not now."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": _delete_options(uid, "", grace_seconds, "", dry_run),
        }
        await self.request("POST", POD.path(namespace, name, "eviction"), body=_ENCODER.encode(body))

    # -- the wire

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
        taking them apart costs a sixth of reading a large cache. Somebody between us and the API server may not speak
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
        if is_foreign(error_, body, path) and "/proxy/" not in path:  # there it is for the pod to say no
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

    def _check_pages(self, pages: int, size: int) -> None:
        """Whether a list may ask for one more page; `pages` and `size` are what it has read."""
        if self._largest is None:
            return
        most = self._largest * PAGES_TOGETHER
        if size >= most:
            raise TooLarge(self.connection.server, f"{most >> 20} MiB in all its pages")
        if pages >= MOST_PAGES:
            raise TooLarge(self.connection.server, f"{MOST_PAGES} pages")

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


def _delete_options(uid: str, version: str, grace: int | None, propagation: str, dry_run: bool) -> dict[str, Any]:
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if uid or version:
        options["preconditions"] = {
            **({"uid": uid} if uid else {}),
            **({"resourceVersion": version} if version else {}),
        }
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    if propagation:
        options["propagationPolicy"] = propagation
    if dry_run:
        options["dryRun"] = ["All"]
    return options


def words_of(error: BaseException) -> str:
    """An error of the network in words; some have none of their own."""
    if isinstance(error, asyncio.TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError):
        cause, number = error.os_error, error.os_error.errno or 0  # its own words name an object in memory
        return os.strerror(number) if number > 0 else cause.strerror or str(cause)
    return str(error) or type(error).__name__
