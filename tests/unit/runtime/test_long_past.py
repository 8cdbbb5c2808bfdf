"""A moment a little past is now; one long past is a mistake that is told, and nothing changes."""

from __future__ import annotations

import asyncio

import pytest

from penstock import limits
from penstock.engines.memory import MemoryEngine
from penstock.errors import InvalidRequest
from penstock.ids import parse_queue, ulid_text
from penstock.testing.inprocess import in_process

ORDERS = parse_queue("orders")


def test_publish_and_reschedule():
    async def run() -> None:
        memory = MemoryEngine()
        async with in_process(lambda: memory) as box:
            now = box.clock.now_ms()
            with pytest.raises(InvalidRequest, match="now is") as refused:
                await box.publish("orders", b"seconds", deliver_at_ms=[now // 1000])
            assert refused.value.details["field"].endswith("deliver_at_ms") and not box.host.loop.shard.paths
            await box.publish("orders", b"late", deliver_at_ms=[now - limits.DELIVER_AT_PAST_MS_MAX])
            later = await box.publish("orders", b"later", deliver_at_ms=[now + 60_000])
            assert [message.payload for message in await box.lease("orders", max=9)] == [b"late"]
            message_id = ulid_text(later.runs[0].id)
            with pytest.raises(InvalidRequest, match="deliver_at_ms"):
                await box.broker.scheduled.reschedule(ORDERS, ids=[message_id], deliver_at_ms=now // 1000)
            count, _ = await box.broker.scheduled.reschedule(ORDERS, ids=[message_id], deliver_at_ms=now - 1)
            assert count == 1 and [message.payload for message in await box.lease("orders")] == [b"later"]

    asyncio.run(run())
