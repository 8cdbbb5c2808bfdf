"""The shard's loop: decide, apply, commit, reply.

A command is decided and applied on arrival, on the event loop's thread. Its records are added to the next commit
(`commit.py`) and its reply is sent when that commit is durable. A command without records is a read: its reply is sent
behind the records that it has seen.

The only rollback is a reload. If a commit surely was not written (no space), all pending replies fail and the shard is
read again from its journal. If the outcome is unknown and cannot be found out (the disk failed), or another owner has
taken the shard over, the shard stops for good. While the store cannot be reached, replies wait and new commands are
refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

from penstock import limits
from penstock.clock import Clock
from penstock.core import commands
from penstock.core.advance import advance
from penstock.core.apply import apply
from penstock.core.commands import Command
from penstock.core.decide import decide
from penstock.core.decide.rebalancing import has_changed
from penstock.core.decide.scopes import Scopes
from penstock.core.decide.settling import ERASED
from penstock.core.records import Expired, Published, Record, ScheduleRefused
from penstock.core.state import Shard
from penstock.core.state.sessions import renew_sessions
from penstock.encryption.shard_encryption import ShardEncryption
from penstock.errors import DiskFull, PenstockError, Unavailable
from penstock.journal.codec import PREFIX
from penstock.journal.frame import HEADER, FrameWriter
from penstock.journal.port import EngineError, Failed, Fenced, OutOfSpace, ShardJournal
from penstock.pending import PendingReply
from penstock.runtime.commit import CommitEntry, Cut, GroupCommit
from penstock.runtime.counters import Counters
from penstock.runtime.far import read_chunk
from penstock.runtime.granting import Granting
from penstock.runtime.log import MessageLog
from penstock.runtime.node_memory import PieceKey
from penstock.runtime.shard_timer import ShardTimer
from penstock.runtime.waiters import Waiters
from penstock.runtime.watchers import Watchers

PUBLISHING = frozenset({commands.Publish, commands.RedriveLetters, commands.Transact})
"""Commands that make the log grow. They are refused while the disk is short of space."""
LATE_MS = 50
"""A timer that fires later than this was held up: the process or its disk was stalled."""
READ_AHEAD_BYTES = 1 * limits.MIB
"""Bytes behind the messages of a lease that are fetched with them, if they have to be fetched."""
FETCH_PAUSE_S_MIN, FETCH_PAUSE_S_MAX = 0.02, 1.0
"""The pause before a fetch that failed is tried again."""
FULL_PAUSE_S = 1.0
"""The pause after a commit that found no space at all. The next one would fail too, and read the journal once more."""


class ShardLoop:
    """One shard, owned by this process. All methods run on one event loop."""

    def __init__(
        self,
        shard: Shard,
        journal: ShardJournal,
        log: MessageLog,
        writer: FrameWriter,
        clock: Clock,
        on_failure: Callable[[str], None] = lambda _: None,
        reload: Callable[[], Any] | None = None,
        encryption: ShardEncryption | None = None,
    ):
        self.shard = shard
        self.journal = journal
        self.log = log
        self.encryption = encryption
        """None: the server has no encryption key, and no queue can be encrypted."""
        self.counters = Counters(clock.now_ms(), shard.leases)
        self.failed: str | None = None
        """Why the shard has stopped for good."""
        self.taken_over = False
        """True if it stopped because another owner has the shard."""
        self.store_missing: str | None = None
        """Why the store is not where it was opened."""
        self.closing = False
        """No publish is accepted and no lease waits; running work can still be finished."""
        self._shut = False
        """No command is accepted."""
        self._replying: dict[CommitEntry, None] = {}
        """Entries with leased messages whose replies are not prepared yet: upkeep must keep the payloads."""
        self.without_room = False
        """True while nothing can be written, and so nothing can be delivered."""
        self._clock = clock
        self.now_ms = clock.now_ms
        self._on_failure = on_failure
        self._reload = reload
        self._read_far = partial(read_chunk, journal)
        self.waiters = Waiters(self._complete_empty)
        self._granting = Granting(self)
        self.scopes = Scopes(shard, log.published_at)
        self._readers: dict[tuple[int, int], list[asyncio.Future[None]]] = {}
        self.watchers = Watchers()
        self.commits = GroupCommit(
            journal,
            writer,
            clock,
            on_durable=self._release,
            on_refused=self._start_over,
            on_failed=self.stop_for,
            is_at_hand=lambda entry: not self.log.not_at_hand(entry.leased),
        )
        self._fetching: set[asyncio.Future[None]] = set()
        """Fetches of messages that replies need."""
        self._events = asyncio.get_running_loop()
        self._space_check: asyncio.Future[None] | None = None
        self._timer = ShardTimer(clock, self._on_timer)
        self._committed_bytes = 0
        self._last_locator = 0
        self.on_commit: Callable[[int], None] = lambda _: None
        """Called after every commit with the bytes written since the last call of `take_committed_bytes`."""
        self.on_reread: Callable[[], None] = lambda: None
        """Called after the shard was read again from the journal: the last decisions have not happened."""
        self.on_damage: Callable[[str, int, int, int, str], None] = lambda *_: None
        """Called with (queue path, partition, first, stop, problem) of damaged messages that became dead letters."""
        self.damaged_messages = 0
        """Deliveries that ended as a dead letter because the message is damaged, since the start."""
        self.on_facts: Callable[[list[bytes]], None] | None = None
        """Called with the encoded records of every commit, when they are durable."""
        self.arm_timer()

    # -- commands -----------------------------------------------------------------------------------------------------

    def submit(self, command: Command) -> PendingReply[Any]:
        """Decide now; the reply is sent when it is durable. Raises the machine's refusal."""
        self.admit(command)
        now_ms = self._clock.now_ms()
        if type(command) is not commands.Open:
            # Leases that ended while no process was running start over with the opening; time advances after it.
            self._advance(now_ms)
        decision = decide(self.shard, command, now_ms, self.log.fit)
        pending: PendingReply[Any] = PendingReply()
        self.enqueue(decision.records, decision.reply, pending)
        if decision.records:
            if self.shard.needs_tick():
                self._advance(now_ms)  # what was released past its time to live expires before it can be granted
            if self.waiters.count:
                self._granting.serve(decision.records)
            self.arm_timer()
        return pending

    def lease(self, command: commands.Lease | commands.LeaseScope, wait_ms: int) -> PendingReply[Any]:
        """Like `submit`, but if nothing is ready the lease waits up to `wait_ms` for the first message."""
        self.admit(command)
        now_ms = self._clock.now_ms()
        if isinstance(command, commands.Lease):
            self.counters.asked(command.queue, command.group, now_ms)
        else:
            self.counters.asked_scope(command.scope, command.group, now_ms)
        self._advance(now_ms)
        pending: PendingReply[Any] = PendingReply()
        if self._granting.grant(command, pending):
            return pending
        recalled = isinstance(command, commands.Lease) and command.member and has_changed(self.shard, command)
        if wait_ms and not self.closing and not recalled:
            self.waiters.park(command, wait_ms, pending)
        else:
            self.enqueue([], [], pending)
        return pending

    async def grown(self, queue: int, partition: int, wait_ms: int) -> None:
        """Wait until something is stored in this partition, or the time is over. All readers are woken."""
        if self.closing or self.failed is not None:
            return
        reader: asyncio.Future[None] = self._events.create_future()
        self._readers.setdefault((queue, partition), []).append(reader)
        await asyncio.wait([reader], timeout=wait_ms / 1000)
        if not reader.done():
            reader.cancel()
            waiting = self._readers.get((queue, partition))
            if waiting is not None and reader in waiting:
                waiting.remove(reader)
                if not waiting:
                    del self._readers[queue, partition]

    def cut(self, cut: Cut) -> PendingReply[None]:
        """End a frame behind everything decided so far, and call `cut` the moment it is durable, before anything else.

        The state as it is now is then the state after that frame.
        """
        if self.failed is not None:
            raise Failed(self.failed)
        if self.without_room:
            raise OutOfSpace("the disk is full")
        pending: PendingReply[None] = PendingReply()
        entry = CommitEntry(pending)
        entry.cut = cut
        self.commits.add(entry)
        return pending

    @property
    def suspended(self) -> str | None:
        """Why no command is accepted for now."""
        return self.store_missing or self.commits.stalled

    @property
    def durable_index(self) -> int:
        return self.commits.durable_index

    def advance_to_now(self) -> int:
        """Process due deadlines before the state is read; returns the time."""
        now_ms = self._clock.now_ms()
        if self.failed is None and not self.without_room and not self._shut:
            self._advance(now_ms)
        return now_ms

    def admit(self, command: Command | commands.LeaseScope) -> None:
        """Raise the error with which any command of this kind is refused now."""
        if self.failed is not None:
            raise Unavailable(self.failed, retry_after_ms=1_000)
        if self.store_missing is not None or self.commits.stalled is not None:
            raise Unavailable(self.suspended or "", retry_after_ms=1_000)
        if self._shut or (self.closing and type(command) in PUBLISHING):
            raise Unavailable("the broker is shutting down", retry_after_ms=1_000)
        if self.without_room:
            raise _no_room()
        # Commands that settle messages are small and free space: only their number is bounded.
        too_many = len(self.commits.waiting) > limits.PENDING_COMMANDS_MAX
        if too_many or (self.commits.waiting_bytes > limits.PENDING_BYTES_MAX and type(command) in PUBLISHING):
            raise Unavailable("the disk does not keep up; slow down", retry_after_ms=200)
        if type(command) in PUBLISHING and self.journal.short_of_space:
            self._check_space()
            raise DiskFull("the disk is full; consumers keep working, publishing waits", retry_after_ms=5_000)

    def _check_space(self) -> None:
        """A publish was refused for want of space: look again whether there is space."""
        if self.journal.short_of_space and self._space_check is None:
            self._space_check = asyncio.ensure_future(self._look_for_space())

    async def _look_for_space(self) -> None:
        try:
            await self.journal.check_space()
        except EngineError as error:
            self.stop_for(error)
        finally:
            self._space_check = None

    # -- time ---------------------------------------------------------------------------------------------------------

    def _advance(self, now_ms: int) -> None:
        """Process the deadlines that are due at `now_ms`, before anything is decided at that time."""
        if self.shard.next_deadline_ms() > now_ms:
            return
        self._extend_deadlines(self._timer.late_ms(), now_ms)
        woken: set[int] = set()
        # Repeated, because a lease that expired may be due for its next attempt at the same moment.
        while self.shard.next_deadline_ms() <= now_ms:
            woken |= self._advance_shard(now_ms)
            if self.shard.needs_tick():
                decision = decide(self.shard, commands.Tick(self.journal.short_of_space), now_ms)
                self.enqueue(decision.records)
                # A schedule may have fired, or a message that blocked others may have expired.
                woken.update(record.queue for record in decision.records if isinstance(record, Published | Expired))
                if any(type(record) is ScheduleRefused for record in decision.records):
                    self._check_space()
                for record in decision.records:
                    self._granting.recall(record)
        if self.scopes:
            # All queues are noted before anything is granted: the last one may have the highest priority.
            for queue in woken:
                self.scopes.stir(queue)
        for queue in woken:
            self._granting.offer(queue)
        self.arm_timer()

    def _advance_shard(self, now_ms: int) -> set[int]:
        try:
            return advance(self.shard, now_ms, self._read_far)
        except (EngineError, OSError) as error:
            # The due entries cannot be read. Any reply without them would be wrong.
            self.stop_for(error)
            raise Unavailable(str(error), retry_after_ms=1_000) from error

    def arm_timer(self) -> None:
        """Set the timer to the next deadline."""
        self._timer.set(self.shard.next_deadline_ms())

    def _on_timer(self) -> None:
        if self.failed is None and not self.without_room:
            now_ms = self._clock.now_ms()
            self._extend_deadlines(self._timer.late_ms(), now_ms)
            with contextlib.suppress(Unavailable):  # then the shard has failed, and all replies with it
                self._advance(now_ms)
                self.arm_timer()

    def _extend_deadlines(self, lost_ms: int, now_ms: int) -> None:
        """Extend deadlines that elapsed while the process was stalled: requests that met them were not processed."""
        if lost_ms > LATE_MS:
            self.shard.grace = self.shard.grace.after(now_ms, lost_ms)

    # -- commit -------------------------------------------------------------------------------------------------------

    def enqueue(self, records: list[Record], reply: Any = None, completion: PendingReply[Any] | None = None) -> None:
        """Apply these records, add them to the next commit, and complete the reply when it is durable."""
        entry = CommitEntry(completion, reply)
        for record in records:
            self.counters.note(record, self.shard.leases)
            apply(self.shard, record)
            if self.scopes:
                self.scopes.note(record)
            entry.add(record, self.stored_form(record) if type(record) is Published else None)
        if entry.leased:
            self._replying[entry] = None
        if records or not self.commits.is_clean:
            self.commits.add(entry)
        else:
            entry.send()

    def stored_form(self, record: Published) -> Published:
        """The record as the journal and segments have it: encrypted, if its queue asks for that."""
        queue = self.shard.queues[record.queue]
        if not queue.config.encryption:
            return record
        assert self.encryption is not None, "a shard with encrypted queues does not open without a key"
        return self.encryption.cipher.encrypt(record, queue.path)

    def enqueue_lease(self, granted: list[commands.LeasedRun], completion: PendingReply[Any]) -> None:
        """Complete with runs whose records were enqueued before, and keep their payloads until then."""
        entry = CommitEntry(completion, granted)
        entry.leased = granted
        self._replying[entry] = None
        self.commits.add(entry)

    def enqueue_refusal(self, refusal: PenstockError, completion: PendingReply[Any]) -> None:
        """Complete with an error, behind everything that was decided before it."""
        entry = CommitEntry(completion)
        entry.refusal = refusal
        self.commits.add(entry)

    def note_damage(self, queue: int, damaged: list[tuple[int, int, int, str]]) -> None:
        for partition, first, stop, problem in damaged:
            self.damaged_messages += stop - first
            self.on_damage(self.shard.queues[queue].path, partition, first, stop, problem)

    def _complete_empty(self, completion: PendingReply[Any]) -> None:
        self.commits.add(CommitEntry(completion, []))

    def _release(self, entries: list[CommitEntry], locator: int, parts: list[bytes]) -> None:
        """The frame is durable: add its messages to the log, then send its replies."""
        at = HEADER.size
        if locator:
            self._last_locator = locator
        for entry in entries:
            for record, position, length in entry.published:
                self.log.add(record, locator, at + position, length)
                for reader in self._readers.pop((record.queue, record.partition), ()):
                    if not reader.done():
                        reader.set_result(None)
                self.watchers.note(record)
            if entry.emptied:
                self.watchers.note_emptied(entry.emptied)
            at += entry.size
        for entry in entries:
            if entry.cut is not None:
                entry.cut(self.commits.writer.next_index - 1, self.commits.writer.chain, locator or self._last_locator)
            if entry.leased:
                self._send_lease(entry)
            else:
                entry.send()
            for emptied in entry.emptied:
                self.log.let_go(emptied)
        if locator:
            self._committed_bytes += at
            self.on_commit(self._committed_bytes)
        if self.on_facts is not None and parts:
            self.on_facts(parts)

    def fetch_for(self, runs: list[commands.LeasedRun]) -> None:
        """Fetch the messages of a lease while its record is written, and some of those that follow."""
        if keys := self.log.not_at_hand(runs, ahead_bytes=READ_AHEAD_BYTES):
            self._in_background(self._fetch(keys))

    async def _fetch(self, keys: list[PieceKey]) -> None:
        with contextlib.suppress(Unavailable):  # the reply asks again
            await self.log.pieces.fetch(keys)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._fetching.add(task)
        task.add_done_callback(self._fetching.discard)

    def _send_lease(self, entry: CommitEntry) -> None:
        """Send a reply with messages, which is durable, as soon as the messages are in memory."""
        if not entry.prepared and entry.completion is not None and self.log.not_at_hand(entry.leased):
            self._in_background(self._send_when_fetched(entry))
        else:
            self._send_messages(entry)

    async def _send_when_fetched(self, entry: CommitEntry) -> None:
        pause_s = FETCH_PAUSE_S_MIN
        with self.log.pieces.pinned() as pin:
            try:
                while (keys := self.log.not_at_hand(entry.leased)) and self.failed is None:
                    pin(keys)
                    try:
                        await self.log.pieces.fetch(keys)
                    except Unavailable:  # the lease is given: its reply waits for the store, as commits do
                        await asyncio.sleep(pause_s)
                        pause_s = min(2 * pause_s, FETCH_PAUSE_S_MAX)
                self.log.check_stored(entry.leased)
            except Unavailable as error:
                self._replying.pop(entry, None)
                if entry.completion is not None:
                    entry.completion.fail(error)
                # While they are in memory: the next lease may need more than the memory has room for.
                self._drop_unreadable(entry.leased)
                self.give_back(entry.reply)
            else:
                self._send_messages(entry)

    def _drop_unreadable(self, runs: list[commands.LeasedRun]) -> None:
        claims, problems = list[commands.Claim](), list[str]()
        for run in runs:
            if run.queue not in self.shard.queues:
                continue
            with contextlib.suppress(Unavailable):  # removed meanwhile
                damaged = list(self.log.damaged(run.queue, run.partition, run.first, run.first + run.count))
                claims += [commands.Claim(run.lease, run.nonce, first, stop) for first, stop, _ in damaged]
                problems += [problem for *_, problem in damaged]
                self.note_damage(run.queue, [(run.partition, *each) for each in damaged if each[2] != ERASED])
        if claims and self.failed is None and not self._shut:
            with contextlib.suppress(PenstockError):  # the next lease meets them again
                self.submit(commands.DropUnreadable(claims, problems))

    def _send_messages(self, entry: CommitEntry) -> None:
        completion = entry.completion
        self._replying.pop(entry, None)
        if completion is None:
            return
        if not completion.cancelled():
            # Set before the reply is sent: a coroutine that is cancelled before it resumes returns the messages.
            completion.on_cancel = partial(self.give_back, entry.reply)
        entry.send()
        if completion.failed or completion.cancelled():
            self.give_back(entry.reply)

    def replying(self) -> Iterator[commands.LeasedRun]:
        """Leased runs whose payloads are still to be read for their replies, whatever becomes of the messages."""
        for entry in self._replying:
            yield from entry.leased

    def give_back(self, reply: Any) -> None:
        """Release the messages of a lease whose caller went away before it got them."""
        if isinstance(reply, list) and self.failed is None and not self._shut:
            claims = [
                commands.Claim(run.lease, run.nonce, run.first, run.first + run.count)
                for run in reply
                if isinstance(run, commands.LeasedRun) and not run.settled
            ]
            if claims:
                # If the shard is too busy to take the command, the lease expires instead.
                with contextlib.suppress(PenstockError):
                    self.submit(commands.Release(claims))

    def take_committed_bytes(self) -> int:
        taken, self._committed_bytes = self._committed_bytes, 0
        return taken

    # -- failure, end -------------------------------------------------------------------------------------------------

    async def _start_over(self, entries: list[CommitEntry]) -> None:
        """The commit was not written. Memory is ahead of the journal; the journal is right."""
        self.without_room = True
        began_ms = self._clock.now_ms()
        self._fail_entries(entries, _no_room())
        if self._reload is None:
            self.fail("the disk is full")
            return
        try:
            self.shard, self.log, self.commits.writer = await self._reload()
        except Exception as error:  # then there is no state to go on with
            self.stop_for(error)
            return
        self.counters.adopt(self._clock.now_ms(), self.shard.leases)
        renew_sessions(self.shard, self._clock.now_ms())
        self.scopes = Scopes(self.shard, self.log.published_at)
        self.on_reread()
        await asyncio.sleep(FULL_PAUSE_S)
        self.without_room = False
        now_ms = self._clock.now_ms()
        self._extend_deadlines(now_ms - began_ms, now_ms)
        self.arm_timer()

    def stop_for(self, error: Exception) -> None:
        """As `fail`, with the error of the engine as the reason."""
        self.taken_over = self.taken_over or (self.failed is None and isinstance(error, Fenced))
        self.fail(str(error) or repr(error))

    def fail(self, reason: str) -> None:
        """Stop for good: no reply is sent that the journal may not contain."""
        if self.failed is not None:
            return
        self.failed = reason
        for entry in self.commits.taken:
            if entry.completion is not None:
                # The frame may be on the disk or not: only the next start will know.
                entry.completion.fail(Unavailable(reason, details={"outcome": "unknown"}, retry_after_ms=1_000))
        self._fail_entries([], Unavailable(reason, retry_after_ms=1_000))
        self.commits.stop()
        self._on_failure(reason)

    def _fail_entries(self, entries: list[CommitEntry], error: PenstockError) -> None:
        """These entries, and all that wait behind them, come to nothing."""
        self._replying.clear()
        for entry in [*entries, *self.commits.take_all()]:
            if entry.completion is not None:
                entry.completion.fail(error)
        self.waiters.dismiss(error=error)

    def stop_waiting(self) -> None:
        """Complete all waiting leases and reads, and let none wait from now on."""
        self.closing = True
        self.waiters.dismiss()
        for readers in self._readers.values():
            for reader in readers:
                if not reader.done():
                    reader.set_result(None)
        self._readers.clear()

    async def drain(self) -> None:
        """Accept no more commands, complete all replies, make all decisions durable, stop. The journal stays open."""
        self.stop_waiting()
        self._shut = True
        await self.commits.idle.wait()
        await asyncio.gather(*self._fetching, return_exceptions=True)
        self._timer.stop()
        await asyncio.sleep(0)  # coroutines whose replies were sent just now still read from the journal
        self.commits.stop()
        self.failed = self.failed or "the broker is shut down"


def _no_room() -> DiskFull:
    return DiskFull("the disk is full and even the reserve is used up; nothing was stored", retry_after_ms=5_000)


assert PREFIX.size == 12
