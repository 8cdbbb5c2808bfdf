"""The contract of `journal/port.py` as checks that every storage engine must pass.

A check gets a function that opens the engine on one store, which is empty at first. The check opens the engine again to
simulate a restart. Parametrize a test over `CHECKS`, or run them all:

    for check in CHECKS:
        await check(lambda: MyEngine("/somewhere/empty"))

Faults beyond the port (power loss, damaged bytes, full disks) need tests of the engine itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, TypeAlias

from penstock.batch import Buffer
from penstock.journal.frame import CHAIN_START, HEADER, FrameWriter
from penstock.journal.port import Engine, Failed, Fenced, InlineJournal, ShardJournal, Tail

OpenEngine: TypeAlias = Callable[[], Engine]
Check: TypeAlias = Callable[[OpenEngine], Awaitable[None]]

NODE = bytes(range(16))


class Written(NamedTuple):
    locator: int
    frame: bytes


class Owner:
    """A journal and its frame writer, as the shard's loop uses them."""

    def __init__(self, journal: ShardJournal):
        self.journal = journal
        self._writer = FrameWriter(NODE, journal.term, journal.tail.index + 1, journal.tail.chain)

    async def append(self, parts: Sequence[Buffer], *, inline: bool = False) -> Written:
        """Append a frame, inline if the journal offers it: both ways have the same outcome."""
        index = self._writer.next_index
        header = self._writer.seal(1000 + index, parts)
        if inline and isinstance(self.journal, InlineJournal) and self.journal.can_write_inline():
            locator = self.journal.write(index, [header, *parts])
            self.journal.sync()
        else:
            locator = await self.journal.append(index, [header, *parts])
        return Written(locator, header + b"".join(parts))

    async def append_some(self, count: int, size: int = 100) -> list[Written]:
        return [await self.append([bytes([number % 251]) * size], inline=number % 2 == 0) for number in range(count)]


async def opened(engine: Engine, shard: int = 0) -> Owner:
    return Owner(await engine.acquire(shard, NODE))


async def stop(engine: Engine, *owners: Owner) -> None:
    for owner in owners:
        await owner.journal.close()
    await engine.close()


async def replayed(journal: ShardJournal, after: int = 0) -> list[Written]:
    found = []
    last = after
    async for locator, frame in journal.replay(after):
        assert frame.index == last + 1, "frames come in order, none left out"
        last = frame.index
        found.append(Written(locator, journal.read(locator, 0, frame.size)))
        assert bytes(frame.body) == found[-1].frame[HEADER.size :]
    return found


# -- checks ------------------------------------------------------------------------------------------------------------


async def a_new_journal_is_empty(open_engine: OpenEngine) -> None:
    engine = open_engine()
    owner = await opened(engine)
    journal = owner.journal
    assert journal.tail == Tail(0, CHAIN_START)
    assert journal.term >= 1
    assert await journal.first_kept() == 1
    assert await replayed(journal) == []
    assert await journal.list_blobs("") == []
    assert isinstance(journal.durable, bool)
    assert not journal.short_of_space
    await stop(engine, owner)


async def what_was_appended_is_replayed(open_engine: OpenEngine) -> None:
    engine = open_engine()
    owner = await opened(engine)
    written = await owner.append_some(20)
    assert owner.journal.tail == Tail(20, written[-1].frame[HEADER.size - 16 : HEADER.size])
    assert len({one.locator for one in written}) == 20
    for after in (0, 1, 7, 19, 20):
        assert await replayed(owner.journal, after) == written[after:]
    await stop(engine, owner)


async def any_part_of_a_frame_can_be_read(open_engine: OpenEngine) -> None:
    engine = open_engine()
    owner = await opened(engine)
    for locator, frame in await owner.append_some(5, size=300):
        for skip, length in ((0, len(frame)), (0, 1), (HEADER.size, 50), (len(frame) - 1, 1), (100, 0)):
            assert owner.journal.read(locator, skip, length) == frame[skip : skip + length]
    await stop(engine, owner)


async def frames_come_in_many_shapes(open_engine: OpenEngine) -> None:
    """Frames of thousands of small parts, empty parts, views of other buffers, and megabytes."""
    engine = open_engine()
    owner = await opened(engine)
    shapes: list[list[Buffer]] = [
        [b""],
        [b"a", b"", b"b"],
        [b"x"] * 2500,
        [memoryview(b"0123456789")[3:7], bytearray(b"mutable")],
        [bytes(3 << 20)],
        [b"after"],
    ]
    written = [await owner.append(parts) for parts in shapes]
    assert await replayed(owner.journal) == written
    await stop(engine, owner)


async def a_journal_outlives_its_process(open_engine: OpenEngine) -> None:
    written: list[Written] = []
    for _ in range(3):
        engine = open_engine()
        owner = await opened(engine)
        assert owner.journal.tail.index == len(written)
        assert await replayed(owner.journal) == written, "the same bytes at the same places"
        written += await owner.append_some(7)
        await stop(engine, owner)


async def terms_only_grow(open_engine: OpenEngine) -> None:
    terms = []
    for _ in range(3):
        engine = open_engine()
        owner = await opened(engine)
        terms.append(owner.journal.term)
        await stop(engine, owner)
    assert terms == sorted(set(terms)), terms


async def a_new_owner_fences_the_earlier_one(open_engine: OpenEngine) -> None:
    engine = open_engine()
    earlier = await opened(engine)
    written = await earlier.append_some(3)
    later = await opened(engine)
    assert later.journal.term > earlier.journal.term
    attempts: list[Callable[[], Awaitable[Any]]] = [
        lambda: earlier.append([b"zombie"]),
        lambda: earlier.journal.put_blobs([("snapshot-zombie", [b"zombie"])]),
        lambda: earlier.journal.delete_blobs(["anything"]),
        lambda: earlier.journal.trim(2),
    ]
    for attempt in attempts:
        try:
            await attempt()
        except Fenced:
            continue
        raise AssertionError("an owner of an earlier term could still append")
    written += await later.append_some(2)
    assert await replayed(later.journal) == written
    assert await later.journal.list_blobs("") == []
    await earlier.journal.close()
    await stop(engine, later)
    engine = open_engine()
    again = await opened(engine)
    assert await replayed(again.journal) == written
    await stop(engine, again)


async def shards_do_not_see_each_other(open_engine: OpenEngine) -> None:
    engine = open_engine()
    one, other = await opened(engine, 0), await opened(engine, 1)
    written = await one.append_some(3)
    await other.journal.put_blobs([("snapshot-1", [b"other"])])
    assert await replayed(other.journal) == []
    assert await one.journal.list_blobs("") == []
    assert await replayed(one.journal) == written
    await stop(engine, one, other)


async def trimming_drops_only_what_is_not_needed(open_engine: OpenEngine) -> None:
    engine = open_engine()
    owner = await opened(engine)
    written = await owner.append_some(60)
    needed = 0
    for upto in (10, 10, 5, 35, 60):
        await owner.journal.trim(upto)
        needed = max(needed, upto)
        assert 1 <= await owner.journal.first_kept() <= needed + 1
        assert await replayed(owner.journal, needed) == written[needed:]
    assert owner.journal.tail.index == 60
    written += await owner.append_some(3)
    await stop(engine, owner)
    engine = open_engine()
    owner = await opened(engine)
    assert owner.journal.tail.index == 63
    assert await replayed(owner.journal, 60) == written[60:]
    await stop(engine, owner)


async def what_lies_before_a_roll_can_be_trimmed(open_engine: OpenEngine) -> None:
    engine = open_engine()
    owner = await opened(engine)
    journal = owner.journal
    written = await owner.append_some(5)
    await journal.roll()
    await journal.roll()
    written += await owner.append_some(5)
    ends = journal.file_ends()
    assert ends == sorted(ends) and all(index < journal.tail.index for index, _ in ends)
    for index, locator in ends:
        assert all(one.locator <= locator for one in written[:index])
        assert all(one.locator > locator for one in written[index:])
    await journal.trim(5)
    assert await journal.first_kept() == 6
    assert await replayed(journal, 5) == written[5:]
    await stop(engine, owner)
    engine = open_engine()
    owner = await opened(engine)
    assert await replayed(owner.journal, 5) == written[5:]
    await stop(engine, owner)


async def a_replay_is_not_disturbed(open_engine: OpenEngine) -> None:
    """A replay yields all frames that existed at its start, even if frames are appended and trimmed meanwhile."""
    engine = open_engine()
    owner = await opened(engine)
    written = await owner.append_some(60)
    found = []
    async with aclosing(owner.journal.replay(20)) as frames:
        async for _, frame in frames:
            found.append(bytes(frame.body))
            if len(found) in (1, 15, 39):
                await owner.append_some(10)
                await owner.journal.trim(40 + len(found))
    assert found[:40] == [each.frame[HEADER.size :] for each in written[20:]]
    async with aclosing(owner.journal.replay(0)) as frames:
        async for _ in frames:
            await owner.journal.trim(85)
            break
    assert [frame.index async for _, frame in owner.journal.replay(85)] == list(range(86, 91))
    # The engine may reuse the space of frames that were trimmed during the replay.
    written = await owner.append_some(60)
    found = []
    async with aclosing(owner.journal.replay(90)) as frames:
        async for _, frame in frames:
            found.append(bytes(frame.body))
            if len(found) <= 3:
                await owner.journal.trim(80 + 20 * len(found))
                await owner.append_some(60)
    assert found[:60] == [each.frame[HEADER.size :] for each in written]
    await stop(engine, owner)


async def a_search_begins_before_its_time(open_engine: OpenEngine) -> None:
    engine = open_engine()
    owner = await opened(engine)
    assert await owner.journal.index_before(10**15) == 0
    await owner.append_some(60)
    await owner.journal.trim(15)
    kept = await owner.journal.first_kept()
    times = {frame.index: frame.at_ms async for _, frame in owner.journal.replay(0)}
    begins = set()
    for at_ms in (0, times[kept], times[kept] + 1, times[40], times[60], 10**15):
        begin = await owner.journal.index_before(at_ms)
        assert kept - 1 <= begin <= 60
        assert all(times[index] < at_ms for index in range(kept, begin + 1))
        begins.add(begin)
    assert len(begins) > 1, "frames before the time are skipped"
    await stop(engine, owner)


async def a_journal_is_read_piece_by_piece(open_engine: OpenEngine) -> None:
    """Concurrent readers read the journal in pieces, at its growing end and across trimmed frames."""
    engine = open_engine()
    owner = await opened(engine)
    journal = owner.journal
    written = [frame for _, frame in await owner.append_some(40, size=500)]
    assert journal.bytes_since(1) >= sum(map(len, written)) > journal.bytes_since(40) >= len(written[-1])
    for size in (1, 1200, 10**6):
        slow: list[int] = []
        fast: list[int] = []
        while len(fast) < len(written):
            fast += [frame.index for frame in await journal.read_frames(len(fast), size)]
            if len(fast) % 2:
                slow += [frame.index for frame in await journal.read_frames(len(slow), 1)]
        assert fast == list(range(1, 41)) and slow == fast[: len(slow)]
    assert [frame.body for frame in await journal.read_frames(38, 10**6)] == [
        frame[HEADER.size :] for frame in written[38:]
    ]
    assert await journal.read_frames(40, 10**6) == []
    await owner.append_some(1)
    assert [frame.index for frame in await journal.read_frames(40, 1)] == [41]
    await journal.trim(20)
    first = (await journal.read_frames(0, 1))[0].index
    assert first == await journal.first_kept()
    await stop(engine, owner)


async def blobs_are_kept_whole(open_engine: OpenEngine) -> None:
    engine = open_engine()
    owner = await opened(engine)
    journal = owner.journal
    large = bytes(range(256)) * 5000
    await journal.put_blobs([("segment-2", [large[:1000], memoryview(large)[1000:]])])
    await journal.put_blobs([("snapshot-1", [b"s"])])
    await journal.put_blobs([("segment-1", [])])
    assert await journal.list_blobs("") == [("segment-1", 0), ("segment-2", len(large)), ("snapshot-1", 1)]
    assert await journal.list_blobs("segment-") == [("segment-1", 0), ("segment-2", len(large))]
    for start, length in ((0, len(large)), (0, 1), (999, 2), (len(large) - 5, 5)):
        assert journal.read_blob("segment-2", start, length) == large[start : start + length]
    await journal.put_blobs([("ids-1", [b"one"]), ("ids-2", [b"two"])])
    assert [journal.read_blob(name, 0, 3) for name in ("ids-1", "ids-2")] == [b"one", b"two"]
    await journal.delete_blobs(["segment-1", "ids-1"])
    await journal.delete_blobs(["segment-1", "ids-2"])
    await stop(engine, owner)
    engine = open_engine()
    owner = await opened(engine)
    assert await owner.journal.list_blobs("") == [("segment-2", len(large)), ("snapshot-1", 1)]
    assert owner.journal.read_blob("segment-2", 7, 100) == large[7:107]
    await stop(engine, owner)


async def a_closed_journal_takes_nothing(open_engine: OpenEngine) -> None:
    engine = open_engine()
    owner = await opened(engine)
    await owner.append_some(2)
    await owner.journal.close()
    await owner.journal.close()
    for attempt in (lambda: owner.append([b"late"]), lambda: owner.journal.put_blobs([("late", [b"late"])])):
        try:
            await attempt()
        except Failed:
            continue
        raise AssertionError("a closed journal still wrote")
    await engine.close()


async def a_node_has_an_id(open_engine: OpenEngine) -> None:
    """A persistent store keeps the id of its node."""
    engine = open_engine()
    first, second = bytes(range(16)), bytes(range(1, 17))
    assert engine.node_id(first) == first
    assert engine.node_id(second) in (first, second)
    await engine.close()


CHECKS: list[Check] = [
    a_new_journal_is_empty,
    what_was_appended_is_replayed,
    any_part_of_a_frame_can_be_read,
    frames_come_in_many_shapes,
    a_journal_outlives_its_process,
    terms_only_grow,
    a_new_owner_fences_the_earlier_one,
    shards_do_not_see_each_other,
    trimming_drops_only_what_is_not_needed,
    what_lies_before_a_roll_can_be_trimmed,
    a_replay_is_not_disturbed,
    a_search_begins_before_its_time,
    a_journal_is_read_piece_by_piece,
    blobs_are_kept_whole,
    a_closed_journal_takes_nothing,
    a_node_has_an_id,
]
