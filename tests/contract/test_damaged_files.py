"""Each kind of file of a store is damaged in each way: the healthy messages are delivered, or the start is refused with
the file and the offset. No delivery is lost, and none counts as an attempt."""

from __future__ import annotations

import asyncio
import errno
import re
import shutil
from contextlib import AsyncExitStack
from typing import Any

import pytest

from penstock.engines.local.engine import LocalEngine
from penstock.engines.local.files import OsFiles
from penstock.errors import Unavailable
from penstock.ids import parse_queue
from penstock.journal.dump import dump
from penstock.journal.port import Damaged, Failed
from penstock.testing.inprocess import in_process

MESSAGES = [b"message %03d " % number + b"x" * 1500 for number in range(60)]
KINDS = ["closed journal", "active journal", "segment", "snapshot", "agenda", "ids", "letters", "hint", "term"]
WAYS = ["flip", "cut", "missing", "EIO"]


class UnreadableFiles(OsFiles):
    """Real files, of which one cannot be read as often as `failures` says."""

    def __init__(self) -> None:
        super().__init__()
        self.unreadable = ""
        self.failures = 0
        self._paths: dict[int, str] = {}

    def open(self, path: str, *, create: bool = False) -> int:
        handle = super().open(path, create=create)
        self._paths[handle] = path
        return handle

    def open_cell(self, path: str) -> int:
        handle = super().open_cell(path)
        self._paths[handle] = path
        return handle

    def read(self, handle: int, at: int, length: int) -> bytes:
        if self.failures and self._paths[handle] == self.unreadable:
            self.failures -= 1
            raise OSError(errno.EIO, "Input/output error")
        return super().read(handle, at, length)


def store(root, files=None):
    """A store whose journal files are small, and which keeps no message in memory."""
    options = {"segment_bytes": 16_384, "segments_kept": 2, "hot_bytes": 0, "far_entries": 1, "stored_ids": 1}
    options["stored_letters"] = 1
    return in_process(
        lambda: LocalEngine(str(root), files=files, segment_bytes=16_384, zero_ahead_bytes=4096), **options
    )


@pytest.fixture(scope="module", params=["at_least_once", "at_most_once"])
def template(request, tmp_path_factory):
    """Sixty messages, one that is due in ten days and a dead letter: in sealed segments, closed journal files and the
    active one."""
    root = tmp_path_factory.mktemp(request.param) / "data"

    async def fill() -> None:
        async with store(root) as box:
            await box.broker.queues.put(parse_queue("orders"), {"delivery": request.param})
            await box.publish("later", b"later", delay_ms=[864_000_000])
            await box.publish("rejected", b"rejected")
            await box.broker.messages.reject([message.receipt for message in await box.lease("rejected")])
            for payload in MESSAGES:
                await box.publish("orders", payload, id=[payload[:11]])
            await box.host.upkeep.round()

    asyncio.run(fill())
    return root


def path_of(root, kind: str):
    shard, blobs = root / "shard-0", root / "shard-0" / "blobs"
    logs = sorted((shard / "journal").glob("*.log"))
    found = {
        "closed journal": logs[-2:-1],
        "active journal": logs[-1:],
        "segment": sorted(blobs.glob("segment-*"))[-1:],
        "snapshot": sorted(blobs.glob("snapshot-*"))[-1:],
        "agenda": sorted(blobs.glob("agenda-*"))[-1:],
        "ids": sorted(blobs.glob("ids-*"))[-1:],
        "letters": sorted(blobs.glob("letters-*"))[-1:],
        "hint": [shard / "durable"],
        "term": [shard / "term"],
    }[kind]
    assert found, f"the store has no {kind}"
    return found[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_damage_of_one_file(template, tmp_path, kind, way):
    root = tmp_path / "data"
    shutil.copytree(template, root)
    path = path_of(root, kind)
    files = UnreadableFiles()
    data = path.read_bytes()
    if way == "flip":
        middle = len(data.rstrip(b"\0")) // 2
        at = max(middle, data.find(b"xxxx", middle))  # in a payload, if the file has any
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    elif way == "cut":
        path.write_bytes(data[: len(data.rstrip(b"\0")) // 2])
    elif way == "missing":
        path.unlink()
    delivered, letters, refused = [], [], ""

    async def run() -> None:
        nonlocal refused
        async with AsyncExitStack() as stack:
            try:
                box = await stack.enter_async_context(store(root, files))
            except Damaged as error:
                refused = str(error)
                return
            if way == "EIO":
                files.unreadable, files.failures = str(path), 1
            for _ in range(200):
                try:
                    leased = await box.lease("orders", max=7)
                except Unavailable as error:
                    assert re.search(r"offset \d+: the disk cannot read this now", error.message)
                    continue
                if not leased:
                    break
                delivered.extend(leased)
            letters.extend((await box.broker.dead_letters.page(parse_queue("orders")))["dead_letters"])

    asyncio.run(run())
    if refused:
        assert way != "EIO" and re.search(r"offset \d+: ", refused), refused
        assert path.name in refused or way == "missing"
        return
    assert {message.attempt for message in delivered} == {1}
    payloads = [message.payload for message in delivered]
    assert len(payloads) == len(set(payloads)), "no message is delivered twice"
    assert len(payloads) + len(letters) == len(MESSAGES)
    assert len(letters) == (1 if way == "flip" and kind in ("segment", "closed journal") else 0)
    for found in letters:
        assert found.letter.reason == "damaged" and re.search(r"offset \d+: ", found.letter.error)


def flip_a_payload(root) -> None:
    path = path_of(root, "closed journal")
    data = path.read_bytes()
    at = data.find(b"xxxx", len(data) // 2)
    path.write_bytes(data[:at] + b"y" + data[at + 1 :])


async def redriven(box, redrive_id: str) -> dict[str, Any]:
    """The redrive, when it has ended."""
    async with asyncio.timeout(30):
        while True:
            (found,) = box.broker.redrives.list(parse_queue("orders"), redrive_id)["redrives"]
            if found["status"] != "running":
                return found
            await asyncio.sleep(0)


def test_a_damaged_message_is_listed_and_can_be_redriven_after_its_file_is_restored(template, tmp_path):
    root = tmp_path / "data"
    shutil.copytree(template, root)
    path = path_of(root, "closed journal")
    healthy = path.read_bytes()
    flip_a_payload(root)

    async def run() -> None:
        reported: list[tuple[str, int, int, int, str]] = []
        async with store(root) as box:
            with pytest.raises(Unavailable, match=r"offset \d+: the checksum"):
                await box.broker.log.read(parse_queue("orders"), partition=0, offset="0")
            box.host.loop.on_damage = lambda *found: reported.append(found)
            leased = await box.lease("orders", max=100)
            assert len(leased) == len(MESSAGES) - 1
            page = await box.broker.dead_letters.page(
                parse_queue("orders"), filter='reason = "damaged" and not key = "k"'
            )
            (found,) = page["dead_letters"]
            assert found.letter.error == reported[0][4] and str(path) in found.letter.error
            assert (found.run.offset, found.run.offset + 1) == reported[0][2:4]
            assert found.run.batch.payloads() == [b""]
            assert box.broker.damage == (1, 0)
            # A copy has nothing to copy.
            await box.broker.redrives.start(
                parse_queue("orders"), filter="", target=parse_queue("copies"), redrive_id="copy", dry_run=False
            )
            copied = await redriven(box, "copy")
            assert (copied["redriven"], copied["skipped"]) == (0, 1)
        path.write_bytes(healthy)
        async with store(root) as box:
            await box.broker.redrives.start(parse_queue("orders"), filter="", redrive_id="again", dry_run=False)
            await redriven(box, "again")
            assert {message.payload for message in await box.lease("orders", max=100)} == set(MESSAGES) - {
                message.payload for message in leased
            }

    asyncio.run(run())


def test_lists_and_searches_pass_over_damaged_messages(tmp_path):
    root = tmp_path / "data"
    filler = b"x" * 1500
    queues = ("now", "later")

    async def fill() -> None:
        async with store(root) as box:
            for number in range(12):
                for name in queues:
                    options = {"key": [b"k%d" % (number % 3)], "id": [b"%s-%d" % (name.encode(), number)]}
                    options |= {"delay_ms": [3_600_000]} if name == "later" else {}
                    await box.publish(name, b"%s %03d " % (name.encode(), number) + filler, **options)
            for _ in range(30):
                await box.publish("filler", filler)
            await box.host.upkeep.round()

    async def look() -> None:
        async with store(root) as box:
            broker = box.broker
            now, later = map(parse_queue, queues)
            page = await broker.scheduled.page(later, limit=50)
            assert [message.offset for message in page.messages] == list(range(12))
            assert [message.key for message in page.messages] == [
                None if number == 7 else f"k{number % 3}" for number in range(12)
            ]
            following = await broker.scheduled.page(later, limit=4, after=(0, 5))
            assert [message.offset for message in following.messages] == [6, 7, 8, 9] and following.next == "0:9"
            shown = [run.offset + row for run in await broker.log.peek(now, max=20) for row in range(run.count)]
            assert shown == [number for number in range(12) if number != 7]
            for queue in (now, later):
                cancelled, results = await broker.scheduled.cancel(queue, key="k1")
                assert cancelled == 3 and {result.status for result in results} == {"cancelled"}
                moved, _ = await broker.scheduled.reschedule(queue, key="k2", delay_ms=1_000)
                assert moved == 4

    asyncio.run(fill())
    for path in [file for file in (root / "shard-0").rglob("*") if file.is_file()]:
        data = path.read_bytes()
        for name in queues:
            data = data.replace(b"%s 007 xxx" % name.encode(), b"%s 007 xyx" % name.encode())
        path.write_bytes(data)
    asyncio.run(look())


def test_upkeep_copies_damaged_messages_with_their_damage(template, tmp_path):
    """Otherwise the journal could never be trimmed behind them."""
    root = tmp_path / "data"
    shutil.copytree(template, root)
    flip_a_payload(root)
    closed = path_of(root, "closed journal")

    async def run() -> None:
        async with store(root) as box:
            for number in range(60):
                await box.publish("others", b"%d" % number + b"z" * 1500)
            await box.host.upkeep.round()
            await box.host.upkeep.round()
            assert not closed.exists()
            assert len(await box.lease("orders", max=100)) == len(MESSAGES) - 1
            (found,) = (await box.broker.dead_letters.page(parse_queue("orders")))["dead_letters"]
            assert found.letter.reason == "damaged" and found.letter.error.startswith("segment-")

    asyncio.run(run())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "hint"])
def test_inspect_notices_what_is_missing(template, tmp_path, kind):
    root = tmp_path / "data"
    shutil.copytree(template, root)
    (root / "node").write_text("01JP0000000000000000000000\n")
    said: list[str] = []
    assert dump(str(root), said.append) == 0, [line for line in said if "DAMAGED" in line or "MISSING" in line]
    path = path_of(root, kind)
    path.unlink()
    assert dump(str(root), said.append) >= 1


def test_inspect_of_a_running_server_is_not_disturbed_by_files_that_come_and_go(template, tmp_path, monkeypatch):
    root = tmp_path / "data"
    shutil.copytree(template, root)
    (root / "node").write_text("01JP0000000000000000000000\n")
    dropped = path_of(root, "segment").with_name("segment-000000000999")
    shutil.copy(path_of(root, "segment"), dropped)
    looks = iter([[f"{root}: a segment of the snapshot before"], FileNotFoundError(), []])

    def missing_meanwhile(shard):
        (shard / "blobs" / "segment-000000001000").touch()  # the next snapshot has come
        found = next(looks)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr("penstock.journal.dump.missing_in", missing_meanwhile)
    assert dump(str(root), lambda _: dropped.unlink(missing_ok=True)) == 0


@pytest.mark.parametrize("name", ["node", "shards", "shard-0/term"])
@pytest.mark.parametrize("way", ["flip", "cut"])
def test_inspect_notices_damage_of_small_files_that_a_start_refuses(template, tmp_path, name, way):
    root = tmp_path / "data"
    shutil.copytree(template, root)
    (root / "node").write_text("01JP0000000000000000000000\n")
    (root / "shards").write_text("1\n")
    said: list[str] = []
    assert dump(str(root), said.append) == 0
    data = (root / name).read_bytes()
    (root / name).write_bytes(bytes([data[0] ^ 64]) + data[1:] if way == "flip" else data[: len(data) // 3])

    async def start() -> None:
        engine = LocalEngine(str(root))
        try:
            engine.node_id(bytes(16))
            engine.shard_count(1)
        finally:
            await engine.close()
        async with store(root):
            pass

    with pytest.raises(Damaged, match="offset 0: "):
        asyncio.run(start())
    assert dump(str(root), said.append) == 1
    assert any("DAMAGED" in line and "offset 0: " in line for line in said)


def test_read_that_the_disk_refuses_at_start_is_not_taken_for_damage(template, tmp_path):
    """Each read of a start fails once: the start is refused for that read, and the next start has everything."""

    class FailingFiles(OsFiles):
        reads_left = -1

        def read(self, handle: int, at: int, length: int) -> bytes:
            self.reads_left -= 1
            if self.reads_left == 0:
                raise OSError(errno.EIO, "Input/output error")
            return super().read(handle, at, length)

    async def start(number: int) -> bool:
        root, files = tmp_path / f"data-{number}", FailingFiles()
        shutil.copytree(template, root)
        files.reads_left = number
        try:
            async with store(root, files) as box:
                failed = files.reads_left <= 0
                files.reads_left = -1
                letters = await box.broker.dead_letters.page(parse_queue("rejected"))
                assert len(letters["dead_letters"]) == 1
                assert sum([len(await box.lease("orders", max=7)) for _ in range(9)]) == len(MESSAGES)
                return failed
        except (OSError, Failed) as error:
            assert "Input/output error" in str(error)
            return True

    async def each() -> None:
        number = 1
        while await start(number):
            number += 1
        assert number > 5

    asyncio.run(each())


def test_the_id_of_a_node_is_never_made_anew(template, tmp_path):
    root = tmp_path / "data"
    shutil.copytree(template, root)

    async def run() -> None:
        engine = LocalEngine(str(root))
        with pytest.raises(Damaged, match="node, offset 0: the file is missing"):
            engine.node_id(bytes(16))
        await engine.close()

    asyncio.run(run())
