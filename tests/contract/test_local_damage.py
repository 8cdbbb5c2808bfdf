"""Torn tails and damage, exhaustively and on real files: the durable prefix comes back, or the file is named.

A torn tail is the rest of a commit that was not acknowledged before a power cut. Everything else that does not check is
damage, and no byte of it may be believed, skipped, or cost more memory than a commit.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import struct
import tracemalloc
from itertools import accumulate
from pathlib import Path
from tempfile import mkdtemp

import google_crc32c
import pytest
from disks import QuickFiles

from penstock import limits
from penstock.batch import Batch, build, layout
from penstock.core import records
from penstock.core.config import QueueConfig
from penstock.engines.local.engine import LocalEngine
from penstock.engines.local.journal import LocalJournal
from penstock.engines.local.opening import FILE_HEADER_BYTES
from penstock.errors import Unavailable
from penstock.journal.codec import encode
from penstock.journal.frame import CHAIN_START, HEADER, Frame, FrameWriter
from penstock.journal.port import Damaged
from penstock.runtime.recovery import recover

NODE = bytes(range(16))
BATCH = Batch.open(build([b"1", b'"two"'], columns={layout.KEY: [b"k", b""]}))
RECORDS: list[records.Record] = [
    records.Opened(1, 1, "01JP0000000000000000000000"),
    records.QueueConfigured(1, 1, "a/b/c", QueueConfig()),
    records.GroupCreated(1, 1, 0, "default", [0]),
    records.Published(1, 1, 0, 0, 77, BATCH, "p", 1, [0, 2]),
    records.Leased(1, 1, 0, 0, 1, 99, 30_000, [0, 2, 1], "worker"),
    records.Extended(1, 1, [0, 2], 60_000),
    records.Acked(1, 1, 0, 0, 1, [0, 1]),
    records.Retried(1, 1, 0, 0, 1, [1, 2], 5, "nack", "it broke"),
    records.Released(1, 1, 0, 0, 1, [1, 2]),
    records.DeadLettered(1, 1, 0, 0, 1, [1, 2], "rejected", "no"),
    records.Expired(1, 1, 0, [0, 1]),
    records.Cancelled(1, 1, 0, [0, 1]),
    records.Rescheduled(1, 1, 0, [0, 1], 9),
    records.Trimmed(1, 1, 0, 1),
    records.QueuePurged(1, 1, [2]),
    records.QueueDeleted(1, 1),
]


def body_of(*chosen: records.Record) -> bytes:
    return b"".join(part for record in chosen for part in encode(record) if part)


class Journal:
    """A shard's directory in which a test writes files as it likes, and opens them as the broker would."""

    def __init__(self, root: Path):
        self.root = root
        self.place = str(root)
        self.files = QuickFiles()
        (root / "journal").mkdir(parents=True)
        (root / "blobs").mkdir()
        self.set_term(1)

    def path(self, first: int = 1) -> Path:
        return self.root / "journal" / f"{first:020d}.log"

    def set_term(self, term: int) -> None:
        (self.root / "term").write_bytes(cell(term))

    def set_hint(self, index: int) -> None:
        (self.root / "durable").write_bytes(cell(index))

    def opened(self) -> LocalJournal:
        journal = LocalJournal(self.files, self.place, 0, f"{self.place}/reserve", "always", 1 << 20)
        journal.open()
        return journal

    def read(self) -> list[tuple[int, bytes]]:
        """(index, body) of every frame, by a complete opening. Raises what that raises."""
        try:
            return [(frame.index, bytes(frame.body)) for frame in replayed(self.opened())]
        finally:
            self.files.close_all()


def replayed(journal: LocalJournal) -> list[Frame]:
    """Every frame. `replay` never really waits, so it is driven by hand: an event loop would take most of the time."""
    frames, walk = [], journal.replay(0)
    while True:
        try:
            walk.__anext__().send(None)
        except StopIteration as found:
            frames.append(found.value[1])
        except StopAsyncIteration:
            return frames


def cell(value: int) -> bytes:
    raw = value.to_bytes(8, "little")
    return raw + google_crc32c.value(raw).to_bytes(4, "little")


def file_header(first: int, chain: bytes, shard: int = 0) -> bytes:
    header = struct.pack("<8sIIQ16s20s", b"PENSTKJ1", shard, 0, first, chain, bytes(20))
    return header + google_crc32c.value(header).to_bytes(4, "little")


def frames_of(bodies: list[bytes], first: int = 1, chain: bytes = CHAIN_START) -> tuple[list[bytes], bytes]:
    """The frames with these bodies, and the chain behind them."""
    writer = FrameWriter(NODE, 1, first, chain)
    return [writer.seal(1000, [body]) + body for body in bodies], writer.chain


@pytest.fixture
def journal(tmp_path):
    """In memory where the system has such a place: these tests are about bytes, not about the disk."""
    memory = Path("/dev/shm")  # a name of the system, not a path of ours
    root = Path(mkdtemp(dir=memory)) if memory.is_dir() else tmp_path
    yield Journal(root / "shard-0")
    shutil.rmtree(root)


def names_its_place(error: pytest.ExceptionInfo[Damaged], path: Path) -> bool:
    return re.search(rf"{re.escape(str(path))}, offset \d+: ", str(error.value)) is not None


# -- the torn tail -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_every_cut_of_the_last_frame_leaves_exactly_the_durable_prefix(journal, record):
    """Cut, filled up with zeros, with 0xFF, and with what an older frame left there; at every byte."""
    bodies = [body_of(RECORDS[1]), body_of(*RECORDS[2:4]), body_of(record)]
    frames, _ = frames_of(bodies)
    durable = file_header(1, CHAIN_START) + frames[0] + frames[1]
    last = frames[2]
    (older,), _ = frames_of([bytes(range(1, 256)) * 10])
    expected = list(enumerate(bodies[:2], 1))
    for cut in range(len(last)):
        rest = len(last) - cut
        for filling in (b"", bytes(rest), b"\xff" * rest, older[cut : len(last)], bytes(4096)):
            if (last[:cut] + filling).startswith(last):
                continue  # a frame that ends in zeros is whole again
            journal.path().write_bytes(durable + last[:cut] + filling)
            journal.set_hint(2)
            assert journal.read() == expected, f"cut at byte {cut}, filled with {filling[:4]!r}"
            assert journal.path().read_bytes().rstrip(b"\0") == durable.rstrip(b"\0"), "what was torn is cut off"
    journal.path().write_bytes(durable + last)
    assert journal.read() == list(enumerate(bodies, 1))


def test_old_content_of_a_reused_file_is_not_damage(journal):
    """Whole older frames behind the end, wherever in them the end is, and behind every cut of the last frame."""
    bodies = [body_of(RECORDS[1]), body_of(*RECORDS[2:4]), body_of(RECORDS[4])]
    older, chain = frames_of([body_of(record) for record in RECORDS[1:]])
    first = len(older) + 1
    frames, _ = frames_of(bodies, first, chain)
    left = file_header(1, CHAIN_START) + b"".join(older)
    whole = file_header(first, chain) + b"".join(frames)
    durable = whole[: -len(frames[2])]
    expected = list(enumerate(bodies, first))
    journal.set_hint(first + 1)
    for cut in range(len(frames[2])):
        torn = durable + frames[2][:cut]
        for behind in (left[len(torn) :], left[len(durable) :], bytes(50) + left[len(torn) + 50 :]):
            journal.path(first).write_bytes(torn + behind)
            assert journal.read() == expected[:2], f"cut at byte {cut}"
            assert journal.path(first).read_bytes() == durable, "what was torn, and what is old, is cut off"
    journal.path(first).write_bytes(whole + left[len(whole) :])
    assert journal.read() == expected


def test_what_an_old_message_holds_is_not_taken_for_a_frame(journal):
    """The payload of a message is a piece of another journal: whole frames of any index, inside of the rest."""
    foreign, _ = frames_of([b"x" * 50] * 40, first=1_000_000)
    near, _ = frames_of([b"x" * 50] * 40, first=30)
    older, chain = frames_of([b"".join(foreign), b"".join(near)] * 3)
    frames, _ = frames_of([body_of(RECORDS[1])], len(older) + 1, chain)
    left = file_header(1, CHAIN_START) + b"".join(older)
    for count in (0, 1):
        fresh = file_header(len(older) + 1, chain) + b"".join(frames[:count])
        for start in (len(fresh), FILE_HEADER_BYTES, 1_000):
            journal.path(len(older) + 1).write_bytes(fresh + left[start:])
            journal.set_hint(len(older) + count)
            assert len(journal.read()) == count


def test_lost_write_in_a_reused_file_is_damage(journal):
    """Of three frames the middle one never arrived: what stands there is whole, and old."""
    bodies = [body_of(RECORDS[3]) * 20, body_of(RECORDS[3]) * 30, body_of(RECORDS[3]) * 40]
    older, chain = frames_of([body_of(record) for record in RECORDS[1:]] * 5)
    first = len(older) + 1
    frames, _ = frames_of(bodies, first, chain)
    left = file_header(1, CHAIN_START) + b"".join(older)
    data = bytearray(file_header(first, chain) + b"".join(frames))
    hole = slice(FILE_HEADER_BYTES + len(frames[0]), len(data) - len(frames[2]))
    data[hole] = left[hole]
    journal.path(first).write_bytes(bytes(data) + left[len(data) :])
    with pytest.raises(Damaged, match="a whole frame stands behind it") as error:
        journal.read()
    assert names_its_place(error, journal.path(first))


def test_journal_continues_after_a_torn_tail(journal):
    frames, _ = frames_of([b"".join([body_of(RECORDS[1])]), body_of(RECORDS[2])])
    journal.path().write_bytes(file_header(1, CHAIN_START) + frames[0] + frames[1][:50])
    journal.set_hint(1)

    async def go_on() -> list[int]:
        opened = journal.opened()
        writer = FrameWriter(NODE, opened.term, opened.tail.index + 1, opened.tail.chain)
        for _ in range(3):
            body = body_of(RECORDS[3])
            index = writer.next_index
            await opened.append(index, [writer.seal(1000, [body]), body])
        found = [frame.index for frame in replayed(opened)]
        await opened.close()
        return found

    assert asyncio.run(go_on()) == [1, 2, 3, 4]
    assert [index for index, _ in journal.read()] == [1, 2, 3, 4]


# -- damage ------------------------------------------------------------------------------------------------------------


def sixty_four_records() -> list[bytes]:
    """Bodies of frames that hold 64 records, of every kind."""
    chosen = (RECORDS * 4)[:64]
    sizes = [1, 2, 3, 5, 8, 13, 21, 11]
    bodies = []
    for size in sizes:
        bodies.append(body_of(*chosen[:size]))
        chosen = chosen[size:]
    assert not chosen
    return bodies


@pytest.mark.slow
@pytest.mark.parametrize("place", ["last file", "closed file"])
def test_every_single_bit_of_a_segment_is_guarded(journal, place):
    """Each bit is flipped in turn: exactly the original frames, or Damaged with the file and the offset."""
    bodies = sixty_four_records()
    frames, chain = frames_of(bodies)
    data = bytearray(file_header(1, CHAIN_START) + b"".join(frames))
    expected = list(enumerate(bodies, 1))
    spare = 0
    if place == "closed file":
        following, _ = frames_of([body_of(RECORDS[0])], 9, chain)
        journal.path(9).write_bytes(file_header(9, chain) + following[0])
        expected.append((9, body_of(RECORDS[0])))
        journal.set_hint(9)
    else:
        spare = 16  # bytes prepared ahead, with nothing in them yet
        data += bytes(spare)
        journal.set_hint(8)
    journal.path().write_bytes(data)
    assert journal.read() == expected
    refused, path = 0, journal.path()
    with path.open("r+b", buffering=0) as file:
        for at in range(len(data)):
            for bit in range(8):
                file.seek(at)
                file.write(bytes([data[at] ^ 1 << bit]))
                try:
                    assert journal.read() == expected, f"bit {bit} of byte {at} changed the content"
                except Damaged as error:
                    refused += 1
                    assert f"{path}, offset " in str(error)
                if file.seek(0, os.SEEK_END) != len(data):
                    path.write_bytes(data)
                file.seek(at)
                file.write(data[at : at + 1])
    assert refused == 8 * (len(data) - spare), "only what was prepared ahead may be lost"


def test_without_the_hint_only_the_last_frame_can_be_taken_for_torn(journal):
    bodies = [body_of(record) for record in RECORDS[:4]]
    frames, _ = frames_of(bodies)
    clean = file_header(1, CHAIN_START) + b"".join(frames)
    last_at = len(clean) - len(frames[-1])
    starts = list(accumulate(map(len, frames[:-1]), initial=FILE_HEADER_BYTES))
    for at in range(FILE_HEADER_BYTES, len(clean)):
        data = bytearray(clean)
        data[at] ^= 0x10
        journal.path().write_bytes(data)
        journal.set_hint(0)
        if any(at - start in (2, 3) for start in starts):
            with pytest.raises(Damaged, match="not supported: a newer version wrote it"):
                journal.read()
        elif at >= last_at:
            assert journal.read() == list(enumerate(bodies[:3], 1))
        else:
            with pytest.raises(Damaged, match="a whole frame stands behind it") as caught:
                journal.read()
            assert names_its_place(caught, journal.path())


@pytest.mark.parametrize("fsync", ["always", "interval", "batch", "never"])
def test_a_frame_of_a_newer_version_is_no_torn_tail(journal, fsync):
    frames, _ = frames_of([body_of(record) for record in RECORDS[:3]])
    newer = bytearray(frames[2])
    newer[2] = 2
    data = file_header(1, CHAIN_START) + frames[0] + frames[1] + bytes(newer)
    journal.path().write_bytes(data)
    opened = LocalJournal(journal.files, journal.place, 0, f"{journal.place}/reserve", fsync, 1 << 20)
    with pytest.raises(Damaged, match=r"offset \d+: frame version 2, .* a newer version wrote it"):
        opened.open()
    journal.files.close_all()
    assert journal.path().read_bytes() == data


@pytest.mark.parametrize("length", [0, 1, 2**31, 2**32 - 1])
def test_a_wrong_length_is_never_believed_and_costs_nothing(journal, length):
    """The length of a frame, with checksums that match and without; and the two lengths inside a record."""
    bodies = [body_of(record) for record in RECORDS[1:4]]
    frames, _ = frames_of(bodies)
    for position in range(3):
        for resealed in (False, True):
            damaged = bytearray(frames[position])
            damaged[12:16] = length.to_bytes(4, "little")
            if resealed:
                damaged[4:8] = google_crc32c.value(bytes(damaged[8 : HEADER.size])).to_bytes(4, "little")
            parts = [*frames[:position], bytes(damaged), *frames[position + 1 :]]
            journal.path().write_bytes(file_header(1, CHAIN_START) + b"".join(parts))
            journal.set_hint(3)
            with pytest.raises(Damaged) as caught, bounded_memory():
                journal.read()
            assert names_its_place(caught, journal.path())
    for field in (0, 4):
        body = bytearray(body_of(RECORDS[3]))
        body[field : field + 4] = length.to_bytes(4, "little")
        sealed, _ = frames_of([body_of(RECORDS[1]), bytes(body)])
        journal.path().write_bytes(file_header(1, CHAIN_START) + b"".join(sealed))
        journal.set_hint(2)
        opened = journal.opened()
        with pytest.raises(Damaged, match=r"frame 2: .* record at 0"), bounded_memory():
            asyncio.run(recover(opened, NODE))
        journal.files.close_all()


class bounded_memory:
    """Nothing inside may take more than 64 MiB."""

    def __enter__(self) -> None:
        tracemalloc.start()

    def __exit__(self, *_: object) -> None:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak <= 64 * limits.MIB, f"{peak >> 20} MiB"


# -- files that are not what or where they should be -------------------------------------------------------------------


@pytest.fixture
def three_files(journal) -> Journal:
    """Frames 1-2, 3-4 and 5-6."""
    chain, first = CHAIN_START, 1
    for _ in range(3):
        frames, after = frames_of([body_of(RECORDS[1]), body_of(RECORDS[2])], first, chain)
        journal.path(first).write_bytes(file_header(first, chain) + b"".join(frames))
        chain, first = after, first + 2
    journal.set_hint(6)
    assert [index for index, _ in journal.read()] == [1, 2, 3, 4, 5, 6]
    return journal


def test_a_missing_file_in_the_middle(three_files):
    three_files.path(3).unlink()
    with pytest.raises(Damaged, match=r"offset \d+: the file does not end with frame 4, behind which .* begins"):
        three_files.read()


def test_a_missing_last_file(three_files):
    three_files.path(5).unlink()
    with pytest.raises(Damaged, match=f"{three_files.path(3)}, offset .* frame 5 was durable"):
        three_files.read()


def test_a_missing_first_file(three_files):
    three_files.path(1).unlink()
    journal = three_files.opened()
    with pytest.raises(Damaged, match="the journal begins with frame 3, and no snapshot"):
        asyncio.run(recover(journal, NODE))
    three_files.files.close_all()


def test_no_files_at_all(three_files):
    for first in (1, 3, 5):
        three_files.path(first).unlink()
    with pytest.raises(Damaged, match="is empty, but frame 6 was durable"):
        three_files.read()


@pytest.mark.parametrize("first", [1, 3, 5])
@pytest.mark.parametrize("content", [b"", bytes(FILE_HEADER_BYTES), b"\xff" * 200, b"PENSTKJ1" + bytes(100)])
def test_invalid_segment_file_is_rejected(three_files, first, content):
    three_files.path(first).write_bytes(content)
    with pytest.raises(Damaged, match=f"{three_files.path(first)}, offset 0: "):
        three_files.read()


def test_a_file_that_was_being_made_when_the_power_went(three_files):
    for content in (b"", file_header(7, bytes(16))[:63], bytes(64)):
        three_files.path(7).write_bytes(content)
        assert [index for index, _ in three_files.read()] == [1, 2, 3, 4, 5, 6]
        assert not three_files.path(7).exists()


def test_swapped_files(three_files):
    one, other = three_files.path(1).read_bytes(), three_files.path(3).read_bytes()
    three_files.path(1).write_bytes(other)
    three_files.path(3).write_bytes(one)
    with pytest.raises(Damaged, match="offset 0: the header is that of shard 0, frame 3"):
        three_files.read()


@pytest.mark.parametrize("first", [1, 3])
def test_a_file_of_another_history(three_files, first):
    """The same frame numbers, whole and undamaged, but of another journal."""
    frames, _ = frames_of([body_of(RECORDS[7]), body_of(RECORDS[8])], first, b"another chain 16")
    three_files.path(first).write_bytes(file_header(first, b"another chain 16") + b"".join(frames))
    with pytest.raises(Damaged, match=r"\.log, offset 0: .*history"):
        three_files.read()


def test_a_foreign_shard(three_files):
    data = three_files.path(3).read_bytes()
    chain = struct.unpack_from("<16s", data, 24)[0]
    three_files.path(3).write_bytes(file_header(3, chain, shard=7) + data[FILE_HEADER_BYTES:])
    with pytest.raises(Damaged, match=f"{three_files.path(3)}, offset 0: the header is that of shard 7"):
        three_files.read()


def test_a_copy_from_before(three_files):
    """The last file as it was one commit ago: the hint remembers that there was more."""
    data = three_files.path(5).read_bytes()
    three_files.path(5).write_bytes(data[: -HEADER.size - len(body_of(RECORDS[2]))])
    with pytest.raises(Damaged, match="frame 6 was durable and cannot be read"):
        three_files.read()


def test_a_missing_hint_is_no_reason_to_refuse(three_files):
    (three_files.root / "durable").unlink()
    assert len(three_files.read()) == 6
    (three_files.root / "durable").write_bytes(b"rubbish")
    assert len(three_files.read()) == 6


def test_a_missing_term_is_not_replaced_by_an_old_one(three_files):
    (three_files.root / "term").unlink()
    with pytest.raises(Damaged, match=f"{three_files.root}/term"):
        three_files.opened()
    three_files.files.close_all()


def test_a_damaged_term(three_files):
    (three_files.root / "term").write_bytes(bytes(12))
    with pytest.raises(Damaged, match=f"{three_files.root}/term, offset 0: the term's checksum"):
        three_files.opened()
    three_files.files.close_all()


def test_a_term_from_before(three_files):
    """Frames carry the term they were written under; a lower one may not follow."""
    chain = three_files.path(5).read_bytes()[24:40]
    writer = FrameWriter(NODE, 9, 5, chain)
    body = body_of(RECORDS[1])
    sealed = [writer.seal(1000, [body]) + body for _ in range(2)]
    three_files.path(5).write_bytes(file_header(5, chain) + b"".join(sealed))
    with pytest.raises(Damaged, match=r"frame 5 was written in term 9, but .*/term has only come to 2") as caught:
        three_files.read()
    assert names_its_place(caught, three_files.path(5))


# -- the directory -----------------------------------------------------------------------------------------------------


def test_a_directory_has_one_owner(tmp_path):
    first = LocalEngine(str(tmp_path))
    with pytest.raises(Unavailable, match="in use by another process"):
        LocalEngine(str(tmp_path))
    asyncio.run(first.close())
    asyncio.run(LocalEngine(str(tmp_path)).close())


def test_a_damaged_node_file_is_named(tmp_path):
    engine = LocalEngine(str(tmp_path))
    (tmp_path / "node").write_text("nonsense")
    with pytest.raises(Damaged, match=f"{tmp_path}/node"):
        engine.node_id(NODE)
    asyncio.run(engine.close())
    shutil.rmtree(tmp_path)
