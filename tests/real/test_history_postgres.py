"""The history in a real PostgreSQL: nothing twice, over lost connections, restarts, upgrades and two operators."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from hostler.history.model import Entry, Stayed, What
from hostler.history.postgres import PostgresHistory
from hostler.history.recorder import StoreFailed
from hostler.history.schema import TABLE, VERSION
from hostler.kube.errors import WriteRefused
from hostler.sandbox.certs import make_certificates
from tests.real.postgres_server import PASSWORD, PostgresServer, postgres_server

T = TypeVar("T")
DAY = 86400.0
AT = 1_700_000_000.0


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as found:
        found.start()
        yield found


@pytest.fixture
def database(server: PostgresServer, request: pytest.FixtureRequest) -> str:
    """The URL of a database of the test's own."""
    name = request.node.name.removeprefix("test_")[:60]
    server.run_sql(f"CREATE DATABASE {name}")
    return server.url(name)


def entry(place: int, *, key: str = "node:prod/a", at: float = AT, term: int = 1, state: str = "") -> Entry:
    what = What.TRANSITION if state else What.ACTION
    return Entry(
        f"{term}.{place}", at + place, key, what, "maintenance", "draining" if state else "", state, "PatchNode",
        "A sentence.", 2.5 if state else None, "maintenance/1", "ok",
    )  # fmt: skip


def store_of(url: str, name: str = "prod/hostler", days: float = 730.0) -> PostgresHistory:
    return PostgresHistory(url, name, days, lambda: None)


def run(url: str, work: Callable[[PostgresHistory], Coroutine[Any, Any, T]], name: str = "prod/hostler") -> T:
    async def with_store() -> T:
        store = store_of(url, name)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(with_store())


def test_what_is_stored_is_read_back_exactly(database: str) -> None:
    entries = [entry(1, state="stopped"), entry(2), Entry("1.3", AT + 0.125, "", What.GAP, sentence="ä\ud800\x00ö")]

    async def work(store: PostgresHistory) -> None:
        await store.load()
        await store.append(entries)
        await store.append(entries)  # it is not known whether the first call arrived
        found = await store.find((), 0.0, 10)
        assert found[1:] == [entries[1], entries[0]]
        assert found[0].sentence == "ä?ö"
        assert await store.find(["node:prod/a"], AT + 2, 10, "maintenance") == [entries[1]]
        assert [one.id for one in await store.after("1.1", 0.0, 1)] == ["1.2"]

    run(database, work)


def test_a_new_leader_continues_from_states_and_stays(database: str) -> None:
    async def work(store: PostgresHistory) -> None:
        assert (await store.load()).last == ()
        await store.append([entry(1, state="draining"), entry(2, state="stopped"), entry(3), entry(4, key="vm:vc/1")])
        stored = await store.load(AT)
        assert {one.id for one in stored.last} == {"1.2", "1.4"}
        assert stored.stays == tuple(Stayed(AT + place, "node:prod/a", "draining", 2.5) for place in (1, 2))

    run(database, work)


def test_beyond_the_days_only_the_last_state_stays(database: str) -> None:
    async def work() -> None:
        store = store_of(database, days=30)
        await store.load()
        await store.append([entry(1, state="draining"), entry(2, state="stopped"), entry(3)])
        await store.append([entry(4, at=AT + 40 * DAY)])
        assert await store.prune(AT + 41 * DAY) == 2
        assert [one.id for one in await store.after("", 0.0, 10)] == ["1.2", "1.4"]
        await store.close()

    asyncio.run(work())


def test_a_server_that_is_killed_and_back_loses_nothing(server: PostgresServer, database: str) -> None:
    async def work(store: PostgresHistory) -> None:
        await store.load()
        await store.append([entry(1)])
        server.kill()
        with pytest.raises(StoreFailed):
            await store.append([entry(2)])
        with pytest.raises(StoreFailed, match=r"PostgreSQL at 127\.0\.0\.1 does not answer"):
            await store.append([entry(2)])
        server.start()
        await store.append([entry(2)])
        assert [one.id for one in await store.after("", 0.0, 10)] == ["1.1", "1.2"]

    run(database, work)


def test_two_leaders_at_once_make_one_table(database: str) -> None:
    async def work() -> None:
        stores = [store_of(database) for _ in range(4)]
        await asyncio.gather(*(store.load() for store in stores))
        await asyncio.gather(*(store.append([entry(1), entry(2)]) for store in stores))
        assert len(await stores[0].find((), 0.0, 10)) == 2
        for store in stores:
            await store.close()

    asyncio.run(work())


def test_operators_share_a_table_under_names_of_their_own(database: str) -> None:
    other = Entry("1.1", AT, "node:stage/b", What.ACTION)

    async def first(store: PostgresHistory) -> None:
        await store.load()
        await store.append([entry(1)])

    async def second(store: PostgresHistory) -> list[Entry]:
        await store.load()
        await store.append([other])
        return await store.find((), 0.0, 10)

    run(database, first)
    assert run(database, second, "stage/hostler") == [other]
    with pytest.raises(StoreFailed, match="Another operator stores entries as prod/hostler"):
        run(database, second)


def test_a_newer_table_is_left_alone(server: PostgresServer, database: str) -> None:
    name = database.rpartition("/")[2]
    run(database, PostgresHistory.load)
    server.run_sql(f"COMMENT ON TABLE {TABLE} IS 'Hostler history, schema {VERSION + 1}'", name)
    with pytest.raises(StoreFailed, match=f"has schema {VERSION + 1}, and this version of Hostler knows {VERSION}"):
        run(database, PostgresHistory.load)
    server.run_sql(f"COMMENT ON TABLE {TABLE} IS 'Payroll'", name)
    with pytest.raises(StoreFailed, match="was not made by Hostler"):
        run(database, PostgresHistory.look)


def test_nothing_is_written_while_writes_are_stopped(server: PostgresServer, database: str) -> None:
    async def work() -> None:
        store = PostgresHistory(database, "prod/hostler", 30, lambda: "Paused by ann.")
        for attempt in (store.load(), store.append([entry(1)]), store.prune(AT)):
            with pytest.raises(WriteRefused, match="ann"):
                await attempt
        dry = PostgresHistory(database, "prod/hostler", 30, lambda: None, dry_run=True)
        assert (await dry.load()).last == ()
        await dry.append([entry(1)])
        assert await dry.find((), 0.0, 10) == []
        await store.close()
        await dry.close()

    asyncio.run(work())
    assert (
        server.run_sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", database.rpartition("/")[2]) == "0"
    )


def test_no_failure_tells_the_password(server: PostgresServer) -> None:
    urls = (
        server.url("no_such_database"),
        server.url(password=f"{PASSWORD}!"),
        server.url(options="?sslmode=verify-full&sslrootcert=/nowhere/ca.crt"),
        server.url(options="?sslmode=require"),
        server.url().replace("127.0.0.1", "no-such-host.invalid"),
        f"postgresql://hostler:{PASSWORD}@127.0.0.1:{server.port}/postgres",  # not written as %XX
    )
    for url in urls:
        with pytest.raises(StoreFailed) as failed:
            run(url, PostgresHistory.load)
        for part in ("s3cr3t", "odd", "unlikely"):
            assert part not in str(failed.value)
        assert failed.value.__cause__ is None
        assert failed.value.__context__ is None


def test_the_server_is_recognised_by_the_ca_in_the_url(server: PostgresServer, tmp_path: Path) -> None:
    make_certificates(tmp_path)
    server.stop()
    server.serve_tls((tmp_path / "apiserver.crt").read_bytes(), (tmp_path / "apiserver.key").read_bytes())
    server.start()
    trusted = f"?sslmode=verify-full&sslrootcert={tmp_path / 'ca.crt'}"
    run(server.url(options=trusted), PostgresHistory.look)
    other = tmp_path / "other"
    other.mkdir()
    make_certificates(other)
    with pytest.raises(StoreFailed, match="CERTIFICATE_VERIFY_FAILED"):
        run(server.url(options=f"?sslmode=verify-full&sslrootcert={other / 'ca.crt'}"), PostgresHistory.look)
