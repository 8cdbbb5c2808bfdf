"""Partitions are made when they are used, and a blank one cannot be changed by accident."""

from __future__ import annotations

import pytest

from penstock.core import snapshot
from penstock.core.config import QueueConfig
from penstock.core.state import Progress, Queue, Shard
from penstock.core.state.shard import BLANK


def test_iterating_makes_no_partition():
    queue = Queue(1, "a", QueueConfig(partitions=256))
    assert sum(partition.end for partition in queue.partitions) == 0 and queue.depth() == 0 and queue.empty
    assert list(queue.partitions.used()) == []


def test_asking_by_number_makes_the_partition():
    queue = Queue(1, "a", QueueConfig(partitions=4))
    queue.partitions[2].end = 7
    assert [partition.end for partition in queue.partitions] == [0, 0, 7, 0]
    assert [number for number, _ in queue.partitions.used()] == [2]
    assert len(queue.partitions.use_all()[1:]) == 3


def test_partitions_can_be_counted_from_the_end():
    queue = Queue(1, "a", QueueConfig(partitions=4))
    queue.partitions[-1].end = 5
    queue.partitions.append_blank()
    assert queue.partitions[3].end == 5 and len(queue.partitions) == 5 and queue.partitions.is_blank(4)
    for number in (5, -6):
        with pytest.raises(IndexError):
            queue.partitions[number]


def test_blank_partition_refuses_changes():
    with pytest.raises(AssertionError):
        BLANK.end = 1
    with pytest.raises(AssertionError):
        BLANK.progress[0] = Progress(0)


def test_blank_partitions_are_not_part_of_a_snapshot_and_make_no_difference():
    shard = Shard()
    shard.queues[1] = queue = Queue(1, "a", QueueConfig(partitions=64, order="heap"))
    shard.paths["a"] = 1
    queue.partitions[5].end = 3
    captured = snapshot.plain(snapshot.capture(shard))
    assert sum(values is not None for values in captured["queues"][0]["partitions"]) == 1
    before = snapshot.digest(shard)
    queue.partitions.use_all()
    assert snapshot.digest(shard) == before
