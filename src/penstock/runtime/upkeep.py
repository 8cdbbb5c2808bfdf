"""Upkeep keeps a shard from growing with its history: retention, sealing, snapshots, trimming.

None of it is on the path of a message. A round has these steps:

1. *Retention*: in queues of mode `keep`, messages beyond the limits are removed; dead letters are pruned.
2. *Dead pieces*: stored pieces without live messages are forgotten.
3. *Sealing*: live messages in old journal files move into segments (`sealing.py`). Segments that are
   mostly dead are rewritten with them.
4. *Far entries*: delays and expiries that are due in an hour or later are written to blobs (`far.py`).
5. *Snapshot*: the state, and the place of every message, after one exact journal frame (`snapshots.py`).
6. *Trimming*: only now, with all of that durable, are journal files, segments and the old snapshot removed. Journal
   files that an archive has not read yet stay (`core/holds.py`).

A round runs when the journal has grown by a file, and when an estimate (`space.py`) says that it would free enough to
be worth its cost. On a full disk a little is enough, and how much can be copied depends on the room that is left.

A crash between any two steps costs only the work: the newest snapshot names what counts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

from penstock import limits
from penstock.core.commands import EndHold, PruneLetters, TrimPartition
from penstock.core.state.holds import journal_held_from
from penstock.errors import DiskFull, PenstockError, Unavailable
from penstock.journal.blobs import SNAPSHOT_MAGIC
from penstock.journal.port import Ambiguous, EngineError, Fenced, Head, OutOfSpace, StoreUnavailable
from penstock.runtime.chunk_blobs import KINDS, ChunkWriter, blob_name, blob_sizes
from penstock.runtime.far import FarEntries
from penstock.runtime.holding import spanned_bytes
from penstock.runtime.loop import ShardLoop
from penstock.runtime.pace import Pace
from penstock.runtime.plaintext import find_plaintext
from penstock.runtime.recovery import Mark, named_by
from penstock.runtime.retention import first_kept
from penstock.runtime.sealing import STEP_LOCATORS, UNLIMITED, Sealer
from penstock.runtime.snapshots import ShardReloaded, Snapshots
from penstock.runtime.space import survey
from penstock.runtime.stored import segment_name, when_at_hand
from penstock.runtime.stored_ids import StoredIds
from penstock.runtime.stored_letters import StoredLetters

RETENTION_EVERY_S = 30.0
LOOK_EVERY_S = 1.0
"""After a commit: how long until the estimate is made again, if it is cheap. On a full disk: at most, whatever it
costs."""
LOOK_WHEN_SHORT_S = 0.1
RECLAIM_BYTES = 32 * limits.MIB
"""A round is worth its cost if it frees about this much."""
RECLAIM_WHEN_SHORT_BYTES = 1 * limits.MIB
TIGHT_BYTES = 4 * limits.JOURNAL_SEGMENT_BYTES
"""With less room than this a round also shortens the journal, as far as there is room for the copies."""
RETRY_STORE_S = 1.0
RETRY_WHEN_SHORT_S = 2.0
"""On a full disk a round is tried this often, whatever the estimate says, if there were commits since the last one."""
SPARED_SHARE = 20
"""Looks and retries take one part in so many of the time, at most."""
COPIED_SHARE_MAX = 0.9
"""A nearly full disk gains too little from removing a journal file if more of it than this has to be copied."""
STEP_QUEUES = 100
"""Queues whose blobs are looked up in one step."""
ROLL_BYTES_MIN = 64 * limits.KIB
"""A smaller current journal file is not worth a new one."""


class Upkeep:
    """The upkeep of one shard, as a task."""

    def __init__(
        self,
        loop: ShardLoop,
        marks: list[Mark],
        next_segment: int,
        named_blobs: set[int],
        sealed: int,
        *,
        every_bytes: int,
        kept: int,
        far_entries: int,
        stored_ids: int,
        stored_letters: int,
        slice_queues: int,
        pace: Pace,
        shard_changed: bool,
        on_problem: Callable[[str], None],
        on_round: Callable[[], None],
    ):
        self._loop = loop
        self._marks = marks
        """Places in the journal up to which live messages may be sealed, oldest first."""
        self._next_segment = next_segment
        self._named_blobs = named_blobs
        """Blobs with chunks of state that the newest snapshot names."""
        self._sealed = sealed
        """Up to this frame the journal is needed neither to find a message nor to start again."""
        self._pace = pace
        self._sealer = Sealer(loop, pace, self._take_number)
        self._snapshots = Snapshots(loop, pace, slice_queues)
        writer = ChunkWriter(loop.journal, self._take_number, pace)
        self._far = FarEntries(writer, far_entries, self._snapshots.forget)
        self._ids = StoredIds(writer, stored_ids, self._snapshots.forget)
        self._letters = StoredLetters(writer, stored_letters, self._snapshots.forget)
        self._every_bytes = every_bytes
        self._kept = kept
        self._changed = shard_changed
        self._on_trouble = on_problem
        self._on_round = on_round
        self._events = asyncio.get_running_loop()
        self._due = asyncio.Event()
        self._look: asyncio.TimerHandle | None = None
        """Ends the wait for the next estimate."""
        self._look_is_urgent = False
        self._committed_bytes = 0
        """Since the last round."""
        self._was_tight = False
        self._irreducible = 0
        """The excess by the estimate after the last round that freed space: a further round would not reduce it."""
        self._retry_at_s = 0.0
        self._survey_took_s = 0.0
        self._snapshot_bytes = 0
        pace.behind = self._due.is_set
        self.rounds = 0
        self._one_round = asyncio.Lock()
        """Held by a round, and while blobs are removed: a round has blobs that nothing names yet."""
        loop.on_commit = self._on_commit
        self._task = asyncio.ensure_future(self._run())

    # -- when ---------------------------------------------------------------------------------------------------------

    def _on_commit(self, committed_bytes: int) -> None:
        self._changed = True
        self._committed_bytes = committed_bytes
        if committed_bytes >= self._every_bytes:
            self._due.set()
            return
        short = self._loop.journal.short_of_space
        if self._look is None or (short and not self._look_is_urgent):
            self._cancel_look()
            spared_s = SPARED_SHARE * self._survey_took_s
            delay_s = max(LOOK_WHEN_SHORT_S, min(spared_s, LOOK_EVERY_S)) if short else max(LOOK_EVERY_S, spared_s)
            self._look_is_urgent = short
            self._look = self._events.call_later(delay_s, self._due.set)

    def _look_at_retry(self) -> None:
        """On a full disk publishes are refused, so no commit may follow that would cause the next estimate."""
        if self._loop.journal.short_of_space and self._changed and self._look is None:
            self._look_is_urgent = False
            self._look = self._events.call_later(max(0.0, self._retry_at_s - self._events.time()), self._due.set)

    def _cancel_look(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _round_is_due(self) -> bool:
        return self._committed_bytes >= self._every_bytes

    async def _run(self) -> None:
        self._due.set()  # what an earlier process left may be worth a round
        begun = False
        while self._loop.failed is None:
            try:
                if not begun:
                    async with self._one_round:
                        await self._remove_leftovers()
                        await self._hold_room()
                    begun = True
                if await self._wait_until_due():
                    await self._do_due_work()
                else:
                    with contextlib.suppress(ShardReloaded):
                        await self._retain()
                    await self._trim_what_was_held()
                    if self._loop.journal.short_of_space:
                        await self._reclaim()
            except (OutOfSpace, DiskFull):
                begun = True
                self._on_trouble("upkeep found the disk full; the next round tries again")
            except (StoreUnavailable, Ambiguous) as error:
                self._on_trouble(f"upkeep waits for the store: {error}")
                await asyncio.sleep(RETRY_STORE_S)
                self._due.set()
            except Fenced as error:
                self._loop.stop_for(error)
                return
            except EngineError:
                return  # the loop meets the same failure and reports it
            except Unavailable as error:
                if self._loop.failed is not None or self._loop.closing:
                    return
                begun = True
                self._on_trouble(f"a round of upkeep is put off: {error.message}")
            except Exception as error:  # a bug here must not stop the broker, nor be silent: nothing durable is lost
                begun = True
                self._on_trouble(f"a round of upkeep failed: {error!r}")

    async def _wait_until_due(self) -> bool:
        """False if nothing became due for a while."""
        try:
            # Not `wait_for`: before Python 3.12 it loses a cancellation that comes with the end of the wait, and then
            # `stop` would wait for ever.
            async with asyncio.timeout(RETENTION_EVERY_S):
                await self._due.wait()
        except TimeoutError:
            return False
        self._due.clear()
        self._cancel_look()
        return True

    async def _do_due_work(self) -> None:
        if self._round_is_due():
            await self.round()
        else:
            await self._reclaim()

    async def _reclaim(self) -> None:
        """Make a round if it frees enough to be worth its cost."""
        journal = self._loop.journal
        if journal.short_of_space:
            await journal.check_space()
        tight, enough = self._pressure()
        if tight is not self._was_tight:
            self._was_tight, self._irreducible, self._retry_at_s = tight, 0, 0.0
        excess = await self._excess(tight=tight)
        retry = journal.short_of_space and self._changed and self._events.time() >= self._retry_at_s
        if excess - self._irreducible < enough and not retry:
            self._irreducible = min(self._irreducible, excess)
            self._look_at_retry()
            return
        begun_s = self._events.time()
        # If the round frees nothing, there is nothing to be had until the excess has grown.
        self._irreducible = excess
        try:
            await self.round(shorten=tight)
        finally:
            ended_s = self._events.time()
            self._retry_at_s = ended_s + max(RETRY_WHEN_SHORT_S, SPARED_SHARE * (ended_s - begun_s))
            self._look_at_retry()
        if journal.short_of_space:
            await journal.check_space()
        if excess - await self._excess(tight=tight) >= enough // 2:
            # It was worth it, and messages may have been finished meanwhile.
            self._irreducible = 0
            self._due.set()

    def _pressure(self) -> tuple[bool, int]:
        """Whether the disk is nearly full, and how many bytes a round has to free then."""
        journal = self._loop.journal
        free = 0 if journal.short_of_space else journal.free_bytes()
        if free > TIGHT_BYTES:
            return False, RECLAIM_BYTES
        return True, max(RECLAIM_WHEN_SHORT_BYTES, min(RECLAIM_BYTES, free // 4), self._snapshot_bytes // 2)

    async def _excess(self, *, tight: bool) -> int:
        """Bytes on the disk that no message needs, as far as upkeep can do something about them.

        Of the journal only what is beyond its bound counts, unless the disk is nearly full.
        """
        begun_s = self._events.time()
        wanted = await survey(self._loop, self._pace)
        self._survey_took_s = self._events.time() - begun_s
        journal_bytes = self._loop.journal.bytes_since(0)
        if tight:
            return self._sealer.segment_bytes + journal_bytes - wanted.total
        beyond = max(0, journal_bytes - (self._kept + 1) * self._every_bytes)
        return self._sealer.segment_bytes - wanted.sealed + beyond

    # -- a round ------------------------------------------------------------------------------------------------------

    async def round(self, *, shorten: bool = False) -> None:
        """All steps. Safe to call at any time. With `shorten` the journal is made as short as the room for copies
        allows."""
        # After a reload the next round begins with what is true.
        with contextlib.suppress(ShardReloaded):
            async with self._one_round:
                await self._round(shorten=shorten)

    async def _round(self, *, shorten: bool) -> None:
        self._loop.take_committed_bytes()
        self._committed_bytes = 0
        await self._retain()
        self._sealer.begin()
        sparse = await self._sealer.drop_dead()
        bound, room = await self._choose_bound(shorten=shorten)
        await self._sealer.seal(bound, sparse, room)
        if not shorten:
            await self._far.tidy(self._loop.shard)
        await self._finish_round(bound)

    async def _finish_round(self, bound: Mark | None) -> None:
        """A snapshot that names the copies, and then the removal of what they were copied from."""
        self._sealer.check_log()
        await self._snapshot(self._sealed if bound is None else bound.index)
        self._sealer.check_log()  # after a reload messages are where they were: the snapshot may say otherwise
        if bound is not None:
            self._sealed = bound.index
            self._marks = [mark for mark in self._marks if mark.index > bound.index]
        await self._trim()
        await self._remove_leftovers()
        await self._hold_room()
        self.rounds += 1
        self._on_round()

    async def rewrite(self, is_asked: Callable[[str], bool]) -> tuple[bool, str]:
        """Copy the messages that are stored in plaintext, of encrypted queues and of queues that were deleted, if their
        path is asked for: the copies are encrypted, and the files that had plaintext are removed.

        Returns whether something was copied, and where plaintext is left; empty: nowhere.
        """
        async with self._one_round:
            await self._loop.journal.scrub()
            found = await find_plaintext(self._loop, is_asked)
            if not found:
                return False, ""
            await self._loop.journal.roll()
            ends = [Mark(index, locator) for index, locator in self._loop.journal.file_ends()]
            bound = next((end for end in ends if end.index >= found.frame), None) if found.frame else None
            self._sealer.begin()
            await self._sealer.seal(bound, dict.fromkeys(found.segments, 0))
            await self._finish_round(bound)
            await self._loop.journal.scrub()
            return True, (await find_plaintext(self._loop, is_asked)).where

    async def _choose_bound(self, *, shorten: bool) -> tuple[Mark | None, int]:
        """The place up to which live messages are copied out of the journal, and the room that is left after that."""
        journal = self._loop.journal
        if shorten:
            # The current file is closed, so that it can be removed with the others.
            if journal.bytes_since(journal.tail.index) > ROLL_BYTES_MIN:
                await journal.roll()
            bounds = [Mark(index, locator) for index, locator in journal.file_ends()]
        else:
            bounds = self._outdated()
        if not self._pressure()[0]:
            return bounds[-1] if bounds else None, UNLIMITED
        # Half of the room stays for acks that come meanwhile.
        room = max(0, journal.free_bytes() - self._snapshot_bytes * 5 // 4) // 2
        chosen, used, stored = None, 0, journal.bytes_since(0)
        for bound, live in zip(bounds, await self._sealer.live_bytes_until(bounds), strict=True):
            if live > room:
                break
            if live <= COPIED_SHARE_MAX * (stored - journal.bytes_since(bound.index + 1)):
                chosen, used = bound, live
        return chosen, room - used

    def _outdated(self) -> list[Mark]:
        """The furthest place in the journal with so many rounds behind it, or so many bytes, as are to be kept."""
        journal = self._loop.journal
        rounds = self._marks[-self._kept :][:1] if len(self._marks) >= self._kept else []
        files = [
            Mark(index, locator)
            for index, locator in journal.file_ends()
            if journal.bytes_since(index + 1) >= self._kept * self._every_bytes
        ]
        return sorted([*rounds, *files], key=lambda mark: mark.index)[-1:]

    async def stop(self, *, final_snapshot: bool) -> None:
        self._pace.hurry()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._cancel_look()
        if final_snapshot and self._changed and self._loop.failed is None:
            log = self._loop.log
            try:
                async with self._one_round:
                    await self._snapshot(self._sealed)
                    if self._loop.log is log:
                        await self._remove_leftovers()
            except Fenced as error:
                self._loop.stop_for(error)
            except (EngineError, DiskFull, ShardReloaded):
                pass  # the journal has everything; the next start is only slower

    # -- retention ----------------------------------------------------------------------------------------------------

    async def _trim(self) -> None:
        """Remove journal files up to the sealed frame, except those that an archive has not read yet."""
        held_from = journal_held_from(self._loop.shard)
        await self._loop.journal.trim(self._sealed if held_from is None else min(self._sealed, held_from - 1))

    async def _trim_what_was_held(self) -> None:
        """Trim what archives have read since the last round: the next one may be long in coming."""
        if self._sealed and self._loop.shard.holds:
            with contextlib.suppress(EngineError):  # the loop meets the same failure and reports it
                await self._trim()

    async def _bound_holds(self) -> None:
        """Drop holds that span more bytes than their limit."""
        for hold in list(self._loop.shard.holds.values()):
            if not hold.lost_at and spanned_bytes(self._loop, hold) > hold.max_bytes:
                self._on_trouble(
                    f"hold {hold.name!r} spans more than its {hold.max_bytes} bytes and is let go; what it has not "
                    "copied yet may be lost to it"
                )
                with contextlib.suppress(PenstockError):
                    await self._loop.submit(EndHold(hold.name, "max_bytes"))

    async def _retain(self) -> None:
        await self._bound_holds()
        await self._prune()
        loop = self._loop
        self._sealer.begin()
        async for queue, number, partition, _ in self._sealer.indexed():
            start = await when_at_hand(
                partial(first_kept, loop.log, queue, number, queue.config.retention, loop.now_ms())
            )
            if start > partition.start:
                try:
                    await loop.submit(TrimPartition(queue.number, number, start))
                except PenstockError:
                    return

    async def _prune(self) -> None:
        """Dead letters beyond the bounds of their queue."""
        for queue in list(self._loop.shard.queues.values()):
            config = queue.config
            if config.dead_letter_max is None and config.dead_letter_ttl_ms is None:
                continue
            with contextlib.suppress(PenstockError):
                while await self._loop.submit(PruneLetters(queue.number)):
                    pass

    def _take_number(self) -> int:
        """For the name of the next blob."""
        self._next_segment += 1
        return self._next_segment - 1

    # -- snapshots ----------------------------------------------------------------------------------------------------

    async def _snapshot(self, sealed: int) -> None:
        """The state after one exact frame: everything decided so far, and a cut in the journal right behind it."""
        log = self._loop.log
        await self._ids.store(self._loop.shard)
        await self._letters.store(self._loop.shard)
        if self._loop.log is not log:
            # The shard was read again: messages may be in the journal that `sealed` says are in segments.
            raise ShardReloaded

        def describe(index: int, locator: int) -> dict[str, Any]:
            if locator:
                self._marks.append(Mark(index, locator))
            marks = [(mark.index, mark.locator) for mark in self._marks]
            return {"marks": marks, "next_segment": self._next_segment + 1, "sealed": sealed}

        index, parts, images = await self._snapshots.take(describe)
        # The number behind the index tells apart two snapshots of one frame whose messages lie in different places.
        name = f"snapshot-{index:020d}-{self._take_number():012d}"
        self._snapshot_bytes = await self._sealer.put_blob(name, SNAPSHOT_MAGIC, parts)
        await self._loop.journal.commit_head(Head(name, index))
        self._snapshots.written(name, images)
        self._changed = self._loop.durable_index > index
        self._named_blobs = set().union(*(image.named for image in images.values()))

    async def _hold_room(self) -> None:
        """The next snapshot is written while this one still stands, also on a full disk."""
        await self._loop.journal.hold_room_for(self._snapshot_bytes * 5 // 4)

    async def _locators(self) -> set[int]:
        """Of all stored pieces, with those of queues that are deleted meanwhile."""
        found: set[int] = set()
        for index in list(self._loop.log.indexes.values()):
            # The index may change between two steps.
            locators = index.locators[:]
            for begin in range(0, len(locators), STEP_LOCATORS):
                found.update(locators[begin : begin + STEP_LOCATORS])
                await self._pace.yield_to_loop()
        return found

    async def _remove_leftovers(self) -> None:
        """Remove blobs that the newest snapshot does not need: older snapshots, segments and chunks of state."""
        journal = self._loop.journal
        snapshots, head = dict(await journal.list_blobs("snapshot-")), await journal.head()
        if head is not None:
            self._snapshot_bytes = snapshots.pop(head.snapshot, 0)
        await journal.delete_blobs(list(snapshots))
        named = {segment_name(-locator) for locator in await self._locators() if locator < 0}
        segments = dict(await journal.list_blobs("segment-"))
        gone = [
            name for name in segments if name not in named and int(name.removeprefix("segment-")) < self._next_segment
        ]
        await journal.delete_blobs(gone)
        self._sealer.segment_bytes = sum(segments.values()) - sum(segments[name] for name in gone)
        in_use = set(self._named_blobs)
        for count, queue in enumerate(list(self._loop.shard.queues.values()), 1):
            in_use |= named_by(queue)
            if not count % STEP_QUEUES:
                await self._pace.yield_to_loop()
        for kind in KINDS:
            stored = await blob_sizes(journal, kind)
            await journal.delete_blobs([blob_name(kind, number) for number in stored if number not in in_use])
