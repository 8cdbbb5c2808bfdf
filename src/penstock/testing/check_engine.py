"""The contract of `journal/port.py` as checks that every storage engine must pass.

A check gets a function that opens the engine on one store, which is empty at first. The check opens the engine again to
simulate a restart. Parametrize a test over `CHECKS`, or run them all:

    for check in CHECKS:
        await check(lambda: MyEngine("/somewhere/empty"))

Faults beyond the port (power loss, damaged bytes, full disks) need tests of the engine itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, TypeAlias

from penstock.batch import Buffer
from penstock.journal.frame import CHAIN_START, HEADER, FrameWriter
from penstock.journal.port import (
    Engine,
    Failed,
    Fenced,
    Head,
    InlineJournal,
    Place,
    ResolvableJournal,
    ShardJournal,
    Source,
    Tail,
)

OpenEngine: TypeAlias = Callable[[], Engine]
Check: TypeAlias = Callable[[OpenEngine], Awaitable[None]]

NODE = bytes(range(16))


class Written(NamedTuple):
    at: int
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
        return Written(index, locator, header + b"".join(parts))

    def go_on(self) -> None:
        """Continue behind the frame with which `resolve` began a new term."""
        self._writer.continue_after(self.journal.tail.index, self.journal.tail.chain, self.journal.term)

    async def append_some(self, count: int, size: int = 100) -> list[Written]:
        return [await self.append([bytes([number % 251]) * size], inline=number % 2 == 0) for number in range(count)]


async def opened(engine: Engine, shard: int = 0) -> Owner:
    return Owner(await engine.acquire(shard, NODE))


async def stop(engine: Engine, *owners: Owner) -> None:
    for owner in owners:
        await owner.journal.close()
    await engine.close()


async def replayed(journal: ShardJournal, after: int = 0) -> list[Written]:
    """The frames with a body: a store may begin each term with a frame without one."""
    found = []
    last = after
    async for locator, frame in journal.replay(after):
        assert frame.index == last + 1, "frames come in order, none left out"
        last = frame.index
        stored = await read(journal, locator, 0, frame.size)
        assert bytes(frame.body) == stored[HEADER.size :]
        if frame.body:
            found.append(Written(frame.index, locator, stored))
    return found


async def read(journal: ShardJournal, source: Source, skip: int, length: int) -> bytes:
    """The bytes, which `peek` and `fetch` agree on."""
    (fetched,) = await journal.fetch([Place(source, skip, length)])
    at_hand = journal.peek(source, skip, length)
    assert at_hand == fetched or (at_hand is None and journal.traits.read_ms > 0)
    return fetched


async def fenced(attempt: Callable[[], Awaitable[Any]]) -> None:
    try:
        await attempt()
    except Fenced:
        return
    raise AssertionError("an owner of an earlier term changed the store")


async def trim(journal: ShardJournal, upto: int) -> None:
    """As upkeep does: what is trimmed lies before the head."""
    name = f"snapshot-{upto:020d}"
    if not await journal.list_blobs(name):
        await journal.put_blobs([(name, [b"state"])])
    await journal.commit_head(Head(name, upto))
    await journal.trim(upto)


# -- checks ------------------------------------------------------------------------------------------------------------


async def a_new_journal_is_empty(open_engine: OpenEngine) -> None:
    engine = open_engine()
    owner = await opened(engine)
    journal = owner.journal
    assert journal.tail == Tail(0, CHAIN_START) or (journal.traits.shared and journal.tail.index == 1)
    assert journal.term >= 1
    assert await journal.first_kept() == 1
    assert await journal.head() is None
    assert await replayed(journal) == []
    assert await journal.list_blobs("") == []
    assert isinstance(journal.durable, bool)
    assert not journal.short_of_space
    await stop(engine, owner)


async def what_was_appended_is_replayed(open_engine: OpenEngine) -> None:
    engine = open_engine()
    owner = await opened(engine)
    before = owner.journal.tail.index
    written = await owner.append_some(20)
    assert owner.journal.tail == Tail(before + 20, written[-1].frame[HEADER.size - 16 : HEADER.size])
    assert len({one.locator for one in written}) == 20
    for after in (0, 1, 7, 19, 20):
        assert await replayed(owner.journal, before + after) == written[after:]
    await stop(engine, owner)


async def any_part_of_a_frame_can_be_read(open_engine: OpenEngine) -> None:
    engine = open_engine()
    owner = await opened(engine)
    written = await owner.append_some(5, size=300)
    for _, locator, frame in written:
        for skip, length in ((0, len(frame)), (0, 1), (HEADER.size, 50), (len(frame) - 1, 1), (100, 0)):
            assert await read(owner.journal, locator, skip, length) == frame[skip : skip + length]
    # Many places of many frames and blobs, in any order, and one of them twice.
    await owner.journal.put_blobs([("segment-7", [b"0123456789" * 60_000])])
    places = [Place(one.locator, skip, 50) for skip in (200, 0, 100) for one in reversed(written)]
    places += [Place("segment-7", skip, 20) for skip in (599_990, 0, 262_140)] + places[:1]
    wanted = [one.frame[skip : skip + 50] for skip in (200, 0, 100) for one in reversed(written)]
    wanted += [b"0123456789", b"01234567890123456789", b"01234567890123456789", wanted[0]]
    assert await owner.journal.fetch(places) == wanted
    try:
        await owner.journal.fetch([Place("segment-8", 0, 1)])
        raise AssertionError("a blob that is not there was read")
    except FileNotFoundError:
        pass
    await stop(engine, owner)


async def frames_come_in_many_shapes(open_engine: OpenEngine) -> None:
    """Frames of thousands of small parts, empty parts, views of other buffers, and megabytes."""
    engine = open_engine()
    owner = await opened(engine)
    shapes: list[list[Buffer]] = [
        [b"", b"z"],
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
        assert owner.journal.tail.index >= len(written)
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
    await fenced(lambda: earlier.append([b"zombie"]))
    await fenced(lambda: earlier.journal.put_blobs([("snapshot-9", [b"zombie"])]))
    await fenced(lambda: earlier.journal.commit_head(Head("snapshot-9", 2)))
    await fenced(lambda: earlier.journal.delete_blobs(["anything"]))
    await fenced(lambda: earlier.journal.trim(2))
    written += await later.append_some(2)
    assert await replayed(later.journal) == written
    assert await later.journal.list_blobs("") == []
    assert await later.journal.head() is None
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
    before = owner.journal.tail.index
    written = await owner.append_some(60)
    needed = 0
    for upto in (10, 10, 35, 60):
        await trim(owner.journal, before + upto)
        needed = max(needed, upto)
        assert 1 <= await owner.journal.first_kept() <= before + needed + 1
        assert await replayed(owner.journal, before + needed) == written[needed:]
    assert owner.journal.tail.index == before + 60
    written += await owner.append_some(3)
    await stop(engine, owner)
    engine = open_engine()
    owner = await opened(engine)
    assert owner.journal.tail.index >= before + 63
    assert await replayed(owner.journal, before + 60) == written[60:]
    await stop(engine, owner)


async def what_lies_before_a_roll_can_be_trimmed(open_engine: OpenEngine) -> None:
    engine = open_engine()
    owner = await opened(engine)
    journal = owner.journal
    before = journal.tail.index
    written = await owner.append_some(5)
    await journal.roll()
    await journal.roll()
    written += await owner.append_some(5)
    ends = journal.file_ends()
    assert ends == sorted(ends) and all(index < journal.tail.index for index, _ in ends)
    for index, locator in ends:
        assert all(one.locator <= locator for one in written if one.at <= index)
        assert all(one.locator > locator for one in written if one.at > index)
    await trim(journal, before + 5)
    assert await journal.first_kept() == before + 6
    assert await replayed(journal, before + 5) == written[5:]
    await stop(engine, owner)
    engine = open_engine()
    owner = await opened(engine)
    assert await replayed(owner.journal, before + 5) == written[5:]
    await stop(engine, owner)


async def a_replay_is_not_disturbed(open_engine: OpenEngine) -> None:
    """A replay yields all frames that existed at its start, even if frames are appended and trimmed meanwhile."""
    engine = open_engine()
    owner = await opened(engine)
    before = owner.journal.tail.index
    written = await owner.append_some(60)
    found = []
    async with aclosing(owner.journal.replay(before + 20)) as frames:
        async for _, frame in frames:
            found.append(bytes(frame.body))
            if len(found) in (1, 15, 39):
                await owner.append_some(10)
                await trim(owner.journal, before + 40 + len(found))
    assert found[:40] == [each.frame[HEADER.size :] for each in written[20:]]
    async with aclosing(owner.journal.replay(0)) as frames:
        async for _ in frames:
            await trim(owner.journal, before + 85)
            break
    after = [frame.index async for _, frame in owner.journal.replay(before + 85)]
    assert after == list(range(before + 86, before + 91))
    # The engine may reuse the space of frames that were trimmed during the replay.
    written = await owner.append_some(60)
    found = []
    async with aclosing(owner.journal.replay(before + 90)) as frames:
        async for _, frame in frames:
            found.append(bytes(frame.body))
            if len(found) <= 3:
                await trim(owner.journal, before + 80 + 20 * len(found))
                await owner.append_some(60)
    assert found[:60] == [each.frame[HEADER.size :] for each in written]
    await stop(engine, owner)


async def a_search_begins_before_its_time(open_engine: OpenEngine) -> None:
    engine = open_engine()
    owner = await opened(engine)
    before = owner.journal.tail.index
    assert await owner.journal.index_before(10**15) <= before
    await owner.append_some(60)
    await trim(owner.journal, before + 15)
    kept = await owner.journal.first_kept()
    times = {frame.index: frame.at_ms async for _, frame in owner.journal.replay(kept - 1)}
    begins = set()
    for at_ms in (0, times[kept], times[kept] + 1, times[before + 40], times[before + 60], 10**15):
        begin = await owner.journal.index_before(at_ms)
        assert kept - 1 <= begin <= before + 60
        assert all(times[index] < at_ms for index in range(kept, begin + 1))
        begins.add(begin)
    assert len(begins) > 1, "frames before the time are skipped"
    await stop(engine, owner)


async def a_journal_is_read_piece_by_piece(open_engine: OpenEngine) -> None:
    """Concurrent readers read the journal in pieces, at its growing end and across trimmed frames."""
    engine = open_engine()
    owner = await opened(engine)
    journal = owner.journal
    before = journal.tail.index
    written = [frame for _, _, frame in await owner.append_some(40, size=500)]
    last = before + 40
    assert journal.bytes_since(1) >= sum(map(len, written)) > journal.bytes_since(last) >= len(written[-1])
    for size in (1, 1200, 10**6):
        slow: list[int] = []
        fast: list[int] = []
        while len(fast) < last:
            fast += [frame.index for frame in await journal.read_frames(len(fast), size)]
            if len(fast) % 2:
                slow += [frame.index for frame in await journal.read_frames(len(slow), 1)]
        assert fast == list(range(1, last + 1)) and slow == fast[: len(slow)]
    assert [frame.body for frame in await journal.read_frames(last - 2, 10**6)] == [
        frame[HEADER.size :] for frame in written[38:]
    ]
    assert await journal.read_frames(last, 10**6) == []
    await owner.append_some(1)
    assert [frame.index for frame in await journal.read_frames(last, 1)] == [last + 1]
    await trim(journal, before + 20)
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
        assert await read(journal, "segment-2", start, length) == large[start : start + length]
    await journal.put_blobs([("ids-1", [b"one"]), ("ids-2", [b"two"])])
    assert [await read(journal, name, 0, 3) for name in ("ids-1", "ids-2")] == [b"one", b"two"]
    await journal.delete_blobs(["segment-1", "ids-1"])
    await journal.delete_blobs(["segment-1", "ids-2"])
    await stop(engine, owner)
    engine = open_engine()
    owner = await opened(engine)
    assert await owner.journal.list_blobs("") == [("segment-2", len(large)), ("snapshot-1", 1)]
    assert await read(owner.journal, "segment-2", 7, 100) == large[7:107]
    await stop(engine, owner)


async def the_head_is_what_was_committed_last(open_engine: OpenEngine) -> None:
    """A snapshot counts from the moment at which it is the head. Frames before the head can be trimmed."""
    engine = open_engine()
    owner = await opened(engine)
    journal = owner.journal
    head: Head | None = None
    for _ in range(3):
        await owner.append_some(30)
        index = journal.tail.index
        head = Head(f"snapshot-{index:020d}-{index:012d}", index)
        await journal.put_blobs([(head.snapshot, [b"state"])])
        await journal.commit_head(head)
        await journal.commit_head(head)
        assert await journal.head() == head
        await journal.delete_blobs([name for name, _ in await journal.list_blobs("snapshot-") if name != head.snapshot])
    await stop(engine, owner)
    engine = open_engine()
    owner = await opened(engine)
    assert await owner.journal.head() == head
    await stop(engine, owner)


async def of_three_contenders_the_last_term_wins(open_engine: OpenEngine) -> None:
    """Owners that acquire and append at the same time: what is acknowledged is in the journal, once, and terms never
    go back. An owner of a shared store acquires through an engine of its own, as on another machine."""
    engine = open_engine()
    first = await opened(engine)
    shared = first.journal.traits.shared
    await first.journal.close()
    engines = [engine, open_engine(), open_engine()] if shared else [engine] * 3
    acked: list[bytes] = []

    async def contend(contender: int) -> None:
        for attempt in range(8):
            owner = await opened(engines[contender])
            try:
                for number in range(3):
                    body = b"%d-%d-%d" % (contender, attempt, number)
                    await owner.append([body])
                    acked.append(body)
                    await asyncio.sleep(0)
            except Fenced:
                pass
            finally:
                await owner.journal.close()

    await asyncio.gather(*map(contend, range(3)))
    last = await opened(engine)
    found, terms = [], []
    async for _, frame in last.journal.replay(0):
        terms.append(frame.term)
        found.append(bytes(frame.body))
    bodies = [body for body in found if body]
    assert set(acked) <= set(bodies) and len(bodies) == len(set(bodies)), "acknowledged frames are there, once"
    assert terms == sorted(terms), "no frame follows the frame of a higher term"
    await last.journal.close()
    for each in {id(each): each for each in engines}.values():
        await each.close()


async def a_resolved_append_is_known(open_engine: OpenEngine) -> None:
    """A new term of the same owner begins behind its last frame, and an append of the term before is fenced."""
    engine = open_engine()
    owner = await opened(engine)
    journal = owner.journal
    if not isinstance(journal, ResolvableJournal):
        await stop(engine, owner)
        return
    written = await owner.append_some(3)
    term, tail = journal.term, journal.tail
    resolved = await journal.resolve()
    assert resolved.found == tail and journal.term > term
    assert await read(journal, resolved.locator, 0, len(written[-1].frame)) == written[-1].frame
    assert journal.tail.index == tail.index + 1
    owner.go_on()
    written += await owner.append_some(2)
    assert await replayed(journal) == written
    other = await opened(engine)
    await fenced(journal.resolve)
    await journal.close()
    await stop(engine, other)


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
    await engine.check()
    known = engine.node_id(first)
    assert len(known) == 16
    assert engine.node_id(second) in (known, second)
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
    the_head_is_what_was_committed_last,
    of_three_contenders_the_last_term_wins,
    a_resolved_append_is_known,
    a_closed_journal_takes_nothing,
    a_node_has_an_id,
]
