"""Where messages are read one by one and out of order, what is read for each of them is small."""

from __future__ import annotations

import asyncio

import pytest

from penstock import limits
from penstock.batch import Batch, build, layout
from penstock.core import commands
from penstock.core.apply import apply
from penstock.core.config import QueueConfig
from penstock.core.decide import decide
from penstock.core.records import Published
from penstock.core.state import Shard
from penstock.engines.memory import MemoryEngine
from penstock.ids import parse_queue
from penstock.testing.inprocess import in_process

NOW = 1_760_000_000_000
PAYLOADS = [b"%04d" % number + bytes(200) for number in range(1000)]


def decided(config: QueueConfig, batch: Batch):
    shard = Shard()
    for record in decide(shard, commands.ConfigureQueue("a", config), NOW).records:
        apply(shard, record)
    publish = commands.Publish([commands.Part(1, batch)], 7, "p", 1, 100)
    decision = decide(shard, publish, NOW)
    for record in decision.records:
        apply(shard, record)
    return decision, decide(shard, publish, NOW + 1)


@pytest.mark.parametrize(
    "config", [QueueConfig(order="heap"), QueueConfig(order="lanes"), QueueConfig(ordered_keys=True)], ids=str
)
def test_a_large_batch_is_stored_as_small_records_and_answered_as_one(config):
    batch = Batch.open(build(PAYLOADS, columns={layout.PRIORITY: [row % 5 for row in range(1000)]}))
    decision, again = decided(config, batch)
    records = [record for record in decision.records if isinstance(record, Published)]
    assert all(len(record.batch.frame) <= limits.SCATTERED_RECORD_BYTES for record in records)
    assert [payload for record in records for payload in record.batch.payloads()] == PAYLOADS
    assert [record.batch.integers(layout.PRIORITY)[0] for record in records] == [r.offset % 5 for r in records]
    base = records[0]
    for record in records:
        at = record.offset - base.offset
        assert record.id == base.id + at and record.seqs == [100 + at, 100 + at + record.batch.count]
    (run,) = decision.reply
    assert (run.offset, run.count, run.id, run.duplicate) == (0, 1000, base.id, False)
    assert sum(each.count for each in again.reply) == 1000 and all(each.duplicate for each in again.reply)
    assert not again.records and again.reply[0].id == base.id


def test_what_is_read_in_order_stays_as_it_came():
    batch = Batch.open(build(PAYLOADS))
    decision, _ = decided(QueueConfig(), batch)
    (record,) = [record for record in decision.records if isinstance(record, Published)]
    assert record.batch is batch


def test_what_does_not_fit_at_all_is_stored_alone():
    batch = Batch.open(build([bytes(3 * limits.SCATTERED_RECORD_BYTES), b"small", b"small"]))
    decision, _ = decided(QueueConfig(order="heap"), batch)
    records = [record for record in decision.records if isinstance(record, Published)]
    assert [record.batch.count for record in records] == [1, 1, 1]


def test_they_come_out_in_their_order_also_after_a_restart():
    async def run() -> None:
        memory = MemoryEngine()
        async with in_process(lambda: memory) as box:
            await box.broker.queues.put(parse_queue("orders"), {"order": "heap"})
            await box.publish("orders", *PAYLOADS, priority=[-number for number in range(1000)])
            first = [message.payload for message in await box.lease("orders", max=500)]
            await box.restart()
            rest = [message.payload for message in await box.lease("orders", max=500)]
            assert first + rest == PAYLOADS[::-1]

    asyncio.run(run())
