"""Sealing, compaction, snapshots, trimming, retention: whatever the housekeeper does, exactly the wanted is there.

Files are tiny here, so that every few messages a round is due. The oracle is a dictionary.
"""

from __future__ import annotations

import asyncio
import random

import pytest
from patience import until

from penstock import limits
from penstock.core.commands import PurgeQueue
from penstock.engines.local.engine import LocalEngine
from penstock.engines.memory import MemoryEngine
from penstock.errors import Conflict, DiskFull
from penstock.ids import parse_queue
from penstock.journal.port import Damaged, OutOfSpace
from penstock.runtime import sealing
from penstock.runtime.stored import DamagedMessages
from penstock.testing.inprocess import in_process, messages

ORDERS = parse_queue("orders")
TINY = {"segment_bytes": 3000, "segments_kept": 1, "hot_bytes": 2000}
"""A round every three thousand bytes."""
ON_DEMAND = {"segments_kept": 1, "hot_bytes": 2000}
"""Rounds only when the test asks for one."""


def engines(path):
    memory = MemoryEngine()
    return {
        "memory": lambda: memory,
        "local": lambda: LocalEngine(str(path), fsync="never", segment_bytes=3000),
    }


async def everything_left(box, queue: str = "orders", group: str = "default") -> dict[int, bytes]:
    """Offset -> payload of whatever is still to be delivered, in any partition; leases it."""
    left = {}
    while leased := await box.lease(queue, max=7, group=group):
        left |= {(m.partition, m.offset): m.payload for m in leased}
    return left


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["memory", "local"])
@pytest.mark.parametrize("partitions", [1, 3])
def test_after_many_rounds_and_restarts_exactly_the_unacked_are_there(tmp_path, engine, partitions):
    chance = random.Random(f"{engine} {partitions}")

    async def run() -> None:
        wanted: dict[tuple[int, int], bytes] = {}
        async with in_process(engines(tmp_path)[engine], **TINY) as box:
            await box.broker.queues.put(
                ORDERS, {"partitions": partitions, "lease_ms": 1000, "backoff": {"kind": "none"}}
            )
            number = 0
            for life in range(4):
                for _ in range(60):
                    count = chance.randint(1, 6)
                    payloads = [b"%06d" % (number + row) + bytes(chance.randint(0, 200)) for row in range(count)]
                    number += count
                    keys = [b"key-%d" % chance.randint(0, 9) for _ in payloads]
                    reply = await box.publish("orders", *payloads, key=keys)
                    for run in reply.runs:
                        for row, position in enumerate(run.rows or range(count)):
                            wanted[run.partition, run.offset + row] = payloads[position]
                    for message in await box.lease("orders", max=chance.randint(1, 8)):
                        assert wanted[message.partition, message.offset] == message.payload
                        if chance.random() < 0.8:
                            await box.broker.messages.ack([message.receipt])
                            del wanted[message.partition, message.offset]
                assert box.host.upkeep.rounds > 0
                await box.restart(final_snapshot=life % 2 == 0)
            await box.advance(1001)  # what was leased and not acked comes back
            assert await everything_left(box) == wanted
            blobs = await box.host.journal.list_blobs("segment-")
            assert blobs, "nothing was ever sealed"

    asyncio.run(run())


@pytest.mark.parametrize("turns", range(6))
def test_a_round_that_has_just_become_due_does_not_outlive_a_stop(turns):
    async def run() -> None:
        async with asyncio.timeout(10), in_process(**TINY) as box:
            for _ in range(3):  # until the upkeep waits for something to do
                await box.publish("orders", b"1")
            await asyncio.sleep(0)
            box.host.loop.on_commit(TINY["segment_bytes"])
            for _ in range(turns):
                await asyncio.sleep(0)
            await box.host.upkeep.stop(final_snapshot=False)

    asyncio.run(run())


@pytest.mark.parametrize("engine", ["memory", "local"])
def test_what_is_acked_takes_no_room(tmp_path, engine):
    """A journal that has seen a hundred times its size is still small, and so are the segments."""

    async def run() -> None:
        async with in_process(engines(tmp_path)[engine], **ON_DEMAND) as box:
            await box.publish("orders", b"one that stays")
            (stays,) = await box.lease("orders")
            for number in range(300):
                await box.publish("orders", bytes(500), bytes(500))
                leased = await box.lease("orders", max=2)
                await box.broker.messages.ack([message.receipt for message in leased])
                if number % 10 == 9:
                    await box.host.upkeep.round()
            journal = box.host.journal
            segments = await journal.list_blobs("segment-")
            assert sum(size for _, size in segments) < 5_000, segments
            assert len(await journal.list_blobs("snapshot-")) == 1
            assert journal.tail.index - await journal.first_kept() < 100
            index = box.host.loop.log.indexes[1, 0]
            assert len(index) < 20
            await box.restart()
            await box.advance(31_000)
            await box.advance(2_000)
            (back,) = await box.lease("orders")
            assert (back.payload, back.attempt, back.id) == (b"one that stays", 2, stays.id)

    asyncio.run(run())


@pytest.mark.parametrize("engine", ["memory", "local"])
def test_a_group_that_begins_after_compaction_gets_what_is_left(tmp_path, engine):
    """Messages acked out of order lose their bytes before the log begins behind them."""

    async def run() -> None:
        async with in_process(engines(tmp_path)[engine], **ON_DEMAND) as box:
            for number in range(40):
                await box.publish("orders", b"%d" % number + bytes(300))
            leased = await box.lease("orders", max=40)
            kept = [leased[0], leased[17], leased[39]]
            await box.broker.messages.ack([message.receipt for message in leased if message not in kept])
            for _ in range(3):
                await box.host.upkeep.round()
            got = await box.lease("orders", group="late", max=100)
            assert [message.offset for message in got] == [0, 17, 39]
            # Kept from now on; what was let go before stays gone.
            await box.broker.queues.patch(ORDERS, {"retention": {"mode": "keep"}})
            got = await box.lease("orders", group="latest", max=100)
            assert [message.offset for message in got] == [0, 17, 39]
            assert [m.offset for m in messages((await box.broker.log.read(ORDERS, max=100)).runs)] == [0, 17, 39]

    asyncio.run(run())


def test_an_ack_that_found_no_room_while_a_round_was_at_work_costs_no_message():
    """Memory was ahead of the journal when the round began: it may throw away nothing by what never happened."""

    async def run() -> None:
        async with in_process(**ON_DEMAND) as box:
            await box.publish("first", b"whatever the round looks at before")
            await box.broker.queues.put(ORDERS, {"backoff": {"kind": "none"}})
            await box.publish("orders", b"acked, but not on the disk")
            (leased,) = await box.lease("orders")
            housekeeper, journal = box.host.upkeep, box.host.loop.journal
            append, yield_to_loop = journal.append, housekeeper._pace.yield_to_loop

            async def append_nothing(index, parts, **options):
                journal.append = append
                raise OutOfSpace("the disk is full")

            async def pause_while_the_disk_is_full():
                housekeeper._pace.yield_to_loop = yield_to_loop
                journal.append = append_nothing
                log = box.host.loop.log
                with pytest.raises(DiskFull):
                    await box.broker.messages.ack([leased.receipt])
                await until(lambda: box.host.loop.log is not log and not box.host.loop.without_room)
                await yield_to_loop()

            housekeeper._pace.yield_to_loop = pause_while_the_disk_is_full
            await housekeeper.round()
            assert journal.append is not append_nothing and housekeeper._pace.yield_to_loop is yield_to_loop
            await housekeeper.round()  # the next one begins with what is true
            for _ in range(2):
                await box.advance(31_000)
                (again,) = await box.lease("orders")
                assert (again.payload, again.offset) == (leased.payload, leased.offset)
                await box.restart()

    asyncio.run(run())


def test_a_large_segment_is_summed_up_in_small_steps(monkeypatch):
    """A request waits for one step of upkeep, not for megabytes."""
    since_a_breath = [0]
    longest = [0]

    class Watched(sealing.Seal):
        def add(self, part):
            since_a_breath[0] += len(part)
            longest[0] = max(longest[0], since_a_breath[0])
            super().add(part)

    monkeypatch.setattr(sealing, "Seal", Watched)

    async def run() -> None:
        async with in_process(**ON_DEMAND) as box:
            yield_to_loop = box.host.upkeep._pace.yield_to_loop

            async def watched_breathe():
                since_a_breath[0] = 0
                await yield_to_loop()

            box.host.upkeep._pace.yield_to_loop = watched_breathe
            for _ in range(30):
                await box.publish("orders", bytes(100_000))
            for _ in range(2):
                await box.host.upkeep.round()
            segments = await box.host.journal.list_blobs("segment-")
            assert sum(size for _, size in segments) > 3_000_000
            assert longest[0] < 2 * sealing.PART_BYTES

    asyncio.run(run())


# -- retention ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["memory", "local"])
def test_a_kept_log_outlives_its_acks_and_is_cut_by_age(tmp_path, engine):
    async def run() -> None:
        async with in_process(engines(tmp_path)[engine], **ON_DEMAND) as box:
            await box.broker.queues.put(ORDERS, {"retention": {"mode": "keep", "ms": 10_000}})
            for number in range(30):
                await box.publish("orders", b"%02d" % number + bytes(200))
                leased = await box.lease("orders")
                await box.broker.messages.ack([leased[0].receipt])
                await box.advance(1000)
            await box.host.upkeep.round()
            reply = await box.broker.log.read(ORDERS, max=100)
            kept = [message.payload[:2] for message in messages(reply.runs)]
            assert kept == [b"%02d" % number for number in range(20, 30)]
            assert (reply.start_offset, reply.end_offset, reply.next_offset) == (20, 30, 30)
            await box.restart()
            reply = await box.broker.log.read(ORDERS, max=100)
            assert [message.payload[:2] for message in messages(reply.runs)] == kept
            await box.advance(60_000)
            await box.host.upkeep.round()
            reply = await box.broker.log.read(ORDERS, max=100)
            assert (reply.runs, reply.start_offset, reply.end_offset) == ([], 30, 30)

    asyncio.run(run())


@pytest.mark.parametrize("engine", ["memory", "local"])
def test_a_kept_log_is_cut_by_size_and_leaves_what_is_in_hand(tmp_path, engine):
    async def run() -> None:
        async with in_process(engines(tmp_path)[engine], **ON_DEMAND) as box:
            await box.broker.queues.put(ORDERS, {"retention": {"mode": "keep", "bytes": 5_000}, "lease_ms": 1000})
            await box.publish("orders", b"in hand" + bytes(200))
            (held,) = await box.lease("orders")
            for number in range(60):
                await box.publish("orders", b"%02d" % number + bytes(198))
            await box.host.upkeep.round()
            reply = await box.broker.log.read(ORDERS, max=100)
            kept = [message.payload[:2] for message in messages(reply.runs)]
            assert kept == [b"%02d" % number for number in range(60 - len(kept), 60)], "the newest, without a gap"
            assert 5 <= len(kept) <= 25
            await box.broker.messages.nack([held.receipt], delay_ms=0)
            (again,) = await box.lease("orders")
            assert (again.offset, again.payload[:7], again.attempt) == (0, b"in hand", 2)

    asyncio.run(run())


@pytest.mark.parametrize("engine", ["memory", "local"])
def test_what_is_in_hand_does_not_count_against_what_is_kept(tmp_path, engine):
    """It is below the beginning of the log, and stored in one piece with what follows."""

    async def run() -> None:
        async with in_process(engines(tmp_path)[engine], **ON_DEMAND) as box:
            await box.broker.queues.put(ORDERS, {"retention": {"mode": "keep", "bytes": 700}})
            await box.publish("orders", b"in hand" + bytes(200))
            await box.lease("orders")
            for number in range(2):
                await box.publish("orders", b"%02d" % number + bytes(205))
            for _ in range(4):
                await box.host.upkeep.round()
            reply = await box.broker.log.read(ORDERS, max=100)
            assert [message.payload[:2] for message in messages(reply.runs)] == [b"00", b"01"]

    asyncio.run(run())


@pytest.mark.parametrize("engine", ["memory", "local"])
def test_a_snapshot_in_the_moment_of_a_purge_names_nothing_that_is_purged(tmp_path, engine):
    """The two share a frame. Purged messages are removed soon after, and a start that needs them would fail."""

    async def run() -> None:
        async with in_process(engines(tmp_path)[engine], **ON_DEMAND) as box:
            for number in range(40):
                await box.publish("orders", b"%02d" % number + bytes(300))
            for _ in range(3):
                await box.host.upkeep.round()
            loop = box.host.loop
            (queue,) = loop.shard.queues
            assert any(locator < 0 for locator in loop.log.indexes[queue, 0].locators), "some of it is sealed"
            upkeep = box.host.upkeep
            snapshot = upkeep._snapshot
            purging: list[asyncio.Future] = []

            async def purge_and_snapshot(sealed):
                purging.append(loop.submit(PurgeQueue(queue)))
                await snapshot(sealed)

            upkeep._snapshot = purge_and_snapshot
            await upkeep.round()
            await purging[0]
            await box.restart(final_snapshot=False)
            await box.publish("orders", b"next")
            assert list((await everything_left(box)).values()) == [b"next"]

    asyncio.run(run())


# -- damage ------------------------------------------------------------------------------------------------------------


async def with_blobs(path) -> list[bytes]:
    """Leaves a snapshot and sealed segments behind; the payloads that are still wanted."""
    async with in_process(engines(path)["local"], **ON_DEMAND) as box:
        for number in range(40):
            await box.publish("orders", b"%02d" % number + bytes(300))
        for _ in range(3):
            await box.host.upkeep.round()
    return [b"%02d" % number for number in range(40)]


async def read_all(path) -> list[bytes]:
    async with in_process(engines(path)["local"], **ON_DEMAND) as box:
        return [message.payload[:2] for message in messages((await box.broker.log.read(ORDERS, max=1000)).runs)]


def blobs(path, kind: str):
    return sorted((path / "shard-0" / "blobs").glob(f"{kind}-*"))


def test_a_damaged_snapshot_is_named(tmp_path):
    asyncio.run(with_blobs(tmp_path))
    (blob,) = blobs(tmp_path, "snapshot")
    clean = blob.read_bytes()
    for at in range(0, len(clean), max(1, len(clean) // 40)):
        data = bytearray(clean)
        data[at] ^= 1
        blob.write_bytes(data)
        with pytest.raises(Damaged, match=f"{blob.name}, offset"):
            asyncio.run(read_all(tmp_path))
    blob.write_bytes(clean[:-1])
    with pytest.raises(Damaged, match=blob.name):
        asyncio.run(read_all(tmp_path))
    blob.write_bytes(clean)
    assert len(asyncio.run(read_all(tmp_path))) == 40


def test_a_damaged_segment_is_named_and_never_served(tmp_path):
    expected = asyncio.run(with_blobs(tmp_path))
    blob = blobs(tmp_path, "segment")[0]
    clean = blob.read_bytes()
    refused = 0
    for at in range(0, len(clean), max(1, len(clean) // 60)):
        data = bytearray(clean)
        data[at] ^= 1
        blob.write_bytes(data)
        try:
            # The blob's own header and description are not needed for reading a message.
            assert asyncio.run(read_all(tmp_path)) == expected
        except DamagedMessages as error:
            assert blob.name in str(error)
            refused += 1
    assert refused > 40


def test_a_missing_segment_is_noticed_at_the_start(tmp_path):
    asyncio.run(with_blobs(tmp_path))
    blob = blobs(tmp_path, "segment")[0]
    data = blob.read_bytes()
    blob.write_bytes(data[:-1])
    with pytest.raises(Damaged, match=blob.name):
        asyncio.run(read_all(tmp_path))
    blob.unlink()
    with pytest.raises(Damaged, match=blob.name):
        asyncio.run(read_all(tmp_path))


def test_segments_of_a_deleted_queue_are_not_missed(tmp_path):
    """They are removed before the next snapshot says so, and the broker may die in between."""
    asyncio.run(with_blobs(tmp_path))

    async def delete_and_die() -> None:
        async with in_process(engines(tmp_path)["local"], **ON_DEMAND) as box:
            with pytest.raises(Conflict) as asked:
                await box.broker.queues.delete(ORDERS)
            await box.broker.queues.delete(ORDERS, confirm=asked.value.details["confirm"])
            await box.restart(final_snapshot=False)
            await until(lambda: not blobs(tmp_path, "segment"))
            await box.restart(final_snapshot=False)
            await box.publish("orders", b"a new life")
            assert [message.payload for message in await box.lease("orders")] == [b"a new life"]

    asyncio.run(delete_and_die())


def test_a_snapshot_of_another_history_is_noticed(tmp_path):
    """The journal was put back to an earlier copy and went on from there: the chain no longer fits the snapshot."""
    one, other = tmp_path / "one", tmp_path / "other"
    asyncio.run(with_blobs(one))

    async def another() -> None:
        async with in_process(engines(other)["local"], seed=2, **ON_DEMAND) as box:
            for number in range(60):
                await box.publish("orders", b"xx" + bytes(number))

    asyncio.run(another())
    for blob in blobs(other, "snapshot"):
        blob.unlink()
    (mine,) = blobs(one, "snapshot")
    (other / "shard-0" / "blobs" / mine.name).write_bytes(mine.read_bytes())
    with pytest.raises(Damaged, match=r"history|begins after|missing|lost"):
        asyncio.run(read_all(other))


@pytest.mark.parametrize("config", [{"order": "heap"}, {}])
def test_what_is_taken_one_by_one_is_sealed_in_small_records(config):
    """A record is read and checked as a whole. In order that is once for many messages; out of order, for each."""

    async def run() -> None:
        memory = MemoryEngine()
        async with in_process(lambda: memory, **ON_DEMAND) as box:
            await box.broker.queues.put(ORDERS, config)
            payloads = [b"%04d" % number + bytes(200) for number in range(1000)]
            await box.publish("orders", *payloads, priority=[-number for number in range(1000)])
            for _ in range(4):
                await box.publish("orders", b"more", priority=[5])
                await box.host.upkeep.round()
            index = box.host.loop.log.indexes[1, 0]
            assert index.locators[0] < 0, "sealed"
            assert (index.lengths[0] <= limits.SEALED_SCATTERED_BYTES + 200) == bool(config)
            await box.restart()
            got = [message.payload for message in await box.lease("orders", max=1000)]
            assert got == (payloads[::-1] if config else payloads)

    asyncio.run(run())
