"""The directory of boot artifacts: what is in it, what it hashes to, and handing it out. It may hang, or say no."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

import structlog
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from hostler.reclaim.artifacts import HASHED, NAMES
from hostler.reclaim.hub.connections import keep_open

log = structlog.get_logger("hostler.hub")

# So many look at once, and so long each is waited for: a network's disk may hang.
LOOKERS, LOOK_SECONDS = 4, 10.0
# What was seen so many seconds ago is told to whoever asks: many hosts of one InfraEnv do so at once.
FRESH = 1.0
# Who takes nothing for so many seconds, or less than so many bytes per second in all, is let go; hosts go on later.
STALLED, SLOWEST = 60.0, 256 * 1024
T = TypeVar("T")


class Unreadable(Exception):
    """The directory of artifacts says no."""


class ArtifactFiles:
    """One directory per InfraEnv's uid, with one file per artifact; or nothing at all."""

    def __init__(self, directory: Path | None, url: str) -> None:
        """`url` is where hosts get the artifacts of an `{infra_env}`."""
        self._directory, self._url = directory, url
        self._hashes: dict[Path, tuple[tuple[int, ...], str]] = {}
        self._seen: dict[str, tuple[float, dict[str, str]]] = {}
        self._hashing = threading.Lock()
        self._threads = ThreadPoolExecutor(
            LOOKERS, "artifacts"
        )  # its own: a thread that hangs here blocks nothing else
        self._lookers, self._hangs = asyncio.Semaphore(LOOKERS), False

    def _place(self, infra_env: str, name: str) -> Path | None:
        if self._directory is None:
            return None
        place = self._directory / infra_env / name
        return place if place.is_file() else None

    async def find(self, infra_env: str, name: str) -> tuple[Path, int] | None:
        """Where this artifact is, and how large."""

        def found() -> tuple[Path, int] | None:
            place = self._place(infra_env, name)
            return None if place is None else (place, place.stat().st_size)

        return await self._look(found)

    async def served(self, infra_env: str) -> dict[str, str]:
        """Addresses of the artifacts we have ourselves.

        Raises TimeoutError where the directory does not answer, Unreadable where it says no.
        """
        return await self._look(lambda: self._served(infra_env)) if self._directory is not None else {}

    async def with_hashes(self, infra_env: str) -> dict[str, str]:
        """The same, and what their bytes must hash to (`kernel_sha256`): a host is not to start what got damaged."""
        if self._directory is None:
            return {}

        def seen() -> dict[str, str] | None:
            at, found = self._seen.get(infra_env, (float("-inf"), {}))
            return found if time.monotonic() - at < FRESH else None

        def look() -> dict[str, str]:
            at = time.monotonic()
            found = {**self._served(infra_env), **self._sums(infra_env)}
            self._seen[infra_env] = (at, found)
            return found

        known = seen()
        return known if known is not None else await self._look(look, seen)

    async def _look(self, call: Callable[[], T], seen: Callable[[], T | None] = lambda: None) -> T:
        """In a thread: the directory may be on a network's disk, and whoever asks meanwhile is answered.

        A thread that hangs keeps its place until it ends; while all of them do, callers do not wait for them.
        """
        if self._hangs and self._lookers.locked():
            raise TimeoutError
        loop = asyncio.get_running_loop()

        def ended(_: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop has ended before it
                loop.call_soon_threadsafe(self._lookers.release)

        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._lookers.acquire()
                if (known := seen()) is not None:  # another caller looked meanwhile
                    self._lookers.release()
                    return known
                found = self._threads.submit(call)
                found.add_done_callback(ended)
                answer = await asyncio.wrap_future(found)
        except TimeoutError:
            self._hangs = True
            log.warning("the directory of artifacts does not answer", directory=str(self._directory))
            raise
        except (OSError, ValueError) as error:
            log.warning("the directory of artifacts cannot be read", error=str(error))
            raise Unreadable(str(error)) from error
        self._hangs = False
        return answer

    def _served(self, infra_env: str) -> dict[str, str]:
        here = self._url.format(infra_env=infra_env)
        return {name: f"{here}/{name}" for name in NAMES if self._place(infra_env, name) is not None}

    def _sums(self, infra_env: str) -> dict[str, str]:
        """Of what an agent downloads: as its owner wrote beside it (`kernel.sha256`), else as it is here."""
        found: dict[str, str] = {}
        for name in HASHED:
            place, written = self._place(infra_env, name), self._place(infra_env, f"{name}.sha256")
            if place is not None:
                found[f"{name}_sha256"] = (
                    written.read_text().partition(" ")[0].strip() if written is not None else self._sum(place)
                )
        return found

    def _sum(self, place: Path) -> str:
        """The file's sha256, read once for as long as it is the same file."""
        with self._hashing, place.open("rb") as file:
            now = _version(file)
            version, known = self._hashes.get(place, ((), ""))
            if version == now:
                return known
            known = hashlib.file_digest(file, "sha256").hexdigest()
            if _version(file) != now:
                raise OSError(f"{place} is being written")
            self._hashes[place] = (now, known)
            return known


class Download(web.FileResponse):
    """A file; `told` hears when its sending begins (1) and ends (-1). Its taker may be slow, but not for ever."""

    def __init__(self, found: tuple[Path, int], told: Callable[[int], None]) -> None:
        place, size = found
        super().__init__(place, headers={"Content-Type": "application/octet-stream"})
        self._seconds, self._told = STALLED + size / SLOWEST, told

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        self._told(1)
        try:
            _end_if_stalled(request)
            with keep_open(request):
                async with asyncio.timeout(self._seconds):
                    return await super().prepare(request)  # this sends it
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError("it was taken too slowly") from None
        finally:
            self._told(-1)


def _end_if_stalled(request: web.BaseRequest) -> None:
    """The kernel ends a connection whose other side takes nothing, where the system has that."""
    connection = request.get_extra_info("socket")
    if connection is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(STALLED * 1000))


def _version(file: BinaryIO) -> tuple[int, ...]:
    """Another one whenever the file was written."""
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
