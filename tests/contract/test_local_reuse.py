"""Journal files that are used again (ADR 0027), and power cuts where commits are not synced one by one."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from disks import SmallDisk

from penstock import limits
from penstock.core import commands
from penstock.engines.local.engine import LocalEngine
from penstock.engines.local.files import OsFiles
from penstock.ids import parse_queue
from penstock.journal.dump import dump
from penstock.journal.port import OutOfSpace
from penstock.testing.check_engine import opened
from penstock.testing.clock import ManualClock
from penstock.testing.files import ProcessStopped, SimFiles
from penstock.testing.inprocess import InProcess, in_process

ORDERS = parse_queue("orders")


def local(path, files=None, **options):
    return lambda: LocalEngine(str(path), files=files, **options)


def simulated() -> SimFiles:
    files = SimFiles()
    files.make_dir("/")
    return files


# -- files that are used again -----------------------------------------------------------------------------------------


REUSING = {"segment_bytes": 2_000, "zero_ahead_bytes": 50, "page_bytes": 16}


class Counted(OsFiles):
    """Real files that remember which were made anew."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[str] = []

    def open(self, path: str, *, create: bool = False) -> int:
        if create and path.endswith(".log"):
            self.made.append(path)
        return super().open(path, create=create)


async def filled(box, rounds: int) -> None:
    """Every message is finished, and upkeep lets go of what is behind them."""
    for number in range(rounds):
        await box.publish("orders", b"%d" % number * 300)
        (leased,) = await box.lease("orders")
        await box.broker.messages.ack([leased.receipt])
        await box.host.upkeep.round()


def newest_of(data) -> Path:
    return max((data / "shard-0" / "journal").glob("*.log"))


def test_journal_files_are_used_again_and_a_killed_broker_finds_its_way_in_them(tmp_path):
    data, image = tmp_path / "data", tmp_path / "image"
    files = Counted()

    async def first_life() -> None:
        async with in_process(local(data, files, **REUSING), segments_kept=1) as box:
            await filled(box, 60)
            assert len(files.made) < 10, "one after another in the same few files"
            # Until it is a short history in a longer file: what that held before is still behind its end.
            journal = box.host.journal
            for _ in range(20):
                last = journal._segments[journal._current]
                if last.prepared - last.size >= 1_000:
                    break
                await filled(box, 1)
            await box.publish("orders", b"the last one")
            shutil.copytree(data, image)

    async def second_life() -> None:
        newest = newest_of(image)
        size = newest.stat().st_size
        async with in_process(local(image, **REUSING), segments_kept=1) as box:
            assert newest.stat().st_size < size, "what was left of an earlier life is cut off"
            (left,) = await box.lease("orders", max=10)
            assert left.payload == b"the last one"
            await box.broker.messages.ack([left.receipt])
            await filled(box, 20)
            await box.restart()
            assert await box.lease("orders") == [] and box.failures == []

    asyncio.run(first_life())
    asyncio.run(second_life())


def test_clean_stop_erases_old_content_of_the_last_file(tmp_path):
    async def run() -> None:
        async with in_process(local(tmp_path, **REUSING), segments_kept=1) as box:
            await filled(box, 60)
            await box.stop(final_snapshot=False)
            newest = newest_of(tmp_path).read_bytes()
            assert (
                newest.endswith(bytes(REUSING["zero_ahead_bytes"])) and newest.rstrip(b"\0")[-100:].count(b"acked") == 1
            )
            await box.start()

    asyncio.run(run())


def test_on_a_full_disk_spare_files_go_before_the_reserve(tmp_path):
    disk = SmallDisk(limits.DISK_RESERVE_BYTES + limits.MIB)

    async def run() -> None:
        async with in_process(local(tmp_path, disk, **REUSING), segments_kept=1) as box:
            journal = tmp_path / "shard-0" / "journal"
            for _ in range(20):
                if list(journal.glob("spare-*")):
                    break
                await filled(box, 1)
            disk.room = 0
            published = 0
            while list(journal.glob("spare-*")) and published < 100:
                await box.publish("orders", b"x" * 700)
                published += 1
            assert (tmp_path / "reserve").exists()
            assert len(await box.lease("orders", max=100)) == published

    asyncio.run(run())


def test_a_snapshot_that_does_not_fit_has_the_space_of_spare_files(tmp_path):
    disk = SmallDisk(limits.DISK_RESERVE_BYTES + limits.MIB)

    async def run() -> None:
        async with in_process(local(tmp_path, disk, **REUSING), segments_kept=1) as box:
            for _ in range(20):
                if len(list((tmp_path / "shard-0" / "journal").glob("spare-*"))) == 2:
                    break
                await filled(box, 3)
            disk.room = 100
            await box.host.journal.put_blobs([("snapshot-x", [bytes(1_500)])])
            assert (tmp_path / "shard-0" / "blobs" / "snapshot-x").exists()
            await box.host.journal.delete_blobs(["snapshot-x"])
            disk.room = limits.MIB

            # Of a large one the beginning may fit: then it is the next attempt that has their space.
            for _ in range(20):
                if list((tmp_path / "shard-0" / "journal").glob("spare-*")):
                    break
                await filled(box, 3)
            disk.room = 300 * limits.KIB
            with pytest.raises(OutOfSpace):
                await box.host.journal.put_blobs([("snapshot-y", [bytes(256 * limits.KIB), bytes(256 * limits.KIB)])])
            assert not list((tmp_path / "shard-0" / "journal").glob("spare-*"))
            disk.room = limits.MIB

    asyncio.run(run())


def test_publishing_is_not_refused_for_the_sake_of_spare_files(tmp_path):
    """The reserve was given up while files were on their way to be spared: the reserve comes first."""
    disk = SmallDisk(limits.DISK_RESERVE_BYTES + limits.MIB)

    async def run() -> None:
        async with in_process(local(tmp_path, disk, **REUSING), segments_kept=1) as box:
            journal, kept = box.host.journal, box.host.journal._spares.keep

            def keep(paths: list[str]) -> list[str]:
                left = kept(paths)
                journal._reserve.give_up()
                return left

            journal._spares.keep = keep
            for _ in range(20):
                await filled(box, 1)
                if journal.short_of_space:
                    break
            assert journal.short_of_space and not list((tmp_path / "shard-0" / "journal").glob("spare-*"))

    asyncio.run(run())


def test_what_a_kill_leaves_of_a_trim_is_a_history_without_a_gap():
    """A reader has the oldest of the trimmed files open, so it cannot be reused; the next ones can."""
    for killed_at in range(1, 8):
        files = simulated()

        async def life(files=files, killed_at=killed_at) -> None:
            owner = await opened(LocalEngine("/data", files=files, segment_bytes=1_000))
            await owner.append_some(5)
            async with contextlib.aclosing(owner.journal.replay(0)) as reading:
                await anext(reading)
                await owner.append_some(35)
                dead, left = asyncio.get_running_loop().create_future(), killed_at

                def faults(operation: str, _path: str) -> str | None:
                    nonlocal left
                    left -= operation in ("rename", "remove", "sync_dir")
                    return "cut" if not left else None

                files.faults, files.on_stop = faults, lambda: dead.done() or dead.set_result(None)
                trimming = asyncio.ensure_future(owner.journal.trim(sorted(owner.journal._segments)[4] - 1))
                await asyncio.wait({trimming, dead}, return_when=asyncio.FIRST_COMPLETED)
                trimming.cancel()

        async def next_life(files=files) -> list[int]:
            owner = await opened(LocalEngine("/data", files=files, segment_bytes=1_000))
            return [frame.index for frame in await owner.journal.read_frames(0, 1 << 20)]

        with contextlib.suppress(ProcessStopped):
            asyncio.run(life())
        files.faults = lambda _operation, _path: None
        files.kill()
        found = asyncio.run(next_life())
        assert found[-1] == 40 and all(after == before + 1 for before, after in pairwise(found)), f"cut {killed_at}"


def test_inspecting_a_running_journal_finds_no_damage_in_what_is_left_over(tmp_path):
    options = {"segment_bytes": 40_000, "zero_ahead_bytes": 50}

    async def run() -> None:
        async with in_process(local(tmp_path, **options), segments_kept=1) as box:
            said: list[str] = []
            for _ in range(40):
                await box.publish("orders", bytes(random.Random(1).randbytes(9_000)))
                (leased,) = await box.lease("orders")
                await box.broker.messages.ack([leased.receipt])
                await box.host.upkeep.round()
                assert dump(str(newest_of(tmp_path)), said.append) == 0, said[-1]
            assert any("left over from an earlier use" in line for line in said)

    asyncio.run(run())


# -- power cuts where commits are not synced one by one ----------------------------------------------------------------


@pytest.mark.parametrize("fsync", ["interval", "batch", "never"])
def test_after_a_power_cut_a_weak_policy_has_a_prefix_and_starts(fsync):
    """Unsynced writes arrive in any order, so a whole commit may follow a lost one."""
    beyond = 0
    for seed in range(150):
        chance = random.Random(f"{fsync} {seed}")
        files = simulated()

        async def life(files=files, chance=chance) -> tuple[int, int]:
            engine = LocalEngine("/data", files=files, fsync=fsync, segment_bytes=3_000, page_bytes=64)
            owner = await opened(engine)
            for _ in range(chance.randint(1, 3)):
                await owner.journal.trim(owner.journal.tail.index - 20)
                await owner.append_some(chance.randint(1, 60))
                if chance.random() < 0.5:
                    owner.journal._sync()  # as when its second is over
            return owner.journal.tail.index, owner.journal.tail.index - owner.journal._unsynced

        async def next_life(files=files) -> int:
            owner = await opened(LocalEngine("/data", files=files, fsync=fsync, segment_bytes=3_000))
            found = [frame.index async for _, frame in owner.journal.replay(0)]
            assert found == list(range(found[0], found[0] + len(found))) if found else True
            return owner.journal.tail.index

        written, synced = asyncio.run(life())
        files.crash(chance)
        survived = asyncio.run(next_life())
        assert synced <= survived <= written, f"seed {seed}"
        beyond += synced < survived < written
    assert beyond, "no cut went through the middle of what was not synced"


@pytest.mark.parametrize("fsync", ["interval", "batch", "never"])
def test_after_a_power_cut_a_weak_policy_has_everything_from_before_its_last_sync(fsync):
    """With upkeep at work: no snapshot and no segment may know more than the journal does."""
    for seed in range(60):
        chance = random.Random(f"{fsync} {seed}")
        files = simulated()
        options = {"segments_kept": 1, "hot_bytes": 500}
        engine = local("/data", files, fsync=fsync, segment_bytes=2_000, page_bytes=64)
        safe: set[bytes] = set()
        known: set[bytes] = set()

        async def life(files=files, chance=chance, options=options, engine=engine, safe=safe, known=known) -> None:
            box = InProcess(engine, ManualClock(), 1, options)
            await box.start()
            for number in range(chance.randint(5, 60)):
                payload = b"%d" % number * chance.randint(1, 100)
                await box.publish("orders", payload)
                known.add(payload)
                if chance.random() < 0.3:
                    (leased,) = await box.lease("orders")
                    await box.broker.messages.ack([leased.receipt])
                    known.discard(leased.payload)
                    safe.discard(leased.payload)
                if chance.random() < 0.1:
                    await box.host.upkeep.round()
                if not box.host.journal._unsynced:
                    safe |= known
            files.crash(chance)

        async def next_life(chance=chance, options=options, engine=engine) -> set[bytes]:
            async with in_process(engine, **options) as box:
                return {message.payload for message in await box.lease("orders", max=1_000)}

        with contextlib.suppress(ProcessStopped):
            asyncio.run(life())
        assert safe <= asyncio.run(next_life()), f"seed {seed}"


def test_under_a_weak_policy_nothing_is_deleted_because_of_what_may_be_lost():
    """A queue is deleted while a round of upkeep is about to remove files."""
    for seed in range(30):
        files = simulated()
        engine = local("/data", files, fsync="interval", segment_bytes=2_000, page_bytes=64)

        async def life(engine=engine) -> None:
            box = InProcess(engine, ManualClock(), 1, {"segments_kept": 1})
            await box.start()
            for _ in range(2):
                for number in range(20):
                    await box.publish("orders", b"%d" % number * 100)
                await box.host.upkeep.round()
            trim = box.host.upkeep._trim

            async def trim_and_more() -> None:
                await trim()
                await box.host.loop.submit(commands.DeleteQueue(1))

            box.host.upkeep._trim = trim_and_more
            await box.host.upkeep.round()

        with contextlib.suppress(ProcessStopped):
            asyncio.run(life())
        files.crash(random.Random(seed))

        async def next_life(engine=engine) -> None:
            async with in_process(engine, segments_kept=1):
                pass

        asyncio.run(next_life())


@pytest.mark.parametrize("final_snapshot", [True, False])
@pytest.mark.parametrize("fsync", ["always", "interval", "batch", "never"])
def test_a_stop_in_peace_has_everything_on_the_disk(fsync, final_snapshot):
    for seed in range(20):
        files = simulated()
        engine = local("/data", files, fsync=fsync, segment_bytes=2_000, page_bytes=64)

        async def life(engine=engine) -> None:
            box = InProcess(engine, ManualClock(), 1, {"segments_kept": 1})
            await box.start()
            for number in range(40):
                await box.publish("orders", b"%d" % number * 50)
            await box.host.upkeep.round()
            await box.stop(final_snapshot=final_snapshot)

        async def next_life(engine=engine) -> int:
            async with in_process(engine, segments_kept=1) as box:
                return len(await box.lease("orders", max=100))

        asyncio.run(life())
        files.crash(random.Random(seed))
        assert asyncio.run(next_life()) == 40, f"seed {seed}"
