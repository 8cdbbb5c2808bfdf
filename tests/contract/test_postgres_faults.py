"""A broker on PostgreSQL whose server is killed, whose sessions are ended or cancelled, and which is taken over."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
from patience import until
from postgres_server import PostgresServer

from penstock.engines.postgres.engine import PostgresEngine
from penstock.errors import PenstockError
from penstock.journal.port import Ambiguous, Fenced, Head, ResolvableJournal
from penstock.runtime.node_memory import NodeMemory
from penstock.testing.check_engine import Owner, fenced, opened, replayed, stop
from penstock.testing.inprocess import in_process

SESSIONS = "select pid from pg_stat_activity where application_name like 'penstock%' and pid <> pg_backend_pid()"


@pytest.fixture
def own_server():
    """A server that a test may kill."""
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.close()


@asynccontextmanager
async def admin(server: PostgresServer):
    connection = await asyncpg.connect(server.dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def publish_until(box, stopped: asyncio.Event, acked: list[bytes]) -> None:
    number = 0
    while not stopped.is_set():
        payload = b"%d" % number
        try:
            await box.publish("orders", payload)
        except PenstockError:
            # The shard refuses commands while the store is away: surely not decided.
            await asyncio.sleep(0.01)
            continue
        acked.append(payload)
        number += 1
        await asyncio.sleep(0)


async def all_payloads(box) -> list[bytes]:
    found: list[bytes] = []
    while messages := await box.lease("orders", max=500):
        found += [message.payload for message in messages]
        await box.broker.messages.ack([message.receipt for message in messages])
    return found


async def check_load(url: str, disturb, **options) -> None:
    """Publish while faults happen: afterwards each acknowledged message is there, once, in order."""
    async with in_process(lambda: PostgresEngine(url), **options) as box:
        await box.publish("orders", b"first")
        stopped, acked = asyncio.Event(), list[bytes]()
        load = asyncio.ensure_future(publish_until(box, stopped, acked))
        await disturb(acked)
        count = len(acked)
        await until(lambda: len(acked) >= count + 20)
        stopped.set()
        await load
        assert not box.failures
        await box.restart(final_snapshot=False)
        assert await all_payloads(box) == [b"first", *acked]


def test_ended_sessions_lose_and_repeat_nothing(postgres):
    async def disturb(acked: list[bytes]) -> None:
        async with admin(postgres) as connection:
            for _ in range(20):
                count = len(acked)
                await until(lambda: len(acked) >= count + 3)  # noqa: B023
                await connection.execute(f"select pg_terminate_backend(pid) from ({SESSIONS}) s")

    asyncio.run(check_load(postgres.url(), disturb))


def test_a_killed_server_loses_and_repeats_nothing(own_server):
    async def disturb(acked: list[bytes]) -> None:
        for _ in range(4):
            count = len(acked)
            await until(lambda: len(acked) >= count + 10)  # noqa: B023
            await asyncio.to_thread(own_server.kill)
            await asyncio.to_thread(own_server.start)

    asyncio.run(check_load(own_server.url(), disturb))


def test_a_broker_works_with_little_memory(postgres):
    """Messages that are not in memory are fetched, sealed into blobs, and found after restarts."""

    async def run() -> None:
        url = postgres.url()
        options = {"memory": NodeMemory(2_000, 3_000_000), "segments_kept": 1, "segment_bytes": 60_000, "stored_ids": 1}
        async with in_process(lambda: PostgresEngine(url), **options) as box:
            sent = [b"%d" % number * 50 for number in range(1500)]
            for at in range(0, len(sent), 25):
                ids = [b"id-%d" % number for number in range(at, at + 25)]
                await box.publish("orders", *sent[at : at + 25], id=ids)
                if at % 200 == 0:
                    await box.host.upkeep.round()
            await box.host.upkeep.round()
            assert [name for name, _ in await box.host.journal.list_blobs("segment-")]
            assert await box.host.journal.first_kept() > 1
            await box.restart()
            again = await box.publish("orders", b"again", id=[b"id-7"])
            assert again.runs[0].duplicate
            assert await all_payloads(box) == sent
            await box.host.upkeep.round()
            await box.restart(final_snapshot=False)
            assert await all_payloads(box) == []

    asyncio.run(run())


async def synchronous_pair(primary: PostgresServer) -> PostgresServer:
    standby = PostgresServer(copy_of=primary)
    standby.start()
    async with admin(primary) as connection:
        await connection.execute("alter system set synchronous_standby_names = 'standby'")
        await connection.execute("select pg_reload_conf()")
        synchronous = 0
        while not synchronous:
            synchronous = await connection.fetchval(
                "select count(*) from pg_stat_replication where sync_state = 'sync'"
            )
    return standby


def test_a_cancelled_wait_for_the_standby_is_no_success(own_server):
    """The server answers INSERT 0 1 and a warning, although the standby does not have the frame."""

    async def run() -> None:
        standby = await synchronous_pair(own_server)
        try:
            engine = PostgresEngine(own_server.url(ha="required"))
            owner = await opened(engine)
            assert owner.journal.traits.durability == "replicated"
            await owner.append([b"before"])
            os.kill(standby._process.pid, signal.SIGSTOP)
            receivers = await asyncio.to_thread(stop_children, standby._process.pid)
            append = asyncio.ensure_future(owner.append([b"unknown"]))
            async with admin(own_server) as connection:
                waiting = None
                while waiting is None:
                    waiting = await connection.fetchval(
                        "select pid from pg_stat_activity where wait_event = 'SyncRep' and query like '%insert%'"
                    )
                    await asyncio.sleep(0.02)
                await connection.execute("select pg_cancel_backend($1)", waiting)
            with pytest.raises(Ambiguous):
                await append
            for pid in (*receivers, standby._process.pid):
                os.kill(pid, signal.SIGCONT)
            assert isinstance(owner.journal, ResolvableJournal)
            while True:
                try:
                    resolved = await owner.journal.resolve()
                    break
                except Ambiguous:
                    await asyncio.sleep(0.05)
            assert owner.journal.tail.index > resolved.found.index
            owner.go_on()
            await owner.append([b"after"])
            assert [one.frame[72:] for one in await replayed(owner.journal)] == [b"before", b"unknown", b"after"]
            await stop(engine, owner)
        finally:
            standby.close()

    asyncio.run(run())


def stop_children(parent: int) -> list[int]:
    children = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            os.kill(int(entry.name), signal.SIGSTOP)
            children.append(int(entry.name))
    return children


def test_a_promoted_standby_has_everything_that_was_acknowledged(own_server):
    async def run() -> None:
        standby = await synchronous_pair(own_server)
        try:
            url = own_server.url().replace(f":{own_server.port}/", f":{own_server.port},127.0.0.1:{standby.port}/")

            async def disturb(acked: list[bytes]) -> None:
                await until(lambda: len(acked) >= 30)
                await asyncio.to_thread(own_server.kill)
                await asyncio.to_thread(standby.promote)

            await check_load(url, disturb)
        finally:
            standby.close()

    asyncio.run(run())


def test_a_predecessor_whose_backend_is_stopped_does_not_delay_the_next_owner_for_long(postgres):
    """The new owner waits for the statement under way, then ends the session, and nothing lands behind its term."""

    async def run() -> None:
        url = postgres.url()
        first, second = PostgresEngine(url), PostgresEngine(url)
        zombie = await opened(first)
        written = [await zombie.append([b"before"])]
        async with admin(postgres) as connection:
            pid = await connection.fetchval(
                "select pid from pg_stat_activity where application_name = $1", zombie.journal._session.name
            )
        os.kill(pid, signal.SIGSTOP)
        append = asyncio.ensure_future(zombie.append([b"zombie"]))
        await asyncio.sleep(0.05)
        owner = await opened(second)
        written.append(await owner.append([b"after"]))
        os.kill(pid, signal.SIGCONT)
        with pytest.raises((Fenced, Ambiguous)):
            await append
        assert await replayed(owner.journal) == written
        with pytest.raises(Fenced):
            await zombie.journal.resolve()
        await stop(first, zombie)
        await stop(second, owner)

    asyncio.run(run())


def test_a_zombie_cannot_reuse_the_index_of_a_trimmed_frame(postgres):
    """The first frame of the next term stays, so the only index that the zombie would write is taken."""

    async def run() -> None:
        url = postgres.url()
        first, second = PostgresEngine(url), PostgresEngine(url)
        zombie = await opened(first)
        await zombie.append_some(5)
        owner = await opened(second)
        await owner.append_some(20)
        journal = owner.journal
        await journal.put_blobs([("snapshot-1", [b"state"])])
        await journal.commit_head(Head("snapshot-1", journal.tail.index - 1))
        await journal.trim(journal.tail.index - 1)
        kept = await second.sessions.run(
            lambda connection: connection.fetch(
                f"select idx from {second.address.schema}.frame where shard = 0 order by idx"
            )
        )
        assert [row["idx"] for row in kept] == [1, 7, journal.tail.index]
        await fenced(lambda: zombie.append([b"zombie"]))
        await stop(first, zombie)
        await stop(second, owner)

    asyncio.run(run())


def test_many_zombies_write_nothing_behind_a_new_term(postgres):
    """An owner that appends without a pause is taken over again and again."""

    async def run() -> None:
        url = postgres.url()
        engines = [PostgresEngine(url), PostgresEngine(url)]
        acked: list[bytes] = []

        async def write(owner: Owner, name: int) -> None:
            number = 0
            try:
                while True:
                    body = b"%d-%d" % (name, number)
                    await owner.append([body])
                    acked.append(body)
                    number += 1
            except Fenced:
                await owner.journal.close()

        writers = []
        for turn in range(40):
            owner = await opened(engines[turn % 2])
            writers.append(asyncio.ensure_future(write(owner, turn)))
            await asyncio.sleep(0.01)
        last = await opened(engines[0])
        await asyncio.gather(*writers)
        bodies, terms = [], []
        async for _, frame in last.journal.replay(0):
            terms.append(frame.term)
            bodies += [bytes(frame.body)] if frame.body else []
        assert terms == sorted(terms)
        assert bodies == acked or sorted(bodies) == sorted(acked)
        await last.journal.close()
        for engine in engines:
            await engine.close()

    asyncio.run(run())
