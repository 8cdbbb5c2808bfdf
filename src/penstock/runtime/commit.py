"""Group commit: what is decided while one frame is written becomes the next frame.

Each decided command adds one `CommitEntry`: its encoded records and its pending reply. A commit takes as many entries
as fit into a frame and then

1. writes the frame,
2. prepares the replies, while the disk works,
3. waits until the frame is durable,
4. sends the replies, in the order of the decisions.

One commit is under way at a time. It runs in the engine's thread, or inline on the event loop's thread if the journal
offers that and no other command is expected (`commit_now`).

While the store cannot be reached, the commit waits, and all replies with it: no reply fails and no state is dropped.
If it is unknown whether the frame was written, the journal is asked before anything else is written (`_resolve`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from penstock import limits
from penstock.clock import Clock
from penstock.core import commands
from penstock.core.records import Leased, Published, QueueDeleted, QueuePurged, Record
from penstock.eager import Finished, begin, rest_of
from penstock.errors import PenstockError
from penstock.journal.codec import encode
from penstock.journal.frame import FrameWriter
from penstock.journal.port import (
    Ambiguous,
    EngineError,
    Fenced,
    InlineJournal,
    OutOfSpace,
    ResolvableJournal,
    ShardJournal,
    StoreUnavailable,
    Tail,
)
from penstock.pending import PendingReply
from penstock.runtime.inline_commit import InlineCommitPolicy

ATTACHED_INLINE_BYTES = 4096
"""Batches up to this size are copied next to their record: one buffer is cheaper to write than two."""

RETRY_S_MIN, RETRY_S_MAX = 0.02, 1.0
"""The pause before a store that could not be reached is tried again; it doubles each time."""

Cut = Callable[[int, bytes, int], None]
"""Called with the index, the chain and the locator of the frame that a cut was made behind (locator 0: the frame was
written by an earlier process)."""


class CommitEntry:
    """The part of a commit that one command contributes, from its decision until it is durable."""

    __slots__ = ("completion", "cut", "emptied", "leased", "parts", "prepared", "published", "refusal", "reply", "size")

    def __init__(self, completion: PendingReply[Any] | None = None, reply: Any = None):
        self.completion = completion
        self.reply = reply
        self.refusal: PenstockError | None = None
        """The error to complete with instead of the reply, behind everything that was decided before."""
        self.prepared = False
        self.cut: Cut | None = None
        self.parts: list[bytes] = []
        self.size = 0
        self.published: list[tuple[Published, int, int]] = []
        """(record, position within this entry, length)"""
        self.emptied: list[QueueDeleted | QueuePurged] = []
        self.leased: list[commands.LeasedRun] = []
        """Runs of messages whose payloads the reply contains."""

    def add(self, record: Record, stored: Record | None = None) -> None:
        """`stored` is the form in which the journal gets it, if that is another."""
        head, attached = encode(record if stored is None else stored)
        at = self.size
        self.size += len(head)
        if attached is not None:
            self.size += len(attached)
            if len(attached) <= ATTACHED_INLINE_BYTES:
                self.parts.append(head + attached)
            else:
                self.parts += (head, attached)
            self.published.append((record, at, self.size - at))  # type: ignore[arg-type]
            return
        self.parts.append(head)
        if isinstance(record, QueueDeleted | QueuePurged):
            self.emptied.append(record)
        elif isinstance(record, Leased):
            self.leased = self.reply

    def prepare(self) -> None:
        if self.completion is not None and self.refusal is None:
            self.completion.prepare(self.reply)
            self.prepared = True

    def send(self) -> None:
        if self.completion is None:
            return
        if self.refusal is not None:
            self.completion.fail(self.refusal)
        else:
            self.completion.complete(self.reply)


class GroupCommit:
    """The commits of one shard. Each outcome calls one of three callbacks."""

    def __init__(
        self,
        journal: ShardJournal,
        writer: FrameWriter,
        clock: Clock,
        *,
        on_durable: Callable[[list[CommitEntry], int, list[bytes]], None],
        on_refused: Callable[[list[CommitEntry]], Awaitable[None]],
        on_failed: Callable[[Exception], None],
        is_at_hand: Callable[[CommitEntry], bool] = lambda _: True,
    ):
        """`on_durable(entries, locator, parts)`; `on_refused`: surely not written, for want of space; `on_failed`: the
        outcome is unknown. `is_at_hand` is asked before a reply with messages is prepared while the disk works."""
        self.writer = writer
        self.waiting: deque[CommitEntry] = deque()
        self.waiting_bytes = 0
        self.taken_bytes = 0
        """Bytes of the records that were given to the journal."""
        self.under_way = False
        self.taken: list[CommitEntry] = []
        """The entries of the commit that is under way."""
        self.idle = asyncio.Event()
        self.idle.set()
        self.on_duration: Callable[[float], None] = lambda _: None
        """Called after every commit with the seconds that it took to make it durable."""
        self.stalled: str | None = None
        """Why the commit that is under way waits for the store."""
        self._journal = journal
        self._inline = journal if isinstance(journal, InlineJournal) else None
        self._clock = clock
        self._on_durable = on_durable
        self._on_refused = on_refused
        self._on_failed = on_failed
        self._is_at_hand = is_at_hand
        self._policy = InlineCommitPolicy()
        self._frame_bytes_max = min(limits.COMMIT_BYTES_MAX, journal.traits.frame_bytes_max)
        self._events = asyncio.get_running_loop()
        self._scheduled = False
        """True if `_start` will run in this or the next turn of the event loop."""
        self._work = asyncio.Event()
        self._rereading: asyncio.Future[None] | None = None
        self._task = asyncio.ensure_future(self._commit_forever())

    # -- entries ------------------------------------------------------------------------------------------------------

    def add(self, entry: CommitEntry) -> None:
        self.waiting.append(entry)
        self.waiting_bytes += entry.size
        self._schedule()

    def take_all(self) -> list[CommitEntry]:
        """Remove and return the entries that wait, for a shard that gives them up."""
        taken = list(self.waiting)
        self.waiting.clear()
        self.waiting_bytes = 0
        return taken

    @property
    def is_clean(self) -> bool:
        """True if everything decided so far is durable."""
        return not self.waiting and not self.under_way

    @property
    def durable_index(self) -> int:
        """The index of the last frame whose replies were sent, or are being sent."""
        return self.writer.next_index - (2 if self.under_way else 1)

    def stop(self) -> None:
        self._task.cancel()
        self.idle.set()

    def _schedule(self) -> None:
        """Start a commit in the next turn of the event loop: this turn may add more entries, or commit inline."""
        self.idle.clear()
        if not self._scheduled:
            self._scheduled = True
            self._events.call_soon(self._start)

    def _start(self) -> None:
        self._scheduled = False
        if self.waiting and not self.under_way:
            self._work.set()

    # -- one commit ---------------------------------------------------------------------------------------------------

    def commit_now(self) -> None:
        """Make the entries that wait durable before returning, if no other command is expected to share the commit.

        Does nothing if others are expected, if a commit is under way, or if the journal cannot write inline now.
        """
        if not self.waiting or self.under_way or not self._policy.allows():
            return
        if self._inline is not None and self._inline.can_write_inline():
            commit = begin(self._commit(self._inline))
            if not isinstance(commit, Finished):
                # There was no space: the shard reads its journal again, and the event loop goes on meanwhile.
                self._rereading = asyncio.ensure_future(rest_of(commit))

    def _write_inline(self, journal: InlineJournal, entries: list[CommitEntry], parts: list[bytes]) -> int:
        index = self.writer.next_index
        frame = [self.writer.seal(self._clock.now_ms(), parts), *parts]
        begun = self._clock.monotonic()
        locator = journal.write(index, frame)
        written = self._clock.monotonic()
        self._prepare(entries)
        prepared = self._clock.monotonic()
        journal.sync()
        took_s = self._clock.monotonic() - prepared + written - begun
        self._policy.observe(inline=True, arrived=0, took_s=took_s)
        self.on_duration(took_s)
        return locator

    async def _commit_forever(self) -> None:
        while True:
            if self.waiting and not self.under_way:
                await self._commit()
            else:
                self._work.clear()
                await self._work.wait()

    async def _commit(self, inline: InlineJournal | None = None) -> None:
        """Write one frame, through the journal's thread or inline, and complete its entries."""
        self.under_way = True
        try:
            entries, parts = self._take_entries()
            self.taken = entries
            locator = 0
            if parts:
                try:
                    if inline is not None:
                        locator = self._write_inline(inline, entries, parts)
                    else:
                        locator = await self._append(entries, parts)
                except OutOfSpace:
                    await self._on_refused(entries)
                    return
                except Exception as error:  # the outcome is unknown, whatever the error was
                    self._on_failed(error)
                    return
            self._on_durable(entries, locator, parts)
        finally:
            self.under_way = False
            self.taken = []
            if self.waiting:
                self._schedule()
            else:
                self.idle.set()

    async def _append(self, entries: list[CommitEntry], parts: list[bytes]) -> int:
        """Append a frame of these parts once, however often the store has to be asked."""
        retry_s = RETRY_S_MIN
        try:
            while True:
                term, before = self.writer.term, Tail(self.writer.next_index - 1, self.writer.chain)
                frame = [self.writer.seal(self._clock.now_ms(), parts), *parts]
                try:
                    return await self._append_once(entries, before.index + 1, frame)
                except StoreUnavailable as error:
                    self.writer.continue_after(before.index, before.chain, term)
                    retry_s = await self._wait_for_store(error, retry_s)
                except Ambiguous as error:
                    self.stalled = str(error)
                    locator = await self._resolve(before, Tail(before.index + 1, self.writer.chain))
                    if locator is not None:
                        return locator
        finally:
            self.stalled = None

    async def _append_once(self, entries: list[CommitEntry], index: int, frame: list[bytes]) -> int:
        begun = self._clock.monotonic()
        append = begin(self._journal.append(index, frame))
        self._prepare(entries)
        locator = append.result if isinstance(append, Finished) else await append
        took_s = self._clock.monotonic() - begun
        self._policy.observe(inline=False, arrived=len(self.waiting), took_s=took_s)
        self.on_duration(took_s)
        return locator

    async def _resolve(self, before: Tail, sent: Tail) -> int | None:
        """Find out whether the frame `sent` was written behind `before`.

        Returns its locator; None: it was not written and never will be.
        """
        journal = self._journal
        assert isinstance(journal, ResolvableJournal), "an engine without `resolve` has no ambiguous outcome"
        retry_s = RETRY_S_MIN
        while True:
            try:
                resolved = await journal.resolve()
                break
            except (StoreUnavailable, Ambiguous) as error:
                retry_s = await self._wait_for_store(error, retry_s)
        self.writer.continue_after(journal.tail.index, journal.tail.chain, journal.term)
        if resolved.found == sent:
            return resolved.locator
        if resolved.found == before:
            return None
        raise Fenced(f"the journal ends with frame {resolved.found.index} of another owner")

    async def _wait_for_store(self, error: EngineError, retry_s: float) -> float:
        """Returns the next pause."""
        self.stalled = str(error)
        await asyncio.sleep(retry_s)
        return min(2 * retry_s, RETRY_S_MAX)

    def _take_entries(self) -> tuple[list[CommitEntry], list[bytes]]:
        """The entries of the next frame and its parts: whole entries, up to the size of a commit; a cut ends it."""
        taken: list[CommitEntry] = []
        parts: list[bytes] = []
        size = 0
        while self.waiting and (not taken or size + self.waiting[0].size <= self._frame_bytes_max):
            entry = self.waiting.popleft()
            size += entry.size
            taken.append(entry)
            parts += entry.parts
            if entry.cut is not None:
                break
        self.waiting_bytes -= size
        self.taken_bytes += size
        return taken, parts

    def _prepare(self, entries: list[CommitEntry]) -> None:
        publishes = False
        for entry in entries:
            if entry.published:
                publishes = True
            # A lease may contain messages of an earlier entry: they are in the log once the frame is durable.
            if not entry.leased or (not publishes and self._is_at_hand(entry)):
                entry.prepare()
