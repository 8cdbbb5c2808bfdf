"""A publish that is sent again is answered as it was the first time, however its messages were spread."""

from __future__ import annotations

from penstock.batch import Batch, build, layout
from penstock.core import commands, snapshot
from penstock.core.apply import apply
from penstock.core.config import QueueConfig
from penstock.core.decide import decide
from penstock.core.state import Shard

NOW = 1_760_000_000_000


def shard_with(*paths: str, partitions: int = 1) -> Shard:
    shard = Shard()
    for path in paths:
        ask(shard, commands.ConfigureQueue(path, QueueConfig(partitions=partitions)))
    return shard


def ask(shard: Shard, command, at: int = NOW):
    decision = decide(shard, command, at)
    for record in decision.records:
        apply(shard, record)
    return decision.reply


def keyed(count: int) -> Batch:
    return Batch.open(build([b"1"] * count, columns={layout.KEY: [b"key-%d" % row for row in range(count)]}))


def places(runs) -> dict[tuple[int, int], tuple[int, int, int, int]]:
    """(part, row) -> (queue, partition, offset, id)"""
    return {
        (run.part, row): (run.queue, run.partition, run.offset + at, run.id + at)
        for run in runs
        for at, row in enumerate(range(run.count) if run.rows is None else run.rows)
    }


def repeated(shard: Shard, publish: commands.Publish, at: int):
    runs = ask(shard, publish, at)
    assert all(run.duplicate for run in runs)
    return places(runs)


def test_a_keyed_batch_over_many_partitions_can_be_repeated():
    shard = shard_with("a", partitions=256)
    publish = commands.Publish([commands.Part(1, keyed(2_000))], 7, "p", 1, 0)
    first = places(ask(shard, publish))
    assert len(first) == 2_000
    assert repeated(shard, publish, NOW + 1) == first
    assert shard.queues[1].depth() == 2_000


def test_a_keyed_batch_can_be_repeated_after_many_others():
    shard = shard_with("a", partitions=3)
    publishes = [commands.Publish([commands.Part(1, keyed(100))], number, "p", 1, number * 100) for number in range(64)]
    first = [places(ask(shard, publish, NOW + at)) for at, publish in enumerate(publishes)]
    assert [repeated(shard, publish, NOW + 1_000) for publish in publishes] == first


def test_a_publish_that_goes_back_and_forth_between_queues_can_be_repeated():
    shard = shard_with("a", "b")
    parts = [commands.Part(1 + number % 2, keyed(1)) for number in range(500)]
    publish = commands.Publish(parts, 7, "p", 1, 0)
    first = places(ask(shard, publish))
    assert repeated(shard, publish, NOW + 1) == first


def test_repeated_publish_window_is_bounded_and_in_the_snapshot():
    shard = shard_with("a", partitions=2)
    publishes = [commands.Publish([commands.Part(1, keyed(5_000))], n, "p", 1, n * 5_000) for n in range(8)]
    for at, publish in enumerate(publishes):
        ask(shard, publish, NOW + at)
    again = snapshot.load(snapshot.dump(shard))
    assert snapshot.digest(again) == snapshot.digest(shard)
    (producer,) = shard.queues[1].dedup.producers.values()
    assert len(producer.runs) < 15_000
    last = commands.Publish([commands.Part(1, keyed(5_000))], 99, "p", 1, 99 * 5_000)
    for each in (shard, again):
        ask(each, last, NOW + 99)
    assert snapshot.digest(again) == snapshot.digest(shard), "both forget the same"
