"""Dead letters in blobs: found again after a restart, written again only where they changed."""

from __future__ import annotations

import asyncio

import pytest

from penstock.core import snapshot
from penstock.core.state import sorted_pairs
from penstock.core.state.dead_letters import oldest_first
from penstock.engines.local.engine import LocalEngine
from penstock.errors import Conflict
from penstock.ids import parse_queue, ulid_text
from penstock.runtime import chunk_blobs
from penstock.testing.inprocess import in_process

ORDERS = parse_queue("orders")
OPTIONS = {"segment_bytes": 1 << 40, "stored_letters": 1}
"""A round of upkeep is when the test asks for one."""


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(sorted_pairs, "CHUNK_PAIRS", 4)


async def give_up(box, count: int) -> None:
    for number in range(count):
        await box.publish("orders", b"%d" % number)
    for message in await box.lease("orders", max=count):
        await box.broker.messages.reject([message.receipt], error=f"no {message.offset % 3}")
        await box.advance(1)


async def delete(box, message_id: str) -> None:
    with pytest.raises(Conflict) as asked:
        await box.broker.dead_letters.delete(ORDERS, ids=[message_id])
    await box.broker.dead_letters.delete(ORDERS, ids=[message_id], confirm=asked.value.details["confirm"])


async def blobs(box) -> list[str]:
    return [name for name, _ in await box.host.journal.list_blobs("letters-")]


def chunks(box):
    return box.host.loop.shard.queues[1].partitions[0].dead.order(0).chunks


def test_letters_are_the_same_after_a_restart(tmp_path):
    async def run() -> None:
        async with in_process(lambda: LocalEngine(str(tmp_path)), **OPTIONS) as box:
            await give_up(box, 30)
            await box.host.upkeep.round()
            assert len(await blobs(box)) == 1 and all(chunk.stored for chunk in chunks(box))
            expected = snapshot.digest(box.host.loop.shard)
            letters = [letter for _, letter in oldest_first([box.host.loop.shard.queues[1].partitions[0].dead])]
        async with in_process(lambda: LocalEngine(str(tmp_path)), **OPTIONS) as box:
            dead = box.host.loop.shard.queues[1].partitions[0].dead
            assert [letter for _, letter in oldest_first([dead])] == letters and len(letters) == 30
            assert {letter.error for letter in letters} == {"no 0", "no 1", "no 2"}
            assert all(chunk.stored for chunk in chunks(box))
            box.host.loop.shard.term -= 1
            assert snapshot.digest(box.host.loop.shard) == expected

    asyncio.run(run())


def test_only_chunks_that_changed_are_written_again(tmp_path):
    async def run() -> None:
        async with in_process(lambda: LocalEngine(str(tmp_path)), **OPTIONS) as box:
            await give_up(box, 40)
            await box.host.upkeep.round()
            before = [chunk.stored for chunk in chunks(box)]
            letter = (await box.broker.dead_letters.page(ORDERS, page=2, limit=6))["dead_letters"][0]
            await delete(box, ulid_text(letter.run.id))
            await give_up(box, 1)
            await box.host.upkeep.round()
            after = [chunk.stored for chunk in chunks(box)]
            changed = [place for place in after if place not in before]
            assert len(changed) == 2 and len(after) == len(before) + 1
            assert len(await blobs(box)) == 2

    asyncio.run(run())


def test_many_small_blobs_become_one(tmp_path):
    async def run() -> None:
        async with in_process(lambda: LocalEngine(str(tmp_path)), **OPTIONS) as box:
            for _ in range(40):
                await give_up(box, 4)
                await box.host.upkeep.round()
                assert len(await blobs(box)) <= chunk_blobs.SMALL_BLOBS_MAX + 2
            assert len(box.host.loop.shard.queues[1].partitions[0].dead) == 160

    asyncio.run(run())


def test_a_letter_that_changes_while_its_chunk_is_written_is_in_the_snapshot(tmp_path):
    async def run() -> None:
        async with in_process(lambda: LocalEngine(str(tmp_path)), **OPTIONS) as box:
            await give_up(box, 10)
            put = box.host.journal.put_blobs

            async def slow(blobs) -> None:
                if blobs[0][0].startswith("letters-"):
                    await give_up(box, 1)
                await put(blobs)

            box.host.journal.put_blobs = slow
            await box.host.upkeep.round()
            box.host.journal.put_blobs = put
            assert chunks(box)[-1].stored is None
            await box.restart(final_snapshot=False)
            assert len(box.host.loop.shard.queues[1].partitions[0].dead) == 11

    asyncio.run(run())
