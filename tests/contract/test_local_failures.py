"""Disks that fail and disks that are full, through the whole broker and on real files.

After a sync that failed nothing more is acknowledged: what the kernel says about those pages afterwards is not to be
believed. A full disk refuses publishes and lets consumers finish, out of a reserve.
"""

from __future__ import annotations

import asyncio
import errno
import os
from functools import partial
from pathlib import Path

import pytest
from disks import FailAt, FailingFiles, SmallDisk

from penstock import limits
from penstock.engines.local.engine import LocalEngine
from penstock.engines.local.files import OsFiles
from penstock.errors import DiskFull, Unavailable
from penstock.ids import parse_queue
from penstock.journal.port import Damaged, Failed
from penstock.runtime import loop
from penstock.testing.check_engine import opened
from penstock.testing.inprocess import in_process, messages

ORDERS = parse_queue("orders")


def local(path, files=None, **options):
    return lambda: LocalEngine(str(path), files=files, **options)


@pytest.mark.parametrize("number", range(1, 21))
@pytest.mark.parametrize("operation", ["sync", "write"])
def test_after_a_failed_write_or_sync_nothing_is_acknowledged_and_nothing_is_lost(tmp_path, operation, number):
    fail = FailAt(operation, number)

    async def first_life() -> list[bytes]:
        acknowledged = []
        async with in_process(local(tmp_path, FailingFiles(fail), segment_bytes=600)) as box:
            await box.broker.queues.put(ORDERS, {})
            fail.armed = True
            for round_number in range(40):
                payloads = [b"%d-%d" % (round_number, caller) for caller in range(3)]
                replies = await asyncio.gather(*(box.publish("orders", p) for p in payloads), return_exceptions=True)
                good = [p for p, reply in zip(payloads, replies, strict=True) if not isinstance(reply, Exception)]
                if box.failures:
                    assert good == [], "a commit failed, and part of it was acknowledged"
                    assert all(isinstance(reply, Unavailable) for reply in replies)
                    assert replies[0].details == {"outcome": "unknown"}
                    break
                acknowledged += good
            assert len(box.failures) == 1
            assert not box.broker.ready
            for call in (
                partial(box.publish, "orders", b"x"),
                partial(box.lease, "orders"),
                partial(box.broker.messages.ack, []),
            ):
                with pytest.raises(Unavailable) as refused:
                    await call()
                assert refused.value.details == {}, "this call surely did nothing"
        return acknowledged

    async def second_life() -> list[bytes]:
        async with in_process(local(tmp_path)) as box:
            assert box.broker.ready
            return [m.payload for m in messages((await box.broker.log.read(ORDERS, max=1000)).runs)]

    acknowledged = asyncio.run(first_life())
    found = asyncio.run(second_life())
    assert found[: len(acknowledged)] == acknowledged, "what was acknowledged is there, in its order"
    assert len(found) - len(acknowledged) <= 3, "at most the commit that failed is stored without an acknowledgement"


@pytest.mark.parametrize("fsync", ["interval", "batch"])
def test_a_sync_that_fails_for_want_of_space_is_not_tried_again(tmp_path, fsync):
    """A file is closed with a sync. If that one fails, a second one would report success for data that is gone."""
    failed = []

    def fails(operation: str, path: str) -> int | None:
        if operation == "sync" and path.endswith("1.log") and armed:
            failed.append(path)
            return errno.ENOSPC if len(failed) == 1 else None
        return None

    armed = False

    async def run() -> None:
        nonlocal armed
        engine = LocalEngine(str(tmp_path), files=FailingFiles(fails), fsync=fsync, segment_bytes=200)
        owner = await opened(engine)
        await owner.append([bytes(200)])
        armed = True
        with pytest.raises(Failed, match="disk failed"):
            await owner.append([b"the next file begins with this"])
        with pytest.raises(Failed):
            await owner.append([b"again"])
        await owner.journal.close()
        await engine.close()

    asyncio.run(run())
    assert len(failed) == 1


def test_a_background_sync_that_fails_is_reported_by_the_next_append(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.engines.local.journal.INTERVAL_S", 0.001)
    fail = FailAt("sync", 1)

    async def run() -> None:
        engine = LocalEngine(str(tmp_path), files=FailingFiles(fail), fsync="interval")
        owner = await opened(engine)
        fail.armed = True
        await owner.append([b"written, not synced"])
        with pytest.raises(Failed):
            for _ in range(10_000):
                await asyncio.sleep(0.001)
                await owner.append([b"more"])
        await owner.journal.close()
        await engine.close()

    asyncio.run(run())


def test_short_writes_go_on_where_they_stopped(tmp_path, monkeypatch):
    real = os.pwritev

    def short(handle, buffers, at):
        return real(handle, [b"".join(buffers)[:7]], at)

    monkeypatch.setattr(os, "pwritev", short)
    files = OsFiles()
    handle = files.open(str(tmp_path / "file"), create=True)
    parts = [b"", b"0123456789", b"", memoryview(b"abcdefghij"), bytearray(b"x" * 30), b""]
    files.write(handle, 3, parts)
    assert files.read(handle, 3, 1000) == b"".join(parts)
    files.close(handle)


# -- no space ----------------------------------------------------------------------------------------------------------


async def publish_until_full(box) -> list[bytes]:
    stored = []
    while True:
        payload = b"%06d" % len(stored) + bytes(100_000)
        try:
            await box.publish("orders", payload)
        except DiskFull:
            return stored
        stored.append(payload)
        assert len(stored) < 1000


async def publish_when_there_is_room(box, payload: bytes) -> None:
    """As a client does it: again and again, until it is taken."""
    for _ in range(200):
        try:
            await box.publish("orders", payload)
        except DiskFull as error:
            assert error.retry_after_ms
            await asyncio.sleep(0.01)
        else:
            return
    raise AssertionError("there is room again, and publishes are still refused")


def test_a_full_disk_refuses_publishes_while_consumers_finish(tmp_path):
    """Fill, drain, refill, three times over."""
    disk = SmallDisk(limits.DISK_RESERVE_BYTES + 4 * limits.MIB)

    async def run() -> None:
        async with in_process(local(tmp_path, disk)) as box:
            for cycle in range(3):
                stored = await publish_until_full(box)
                assert stored, f"cycle {cycle}: nothing fitted"
                with pytest.raises(DiskFull):
                    await box.publish("orders", b"no")
                # Everything that finishes messages still works: leases, nacks, extensions, acks.
                first = await box.lease("orders", max=1)
                await box.broker.messages.nack([first[0].receipt], delay_ms=0)
                done = []
                while leased := await box.lease("orders", max=10):
                    await box.broker.messages.extend([leased[0].receipt], lease_ms=60_000)
                    settled = await box.broker.messages.ack([message.receipt for message in leased])
                    assert {result.status for result in settled} == {"acked"}
                    done += [message.payload for message in leased]
                    await box.advance(1)
                assert sorted(done) == sorted(stored)
                disk.room += limits.DISK_RESERVE_BYTES + 4 * limits.MIB
                await publish_when_there_is_room(box, b"there is room again")
                (again,) = await box.lease("orders")
                assert again.payload == b"there is room again"
                await box.broker.messages.ack([again.receipt])
            assert box.failures == []

    asyncio.run(run())


def test_when_even_the_reserve_is_used_up_nothing_is_half_done(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "FULL_PAUSE_S", 0.01)
    disk = SmallDisk(limits.DISK_RESERVE_BYTES + 3 * limits.MIB)

    async def run() -> None:
        async with in_process(local(tmp_path, disk)) as box:
            stored = await publish_until_full(box)
            leased = await box.lease("orders", max=5)
            fill = disk.room
            disk.room = 0
            # The zeros that were written ahead still take small commits; after them there is nothing.
            for _ in range(200):
                extensions = [box.broker.messages.extend([leased[0].receipt], lease_ms=60_000) for _ in range(500)]
                replies = await asyncio.gather(*extensions, return_exceptions=True)
                refused = [reply for reply in replies if isinstance(reply, Exception)]
                if refused:
                    break
            assert len(refused) == 500, "a commit fits as a whole or not at all"
            assert {type(error) for error in refused} == {DiskFull}
            with pytest.raises(DiskFull):
                await box.broker.messages.ack([leased[0].receipt])
            assert box.failures == [], "a full disk is no reason to stop"
            disk.room = fill + 2 * limits.DISK_RESERVE_BYTES
            # The shard was read again: what was acknowledged is there, what was refused has not happened.
            for _ in range(500):
                try:
                    results = await box.broker.messages.ack([message.receipt for message in leased])
                    break
                except DiskFull:
                    await asyncio.sleep(0.01)
            assert [result.status for result in results] == ["acked"] * 5
            await publish_when_there_is_room(box, b"last")
            rest = []
            while more := await box.lease("orders", max=10):
                rest += [message.payload for message in more]
                await box.broker.messages.ack([message.receipt for message in more])
            assert rest == [*stored[5:], b"last"]

    asyncio.run(run())


def test_a_broker_starts_on_a_disk_without_room(tmp_path):
    """The opening goes into the zeros that the first life wrote ahead."""

    async def first_life() -> None:
        async with in_process(local(tmp_path)) as box:
            for number in range(10):
                await box.publish("orders", b"%d" % number)

    async def second_life() -> None:
        disk = SmallDisk(200)  # enough for a new term, and for nothing else
        (tmp_path / "reserve").unlink()
        async with in_process(local(tmp_path, disk)) as box:
            with pytest.raises(DiskFull):
                await box.publish("orders", b"no")
            leased = await box.lease("orders", max=10)
            assert [message.payload for message in leased] == [b"%d" % number for number in range(10)]
            await box.broker.messages.ack([message.receipt for message in leased])

    asyncio.run(first_life())
    asyncio.run(second_life())


@pytest.mark.parametrize("fsync", ["always", "interval", "batch", "never"])
def test_after_a_stop_in_peace_a_turned_bit_of_the_last_frame_is_damage(tmp_path, fsync):
    """Everything is synced by then, whatever the policy, so nothing can be taken for a commit that was cut short."""

    async def run() -> None:
        async with in_process(local(tmp_path, fsync=fsync)) as box:
            await box.publish("orders", b"the last one")
            await box.stop(final_snapshot=False)
            (journal,) = (tmp_path / "shard-0" / "journal").iterdir()
            content = bytearray(journal.read_bytes())
            content[content.rindex(b"the last one")] ^= 1
            journal.write_bytes(content)
            with pytest.raises(Damaged, match=r"\.log, offset \d+"):
                await box.start()
            content[content.rindex(b"uhe last one")] ^= 1
            journal.write_bytes(content)
            await box.start()

    asyncio.run(run())


def test_a_disk_that_cannot_be_asked_is_no_empty_one(tmp_path, monkeypatch):
    """Otherwise a node whose name cannot be read would give itself another."""
    engine = LocalEngine(str(tmp_path))
    assert engine.node_id(bytes([1]) * 16) == bytes([1]) * 16
    stat = os.stat

    def failing(path, *args, **options):
        if str(path).endswith("/node"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return stat(path, *args, **options)

    with monkeypatch.context() as disk:
        disk.setattr(os, "stat", failing)
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            engine.node_id(bytes([2]) * 16)
    assert engine.node_id(bytes([2]) * 16) == bytes([1]) * 16
    asyncio.run(engine.close())


@pytest.mark.parametrize("name", ["data", "data/", "./data", "real/deep/../data"])
def test_the_directory_that_got_a_new_one_is_synced(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real" / "deep").mkdir(parents=True)
    synced = []
    files = OsFiles()
    monkeypatch.setattr(files, "sync_dir", lambda path: synced.append(Path(path).resolve()))
    files.make_dir(name)
    assert Path(name).is_dir()
    assert synced == [Path(name).resolve().parent]


def test_each_level_of_a_new_directory_is_synced(tmp_path, monkeypatch):
    synced = []
    files = OsFiles()
    monkeypatch.setattr(files, "sync_dir", lambda path: synced.append(path))
    files.make_dir(f"{tmp_path}/var/lib/penstock")
    assert synced == [f"{tmp_path}", f"{tmp_path}/var", f"{tmp_path}/var/lib"]
