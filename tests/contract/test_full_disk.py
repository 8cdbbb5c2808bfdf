"""A full disk has room again as soon as messages are finished: acked, purged, deleted or expired."""

from __future__ import annotations

import asyncio
import time

import pytest
from disks import SmallDisk
from mounts import mounted_tmpfs, used_bytes

from penstock import limits
from penstock.engines.local.engine import LocalEngine
from penstock.errors import Conflict, DiskFull
from penstock.ids import parse_queue
from penstock.runtime import upkeep
from penstock.testing.inprocess import in_process

MIB = limits.MIB
PATIENCE_S = 30
"""Far more than it takes: a second, on a machine that has nothing else to do."""


def local(path, files=None, **options):
    return lambda: LocalEngine(str(path), files=files, **options)


async def publish_until_full(box, size: int = 100_000, queue: str = "orders", **columns) -> int:
    """How many messages were stored before the first refusal."""
    for stored in range(100_000):
        batch = {name: [value] * 10 for name, value in columns.items()}
        try:
            await box.publish(queue, *[bytes(size)] * 10, **batch)
        except DiskFull:
            return stored * 10
    raise AssertionError("the disk is never full")


async def ack_everything(box, queue: str = "orders", max: int = 1000) -> int:
    acked = 0
    while leased := await box.lease(queue, max=max):
        results = await box.broker.messages.ack([message.receipt for message in leased])
        assert {result.status for result in results} == {"acked"}
        acked += len(leased)
    return acked


async def publish_soon(box) -> None:
    """As a client does it: again and again, until the publish is taken."""
    began_s = time.monotonic()
    while True:
        try:
            await box.publish("orders", b"there is room again")
        except DiskFull:
            assert time.monotonic() - began_s < PATIENCE_S, "publishes are refused although every message is finished"
            await asyncio.sleep(0.05)
        else:
            return


@pytest.mark.slow
@pytest.mark.parametrize("size_mib", [64, 160])
def test_full_disk_takes_publishes_again_once_everything_is_acked(tmp_path, size_mib):
    async def run() -> None:
        async with in_process(local(disk)) as box:
            fitted = []
            for _ in range(20):
                fitted.append(await publish_until_full(box))
                acked = await ack_everything(box)
                assert acked in (fitted[-1], fitted[-1] + 1)
                await publish_soon(box)
            assert max(fitted[-5:]) > 0.5 * fitted[0], "a disk that was drained takes about as much as an empty one"
            assert box.failures == []

    with mounted_tmpfs(tmp_path / "disk", size_mib * MIB) as disk:
        asyncio.run(run())


def test_full_disk_is_freed_after_a_restart(tmp_path):
    async def run() -> None:
        async with in_process(local(disk)) as box:
            await publish_until_full(box)
            await ack_everything(box)
            await box.restart(final_snapshot=False)
            await publish_soon(box)

    with mounted_tmpfs(tmp_path / "disk", 96 * MIB) as disk:
        asyncio.run(run())


def test_bounded_fake_disk_takes_publishes_again_once_everything_is_acked(tmp_path):
    disk = SmallDisk(limits.DISK_RESERVE_BYTES + 20 * MIB)

    async def run() -> None:
        async with in_process(local(tmp_path, disk)) as box:
            for _ in range(5):
                assert await publish_until_full(box) > 0
                await ack_everything(box)
                await publish_soon(box)

    asyncio.run(run())


def test_full_disk_with_nothing_to_free_costs_no_rounds(tmp_path, monkeypatch):
    """The messages are all wanted: upkeep tries once or twice, and then waits until one is finished."""
    monkeypatch.setattr(upkeep, "LOOK_WHEN_SHORT_S", 0.0)
    monkeypatch.setattr(upkeep, "SPARED_SHARE", 0)
    disk = SmallDisk(limits.DISK_RESERVE_BYTES + 20 * MIB)

    async def run() -> None:
        async with in_process(local(tmp_path, disk)) as box:
            await publish_until_full(box)
            (held,) = await box.lease("orders")
            rounds = box.host.upkeep.rounds
            for _ in range(200):
                await box.broker.messages.extend([held.receipt], lease_ms=60_000)
                with pytest.raises(DiskFull):
                    await box.publish("orders", b"no")
                await asyncio.sleep(0)
            assert box.host.upkeep.rounds - rounds <= 3

    asyncio.run(run())


def test_reserve_has_room_for_the_next_snapshot(tmp_path):
    """With many messages a snapshot is larger than what acks need, and nothing is freed without one."""
    disk = SmallDisk(64 * MIB)
    reserve = tmp_path / "reserve"

    async def run() -> None:
        engine = local(tmp_path, disk)()
        journal = await engine.acquire(0, bytes(16))
        assert reserve.stat().st_size == limits.DISK_RESERVE_BYTES
        await journal.hold_room_for(20 * MIB)
        assert reserve.stat().st_size == limits.DISK_RESERVE_BYTES + 20 * MIB
        await journal.hold_room_for(100 * MIB)
        assert reserve.stat().st_size == limits.DISK_RESERVE_BYTES + 20 * MIB, "what there is no room for is not held"
        assert not journal.short_of_space
        await journal.hold_room_for(1000)
        assert reserve.stat().st_size == limits.DISK_RESERVE_BYTES
        await journal.close()
        await engine.close()

    asyncio.run(run())


def test_reserve_of_a_directory_that_is_moved_away_does_not_end_the_journal(tmp_path):
    async def run() -> None:
        engine = local(tmp_path / "data")()
        journal = await engine.acquire(0, bytes(16))
        (tmp_path / "data").rename(tmp_path / "elsewhere")
        await journal.hold_room_for(20 * MIB)
        (tmp_path / "elsewhere").rename(tmp_path / "data")
        await journal.append(journal.tail.index + 1, [b"frame"])
        await journal.hold_room_for(20 * MIB)
        assert (tmp_path / "data/reserve").stat().st_size == limits.DISK_RESERVE_BYTES + 20 * MIB
        await journal.close()
        await engine.close()

    asyncio.run(run())


@pytest.mark.parametrize("way", ["purge", "delete", "expire"])
def test_full_disk_takes_publishes_again_once_a_queue_is_emptied(tmp_path, way):
    async def run() -> None:
        async with in_process(local(disk)) as box:
            await publish_until_full(box, queue="other", **({"ttl_ms": 60_000} if way == "expire" else {}))
            if way == "expire":
                await box.advance(60_001)
            else:
                await empty(box, "other", way)
            await publish_soon(box)

    with mounted_tmpfs(tmp_path / "disk", 96 * MIB) as disk:
        asyncio.run(run())


async def empty(box, queue: str, way: str) -> None:
    call = box.broker.queues.purge if way == "purge" else box.broker.queues.delete
    path = parse_queue(queue)
    with pytest.raises(Conflict) as refused:
        await call(path)
    await call(path, confirm=refused.value.details["confirm"])


@pytest.mark.slow
def test_full_disk_is_drained_by_consumers_that_ack_one_small_message_at_a_time(tmp_path):
    """The records of a lease and an ack are larger than such a message: the reserve alone does not hold them all."""

    async def run() -> None:
        async with in_process(local(disk), hot_bytes=1 * MIB) as box:
            stored = await publish_until_full(box, size=100)
            assert await ack_everything(box, max=1) == stored
            await publish_soon(box)

    with mounted_tmpfs(tmp_path / "disk", limits.DISK_RESERVE_BYTES + 8 * MIB) as disk:
        asyncio.run(run())


@pytest.mark.slow
def test_acked_backlog_gives_its_space_back(tmp_path):
    """At most 64 MiB stay, beside the journal's own files."""
    segment_bytes = 8 * MIB
    journal_bound = (limits.JOURNAL_SEGMENTS_KEPT + 1 + 2) * segment_bytes + limits.DISK_RESERVE_BYTES

    async def run() -> None:
        engine = local(tmp_path, fsync="never", segment_bytes=segment_bytes)
        async with in_process(engine, segment_bytes=segment_bytes) as box:
            for _ in range(30):
                await box.publish("orders", *[bytes(100_000)] * 80)
            assert used_bytes(tmp_path) > 200 * MIB
            for _ in range(3):
                await box.host.upkeep.round()
            await ack_everything(box)
            began_s = time.monotonic()
            while used_bytes(tmp_path) > journal_bound + 64 * MIB:
                taken = used_bytes(tmp_path) // MIB
                assert time.monotonic() - began_s < PATIENCE_S, f"{taken} MiB are still taken"
                await asyncio.sleep(0.1)

    asyncio.run(run())
