"""A list and a watch, as small as the keeper needs them: no cache of its own, everything again after a break.

The sandbox does not use hostler.kube here: it is what that is tested with.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Generic, TypeVar

import aiohttp
import msgspec

R = TypeVar("R")


class Meta(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    name: str
    uid: str = ""
    resource_version: str = "0"
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    deletion_timestamp: str | None = None

    @property
    def version(self) -> int:
        """Comparable since Kubernetes 1.35, which says so in its API conventions."""
        return int(self.resource_version or 0)


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _List(msgspec.Struct, Generic[R]):
    metadata: _ListMeta
    items: list[R]


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class Gone(Exception):
    """The watch ended; list again."""


def say(sentence: str) -> None:
    """One line in the part's log."""
    print(sentence, file=sys.stderr, flush=True)


async def follow(
    session: aiohttp.ClientSession,
    path: str,
    record: type[R],
    listed: Callable[[list[R]], None],
    changed: Callable[[str, R], None],
) -> None:
    """For ever: hand over the whole list, then each change, and begin again when the API server was away."""
    decode_list = msgspec.json.Decoder(_List[record])  # type: ignore[valid-type]
    decode = msgspec.json.Decoder(record)
    decode_event = msgspec.json.Decoder(_Event)

    async def once() -> None:
        async with session.get(path) as answer:
            answer.raise_for_status()
            found = decode_list.decode(await answer.read())
        listed(found.items)
        query = f"{path}?watch=1&allowWatchBookmarks=true&resourceVersion={found.metadata.resource_version}"
        async with session.get(query, timeout=aiohttp.ClientTimeout(total=None, sock_read=600)) as answer:
            answer.raise_for_status()
            async for line in lines(answer):
                event = decode_event.decode(line)
                if event.type == "ERROR":
                    raise Gone(bytes(event.object).decode(errors="replace"))
                if event.type != "BOOKMARK":
                    changed(event.type, decode.decode(event.object))

    await for_ever(path, once)


async def for_ever(what: str, once: Callable[[], Awaitable[None]]) -> None:
    """Again and again; an unreachable server is said once and waited for."""
    quiet = False
    while True:
        try:
            await once()
            quiet = False
        except (aiohttp.ClientError, TimeoutError, OSError, Gone) as error:
            if not quiet:
                say(f"{what}: {error!r}; trying again until it answers")
            quiet = True
        await asyncio.sleep(0.3)


async def lines(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The lines of a stream; blank ones are heartbeats and left out."""
    async for line in answer.content:
        if line.strip():
            yield line


async def patch(session: aiohttp.ClientSession, path: str, body: Any) -> bytes | None:
    """A merge patch; what the object is now, or None if it is gone."""
    headers = {"Content-Type": "application/merge-patch+json"}
    async with session.patch(path, data=msgspec.json.encode(body), headers=headers) as answer:
        text = await answer.read()
        if answer.status in (404, 409):
            return None
        answer.raise_for_status()
        return text
