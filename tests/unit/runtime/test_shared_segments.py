"""Sealing many small queues: their messages share segments, and a segment is rewritten when little of it is wanted."""

from __future__ import annotations

import asyncio

import pytest

from penstock.engines.local.engine import LocalEngine
from penstock.errors import Conflict
from penstock.ids import parse_queue
from penstock.runtime import sealing
from penstock.testing.inprocess import in_process

OPTIONS = {"segments_kept": 1, "hot_bytes": 0}
QUEUES = [f"queue-{number}" for number in range(40)]


def engine(root):
    return lambda: LocalEngine(str(root), fsync="never", segment_bytes=3000)


async def fill(box) -> None:
    for queue in QUEUES:
        await box.publish(queue, queue.encode() + b" x" * 50, queue.encode() + b" y" * 50)


async def seal(box) -> None:
    """Two rounds: the first one marks the place in the journal up to which the second one copies."""
    await box.host.upkeep.round()
    await box.host.upkeep.round()


async def segments(box) -> dict[str, int]:
    return dict(await box.host.journal.list_blobs("segment-"))


async def payloads(box, queue: str) -> list[bytes]:
    return [message.payload[-1:] for message in await box.lease(queue, max=10)]


def cached_pieces(box) -> int:
    return len(box.host.loop.log.pieces._cached._cached)


async def delete(box, queue: str) -> None:
    with pytest.raises(Conflict) as asked:
        await box.broker.queues.delete(parse_queue(queue))
    await box.broker.queues.delete(parse_queue(queue), confirm=asked.value.details["confirm"])


def test_small_queues_share_one_segment(tmp_path):
    async def run() -> None:
        async with in_process(engine(tmp_path), **OPTIONS) as box:
            await fill(box)
            await seal(box)
            assert len(await segments(box)) == 1
            assert not cached_pieces(box), "what was copied is not kept as if it had been asked for"
            await box.restart()
            for queue in QUEUES:
                assert await payloads(box, queue) == [b"x", b"y"]
            assert cached_pieces(box)

    asyncio.run(run())


def test_a_partition_that_fills_a_segment_has_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(sealing, "SEGMENT_BYTES_MAX", 2_000)

    async def run() -> None:
        async with in_process(engine(tmp_path), **OPTIONS) as box:
            await box.publish("small-1", b"x")
            await box.publish("large", b"x" * 3_000)
            await box.publish("small-2", b"x")
            await seal(box)
            sizes = sorted((await segments(box)).values())
            assert len(sizes) == 2 and sizes[0] < 1_000 < 3_000 < sizes[1]
            for queue in ("small-1", "large", "small-2"):
                assert await payloads(box, queue) == [b"x"]

    asyncio.run(run())


@pytest.mark.parametrize("ending", ["acked", "deleted"])
def test_a_shared_segment_is_rewritten_when_most_of_it_is_not_wanted(tmp_path, ending):
    async def run() -> None:
        async with in_process(engine(tmp_path), **OPTIONS) as box:
            await fill(box)
            await seal(box)
            ((before, size),) = (await segments(box)).items()
            for queue in QUEUES[1:25]:
                if ending == "deleted":
                    await delete(box, queue)
                else:
                    await box.broker.messages.ack([message.receipt for message in await box.lease(queue, max=10)])
            await seal(box)
            assert before not in await segments(box) and sum((await segments(box)).values()) < size / 2
            await box.restart()
            for queue in [QUEUES[0], *QUEUES[25:]]:
                assert await payloads(box, queue) == [b"x", b"y"]

    asyncio.run(run())


def test_a_sparse_segment_without_room_for_the_copy_is_rewritten_by_a_later_round(tmp_path):
    async def run() -> None:
        async with in_process(engine(tmp_path), **OPTIONS) as box:
            await fill(box)
            await seal(box)
            (before,) = await segments(box)
            for queue in QUEUES[1:25]:
                await box.broker.messages.ack([message.receipt for message in await box.lease(queue, max=10)])
            sealer = box.host.upkeep._sealer
            sealer.begin()
            await sealer.seal(None, await sealer.drop_dead(), room=0)
            assert before in await segments(box)
            await box.host.upkeep.round()
            assert before not in await segments(box)

    asyncio.run(run())
