"""Space of the minute series of 500 busy queues with a group each."""

from __future__ import annotations

import random
from sys import getsizeof

from penstock.broker.series import DAY, HOUR, group_key
from penstock.broker.series_block import SeriesBlock


def series(*, quick: bool = False) -> None:  # noqa: ARG001
    dice, start = random.Random(3), 29_916_000
    hour, day = SeriesBlock(start, 1, HOUR), SeriesBlock(start, 10, DAY // 10)
    for number in range(500):
        rate, depth = dice.randrange(5_000), dice.randrange(100_000)
        for block in (hour, day):
            for at in range(0, block.count * block.step, block.step):
                wait, work = dice.randrange(1, 40), dice.randrange(1, 40)
                sums = (rate + dice.randrange(100), rate, rate, dice.randrange(3))
                gauges = (depth + dice.randrange(200), depth, 40, 0, 12)
                latencies = (wait, 2 * wait, 4 * wait, work, 2 * work, 4 * work)
                block.put(f"shop/orders/queue-{number}", start + at, (*sums, *gauges, *latencies))
                group = (0, 0, rate, 0, depth, depth, 40, 0, 0, -1, -1, -1, *latencies[3:])
                block.put(group_key(f"shop/orders/queue-{number}", "default"), start + at, group)
    on_disk = 48 * len(hour.encode()) + 31 * len(day.encode())
    in_memory = 2 * sum(
        getsizeof(rows) + getsizeof(rows.columns) + sum(getsizeof(each) for each in rows.columns if each is not None)
        for rows in hour.keys.values()
    )
    print(f"500 busy queues with a group each, 30 days: {on_disk / 2**20:.1f} MiB on disk (64)")
    print(f"two hours in memory: {in_memory / 2**20:.1f} MiB (8)")
