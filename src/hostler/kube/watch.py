"""Keeps a `Store` equal to the API server's truth: one streaming request per kind, resumed after anything.

First choice is watch-list streaming (the objects arrive as events, then a bookmark, then the changes, all on one
request); where the server does not know it, a paged list and then a watch. A line is taken only when it is complete,
and the version to resume from moves only with lines taken, so a connection may be cut at any byte.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeVar

import aiohttp
import msgspec
import structlog

from hostler.kube import watch_lines
from hostler.kube.backoff import Backoff
from hostler.kube.cache import Cache
from hostler.kube.client import PAGE, Client
from hostler.kube.clock import Clock, boottime
from hostler.kube.discovery import Versions, serves
from hostler.kube.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    from_status,
)
from hostler.kube.kinds import Kind
from hostler.kube.metrics import Metrics
from hostler.kube.receive_batching import ReceiveBatcher
from hostler.kube.records import HasMetadata, key_of
from hostler.kube.store import Index, Store

R = TypeVar("R", bound=HasMetadata)
log = structlog.get_logger("hostler.watch")

# The server sends a bookmark about every minute; silence for longer than this means the connection is dead.
STALL_SECONDS = 90.0
# The server ends a watch after this long; spread so that many watches do not end together.
LIFETIME_SECONDS = (290.0, 580.0)
# One that ends sooner was not ended by its lifetime: coming straight back would be a storm.
SHORT_SECONDS = 1.0
BACKOFF_FIRST, BACKOFF_MOST = 0.1, 15.0
# Nothing is decided on facts that were last confirmed longer ago than this. It cannot be much less: bookmarks are not
# guaranteed, so a healthy watch may be silent until the stall above, and then has to connect (10 s at most), to be
# answered, and perhaps to try once more. A decision made meanwhile on outdated facts is refused by the API server:
# patches carry the version they were decided on, evictions the pod's UID.
FRESH_SECONDS = STALL_SECONDS + 60.0
# A kind that is not there (no CRD), or that we may not read, is asked for at this pace.
ABSENT_SECONDS = 10.0


class _Ended(Exception):
    """The stream ended and is resumed after `delay` or the next back-off; `why` is for the metric."""

    def __init__(self, why: str, delay: float | None = None) -> None:
        super().__init__(why)
        self.why, self.delay = why, delay


class Watch(Cache[R]):
    """One kind, followed for as long as `run` runs. `store` is what others read."""

    def __init__(
        self,
        client: Client,
        kind: Kind,
        type: type[R],
        *,
        metrics: Metrics,
        indexes: Mapping[str, Index[R]] | None = None,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        stall: float = STALL_SECONDS,
        streaming: bool = True,
        page: int = PAGE,
        absent: float = ABSENT_SECONDS,
        versions: Sequence[str] = (),
        optional: bool = False,
        clock: Clock = boottime,
        store: Store[R] | None = None,
        counts: Store[R] | None = None,
    ) -> None:
        """`versions`: others of the kind, with the same fields of ours, to follow where its own is not served.

        `store`: an empty one of another class than `Store`. `counts`: the store whose objects the metrics count, where
        ours is only a part of it.
        """
        super().__init__(kind, type, Store(indexes) if store is None else store, optional=optional, clock=clock)
        self.synced = asyncio.Event()  # the store is complete, or the kind is known not to exist
        self._client, self._metrics = client, metrics
        self._counts = self.store if counts is None else counts
        if counts is None:
            metrics.follows(kind.resource, self.store)
        self._served = Versions(kind, versions, namespace)
        self._select = {key: text for key, text in (("labelSelector", labels), ("fieldSelector", fields)) if text}
        self._decoder = watch_lines.Decoder(type)
        self._stall, self._streaming, self._page, self._absent_pace = stall, streaming, page, absent
        self._version = ""  # where to resume; "" means list first
        self._backoff = Backoff(BACKOFF_FIRST, BACKOFF_MOST)

    async def run(self) -> None:
        """Follow the kind until cancelled. Never raises for anything a server or a network can do."""
        while True:
            try:
                await self._follow()
                continue
            except _Ended as end:
                why, delay = end.why, self._backoff.next() if end.delay is None else end.delay
            except Gone:
                self._version = ""
                why, delay = "gone", self._backoff.next()
            except (TooManyRequests, Unreachable, ServerError) as error:
                why = "throttled" if isinstance(error, TooManyRequests) else "unreachable"
                delay = self._backoff.next_after(error.retry_after if isinstance(error, ApiError) else None)
                self._say(str(error))
            except (Invalid, BadRequest) as error:
                why, delay = "refused", self._fall_back(error)
            except (Forbidden, Unauthorized) as error:
                why, delay = "forbidden", ABSENT_SECONDS / 2
                self.forbidden = isinstance(error, Forbidden)
                self._say(f"may not watch {self.kind.resource}: {error}")
            except ApiError as error:
                why, delay = "refused", self._backoff.next()
                self._say(str(error))
            except (msgspec.MsgspecError, ValueError) as error:
                # Not what an API server says: something between us and it broke it. List again: resumed at the same
                # version, the same line might come for ever.
                self._version = ""
                why, delay = "garbled", self._backoff.next()
                self._say(f"the answer about {self.kind.resource} cannot be read: {error}")
            self._metrics.watch_restarted(self.kind.resource, why)
            if delay:
                await asyncio.sleep(delay)

    async def _follow(self) -> None:
        """One request, or one listing; a 404 is looked into."""
        try:
            await (self._stream() if self._version or self._streaming else self._list())
        except NotFound as error:
            await self._not_found(error)

    # -- streaming

    async def _stream(self) -> None:
        """One watch request, until it ends. Raises _Ended or the error that ended it."""
        initial, began = not self._version, self._clock()
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(random.uniform(*LIFETIME_SECONDS))),  # nosec B311 # jitter
            **self._select,
        }
        if initial:
            # No resourceVersion: as of now, by quorum, so a resync can never show an older state than before.
            params |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            self.store.begin_sync()
        else:
            params["resourceVersion"] = self._version
        timeout = aiohttp.ClientTimeout(total=None, sock_read=self._stall)
        request = self._client.stream("GET", self._served.path, params=params, timeout=timeout, endless=True)
        async with request as response:
            self.forbidden = False
            self._heard()
            if not initial:
                self.problem = ""
            tail = b""
            batcher = ReceiveBatcher(response)
            try:
                async for chunk in response.content.iter_any():
                    piece = tail + chunk if tail else chunk
                    end = piece.rfind(b"\n") + 1
                    tail = piece[end:]
                    self._received(len(chunk), len(tail))
                    batcher.took(self._take(memoryview(piece)[:end]) if end else 0)
            except TimeoutError:
                raise _Ended("stalled", random.random()) from None  # nosec B311 # jitter; it was there for long: no reason to stay away
            except (aiohttp.ClientError, OSError):
                raise _Ended("cut") from None
        if tail:
            raise _Ended("cut")  # a half line left over is dropped: its event comes again, from the version before it
        # An orderly end: the server ends every watch after a while, and only then is coming straight back polite.
        raise _Ended("ended", 0.0 if self._version and self._clock() - began >= SHORT_SECONDS else None)

    def _take(self, piece: memoryview) -> int:
        """Take complete lines; how many they were. The hot path: no awaits, one call decodes them all.

        Anything but readable changes goes line by line. Doing that from the start of the piece is harmless: the store
        takes no version twice.
        """
        self._heard()
        changes = self._decoder.changes(piece)
        if changes:
            self._apply(changes)
            return len(changes)
        pieces = bytes(piece).split(b"\n")
        self._lines(pieces)
        return len(pieces)

    def _apply(self, changes: list[watch_lines.Change[R]]) -> None:
        put = self.store.put
        for change in changes:
            record = change.object
            if change.type == "DELETED":
                self.store.remove(record)
            else:
                put(record)
        if self._version:
            self._version = record.metadata.resource_version
            self._backoff.failures = 0

    def _lines(self, pieces: list[bytes]) -> None:
        """The same line by line: bookmarks, errors, and objects that do not decode."""
        decode = self._decoder.event
        put = self.store.put
        for line in pieces:
            kind = watch_lines.kind_of(line)
            if kind in (watch_lines.ADDED, watch_lines.MODIFIED, watch_lines.DELETED):
                try:
                    record = decode(line).object
                except (msgspec.MsgspecError, ValueError) as error:
                    version = self._unread(line, kind == watch_lines.DELETED, error)
                else:
                    version = record.metadata.resource_version
                    if kind == watch_lines.DELETED:
                        self.store.remove(record)
                    else:
                        put(record)
                if self._version:
                    self._version = version
                    self._backoff.failures = 0
            elif kind == watch_lines.BOOKMARK:
                self._bookmark(line)
            elif kind == watch_lines.ERROR:
                raise from_status(watch_lines.ERRORS.decode(line).object)

    def _bookmark(self, line: bytes) -> None:
        meta = watch_lines.BOOKMARKS.decode(line).object.metadata
        if meta.annotations.get("k8s.io/initial-events-end") == "true":
            self._complete(meta.resource_version)
        elif self._version:
            if int(meta.resource_version) < int(self._version):
                # A restored etcd. The server would never send us what is below our version: list again.
                self._version = ""
                raise _Ended("rewound")
            self._version = meta.resource_version
            self._backoff.failures = 0
            self.store.version = max(self.store.version, int(meta.resource_version))
            self._metrics.cached(self.kind.resource, len(self._counts))

    def _complete(self, version: str) -> None:
        """Everything that exists has been seen, as of `version`."""
        if not self.store.end_sync(int(version)):
            log.warning("the API server's history went backwards; listing again", kind=self.kind.resource)
            raise _Ended("rewound")
        self._version = version
        self._heard()
        self._backoff.failures = 0
        self._served.found()
        self.absent = self.forbidden = False
        self.problem = ""
        self._metrics.cached(self.kind.resource, len(self._counts))
        self.synced.set()

    def _unread(self, line: bytes, deleted: bool, error: Exception) -> str:
        """An object that does not decode: count it, name it, go on. Returns its version, to resume after it."""
        metadata = watch_lines.NAMED.decode(line).object.metadata
        version = int(metadata.resource_version)
        key = key_of(metadata)
        if deleted:
            self.store.forget(key, version)
        else:
            self.store.saw(key)
            self.store.unread(key, version, str(error))
            self._metrics.unreadable(self.kind.resource)
            self._left_out(key, error)
        return metadata.resource_version

    def _left_out(self, key: str, error: Exception) -> None:
        log.error("cannot read an object; it is left out", kind=self.kind.resource, name=key, error=str(error))

    # -- the fallback: pages

    async def _list(self) -> None:
        """A paged list, for servers without watch-list streaming; the watch follows from its version."""
        params = {"limit": str(self._page), **self._select}
        self.store.begin_sync()
        while True:
            body = await self._client.request("GET", self._served.path, params=params, timeout=60)
            self._received(len(body), 0)
            page = watch_lines.PAGES.decode(body)
            for item in page.items or ():
                try:
                    record = self._decoder.item(item)
                except (msgspec.MsgspecError, ValueError) as error:
                    self._unread(b'{"object":' + bytes(item) + b"}", False, error)
                else:
                    self.store.put(record)
            if not page.metadata.continue_:
                return self._complete(page.metadata.resource_version)
            params["continue"] = page.metadata.continue_

    def _fall_back(self, error: ApiError) -> float:
        if self._streaming and not self._version:
            self._streaming = False
            log.info("no watch-list streaming here; listing in pages", kind=self.kind.resource, error=str(error))
            return 0.0
        self._say(str(error))
        return self._backoff.next()

    async def _not_found(self, error: NotFound) -> NoReturn:
        """404 on the collection: another version may be served; if none is, the kind may be known not to be there."""
        self._version = ""
        if self._served.try_next():
            raise _Ended("absent", 0.0)
        if not self.absent and await serves(self._client, self.kind, self._served.versions):
            raise Unreachable(f"{self.kind.resource} are not found, though an API server serves them: {error}")
        self._is_absent()
        raise _Ended("absent", self._absent_pace)

    # -- helpers

    def _received(self, size: int, unfinished: int) -> None:
        """So many bytes came, and so many of a line without its end. `kube.foreign_watch` sets limits here."""

    def _heard(self) -> None:
        """What is in the store is confirmed as of now; by a listing only once it is complete."""
        if self._version or self.absent:
            self.heard = self._clock()

    def _is_absent(self) -> None:
        """The kind is not served. That is knowledge, not a failure."""
        self.absent, self.forbidden = True, False
        self.problem = f"{self.kind.resource} is not installed on this API server"
        self.store.begin_sync()
        self.store.end_sync(self.store.version)
        self._heard()
        self.synced.set()

    def _say(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            log.warning("not following for now", kind=self.kind.resource, why=problem)
