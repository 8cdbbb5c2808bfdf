"""Requests that the server meets late, servers that do not answer, and owners that write nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import asynccontextmanager, suppress

import asyncpg
import pytest
from patience import until
from postgres_server import PostgresServer

from penstock.engines.postgres import address, session
from penstock.engines.postgres.engine import PostgresEngine
from penstock.engines.postgres.frames import FrameSizes
from penstock.errors import PenstockError
from penstock.journal.port import Ambiguous, Head, Misconfigured, StoreUnavailable
from penstock.testing.check_engine import opened, replayed, stop
from penstock.testing.inprocess import in_process


@asynccontextmanager
async def admin(server: PostgresServer):
    connection = await asyncpg.connect(server.dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def backends(connection, name: str) -> list[int]:
    rows = await connection.fetch("select pid from pg_stat_activity where application_name = $1", name)
    return [row["pid"] for row in rows]


@asynccontextmanager
async def stopped(connection, name: str):
    """The backends of this application name answer nothing until the end of the context, and read then what was sent
    to them."""
    pids = await backends(connection, name)
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        await until_gone(connection, pids)


async def until_gone(connection, pids: list[int]) -> None:
    left = 1
    while left:
        left = await connection.fetchval("select count(*) from pg_stat_activity where pid = any($1)", pids)


async def put_head(journal, number: int) -> Head:
    head = Head(f"snapshot-{number}", journal.tail.index)
    await journal.put_blobs([(head.snapshot, [b"state"])])
    await journal.commit_head(head)
    return head


def test_a_late_commit_does_not_move_the_head_back(postgres, monkeypatch):
    monkeypatch.setattr(PostgresEngine, "_watch", lambda _: asyncio.sleep(0))

    async def run() -> None:
        engine = PostgresEngine(postgres.url())
        owner = await opened(engine)
        journal = owner.journal
        await put_head(journal, 1)  # afterwards the statement is prepared: a commit is a single request
        async with admin(postgres) as connection, stopped(connection, engine.name):
            late = asyncio.ensure_future(journal.commit_head(Head("snapshot-2", journal.tail.index)))
            await asyncio.sleep(0)
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(late), 0.2)
            for each in engine.sessions._all:
                each.drop()
            with pytest.raises(Ambiguous):
                await late
            last = await put_head(journal, 3)
        assert await journal.head() == last
        assert last == await put_head(journal, 3), "a commit may be repeated"
        await stop(engine, owner)

    asyncio.run(run())


def test_a_commit_whose_answer_was_lost_does_not_hinder_the_next_one(postgres, monkeypatch):
    async def run() -> None:
        engine = PostgresEngine(postgres.url())
        owner = await opened(engine)
        journal = owner.journal
        await put_head(journal, 1)
        replace = journal._replace_head

        async def without_answer(*arguments) -> bool:
            await replace(*arguments)
            raise ConnectionResetError("cut")

        monkeypatch.setattr(journal, "_replace_head", without_answer)
        with pytest.raises(Ambiguous):
            await put_head(journal, 2)
        monkeypatch.undo()
        last = await put_head(journal, 3)
        assert await journal.head() == last
        await stop(engine, owner)

    asyncio.run(run())


def test_a_delete_waits_for_a_put_that_is_being_committed(postgres):
    """The keyring of an erasure that failed must not appear behind its deletion."""

    async def run() -> None:
        engine = PostgresEngine(postgres.url())
        owner = await opened(engine)
        journal = owner.journal
        async with admin(postgres) as late, admin(postgres) as connection:
            outer = late.transaction()
            await outer.start()
            await journal._put("keyring-7", [b"keys"], late)
            deleting = asyncio.ensure_future(journal.delete_blobs(["keyring-7"]))
            waiting = 0
            while not waiting and not deleting.done():
                waiting = await connection.fetchval(
                    "select count(*) from pg_stat_activity where application_name = $1 and wait_event_type = 'Lock'",
                    engine.name,
                )
            await outer.commit()
            await deleting
        assert await journal.list_blobs("") == []
        await stop(engine, owner)

    asyncio.run(run())


@asynccontextmanager
async def silent_host():
    """Accepts connections and answers nothing."""
    connected: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: connected.append(writer), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in connected:
            writer.close()


@pytest.mark.parametrize("form", ["hosts", "parameters"])
def test_a_silent_host_is_passed_over(postgres, monkeypatch, form):
    monkeypatch.setattr(address, "CONNECT_S", 1.0)

    async def run() -> None:
        async with silent_host() as silent:
            url = postgres.url()
            if form == "hosts":
                url = url.replace("127.0.0.1:", f"127.0.0.1:{silent},127.0.0.1:")
            else:
                url = url.replace(f"127.0.0.1:{postgres.port}", "")
                url += f"&host=127.0.0.1,127.0.0.1&port={silent},{postgres.port}"
            engine = PostgresEngine(url)
            owner = await opened(engine)
            written = [await owner.append([b"stored"])]
            assert await replayed(owner.journal) == written
            assert str(postgres.port) in engine.address.hosts[0], "the host that works is tried first from now on"
            await stop(engine, owner)

    asyncio.run(run())


def test_hosts_that_all_fail_are_named_in_one_sentence(postgres, monkeypatch):
    async def run() -> None:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            url = postgres.url().replace(
                "postgres@127.0.0.1:", f"unknown@127.0.0.1:{closed.getsockname()[1]},127.0.0.1:"
            )
            with pytest.raises(StoreUnavailable, match=r"cannot connect.*; .*unknown"):
                await address.connect(address.parse(url), "test")
        url = postgres.url().replace("postgres@127.0.0.1:", f"unknown@127.0.0.1:{postgres.port},127.0.0.1:")
        with pytest.raises(Misconfigured, match="unknown"):
            await address.connect(address.parse(url), "test")

    asyncio.run(run())


def test_a_server_that_stops_in_a_transaction_does_not_hold_its_caller(postgres):
    async def run() -> None:
        engine = PostgresEngine(postgres.url())
        await engine.check()
        pids: list[int] = []

        async def stop_in_the_middle(connection) -> None:
            async with connection.transaction():
                pids.append(await connection.fetchval("select pg_backend_pid()"))
                os.kill(pids[0], signal.SIGSTOP)
                await connection.execute("select 1")

        try:
            run = asyncio.ensure_future(engine.sessions.run(stop_in_the_middle, 0.3))
            done, _ = await asyncio.wait([run], timeout=30)
        finally:
            os.kill(pids[0], signal.SIGCONT)
        assert done, "the call ends although the server does not answer"
        with pytest.raises(Ambiguous):
            await run
        await engine.close()

    asyncio.run(run())


def test_a_connection_check_without_an_answer_is_a_store_that_cannot_be_reached(postgres, monkeypatch):
    monkeypatch.setattr(session, "CHECK_S", 0.3)

    async def run() -> None:
        url = address.parse(postgres.url())

        async def wait_for_ever(connection) -> None:
            await connection.fetchval("select pg_sleep(3600)")

        async def be_cut(connection) -> None:
            await connection.execute("select pg_terminate_backend(pg_backend_pid())")

        async def be_refused(connection) -> None:
            await connection.execute("select 1/0")

        for check in (wait_for_ever, be_cut, be_refused):
            failing = session.Session(url, "test", check)
            with pytest.raises(StoreUnavailable, match="settings of PostgreSQL cannot be read"):
                await asyncio.wait_for(failing.connected(), 60)

    asyncio.run(run())


def test_a_replay_of_a_server_that_stops_ends(postgres, monkeypatch):
    monkeypatch.setattr("penstock.engines.postgres.journal.READ_S", 0.3)
    monkeypatch.setattr("penstock.engines.postgres.journal.READ_BYTES", 1)
    monkeypatch.setattr(PostgresEngine, "_watch", lambda _: asyncio.sleep(0))

    async def run() -> None:
        engine = PostgresEngine(postgres.url())
        owner = await opened(engine)
        await owner.append_some(3)
        frames = owner.journal.replay(0)
        await anext(frames)
        async with admin(postgres) as connection, stopped(connection, engine.name):
            with pytest.raises(StoreUnavailable, match="the journal cannot be read"):
                await asyncio.wait_for(anext(frames), 60)
            for each in engine.sessions._all:
                each.drop()
        await stop(engine, owner)

    asyncio.run(run())


def test_a_role_that_cannot_see_standbys_is_refused_by_name(postgres):
    async def run() -> None:
        async with admin(postgres) as connection:
            await connection.execute("create role blind login")
            url = postgres.url(ha="required").replace("postgres@", "blind@")
            await connection.execute(f"create schema {address.parse(url).schema} authorization blind")
        engine = PostgresEngine(url)
        with pytest.raises(Misconfigured, match="grant pg_read_all_stats to blind"):
            await engine.check()
        await engine.close()

    asyncio.run(run())


def test_an_owner_that_writes_nothing_notices_that_its_term_has_ended(postgres):
    async def run() -> None:
        url = postgres.url()
        async with in_process(lambda: PostgresEngine(url, watch_s=0.05)) as box:
            await box.publish("orders", b"before")
            await asyncio.sleep(0.2)
            assert not box.failures
            second = PostgresEngine(url)
            owner = await opened(second)
            await until(lambda: bool(box.failures))
            assert "another owner took it over" in box.failures[0] and box.host.loop.taken_over
            with pytest.raises(PenstockError):
                await box.publish("orders", b"zombie")
            await stop(second, owner)

    asyncio.run(run())


def test_an_owner_that_begins_new_terms_keeps_its_shard(postgres):
    async def run() -> None:
        engine = PostgresEngine(postgres.url(), watch_s=0.01)
        owner = await opened(engine)
        fenced: list[str] = []
        owner.journal.on_fenced = fenced.append
        for _ in range(30):
            await owner.journal.resolve()
            owner.go_on()
            await owner.append([b"more"])
        assert not fenced
        await stop(engine, owner)

    asyncio.run(run())


@pytest.mark.parametrize("final_snapshot", [True, False])
def test_a_shard_that_was_taken_over_can_be_closed(postgres, final_snapshot):
    async def run() -> None:
        url = postgres.url()
        async with in_process(lambda: PostgresEngine(url)) as box:
            await box.publish("orders", b"before")
            waiting = asyncio.ensure_future(box.lease("empty", wait_ms=3_600_000))
            second = PostgresEngine(url)
            owner = await opened(second)
            await box.stop(final_snapshot=final_snapshot)
            assert box.host.loop.failed and box.host.journal._closed
            with suppress(PenstockError):
                assert await waiting == []
            await stop(second, owner)
            await box.start()

    asyncio.run(run())


def test_sizes_of_frames_take_little_memory():
    sizes = FrameSizes()
    for index in range(1, 100_001):
        sizes.add(index, 200)
    kept = sum(each.itemsize * len(each) for each in (sizes._firsts, sizes._before, sizes._marks))
    assert kept <= 100_000
    for index in (1, 2, 50_000, 99_999, 100_000):
        assert 0 <= sizes.since(index) - 200 * (100_001 - index) < 4096 + 200
    assert sizes.since(100_001) == 0 and sizes.average == 200
    ends = [index for index, _ in sizes.ends(100_000)]
    assert len(ends) == 19 and ends == sorted(ends)
    for upto in (0, 10, 50_000, 99_999):
        sizes.drop(upto)
        assert 0 <= sizes.since(0) - 200 * (100_000 - upto) < 4096 + 200
        assert all(index >= upto for index, _ in sizes.ends(100_000))
    sizes.drop(100_000)
    assert sizes.since(0) == 0 and sizes.average == 1
    sizes.add(100_001, 5)
    assert sizes.since(0) == 5
