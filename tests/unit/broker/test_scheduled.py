"""The list of scheduled messages: its pages, due times and reads."""

from __future__ import annotations

import asyncio

import pytest

from penstock.core.explain import SCAN_MAX
from penstock.engines.local.engine import LocalEngine
from penstock.engines.memory import MemoryEngine
from penstock.errors import QueueNotFound
from penstock.ids import parse_queue, ulid_text
from penstock.testing.inprocess import in_process

LATER = parse_queue("later")
HOUR_MS = 3_600_000


async def pages(box, limit: int) -> list[list]:
    found, after = [], (0, -1)
    while True:
        page = await box.broker.scheduled.page(LATER, limit=limit, after=after)
        found.append(page.messages)
        if page.next is None:
            return found
        partition, _, offset = page.next.partition(":")
        after = int(partition), int(offset)


def test_pages_have_every_scheduled_message_once():
    async def run() -> None:
        async with in_process(MemoryEngine) as box:
            await box.broker.queues.put(LATER, {"partitions": 3})
            for number in range(40):
                delay_ms = 0 if number % 4 == 0 else HOUR_MS
                await box.publish("later", b"1", b"2", key=[b"k%d" % number] * 2, delay_ms=[delay_ms, delay_ms])
            found = [message for page in await pages(box, 7) for message in page]
            places = [(message.partition, message.offset) for message in found]
            assert len(places) == 60 and places == sorted(set(places))
            assert {place[0] for place in places} == {0, 1, 2}
            assert (await box.broker.scheduled.page(LATER, limit=1, after=(0, -1))).total == 60

    asyncio.run(run())


def test_due_times_are_those_of_the_schedule():
    async def run() -> None:
        async with in_process(MemoryEngine) as box:
            await box.broker.queues.put(LATER, {"delay_ms": 2 * HOUR_MS})
            first = await box.publish("later", b"1", b"2", id=[b"mine", b""])
            now_ms = box.clock.now_ms()
            await box.broker.queues.put(LATER, {"delay_ms": 0})
            await box.publish("later", b"3", deliver_at_ms=[now_ms + HOUR_MS])
            second = ulid_text(first.runs[0].id + 1)
            await box.broker.scheduled.reschedule(LATER, ids=[second], deliver_at_ms=now_ms + 9 * HOUR_MS)
            page = await box.broker.scheduled.page(LATER, limit=10, after=(0, -1))
            hours = [round((message.due_at_ms - now_ms) / HOUR_MS, 3) for message in page.messages]
            assert hours == [2, 9, 1]
            assert [message.client_id for message in page.messages] == ["mine", None, None]
            assert page.messages[1].id == second

    asyncio.run(run())


def test_cancelled_and_due_messages_are_not_listed():
    async def run() -> None:
        async with in_process(MemoryEngine) as box:
            reply = await box.publish("later", b"1", b"2", delay_ms=[HOUR_MS, 2 * HOUR_MS])
            await box.broker.scheduled.cancel(LATER, ids=[ulid_text(reply.runs[0].id + 1)])
            assert [len(page) for page in await pages(box, 10)] == [1]
            box.clock.advance(HOUR_MS)
            assert await pages(box, 10) == [[]]

    asyncio.run(run())


def test_missing_queue_is_refused():
    async def run() -> None:
        async with in_process(MemoryEngine) as box:
            with pytest.raises(QueueNotFound):
                await box.broker.scheduled.page(LATER, limit=10, after=(0, -1))

    asyncio.run(run())


def test_a_page_reads_only_its_messages(tmp_path):
    """Whatever is scheduled behind it: neither all records nor all entries of the schedule are looked at."""

    async def run() -> None:
        async with in_process(lambda: LocalEngine(tmp_path)) as box:
            size = 10
            for _ in range(2 * SCAN_MAX // size):
                await box.publish("later", *[b"x"] * size, delay_ms=list(range(HOUR_MS, HOUR_MS + size)))
            reads, entries = [], []
            log, schedule = box.host.loop.log, box.host.loop.shard.queues[1].partitions[0].schedule
            plain_runs = log.runs
            log.runs = lambda *place: reads.append(place) or plain_runs(*place)
            looked_at = type(schedule).in_memory
            type(schedule).in_memory = lambda agenda: (entries.append(each) or each for each in looked_at(agenda))
            try:
                page = await box.broker.scheduled.page(LATER, limit=30, after=(0, 2_999))
            finally:
                type(schedule).in_memory = looked_at
            assert [message.offset for message in page.messages] == list(range(3_000, 3_030))
            assert len(reads) == 3
            assert len(entries) <= SCAN_MAX

    asyncio.run(run())
