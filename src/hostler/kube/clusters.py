"""Clients for further clusters, made at run time from kubeconfig Secrets and kept while they are of use."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec
import structlog

from hostler.errors import Complaint
from hostler.kube.client import Client
from hostler.kube.clock import Clock
from hostler.kube.config import ApiConnection, from_bytes
from hostler.kube.errors import ApiError, Forbidden, NotFound, Unreachable
from hostler.kube.kinds import SECRET
from hostler.kube.records import Secret

log = structlog.get_logger("hostler.clusters")

KEYS = ("value", "kubeconfig")  # Cluster API's name for it, and everybody else's
LARGEST = 64 * 1024
LARGEST_ANSWER = 16 << 20  # another party runs these API servers: one answer must not fill our memory
REFUSED = 60.0  # seconds for which a kubeconfig found wrong is not looked at again: a certificate may be valid by then
FRESH = 10.0  # seconds for which a Secret need not be read again
Name: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Unavailable:
    """There is no client for that cluster now; `why` is a sentence for a condition or an event.

    Where it quotes the kubeconfig, `discreet` is the same for readers who may not see that. `unread`: the hub did not
    show us the Secret, so nothing is known about the kubeconfig in it.
    """

    why: str
    discreet: str = ""
    unread: bool = False


@dataclass(slots=True)
class Entry:
    """One cluster's client, and who uses it."""

    client: Client
    connection: ApiConnection
    content: str  # a digest; the kubeconfig itself is not kept
    read: float
    used: float
    users: int = 0
    retired: bool = False
    rejections: int = field(default=0)


class Clusters:
    """The clients. A changed Secret makes a new client; the old one is closed when its last user is done."""

    def __init__(
        self,
        hub: Client,
        *,
        most: int = 64,
        idle: float = 600.0,
        clock: Clock = time.monotonic,
        timeout: float = 30.0,
        largest: int = LARGEST_ANSWER,
    ) -> None:
        self._hub, self._largest = hub, largest
        self._most, self._idle, self._clock, self._timeout = most, idle, clock, timeout
        self._entries: dict[Name, Entry] = {}
        self._refused: dict[
            Name, tuple[str, float, Unavailable]
        ] = {}  # which content, when, and what was wrong with it
        self._turns = tuple(asyncio.Lock() for _ in range(32))

    def __len__(self) -> int:
        return len(self._entries)

    @asynccontextmanager
    async def client(self, namespace: str, name: str) -> AsyncIterator[Client | Unavailable]:
        """The client of the cluster whose kubeconfig is in this Secret; it stays open inside the `async with`."""
        found = await self._find((namespace, name))
        if isinstance(found, Unavailable):
            yield found
            return
        found.users += 1
        try:
            yield found.client
        finally:
            found.users -= 1
            found.used = self._clock()
            if found.retired and not found.users:
                await found.client.close()

    async def sweep(self) -> None:
        """Close clients that were not used for a long time; call it now and then."""
        before = self._clock() - self._idle
        for name, entry in list(self._entries.items()):
            if not entry.users and entry.used < before:
                await self._retire(name, "unused")

    async def close(self) -> None:
        for name in list(self._entries):
            await self._retire(name, "stopping", at_once=True)

    # -- finding and making

    async def _find(self, name: Name) -> Entry | Unavailable:
        # Two callers of one new cluster make one client. A fixed row of locks: names come and go, the locks stay few.
        async with self._turns[hash(name) % len(self._turns)]:
            return await self._find_alone(name)

    async def _find_alone(self, name: Name) -> Entry | Unavailable:
        entry, now = self._entries.get(name), self._clock()
        if entry is not None and now - entry.read < FRESH and entry.connection.rejections == entry.rejections:
            return entry
        secret = await self._read(name)
        if isinstance(secret, Unavailable):
            return secret
        data = kubeconfig_in(secret)
        if isinstance(data, Unavailable):
            await self._retire(name, data.why)
            return data
        content = hashlib.sha256(data).hexdigest()
        if entry is not None and entry.content == content and name in self._entries:
            entry.read, entry.rejections = self._clock(), entry.connection.rejections
            return entry
        refused = self._refused.get(name)
        if refused is not None and refused[0] == content and now - refused[1] < REFUSED:
            return refused[2]
        return await self._make(name, data, content)

    async def _read(self, name: Name) -> Secret | Unavailable:
        where = f"Secret {name[0]}/{name[1]}"
        try:
            return await self._hub.get(SECRET, name[1], name[0], type=Secret)
        except NotFound:
            await self._retire(name, "its Secret is gone")
            return Unavailable(f"{where} with the kubeconfig does not exist.")
        except Forbidden:
            return Unavailable(f"we may not read {where}; grant `get` on it to our service account.", unread=True)
        except (ApiError, Unreachable, msgspec.MsgspecError) as error:
            return Unavailable(f"{where} cannot be read now: {error}.", unread=True)

    async def _make(self, name: Name, data: bytes, content: str) -> Entry | Unavailable:
        label = f"the kubeconfig in Secret {name[0]}/{name[1]}"
        await self._retire(name, "its Secret changed")
        if len(self._entries) >= self._most and not await self._make_room():
            return Unavailable(f"{self._most} other clusters are in use at once, which is the limit.")
        try:
            # In a thread: another party wrote this text, and YAML can be slow to parse.
            connection = await asyncio.to_thread(from_bytes, data, label)
        except Complaint as complaint:
            log.warning("a kubeconfig cannot be used", secret="/".join(name), why=str(complaint))
            discreet = f"{label} cannot be used; the operator's log says why."
            return self._refuse(name, content, Unavailable(str(complaint), discreet))
        now = self._clock()
        client = Client(connection, timeout=self._timeout, largest=self._largest)
        entry = Entry(client, connection, content, read=now, used=now)
        self._entries[name] = entry
        log.info("cluster connected", secret="/".join(name), server=connection.server)
        return entry

    def _refuse(self, name: Name, content: str, why: Unavailable) -> Unavailable:
        """Remember what is wrong with this content: reading it again at once would cost time and change nothing."""
        if len(self._refused) >= self._most:
            self._refused.pop(next(iter(self._refused)))
        self._refused[name] = (content, self._clock(), why)
        return why

    async def _make_room(self) -> bool:
        """Close the one unused for longest, if any is unused."""
        idle = [(entry.used, name) for name, entry in self._entries.items() if not entry.users]
        if not idle:
            return False
        await self._retire(min(idle)[1], "to make room")
        return True

    async def _retire(self, name: Name, why: str, *, at_once: bool = False) -> None:
        entry = self._entries.pop(name, None)
        if entry is None:
            return
        entry.retired = True
        log.info("cluster disconnected", secret="/".join(name), why=why)
        if at_once or not entry.users:
            await entry.client.close()


def kubeconfig_in(secret: Secret) -> bytes | Unavailable:
    """The kubeconfig's text in a Secret, under either name."""
    where = f"Secret {secret.metadata.namespace}/{secret.metadata.name}"
    for key in KEYS:
        if data := secret.data.get(key):
            if len(data) > LARGEST:
                return Unavailable(f"{where}: {key} is larger than {LARGEST // 1024} KiB, so it is no kubeconfig.")
            return data
    return Unavailable(f"{where} has neither `value` nor `kubeconfig` in it, one of which should be a kubeconfig.")
