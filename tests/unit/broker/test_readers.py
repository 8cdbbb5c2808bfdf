"""Reading the log from where one left off: by message, by what the broker kept; and what retention took."""

from __future__ import annotations

import asyncio

import pytest

from penstock import limits
from penstock.errors import Conflict, InvalidRequest
from penstock.ids import parse_queue, ulid_text
from penstock.testing.inprocess import in_process, messages

LOG = parse_queue("log")
DAY_MS = 86_400_000


def run(story):
    asyncio.run(asyncio.wait_for(story(), 60))


async def read(box, **options) -> list[bytes]:
    return [message.payload for message in messages((await box.broker.log.read(LOG, **options)).runs)]


async def filled(box, count: int = 6) -> list[str]:
    """Messages 0, 1, 2, … in a log that keeps them; their ids."""
    await box.broker.queues.put(LOG, {"retention": {"mode": "keep"}})
    ids = []
    for number in range(0, count, 2):
        reply = await box.publish("log", b"%d" % number, b"%d" % (number + 1))
        ids += [ulid_text(reply.runs[0].id), ulid_text(reply.runs[0].id + 1)]
        await box.advance(3)
    return ids


def test_from_a_message_on_and_behind_it():
    async def story():
        async with in_process(hot_bytes=0) as box:
            ids = await filled(box)
            for number, text in enumerate(ids):
                rest = [b"%d" % each for each in range(number, 6)]
                assert await read(box, offset=f"id:{text}") == rest
                assert await read(box, offset=f"id:{text.lower()}") == rest
                assert await read(box, offset=f"after:{text}") == rest[1:]
            assert await read(box, offset="after:" + ulid_text(0)) == [b"%d" % each for each in range(6)]
            assert await read(box, offset="id:7ZZZZZZZZZZZZZZZZZZZZZZZZZ") == []
            for wrong in ("id:", "after:x", "id:" + "U" * 26, "kept:1", "id"):
                with pytest.raises(InvalidRequest) as refused:
                    await read(box, offset=wrong)
                assert refused.value.details == {"field": "offset"}

    run(story)


def test_a_message_that_is_gone_still_has_its_place():
    async def story():
        async with in_process() as box:
            ids = await filled(box)
            await box.broker.scheduled.cancel(LOG, ids=[ids[2]])
            assert (await read(box, offset=f"id:{ids[2]}"))[0] == b"3"
            assert (await read(box, offset=f"after:{ids[1]}"))[0] == b"3"

    run(story)


def test_what_retention_took_is_counted():
    async def story():
        async with in_process() as box:
            ids = await filled(box)
            await box.broker.readers.keep(LOG, "ada", {0: 1})
            from penstock.core.commands import TrimPartition

            await box.host.loop.submit(TrimPartition(1, 0, 4))
            reply = await box.broker.log.read(LOG, offset="1")
            assert (reply.start_offset, reply.skipped, reply.next_offset) == (4, 3, 6)
            assert (await box.broker.log.read(LOG, offset="earliest")).skipped == 0
            assert (await box.broker.log.read(LOG, offset="kept", client_id="ada")).skipped == 3
            assert (await box.broker.log.read(LOG, offset=f"id:{ids[0]}")).runs[0].offset == 4

    run(story)


def test_reader_offset_survives_a_restart():
    async def story():
        async with in_process() as box:
            await filled(box)
            assert (await read(box, offset="kept", client_id="ada"))[0] == b"0"
            reply = await box.broker.readers.keep(LOG, "ada", {0: 4})
            assert (reply.offsets, reply.used_at_ms) == ({"0": 4}, box.clock.now_ms())
            for final_snapshot in (True, False):
                await box.restart(final_snapshot=final_snapshot)
                assert await read(box, offset="kept", client_id="ada") == [b"4", b"5"]
            assert (await box.broker.readers.get(LOG, "bob")).offsets == {}
            with pytest.raises(InvalidRequest):
                await read(box, offset="kept")
            await box.broker.readers.forget(LOG, "ada")
            assert (await box.broker.readers.get(LOG, "ada")).used_at_ms is None

    run(story)


def test_reading_in_a_name_keeps_it_alive():
    async def story():
        async with in_process() as box:
            await filled(box)
            for name in ("reads", "sleeps"):
                await box.broker.readers.keep(LOG, name, {0: 4})
            for _ in range(3):
                await box.advance(20 * DAY_MS)
                assert await read(box, offset="4", client_id="reads") == [b"4", b"5"]
            assert (await box.broker.readers.get(LOG, "reads")).offsets == {"0": 4}
            assert (await box.broker.readers.get(LOG, "sleeps")).offsets == {}

    run(story)


def test_there_is_a_limit(monkeypatch):
    async def story():
        monkeypatch.setattr(limits, "READERS_PER_QUEUE_MAX", 2)
        async with in_process() as box:
            await filled(box)
            await box.broker.readers.keep(LOG, "a", {0: 1})
            await box.broker.readers.keep(LOG, "b", {0: 1})
            with pytest.raises(Conflict, match="2 readers"):
                await box.broker.readers.keep(LOG, "c", {0: 1})
            await box.broker.readers.keep(LOG, "a", {0: 2})
            await box.advance(limits.READER_FORGOTTEN_MS)
            await box.broker.readers.keep(LOG, "c", {0: 1})
            assert (await box.broker.readers.get(LOG, "a")).offsets == {}

    run(story)
