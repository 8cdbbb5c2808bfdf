"""Transactions through the facade: all or nothing, and answered again if asked again."""

from __future__ import annotations

import pytest

from penstock import limits
from penstock.batch import Batch, build
from penstock.broker.types import PublishPart
from penstock.errors import Conflict, QueueFull, QueueNotFound, StaleReceipt, TooLarge
from penstock.ids import parse_queue
from tests.unit.broker.test_broker import with_broker

IN, OUT, AUDIT = parse_queue("in"), parse_queue("out"), parse_queue("audit")


def part(queue, *payloads: bytes) -> PublishPart:
    return PublishPart(queue, Batch.open(build(payloads)))


async def taken(box, count: int) -> list[str]:
    await box.publish("in", *[b"%d" % n for n in range(count)])
    return [message.receipt for message in await box.lease("in", max=count)]


@with_broker
async def test_all_of_it(box):
    receipts = await taken(box, 3)
    reply = await box.broker.messages.transact(receipts[:2], [part(OUT, b"1", b"2"), part(AUDIT, b"3")])
    assert reply.acked == receipts[:2] and reply.durable == box.host.journal.durable
    assert [(run.part, run.queue, run.offset, run.count, run.duplicate) for run in reply.runs] == [
        (0, OUT, 0, 2, False), (1, AUDIT, 0, 1, False),
    ]  # fmt: skip
    assert [message.payload for message in await box.lease("out", max=9)] == [b"1", b"2"]
    await box.restart(final_snapshot=False)
    assert [result.status for result in await box.broker.messages.ack(receipts)] == ["stale", "stale", "acked"]
    assert [message.payload for message in await box.lease("audit", max=9)] == [b"3"]


@with_broker
async def test_a_stale_receipt_refuses_everything_and_is_named(box):
    receipts = await taken(box, 3)
    await box.broker.messages.ack(receipts[1:2])
    with pytest.raises(StaleReceipt) as caught:
        await box.broker.messages.transact(receipts, [part(OUT, b"1")])
    assert caught.value.details == {"receipts": receipts[1:2]}
    with pytest.raises(QueueNotFound):
        box.broker.queues.get(OUT)
    await box.broker.queues.put(OUT, {})
    with pytest.raises(StaleReceipt):
        await box.broker.messages.transact([receipts[0], receipts[0]], [part(OUT, b"1")])
    with pytest.raises(StaleReceipt):
        await box.broker.messages.transact([receipts[0], "nonsense"], [part(OUT, b"1")])
    assert box.broker.queues.get(OUT)["depth"] == 0
    assert [result.status for result in await box.broker.messages.ack(receipts)] == ["acked", "stale", "acked"]


@with_broker(auto_create=False)
async def test_what_may_not_be_published_refuses_everything(box):
    await box.broker.queues.put(IN, {})
    await box.broker.queues.put(OUT, {"max_messages": 1, "max_payload_bytes": 10})
    receipts = await taken(box, 1)
    for parts, error in (
        ([part(OUT, b"1"), part(AUDIT, b"2")], QueueNotFound),
        ([part(OUT, b"1", b"2")], QueueFull),
        ([part(OUT, b"x" * 11)], TooLarge),
    ):
        with pytest.raises(error):
            await box.broker.messages.transact(receipts, parts)
    assert box.broker.queues.get(OUT)["depth"] == 0
    assert [result.status for result in await box.broker.messages.ack(receipts)] == ["acked"]


@with_broker
async def test_the_same_again_is_answered_as_the_first_time(box):
    receipts = await taken(box, 2)
    request = (receipts[:1], [part(OUT, b"1", b"2")])
    first = await box.broker.messages.transact(*request)
    for _ in range(2):
        again = await box.broker.messages.transact(*request)
        assert again.acked == first.acked
        assert [(run.id, run.offset, run.duplicate) for run in again.runs] == [
            (run.id, run.offset, True) for run in first.runs
        ]
        await box.restart()
    for other in ((receipts[:1], [part(OUT, b"1", b"3")]), (receipts, [part(OUT, b"1", b"2")])):
        with pytest.raises(StaleReceipt):
            await box.broker.messages.transact(*other)
    assert box.broker.queues.get(OUT)["depth"] == 2


@with_broker
async def test_it_is_known_by_the_name_of_a_queue_that_was_deleted_and_made_anew(box):
    receipts = await taken(box, 1)
    request = (receipts, [part(OUT, b"1")])
    first = await box.broker.messages.transact(*request)
    with pytest.raises(Conflict) as asked:
        await box.broker.queues.delete(OUT)
    await box.broker.queues.delete(OUT, confirm=asked.value.details["confirm"])
    for depth in (None, 1):
        again = await box.broker.messages.transact(*request)
        assert [(run.id, run.duplicate) for run in again.runs] == [(run.id, True) for run in first.runs]
        if depth is None:
            with pytest.raises(QueueNotFound):
                box.broker.queues.get(OUT)
            await box.publish("out", b"another")
        else:
            assert box.broker.queues.get(OUT)["depth"] == depth


@with_broker
async def test_what_was_long_ago_is_no_longer_known(box):
    receipts = await taken(box, 2)
    await box.broker.messages.transact(receipts[:1], [part(OUT, b"1")])
    await box.advance(limits.TRANSACTION_WINDOW_MS + 1)
    again = await taken(box, 1)
    await box.broker.messages.transact(again, [part(OUT, b"2")])
    with pytest.raises(StaleReceipt):
        await box.broker.messages.transact(receipts[:1], [part(OUT, b"1")])
    assert len(box.host.loop.shard.transactions) == 1


@with_broker
async def test_only_acks_and_only_publishes(box):
    receipts = await taken(box, 2)
    assert (await box.broker.messages.transact(receipts, [])).acked == receipts
    assert (await box.broker.messages.transact(receipts, [])).acked == receipts
    for _ in range(2):
        assert not (await box.broker.messages.transact([], [part(OUT, b"1"), part(AUDIT, b"2")])).runs[0].duplicate
    assert box.broker.queues.get(OUT)["depth"] == 2
