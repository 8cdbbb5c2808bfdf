"""Minute series: exact sums, blocks that survive a restart, bounded space."""

from __future__ import annotations

import asyncio
import random
from sys import getsizeof

import pytest

from penstock.broker.series import DAY, HOUR, MINUTE_MS, Series, group_key
from penstock.broker.series_block import COLUMNS, NO_LATENCIES, BadBlock, SeriesBlock, StoredBlock
from penstock.runtime.latencies import Latencies

START = 29_916_800 // DAY * DAY
"""A minute at which a day begins."""


class Blocks:
    """Blocks in memory, as a directory would keep them."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def names(self) -> list[str]:
        return list(self.files)

    def load(self, name: str) -> bytes | None:
        return self.files.get(name)

    def save(self, name: str, data: bytes) -> None:
        self.files[name] = data

    def remove(self, name: str) -> None:
        del self.files[name]


class FakeQueue:
    def __init__(self, path: str):
        self.path = path
        self.number = 1
        self.groups = {"default": 7}


class FakeShard:
    """A shard with one queue, whose counters the test sets."""

    def __init__(self) -> None:
        self.minute = START
        self.totals = {"published": 0, "delivered": 0, "acked": 0, "dead_lettered": 0}
        self.depth = 0
        self.finished = 0
        self.waits = Latencies()
        self.latencies = Latencies()
        self.only = FakeQueue("default/default/orders")
        self.counters = self

    def now_ms(self) -> int:
        return self.minute * MINUTE_MS

    def queues(self):
        return [self.only]

    def queue_numbered(self, number):
        return self.only

    def work(self, queue, group, now_ms):
        return self

    def of(self, queue):
        return self

    def row(self, queue):
        from penstock.broker.types import QueueRow

        return QueueRow(queue.path, "fifo", 0, self.depth, self.depth, 0, 0, 0, 0, dict(self.totals), {})

    def backlog(self, queue, group):
        return {"lag": self.depth, "ready": self.depth, "leased": 0, "scheduled": 0}

    def publish(self, count: int) -> None:
        self.totals["published"] += count
        self.depth += count


def run(story) -> None:
    asyncio.run(story())


async def opened(shard: FakeShard, blocks: Blocks) -> Series:
    series = Series(shard, shard)
    await series.start(blocks)
    assert series._task is not None
    series._task.cancel()
    return series


def test_every_message_is_counted_in_its_minute():
    async def story():
        shard, blocks = FakeShard(), Blocks()
        series = await opened(shard, blocks)
        counts = [random.Random(1).randrange(50) for _ in range(90)]
        for count in counts:
            shard.publish(count)
            shard.finished += 1
            await series.sample(shard.minute)
            shard.minute += 1
        for key in (shard.only.path, ""):
            found = await series.read(key, START * MINUTE_MS, shard.now_ms() - MINUTE_MS)
            assert found["series"]["published"] == counts and found["step_ms"] == MINUTE_MS
            assert found["series"]["depth"][-1] == sum(counts)
            assert found["at_ms"][0] == START * MINUTE_MS
        group = await series.read(group_key(shard.only.path, "default"), START * MINUTE_MS, shard.now_ms() - MINUTE_MS)
        assert sum(group["series"]["acked"]) == 90
        assert series.recent(shard.only.path) == counts[-60:]

    run(story)


def test_history_survives_a_restart_and_the_sums_of_a_month_are_exact():
    async def story():
        shard, blocks = FakeShard(), Blocks()
        published = 0
        for _ in range(3):
            series = await opened(shard, blocks)
            shard.totals["published"] = 0  # the counters of a new process start at zero
            series._seen.clear()
            for _ in range(HOUR + 10):
                shard.publish(3)
                published += 3
                await series.sample(shard.minute)
                shard.minute += 1
            await series._save(series._hour)
        series = await opened(shard, blocks)
        day = await series.read(shard.only.path, START * MINUTE_MS, shard.now_ms())
        assert sum(filter(None, day["series"]["published"])) == published == 3 * 3 * (HOUR + 10)
        shard.minute += 3 * DAY
        await series.sample(shard.minute)
        month = await series.read(shard.only.path, START * MINUTE_MS, (START + DAY) * MINUTE_MS)
        assert month["step_ms"] == 10 * MINUTE_MS
        assert sum(filter(None, month["series"]["published"])) == published
        kept = [int(name[2:]) for name in blocks.files if name.startswith("m")]
        assert all(start >= shard.minute - 48 * HOUR for start in kept)

    run(story)


def test_minutes_in_which_nothing_was_recorded_are_unknown():
    async def story():
        shard = FakeShard()
        series = await opened(shard, Blocks())
        shard.publish(1)
        await series.sample(START)
        shard.minute = START + 5
        await series.sample(START + 5)
        found = await series.read(shard.only.path, START * MINUTE_MS, (START + 5) * MINUTE_MS)
        assert found["series"]["published"] == [1, None, None, None, None, 0]

    run(story)


@pytest.mark.parametrize("damage", ["cut", "flipped", "foreign"])
def test_damaged_block_is_left_out(damage):
    async def story():
        shard, blocks = FakeShard(), Blocks()
        series = await opened(shard, blocks)
        shard.publish(5)
        await series.sample(START)
        await series._save(series._hour)
        (name,) = blocks.files
        data = bytearray(blocks.files[name])
        blocks.files[name] = bytes({"cut": data[:20], "flipped": data[:-3] + b"???", "foreign": b"not a block"}[damage])
        series = await opened(shard, blocks)
        found = await series.read(shard.only.path, START * MINUTE_MS, START * MINUTE_MS)
        assert found["series"]["published"] == [None]

    run(story)


def test_block_has_the_values_that_were_put():
    dice = random.Random(2)
    block = SeriesBlock(START, 1, HOUR)
    rows = {minute: tuple(dice.randrange(2**40) for _ in COLUMNS) for minute in range(START, START + HOUR, 3)}
    for minute, values in rows.items():
        block.put("a/b/c", minute, values)
    stored = StoredBlock(block.encode())
    assert {row.minute: tuple(row.values) for row in stored.rows("a/b/c")} == rows
    assert not list(stored.rows("unknown"))
    assert stored.open().encode() == block.encode()
    with pytest.raises(BadBlock):
        StoredBlock(block.encode()[:8])


def test_space_of_500_busy_queues_and_their_groups_is_bounded():
    dice = random.Random(3)
    hour, day = SeriesBlock(START, 1, HOUR), SeriesBlock(START, 10, DAY // 10)
    for number in range(500):
        rate, depth = dice.randrange(5_000), dice.randrange(100_000)
        for block, step in ((hour, 1), (day, 10)):
            for at in range(0, block.count * step, step):
                wait, work = dice.randrange(1, 40), dice.randrange(1, 40)
                sums = (rate + dice.randrange(100), rate, rate, dice.randrange(3))
                gauges = (depth + dice.randrange(200), depth, 40, 0, 12)
                latencies = (wait, 2 * wait, 4 * wait, work, 2 * work, 4 * work)
                block.put(f"shop/orders/queue-{number}", START + at, (*sums, *gauges, *latencies))
                group = (0, 0, rate, 0, depth, depth, 40, 0, 0, -1, -1, -1, *latencies[3:])
                block.put(group_key(f"shop/orders/queue-{number}", "default"), START + at, group)
    on_disk = 48 * len(hour.encode()) + 31 * len(day.encode())
    assert on_disk <= 64 * 2**20, on_disk
    in_memory = 2 * sum(_bytes(rows) for rows in hour.keys.values())
    assert in_memory <= 8 * 2**20, in_memory


def _bytes(rows) -> int:
    arrays = [column for column in rows.columns if column is not None]
    return getsizeof(rows) + getsizeof(rows.columns) + getsizeof(rows.known) + sum(map(getsizeof, arrays))


def test_column_that_outgrows_four_bytes_keeps_its_values():
    block = SeriesBlock(START, 1, HOUR)
    for at, depth in enumerate((5, 2**31, 7)):
        block.put("q", START + at, (0, 0, 0, 0, depth, 0, 0, 0, 0, *NO_LATENCIES))
    assert [row.values[4] for row in StoredBlock(block.encode()).rows("q")] == [5, 2**31, 7]


def test_percentiles_of_a_minute_are_recorded_and_unknown_without_traffic():
    async def story():
        shard = FakeShard()
        series = await opened(shard, Blocks())
        shard.publish(100)
        for ms in range(1, 101):
            shard.waits.observe(ms, 1)
        shard.latencies.observe(9, 4)
        await series.sample(START)
        await series.sample(START + 1)
        until = (START + 1) * MINUTE_MS
        for key in (shard.only.path, ""):
            found = (await series.read(key, START * MINUTE_MS, until))["series"]
            assert 50 <= found["delivery_p50_ms"][0] <= 56 and 99 <= found["delivery_p99_ms"][0] <= 111
            assert found["ack_p50_ms"] == [9, None] and found["delivery_p95_ms"][1] is None
        group = (await series.read(group_key(shard.only.path, "default"), START * MINUTE_MS, until))["series"]
        assert group["ack_p99_ms"][0] == 9 and group["delivery_p50_ms"] == [None, None]

    run(story)


def test_groups_that_were_deleted_are_forgotten():
    async def story():
        shard, blocks = FakeShard(), Blocks()
        series = await opened(shard, blocks)
        for number in range(5):
            shard.only.groups = {"default": 7, f"group-{number}": 8 + number}
            await series.sample(shard.minute)
            shard.minute += HOUR
        await series.sample(shard.minute)
        keys = [group_key(shard.only.path, name) for name in ("default", "group-4")]
        assert set(series._seen) == {shard.only.path, *keys}

    run(story)
