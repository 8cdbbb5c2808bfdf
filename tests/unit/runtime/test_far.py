"""Delays and expiries far in the future: written to blobs and read in time, without a visible difference."""

from __future__ import annotations

import asyncio
import random
from functools import partial

import pytest

from penstock.core import snapshot
from penstock.core.advance import advance
from penstock.core.offsets.agenda import CHUNK_ENTRIES_MAX
from penstock.engines.local.engine import LocalEngine
from penstock.engines.memory import MemoryEngine
from penstock.errors import Unavailable
from penstock.ids import parse_queue, ulid_text
from penstock.journal.port import Damaged
from penstock.runtime import chunk_blobs, far
from penstock.runtime.far import agenda_blobs_of, read_chunk
from penstock.runtime.recovery import recover
from penstock.testing.inprocess import in_process

LATER = parse_queue("later")
HOUR_MS = 3_600_000
FAR = {"segments_kept": 1, "far_entries": 1}
"""Everything that is far is written at every round, and a round is when the test asks for one."""


def engines(path):
    memory = MemoryEngine()
    return {
        "memory": lambda: memory,
        "local": lambda: LocalEngine(str(path), fsync="never"),
    }


def in_memory(box) -> int:
    """Entries of the first partition's schedule."""
    entries, flats, _ = box.host.loop.shard.queues[1].partitions[0].schedule.copy()
    return len(entries) + sum(map(len, flats)) // 24


def digest(box) -> str:
    return snapshot.digest(box.host.loop.shard, partial(read_chunk, box.host.journal))


async def blobs(box) -> list[str]:
    return [name for name, _ in await box.host.journal.list_blobs("agenda-")]


@pytest.mark.parametrize("engine", ["memory", "local"])
def test_each_comes_when_it_is_due_through_rounds_and_restarts(tmp_path, engine):
    chance = random.Random(engine)

    async def run() -> None:
        async with in_process(engines(tmp_path)[engine], **FAR) as box:
            await box.broker.queues.put(LATER, {})
            await box.lease("later")
            due: dict[bytes, int] = {}
            for number in range(150):
                wait_ms = chance.choice((chance.randint(1, 10), chance.randint(70, 400), chance.randint(400, 9000)))
                name = b"%d" % number
                due[name] = box.clock.now_ms() + wait_ms * 60_000
                await box.publish("later", name, delay_ms=[wait_ms * 60_000])
                if number % 50 == 49:
                    await box.host.upkeep.round()
                if number % 75 == 74:
                    await box.restart(final_snapshot=number == 74)
            assert await blobs(box)
            assert in_memory(box) < 80
            while due:
                soonest = min(due.values())
                await box.advance(soonest - box.clock.now_ms() - 1)
                assert await box.lease("later") == [], "early"
                await box.advance(1)
                taken = await box.lease("later", max=100)
                assert {message.payload for message in taken} == {name for name, at in due.items() if at == soonest}
                await box.broker.messages.ack([message.receipt for message in taken])
                for message in taken:
                    del due[message.payload]
                if chance.random() < 0.1:
                    before = digest(box)
                    await box.host.upkeep.round()
                    assert digest(box) == before, "where entries lie is no part of the state"
                    await box.restart(final_snapshot=chance.random() < 0.5)
            await box.host.upkeep.round()
            assert await blobs(box) == [], "chunks without entries are removed"

    asyncio.run(run())


def test_far_entries_leave_memory_and_cancelled_ones_the_disk(tmp_path, monkeypatch):
    """A cancel does not look for its entry; what is void is dropped when it is more than half."""
    monkeypatch.setattr(far, "VOID_ENTRIES_MIN", 100)

    async def run() -> None:
        async with in_process(engines(tmp_path)["local"], **FAR) as box:
            ids = []
            for _ in range(4):
                waits = [HOUR_MS * (3 + row) for row in range(1000)]
                (stored,) = (await box.publish("later", *[b"x"] * 1000, delay_ms=waits)).runs
                ids += [stored.id + row for row in range(1000)]
            await box.host.upkeep.round()
            assert in_memory(box) < 100
            schedule = box.host.loop.shard.queues[1].partitions[0].schedule
            assert schedule.count == 4000
            cancelled, _ = await box.broker.scheduled.cancel(
                LATER, ids=[ulid_text(i) for i in ids[: len(ids) * 3 // 4]]
            )
            assert cancelled == 3000
            before = digest(box)
            for _ in range(3):
                await box.host.upkeep.round()
            assert schedule.count == 1000
            assert sum(chunk.entries for chunk in schedule.chunks()) + in_memory(box) == 1000
            assert digest(box) == before
            assert (await box.broker.stats.queue(LATER))["scheduled"] == 1000

    asyncio.run(run())


def test_many_small_blobs_become_one(tmp_path):
    async def run() -> None:
        async with in_process(engines(tmp_path)["local"], **FAR) as box:
            for number in range(40):
                await box.publish("later", b"x", delay_ms=[HOUR_MS * (3 + number)])
                await box.host.upkeep.round()
                assert len(await blobs(box)) <= chunk_blobs.SMALL_BLOBS_MAX + 2
            assert agenda_blobs_of(box.host.loop.shard.queues[1]) == {
                int(name.removeprefix("agenda-")) for name in await blobs(box)
            }

    asyncio.run(run())


def test_a_group_that_began_after_far_delays_were_over_begins_the_same_on_a_replay(tmp_path):
    async def run() -> None:
        async with in_process(engines(tmp_path)["local"], **FAR) as box:
            waits = [HOUR_MS * 2] * 5 + [HOUR_MS * 9] * 5
            await box.publish("later", *[b"%d" % row for row in range(10)], delay_ms=waits)
            await box.host.upkeep.round()
            assert in_memory(box) == 0
            await box.advance(3 * HOUR_MS)
            first = await box.lease("later", max=10)
            assert len(first) == 5
            before = digest(box)
            # Nothing but the old snapshot and the journal: the chunk is read once more, to know what the group skips.
            box.host.loop.shard, *_ = await recover(box.host.journal, bytes(16))
            advance(box.host.loop.shard, box.clock.now_ms(), partial(read_chunk, box.host.journal))
            assert digest(box) == before

    asyncio.run(run())


async def one_far_blob(path) -> str:
    async with in_process(engines(path)["local"], **FAR) as box:
        await box.publish("later", *[b"x"] * 200, delay_ms=[HOUR_MS * 3 + row for row in range(200)])
        await box.host.upkeep.round()
        (name,) = await blobs(box)
        return name


@pytest.mark.parametrize(("left", "found"), [(0, "is missing"), (100, "ends after 100 bytes")])
def test_a_shard_whose_blob_is_not_whole_does_not_open(tmp_path, left, found):
    async def run() -> None:
        name = await one_far_blob(tmp_path)
        path = tmp_path / "shard-0" / "blobs" / name
        data = path.read_bytes()
        path.unlink()
        if left:
            path.write_bytes(data[:left])
        with pytest.raises(Damaged, match=rf"{name}, offset \d+: due times are stored here, but the blob {found}"):
            async with in_process(engines(tmp_path)["local"], **FAR):
                pass

    asyncio.run(run())


def test_entries_that_changed_are_not_believed(tmp_path):
    async def run() -> None:
        name = await one_far_blob(tmp_path)
        path = tmp_path / "shard-0" / "blobs" / name
        data = bytearray(path.read_bytes())
        data[-5] ^= 1
        path.write_bytes(data)
        async with in_process(engines(tmp_path)["local"], **FAR) as box:
            with pytest.raises(Unavailable, match=rf"{name}, offset \d+: the checksum does not match"):
                await box.advance(4 * HOUR_MS)
            assert box.failures, "and the process ends"

    asyncio.run(run())


def test_a_crowded_hour_is_written_in_chunks(tmp_path):
    async def run() -> None:
        async with in_process(engines(tmp_path)["local"], **FAR) as box:
            count = 2 * CHUNK_ENTRIES_MAX + 100
            for start in range(0, count, 1000):
                rows = range(start, min(start + 1000, count))
                await box.publish("later", *[b"x" for _ in rows], delay_ms=[HOUR_MS * 3 + 2 * row for row in rows])
            await box.host.upkeep.round()
            schedule = box.host.loop.shard.queues[1].partitions[0].schedule
            assert max(chunk.entries for chunk in schedule.chunks()) == CHUNK_ENTRIES_MAX
            await box.advance(3 * HOUR_MS + 2 * count)
            assert len(await box.lease("later", max=10_000)) == count

    asyncio.run(run())
