"""Cancel and reschedule: the messages that they find, their reads, and races."""

from __future__ import annotations

import asyncio
import random

import pytest

from penstock.engines.local.engine import LocalEngine
from penstock.engines.memory import MemoryEngine
from penstock.errors import DiskFull, QueueNotFound, Unavailable
from penstock.ids import parse_queue, ulid_text
from penstock.testing.inprocess import in_process

LATER = parse_queue("later")
HOUR_MS = 3_600_000


def counted(box) -> list[int | str]:
    """Reads of the journal from now on."""
    journal, reads = box.host.loop.log.pieces._journal, []
    plain = journal.peek

    def peek(source: int | str, skip: int, length: int) -> bytes:
        reads.append(source)
        return plain(source, skip, length)

    journal.peek = peek
    return reads


async def keyed_delays(box, batches: int, size: int, **columns) -> None:
    for number in range(batches):
        rows = range(number * size, (number + 1) * size)
        keys = [b"user-%d" % (row % 997) for row in rows]
        await box.publish(
            "later", *[b"%d" % row for row in rows], key=keys, **{k: [v] * size for k, v in columns.items()}
        )


def test_a_message_that_is_named_twice_is_one_message():
    async def run() -> None:
        async with in_process(MemoryEngine) as box:
            reply = await box.publish("later", b"1", b"2", delay_ms=[HOUR_MS] * 2)
            first = ulid_text(reply.runs[0].id)
            count, results = await box.broker.scheduled.reschedule(
                LATER, ids=[first, first.lower()], delay_ms=2 * HOUR_MS
            )
            assert (count, results) == (1, [(first, "rescheduled"), (first.lower(), "rescheduled")])
            count, results = await box.broker.scheduled.cancel(LATER, ids=[first, "0" * 26, first])
            assert (count, results) == (1, [(first, "cancelled"), ("0" * 26, "not_found"), (first, "cancelled")])
            assert (await box.broker.scheduled.cancel(LATER, ids=["x"]))[1] == [("x", "not_found")]

    asyncio.run(run())


@pytest.mark.parametrize("order", ["fifo", "heap"])
def test_a_group_that_begins_behind_a_delayed_message_has_no_say_in_it(order):
    async def run() -> None:
        async with in_process(MemoryEngine) as box:

            async def given(**options: str) -> list[bytes]:
                reply = await box.broker.messages.lease(LATER, max=9, **options)
                return [payload for run in reply.runs for payload in run.batch.payloads()]

            await box.broker.queues.put(LATER, {"order": order})
            assert await given() == []
            reply = await box.publish("later", b"1", b"2", b"3", delay_ms=[HOUR_MS] * 3)
            ids = [ulid_text(reply.runs[0].id + row) for row in range(3)]
            assert await box.broker.groups.begin(LATER, "audit", offset="latest")
            assert (await box.broker.scheduled.cancel(LATER, ids=ids[:1]))[0] == 1
            assert (await box.broker.scheduled.reschedule(LATER, ids=ids[1:2], delay_ms=1_000))[0] == 1
            await box.advance(2_000)
            assert await given() == [b"2"]
            await box.advance(HOUR_MS)
            assert await given() == [b"3"]
            assert await given(group="audit") == []
            await box.publish("later", b"4")
            assert [
                run.batch.payloads() for run in (await box.broker.messages.lease(LATER, group="audit", max=9)).runs
            ] == [[b"4"]]

    asyncio.run(run())


@pytest.mark.parametrize("rounds", [0, 1])
def test_delayed_messages_are_found_by_key_where_they_lie(rounds):
    """Not by looking through everything: of a hundred batches those are read that hold the key."""

    async def run() -> None:
        memory = MemoryEngine()
        async with in_process(lambda: memory, hot_bytes=0, segments_kept=1) as box:
            await keyed_delays(box, 100, 50, delay_ms=HOUR_MS)
            for _ in range(2 * rounds):
                await box.host.upkeep.round()
                await box.restart()
            reads = counted(box)
            count, results = await box.broker.scheduled.cancel(LATER, key="user-5")
            assert (count, len(results)) == (6, 6), "offsets 5, 1002, 1999, 2996, 3993, 4990"
            assert len(reads) <= 6
            assert (await box.broker.scheduled.cancel(LATER, key="user-5"))[0] == 0
            assert (await box.broker.scheduled.cancel(LATER, key="nobody")) == (0, [])

    asyncio.run(run())


def test_messages_that_wait_for_nothing_are_read_once_for_all_keys():
    async def run() -> None:
        async with in_process(hot_bytes=0) as box:
            await keyed_delays(box, 20, 50)
            reads = counted(box)
            assert (await box.broker.scheduled.cancel(LATER, key="user-1"))[0] == 2
            assert len(reads) <= 20
            reads.clear()
            assert (await box.broker.scheduled.cancel(LATER, key="user-2"))[0] == 2
            assert len(reads) <= 2

    asyncio.run(run())


def test_keys_are_found_whatever_was_published_beside_them():
    """Batches with and without keys and delays, in pieces of many records; finished ones are left out."""
    chance = random.Random(3)

    async def run() -> None:
        async with in_process(hot_bytes=0, segments_kept=1, segment_bytes=20_000) as box:
            wanted: dict[bytes, set[str]] = {}
            for _ in range(300):
                count = chance.randint(1, 4)
                columns = {}
                if chance.random() < 0.5:
                    columns["delay_ms"] = [chance.choice((0, HOUR_MS)) for _ in range(count)]
                keys = [b"k%d" % chance.randint(0, 20) for _ in range(count)] if chance.random() < 0.7 else None
                if keys:
                    columns["key"] = keys
                (run,) = (await box.publish("later", *[b"x"] * count, **columns)).runs
                for row, key in enumerate(keys or ()):
                    wanted.setdefault(key, set()).add(ulid_text(run.id + row))
                if chance.random() < 0.1:
                    for message in await box.lease("later", max=5):
                        await box.broker.messages.ack([message.receipt])
                        for ids in wanted.values():
                            ids.discard(message.id)
                if chance.random() < 0.02:
                    await box.host.upkeep.round()
                if chance.random() < 0.1 and wanted:
                    key = chance.choice(sorted(wanted))
                    _, results = await box.broker.scheduled.cancel(LATER, key=key.decode())
                    assert {result.id for result in results} == wanted[key]
                    assert {result.status for result in results} <= {"cancelled"}
                    wanted[key] = set()

    asyncio.run(run())


@pytest.mark.parametrize("final_snapshot", [True, False])
@pytest.mark.parametrize("rounds", [0, 1])
def test_a_cancel_that_was_answered_wins_also_after_a_restart(tmp_path, final_snapshot, rounds):
    """Also of what lies in blobs by then, and also if it was moved before."""
    chance = random.Random(f"{final_snapshot} {rounds}")

    async def run() -> None:
        engine = lambda: LocalEngine(str(tmp_path), fsync="never")  # noqa: E731
        async with in_process(engine, segments_kept=1, far_entries=1) as box:
            waits = [chance.choice((1000, HOUR_MS, 3 * HOUR_MS, 1000 * HOUR_MS)) for _ in range(200)]
            (stored,) = (await box.publish("later", *[b"%d" % row for row in range(200)], delay_ms=waits)).runs
            ids = [ulid_text(stored.id + row) for row in range(200)]
            await box.broker.scheduled.reschedule(LATER, ids=ids[::3], delay_ms=2 * HOUR_MS)
            for _ in range(rounds):
                await box.host.upkeep.round()
            moved, _ = await box.broker.scheduled.reschedule(LATER, ids=ids[::5], delay_ms=7 * HOUR_MS)
            cancelled, results = await box.broker.scheduled.cancel(LATER, ids=ids[::2])
            assert (moved, cancelled) == (40, 100)
            await box.restart(final_snapshot=final_snapshot)
            await box.advance(2000 * HOUR_MS)
            delivered = {message.id for message in await box.lease("later", max=1000)}
            assert delivered == set(ids) - {result.id for result in results}

    asyncio.run(run())


# -- the end of a time to live -----------------------------------------------------------------------------------------


def test_message_that_expired_while_leased_is_not_redelivered():
    async def run() -> None:
        async with in_process() as box:
            await box.broker.queues.put(LATER, {"ttl_ms": 1_000, "lease_ms": 60_000, "backoff": {"kind": "none"}})
            await box.publish("later", b"nacked", b"released", b"acked")
            nacked, released, acked = await box.lease("later", max=3)
            await box.advance(1_500)
            waiting = asyncio.ensure_future(box.broker.messages.lease(LATER, wait_ms=60_000))
            await asyncio.sleep(0)
            assert [result.status for result in await box.broker.messages.ack([acked.receipt])] == ["acked"]
            await box.broker.messages.nack([nacked.receipt])
            await box.broker.messages.release([released.receipt])
            assert await box.lease("later", max=3) == []
            assert (await box.broker.stats.queue(LATER))["depth"] == 0
            assert not waiting.done()
            waiting.cancel()

    asyncio.run(run())


# -- publishes that are refused ----------------------------------------------------------------------------------------


def test_a_publish_that_is_refused_makes_no_queue():
    async def run() -> None:
        async with in_process() as box:
            box.host.journal.short_of_space = True
            with pytest.raises(DiskFull):
                await box.publish("new", b"x")
            box.host.journal.short_of_space = False
            box.broker.stop_waiting()
            with pytest.raises(Unavailable):
                await box.publish("new", b"x")
            with pytest.raises(QueueNotFound):
                box.broker.queues.get(parse_queue("new"))

    asyncio.run(run())


@pytest.mark.parametrize("merged_bits", [1, 2, 4])
def test_keys_are_found_in_blocks_that_grow_and_that_are_passed(monkeypatch, merged_bits):
    """With blocks of 16 offsets: sorted while they fill, merged, after a restart, and behind messages that are
    finished."""
    monkeypatch.setattr("penstock.runtime.key_lookup.SHIFT", 4)
    monkeypatch.setattr("penstock.runtime.key_lookup.BLOCK", 16)
    monkeypatch.setattr("penstock.runtime.key_lookup.RESORT", 5)
    monkeypatch.setattr("penstock.runtime.key_lookup.MERGED_BITS", merged_bits)
    chance = random.Random(4)

    async def run() -> None:
        memory = MemoryEngine()
        async with in_process(lambda: memory, hot_bytes=0, segments_kept=1, segment_bytes=20_000) as box:
            wanted: dict[int, set[str]] = {number: set() for number in range(12)}
            for step in range(120):
                keys = [chance.randrange(12) for _ in range(chance.randint(1, 6))]
                named = {"key": [b"k%d" % key for key in keys], "delay_ms": [HOUR_MS] * len(keys)}
                (run,) = (await box.publish("later", *[b"x"] * len(keys), **named)).runs
                for row, key in enumerate(keys):
                    wanted[key].add(ulid_text(run.id + row))
                if step % 3 == 0:
                    key = chance.randrange(12)
                    _, results = await box.broker.scheduled.cancel(LATER, key=f"k{key}")
                    assert {result.id for result in results} == wanted[key]
                    wanted[key] = set()
                if step % 40 == 39:
                    await box.host.upkeep.round()
                    await box.restart()
            assert await box.broker.scheduled.cancel(LATER, key="nobody") == (0, [])
            lookup = box.host.loop.log.keys
            (blocks,) = lookup._blocks.values()
            assert len(blocks) > 10
            each = {block.first: block for block in blocks.values()}
            assert lookup._sorted == sum(len(block.rows) for block in each.values())
            assert max(block.stop - block.first for block in each.values()) >= 16 << merged_bits

    asyncio.run(run())
