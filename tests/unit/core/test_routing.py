"""Key -> partition: the same forever in each version, and recorded with the queue."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.core import commands, records, snapshot
from penstock.core.apply import apply
from penstock.core.config import parse_config
from penstock.core.routing import CURRENT, RENDEZVOUS, SLOTS, owners, partition_of
from penstock.core.state import Shard
from tests.unit.core.test_core_state import Machine

KEYS = [b"key-%d" % number for number in range(500)]


@pytest.mark.parametrize(
    ("key", "rendezvous", "slots"),
    [
        (b"", [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]),
        (b"a", [0, 0, 0, 6, 60, 105], [0, 0, 0, 7, 7, 131]),
        (b"user-42", [0, 0, 0, 4, 31, 31], [0, 1, 2, 5, 11, 124]),
        ("ключ".encode(), [0, 1, 1, 4, 4, 4], [0, 0, 0, 0, 50, 73]),
        (b"x" * 256, [0, 1, 2, 3, 59, 229], [0, 0, 0, 0, 35, 35]),
    ],
)
def test_a_key_has_its_partition_forever(key, rendezvous, slots):
    """Recorded with the first release of each version. If one changes, stored keys are in a wrong partition."""
    counts = (1, 2, 3, 8, 64, 256)
    assert [partition_of(key, count, RENDEZVOUS) for count in counts] == rendezvous
    assert [partition_of(key, count, SLOTS) for count in counts] == slots


@pytest.mark.parametrize("version", [RENDEZVOUS, SLOTS])
@pytest.mark.parametrize("count", [1, 2, 5, 16])
def test_a_partition_more_moves_only_the_keys_it_wins(version, count):
    moved = [key for key in KEYS if partition_of(key, count, version) != partition_of(key, count + 1, version)]
    assert all(partition_of(key, count + 1, version) == count for key in moved)
    assert 0 < len(moved) < 2.0 * len(KEYS) / (count + 1)


@pytest.mark.parametrize("version", [RENDEZVOUS, SLOTS])
def test_keys_are_spread_evenly(version):
    counts = [0] * 8
    for number in range(8_000):
        counts[partition_of(b"user-%d" % number, 8, version)] += 1
    assert max(counts) < 1_150 and min(counts) > 850


def test_every_partition_has_its_share_of_the_slots():
    for partitions in (1, 2, 3, 7, 100, 255, 256):
        counts = Counter(owners(partitions))
        assert len(counts) == partitions and max(counts.values()) - min(counts.values()) <= 1


def placed(machine: Machine) -> list[int]:
    homes: dict[int, int] = {}
    for run in machine.publish(len(KEYS), key=KEYS):
        homes |= dict.fromkeys(run.rows, run.partition)
    return [homes[row] for row in range(len(KEYS))]


def test_a_queue_keeps_the_version_that_it_was_created_with():
    """Through changes of its settings, growth, and a snapshot; a queue of an earlier release has the first one."""
    machine = Machine(partitions=4)
    earlier = Machine(partitions=4)
    earlier.shard = Shard()
    apply(earlier.shard, records.QueueConfigured(1, 1, "a/b/c", parse_config({"partitions": 4})))
    for each, version in ((machine, CURRENT), (earlier, RENDEZVOUS)):
        assert placed(each) == [partition_of(key, 4, version) for key in KEYS]
        each.submit(commands.ConfigureQueue("a/b/c", parse_config({"partitions": 6})))
        each.shard = snapshot.load(snapshot.dump(each.shard))
        assert placed(each) == [partition_of(key, 6, version) for key in KEYS]


def test_a_queue_that_is_created_again_has_the_current_version():
    machine = Machine(partitions=4)
    machine.shard = Shard()
    apply(machine.shard, records.QueueConfigured(1, 1, "a/b/c", parse_config({"partitions": 4})))
    machine.submit(commands.DeleteQueue(1))
    machine.submit(commands.ConfigureQueue("a/b/c", parse_config({"partitions": 4})))
    assert machine.shard.queues[2].routing == CURRENT
