"""Messages that have to be fetched: more of them than fit into memory, and some that the store has lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from penstock.core.commands import DeleteQueue
from penstock.engines.memory import MemoryEngine
from penstock.errors import Unavailable
from penstock.ids import parse_queue
from penstock.journal.port import Damaged, Fenced, Place, Source
from penstock.runtime.node_memory import NodeMemory
from penstock.runtime.stored import segment_name
from penstock.testing.clock import ManualClock
from penstock.testing.inprocess import InProcess, in_process
from sim.store import Link, RemoteEngine, RemoteJournal

ORDERS = parse_queue("orders")
SMALL = 50_000
"""Room for pieces of about two publishes."""
PAYLOAD = b"x" * 20_000


def remote():
    memory, link = MemoryEngine(), Link(Random(1))
    return lambda: RemoteEngine(memory, link, ManualClock())


async def publish_ten(box: InProcess) -> list[bytes]:
    sent = [b"%d" % number + PAYLOAD for number in range(10)]
    for payload in sent:
        await box.publish("orders", payload)
    return sent


def test_a_reply_may_need_more_than_fits_into_memory():
    async def run() -> None:
        async with in_process(remote(), memory=NodeMemory(0, SMALL)) as box, asyncio.timeout(30):
            sent = await publish_ten(box)
            assert [each.payload for each in await box.lease("orders", max=10)] == sent
            assert not box.host.loop.log.pieces._cached._pinned

    asyncio.run(run())


def test_a_read_may_need_more_than_fits_into_memory():
    async def run() -> None:
        async with in_process(remote(), memory=NodeMemory(0, SMALL)) as box, asyncio.timeout(30):
            sent = await publish_ten(box)
            found = await box.broker.log.read(ORDERS, max=10)
            assert [payload for each in found.runs for payload in each.batch.payloads()] == sent
            assert not box.host.loop.log.pieces._cached._pinned

    asyncio.run(run())


def lose(journal: RemoteJournal, source: Source) -> None:
    fetch = journal.fetch

    async def without(places: Sequence[Place]) -> list[bytes]:
        if source in [place.source for place in places]:
            raise FileNotFoundError(source) if isinstance(source, str) else Damaged(f"frame {source} is missing")
        return await fetch(places)

    journal.fetch = without


@pytest.mark.parametrize("sealed", [False, True])
def test_a_lost_piece_is_named_and_does_not_take_others_away(sealed):
    """The reply names the damage, the message becomes a dead letter, and the others are delivered."""

    async def run() -> None:
        options = {"segment_bytes": 30_000, "segments_kept": 1} if sealed else {}
        async with in_process(remote(), memory=NodeMemory(0, SMALL), **options) as box, asyncio.timeout(30):
            sent = await publish_ten(box)
            if sealed:
                for _ in range(3):
                    await box.host.upkeep.round()
            index = box.host.loop.log.indexes[1, 0]
            locator = index.locators[1]
            assert (locator < 0) is sealed
            lose(box.host.journal, segment_name(-locator) if sealed else locator)
            box.host.loop.log.pieces.clear()
            lost = {at for at, each in enumerate(index.locators) if each == locator}
            problems, found = [], list[bytes]()
            for _ in range(20):
                try:
                    got = await box.lease("orders", max=10)
                except Unavailable as error:
                    problems.append(error.message)
                    continue
                found += [each.payload for each in got]
                await box.broker.messages.ack([each.receipt for each in got])

            assert any("missing" in each for each in problems)
            assert found == [each for at, each in enumerate(sent) if at not in lost]

    asyncio.run(run())


def test_a_queue_may_be_deleted_while_its_messages_are_fetched_to_be_sealed():
    async def run() -> None:
        problems: list[str] = []
        options = {"segment_bytes": 30_000, "segments_kept": 1, "on_problem": problems.append}
        async with in_process(remote(), memory=NodeMemory(0, SMALL), **options) as box, asyncio.timeout(30):
            await publish_ten(box)
            sealer, deleted = box.host.upkeep._sealer, []
            bring = sealer._bring

            async def bring_slowly(*arguments) -> None:
                await bring(*arguments)
                if not deleted:
                    deleted.append(await box.host.loop.submit(DeleteQueue(1)))

            sealer._bring = bring_slowly
            for _ in range(3):
                await box.host.upkeep.round()
            assert deleted and not box.host.loop.shard.queues and not problems

    asyncio.run(run())


def test_replies_of_the_commit_under_way_fail_when_the_shard_stops():
    async def run() -> None:
        async with in_process(remote()) as box, asyncio.timeout(30):
            await box.publish("orders", b"before")
            journal = box.host.journal
            written = asyncio.Event()

            async def never(*_) -> int:
                written.set()
                return await asyncio.Future()

            journal.append = never
            publishing = asyncio.ensure_future(box.publish("orders", b"under way"))
            await written.wait()
            box.host.loop.stop_for(Fenced("another owner has the shard"))
            with pytest.raises(Unavailable, match="another owner") as failed:
                await publishing
            assert failed.value.details == {"outcome": "unknown"}
            assert box.failures == ["another owner has the shard"]

    asyncio.run(run())
