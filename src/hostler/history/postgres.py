"""The history in PostgreSQL, for years and for SQL: one table, written by the leader, read by any replica.

Nothing is stored twice, also if the answer to a write was lost. A connection that breaks is replaced with the next
call. What is raised tells no password: the URL is never part of a sentence.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

import asyncpg
import structlog

from hostler.history import schema
from hostler.history.model import STAYS_LIMIT, Entry, Stayed, Stored, What, id_order
from hostler.history.recorder import StoreFailed
from hostler.instant import Instant
from hostler.kube.client import Gate
from hostler.kube.errors import WriteRefused

if TYPE_CHECKING:
    Connection = asyncpg.pool.PoolConnectionProxy[asyncpg.Record]
    Pool = asyncpg.Pool[asyncpg.Record]

T = TypeVar("T")
CONNECT_SECONDS, CALL_SECONDS, LOAD_SECONDS = 5.0, 15.0, 120.0
CONNECTIONS = 3  # the leader writes on one; readers wait for the others
UNREADABLE_URL = (
    "HOSTLER_HISTORY_URL cannot be used: it must be postgresql://USER:PASSWORD@HOST/DATABASE, special characters of "
    "the password written as %XX, and files that its TLS options name must exist"
)
log = structlog.get_logger("hostler.history")


class PostgresHistory:
    def __init__(self, url: str, installation: str, days: float, gate: Gate, *, dry_run: bool = False) -> None:
        """`installation`: whose entries these are; operators that share a table have different ones."""
        self._url, self._installation, self._days, self._gate, self._dry_run = url, installation, days, gate, dry_run
        self._pool: Pool | None = None
        self.unreadable: dict[str, str] = {}
        self.loaded = True  # any replica may ask

    # -- reading

    async def load(self, stays_since: Instant = 0.0) -> Stored:
        """What to continue from; the table is made or brought up to date first, unless nothing may be written."""

        async def read(connection: Connection) -> Stored:
            if not await self._migrate(connection):
                return Stored()
            states = await connection.fetch(schema.LAST_STATES, self._installation)
            newest = await connection.fetch(schema.NEWEST, self._installation)
            stays = await connection.fetch(
                schema.STAYS, self._installation, _time(stays_since), What.TRANSITION, STAYS_LIMIT
            )
            last = {entry.id: entry for entry in map(_entry, (*states, *newest))}
            return Stored(
                tuple(last.values()),
                tuple(
                    Stayed(row["at"].timestamp(), row["key"], row["old_state"], row["duration"])
                    for row in reversed(stays)
                ),
            )

        return await self._call(read, LOAD_SECONDS)

    async def find(self, keys: Collection[str], since: Instant, most: int, capability: str = "") -> list[Entry]:
        """The newest entries about these layers (none given: about all), the newest first."""
        return await self._select(schema.FIND, _time(since), list(keys), capability, most)

    async def after(self, id: str, since: Instant, most: int) -> list[Entry]:
        """The entries that were recorded after that one, the oldest first; "": from the first one on."""
        return await self._select(schema.AFTER, _time(since), *(id_order(id) if id else (-1, -1)), most)

    async def look(self) -> None:
        """Raises StoreFailed if it cannot be reached, or its table is newer than this version. Changes nothing."""

        async def read(connection: Connection) -> None:
            await _version(connection)

        await self._call(read)

    async def _select(self, statement: str, *values: object) -> list[Entry]:
        async def read(connection: Connection) -> list[Entry]:
            if not await _version(connection):
                return []  # no leader has stored anything yet
            return [_entry(row) for row in await connection.fetch(statement, self._installation, *values)]

        return await self._call(read)

    # -- writing

    async def append(self, entries: Sequence[Entry]) -> None:
        """Store these; the same entries may be given again."""
        if self._dry_run:
            return
        self._may_write()
        columns = list(zip(*map(_row, entries), strict=True))

        async def insert(connection: Connection) -> list[asyncpg.Record]:
            new = await connection.fetch(schema.APPEND, self._installation, *columns)
            if len(new) == len(entries):
                return []
            return await connection.fetch(schema.THERE_ALREADY, self._installation, *columns[:2])

        given = {entry.id: _row(entry) for entry in entries}
        for row in await self._call(insert):
            if tuple(row) != given[f"{row['term']}.{row['counter']}"]:
                raise StoreFailed(
                    f"Another operator stores entries as {self._installation} in the same table; give each cluster a "
                    "HOSTLER_CLUSTER_NAME of its own"
                )

    async def prune(self, now: Instant) -> int:
        if self._dry_run:
            return 0
        self._may_write()
        oldest = _time(now - self._days * 86400)

        async def delete(connection: Connection) -> str:
            return await connection.execute(schema.PRUNE, self._installation, oldest, timeout=LOAD_SECONDS)

        return int((await self._call(delete, LOAD_SECONDS)).rpartition(" ")[2])  # "DELETE 12"

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.terminate()

    def _may_write(self) -> None:
        """The same gate as for every write: while paused, or without the lease, entries wait in memory."""
        if (refusal := self._gate()) is not None:
            raise WriteRefused(refusal)

    async def _migrate(self, connection: Connection) -> bool:
        """Bring the table up to date; False: there is none, and nothing may be written."""
        found = await _version(connection)
        if found == schema.VERSION or self._dry_run:
            return found > 0
        self._may_write()
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", schema.LOCK)
            found = await _version(connection)  # another leader may have been here
            for number, statements in enumerate(schema.MIGRATIONS[found:], found + 1):
                await connection.execute(statements)
                comment = schema.COMMENT.format(number)
                await connection.execute(f"COMMENT ON TABLE {schema.TABLE} IS '{comment}'")
        log.info("the table of the history is up to date", schema=schema.VERSION)
        return True

    # -- the connection

    async def _call(self, work: Callable[[Connection], Awaitable[T]], seconds: float = CALL_SECONDS) -> T:
        """Raises StoreFailed whatever goes wrong, without a cause: those may show the URL."""
        try:
            async with asyncio.timeout(seconds):
                pool = await self._connected()
                async with pool.acquire(timeout=CONNECT_SECONDS) as connection:
                    return await work(connection)
        except asyncpg.PostgresError as error:
            why = self._without_password(f"PostgreSQL refused: {error} ({error.sqlstate})")
        except (OSError, TimeoutError) as error:
            why = f"PostgreSQL at {self._host} does not answer ({_kind_of(error)})"
        except ValueError:  # also asyncpg's own for a URL that it cannot read
            why = UNREADABLE_URL
        except asyncpg.InterfaceError:
            why = f"the connection to PostgreSQL at {self._host} broke"
        raise StoreFailed(why)

    async def _connected(self) -> Pool:
        if self._pool is None:
            self._pool = await asyncpg.create_pool(
                self._url, min_size=0, max_size=CONNECTIONS, timeout=CONNECT_SECONDS, command_timeout=CALL_SECONDS,
                statement_cache_size=0,  # a pooler in between knows no prepared statements
                server_settings={"application_name": "hostler"},
            )  # fmt: skip
        return self._pool

    @property
    def _host(self) -> str:
        return urlsplit(self._url).hostname or "its socket"

    def _without_password(self, text: str) -> str:
        password = urlsplit(self._url).password
        for form in {password, unquote(password)} if password else ():
            text = text.replace(form, "***")
        return text


async def _version(connection: Connection) -> int:
    found = schema.version_of(await connection.fetchval(schema.READ_COMMENT))
    if found is None:
        raise StoreFailed(f"table {schema.TABLE} of that database was not made by Hostler")
    if found > schema.VERSION:
        raise StoreFailed(
            f"table {schema.TABLE} has schema {found}, and this version of Hostler knows {schema.VERSION}; run the "
            "newer version, or name another database"
        )
    return found


def _kind_of(error: Exception) -> str:
    return str(error) if isinstance(error, ssl.SSLError) else type(error).__name__


def _time(at: Instant) -> datetime:
    """To the millisecond, so that what is read is what was written."""
    return datetime.fromtimestamp(round(at, 3), UTC)


def _text(text: str) -> str:
    """What PostgreSQL takes: no zero byte and no half of a surrogate pair."""
    return text.replace("\x00", "").encode(errors="replace").decode()


def _row(entry: Entry) -> tuple[Any, ...]:
    """In the order of `schema.COLUMNS`."""
    texts = (entry.key, entry.what, entry.capability, entry.old, entry.new, entry.reason, entry.sentence)
    ends = (entry.operation, entry.result)
    return (*id_order(entry.id), _time(entry.at), *map(_text, texts), entry.duration, *map(_text, ends))


def _entry(row: asyncpg.Record) -> Entry:
    return Entry(
        f"{row['term']}.{row['counter']}", row["at"].timestamp(), row["key"], What(row["what"]), row["capability"],
        row["old_state"], row["new_state"], row["reason"], row["sentence"], row["duration"], row["operation"],
        row["result"],
    )  # fmt: skip
