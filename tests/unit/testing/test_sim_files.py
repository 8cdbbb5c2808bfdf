"""Files that forget what was not synced: the disk of the simulator must itself be a disk."""

from __future__ import annotations

import asyncio
import errno
from random import Random

import pytest

from penstock.testing.files import ProcessStopped, SimFiles


def made(**options) -> SimFiles:
    files = SimFiles(**options)
    files.make_dir("/d")
    return files


def written(files: SimFiles, name: str, data: bytes, *, synced: bool, entry_synced: bool = True) -> int:
    handle = files.open(f"/d/{name}", create=True)
    files.write(handle, 0, [data])
    if synced:
        files.sync(handle)
    if entry_synced:
        files.sync_dir("/d")
    return handle


def content(files: SimFiles, name: str) -> bytes:
    handle = files.open(f"/d/{name}")
    try:
        return files.read(handle, 0, 1 << 20)
    finally:
        files.close(handle)


@pytest.mark.parametrize("seed", range(40))
def test_what_was_synced_survives_a_crash_and_the_rest_may_not(seed):
    files = made()
    handle = written(files, "a", b"safe", synced=True)
    files.write(handle, 4, [b"x" * 5000])
    files.crash(Random(seed))
    assert content(files, "a")[:4] == b"safe"
    assert set(content(files, "a")[4:]) <= set(b"x\0")


def test_a_crash_shows_every_kind_of_loss():
    """None, all, torn, and holes: over some seeds each of them happens."""
    seen = set()
    for seed in range(200):
        files = made()
        handle = written(files, "a", b"", synced=True)
        for part in range(3):
            files.write(handle, 5000 * part, [b"abc"[part : part + 1] * 5000])
        files.crash(Random(seed))
        found = content(files, "a")
        seen.add("nothing" if not found else "all" if found == b"a" * 5000 + b"b" * 5000 + b"c" * 5000 else "some")
        if b"\0" in found:
            seen.add("hole")
        if found and found == b"abc"[:1] * len(found) and len(found) < 5000:
            seen.add("torn")
    assert seen == {"nothing", "all", "some", "hole", "torn"}


def test_an_entry_that_was_not_synced_may_take_its_file_with_it():
    outcomes = set()
    for seed in range(20):
        files = made()
        written(files, "a", b"synced", synced=True, entry_synced=False)
        files.crash(Random(seed))
        outcomes.add(files.exists("/d/a"))
    assert outcomes == {True, False}


def test_a_rename_is_whole_or_not_at_all():
    outcomes = set()
    for seed in range(40):
        files = made()
        files.close(written(files, "a", b"old", synced=True))
        files.close(written(files, "a.tmp", b"new", synced=True))
        files.rename("/d/a.tmp", "/d/a")
        files.crash(Random(seed))
        outcomes.add((content(files, "a"), files.exists("/d/a.tmp")))
    assert outcomes == {(b"old", True), (b"new", False)}


def test_a_killed_process_leaves_what_it_has_written_and_nothing_else():
    files = made()
    lock = files.lock("/d/lock")
    handle = written(files, "a", b"not synced", synced=False, entry_synced=False)
    with pytest.raises(BlockingIOError):
        files.lock("/d/lock")
    files.kill()
    assert content(files, "a") == b"not synced"
    for stale in (lock, handle):
        with pytest.raises(OSError, match="no such handle"):
            files.size(stale)
    files.lock("/d/lock")


def test_data_of_a_failed_sync_is_lost_though_a_second_sync_succeeds():
    failures = [OSError(errno.EIO, "once")]
    files = made(faults=lambda operation, _: failures.pop() if operation == "sync" and failures else None)
    handle = files.open("/d/a", create=True)
    files.sync_dir("/d")
    files.write(handle, 0, [b"lost"])
    with pytest.raises(OSError, match="once"):
        files.sync(handle)
    files.sync(handle)
    assert content(files, "a") == b"lost", "the cache still has it"
    files.drop_cache(handle)
    assert content(files, "a") == bytes(4), "the disk has not"
    files.crash(Random(1))
    assert content(files, "a") == bytes(4)


def test_a_full_disk_takes_what_fits():
    files = made()
    handle = written(files, "a", b"1234", synced=True)
    files.capacity = 6
    with pytest.raises(OSError) as caught:
        files.write(handle, 4, [b"5678"])
    assert caught.value.errno == errno.ENOSPC
    assert content(files, "a") == b"123456"
    files.truncate(handle, 4)
    files.write(handle, 0, [b"abcd"])
    with pytest.raises(OSError):
        files.allocate(files.open("/d/reserve", create=True), 100)


def test_the_process_can_end_inside_any_operation():
    told = []
    files = made(faults=lambda operation, _: "cut" if operation == "rename" else None, on_stop=lambda: told.append(1))
    files.close(written(files, "a.tmp", b"x", synced=True))
    with pytest.raises(ProcessStopped):
        files.rename("/d/a.tmp", "/d/a")
    assert told
    with pytest.raises(ProcessStopped):
        files.remove("/d/a.tmp")
    files.kill()
    assert files.exists("/d/a.tmp") and not files.exists("/d/a")


def test_offloaded_work_is_done_in_order_and_not_after_a_kill():
    async def story() -> list[int]:
        done: list[int] = []
        files = made(latency=lambda: 0.001)
        assert files.idle()
        await asyncio.gather(*(files.offload(lambda n=n: done.append(n)) for n in range(5)))
        pending = asyncio.ensure_future(files.offload(lambda: done.append(99)))
        await asyncio.sleep(0)
        assert not files.idle()
        files.kill()
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)
        with pytest.raises(ZeroDivisionError):
            await files.offload(lambda: 1 / 0)
        return done

    assert asyncio.run(story()) == [0, 1, 2, 3, 4]
