"""The shard's loop: decide, apply, append, release.

A command is decided and applied the moment it arrives, on the event loop's thread, and its records are put on the pile
for the next commit; its reply is parked. While one commit is being made durable the next pile grows: that is the whole
group commit. Replies leave in order, when the frame that holds their facts is durable. A command without records is
a read, and leaves behind the facts that it has seen.

The only rollback is a reload. If a commit surely was not written (no space), everything parked fails and the shard is
read again from its journal. If nobody knows (the disk failed, another owner fenced us), the shard stops for good.

Where one caller at a time is being served there is no group to wait for, and `hurry` writes the commit at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from penstock import limits
from penstock.clock import Clock
from penstock.core import commands
from penstock.core.advance import advance
from penstock.core.apply import apply
from penstock.core.commands import Command
from penstock.core.decide import decide
from penstock.core.rebalancing import has_changed, renew_sessions
from penstock.core.records import (
    Expired,
    Published,
    QueueDeleted,
    QueuePurged,
    Record,
    ScheduleRefused,
)
from penstock.core.scopes import Scopes, scopes_over
from penstock.core.state import Queue, Shard
from penstock.eager import Rest, begin
from penstock.errors import DiskFull, PenstockError, Unavailable
from penstock.journal.codec import PREFIX
from penstock.journal.frame import HEADER, FrameWriter
from penstock.journal.port import EngineError, Failed, OutOfSpace, ShardJournal
from penstock.runtime.ahead import Ahead
from penstock.runtime.alarm import Alarm
from penstock.runtime.counters import Counters
from penstock.runtime.far import read_chunk
from penstock.runtime.granting import Granting
from penstock.runtime.index import PartitionIndex
from penstock.runtime.log import MessageLog
from penstock.runtime.parking import Waiters
from penstock.runtime.share import Cut, Parked
from penstock.runtime.solitude import Solitude
from penstock.runtime.watchers import Watchers

PUBLISHING = frozenset({commands.Publish, commands.RedriveLetters, commands.Transact})
"""What makes the log grow, and waits while there is no room for that."""
ANSWERED_AHEAD = frozenset(
    {
        commands.Publish, commands.Transact, commands.Ack, commands.Nack, commands.Reject, commands.Release,
        commands.Extend,
    }
)  # fmt: skip
"""What a lone caller, besides leases, may answer to before it is durable, if the answer stays here until then."""
LATE_MS = 50
"""Whoever comes later than this to what was due has been held up, and is not just busy."""
FULL_PAUSE_S = 1.0
"""After a commit that found no room at all. The next one would fail too, and cost another reading of the journal."""


_ANY_PUBLISH = commands.Publish([], 0)


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
    ):
        self.shard = shard
        self.journal = journal
        self.log = log
        self.counters = Counters(clock.now_ms(), shard.leases)
        self.failed: str | None = None
        """Why the shard has stopped for good."""
        self.closing = False
        """Nothing new is taken in, and nobody waits; what is under way can still be finished."""
        self._shut = False
        """Nothing is taken at all."""
        self._emptying: list[QueueDeleted | QueuePurged] = []
        """Durable, but their queues' messages are still to be let go of: answers that are leaving may need them."""
        self._leaving: dict[Parked, None] = {}
        self._without_room = False
        self._writer = writer
        self._clock = clock
        self._on_failure = on_failure
        self._reload = reload
        self._read_far = partial(read_chunk, journal)
        self.waiters = Waiters()
        self._granting = Granting(self)
        self.scopes = Scopes(shard, log.published_at)
        self._solitude = Solitude()
        self._readers: dict[tuple[int, int], list[asyncio.Future[None]]] = {}
        self.watchers = Watchers()
        self._pile: deque[Parked] = deque()
        self._pile_bytes = 0
        self._committing = False
        self._awake = False
        """True if somebody will look at the pile in the next turn of the event loop."""
        self._finishing: asyncio.Future[None] | None = None
        self._events = asyncio.get_running_loop()
        self._space_check: asyncio.Future[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._work = asyncio.Event()
        self._alarm = Alarm(clock, self._on_alarm)
        self._committed_bytes = 0
        self._last_locator = 0
        self.on_commit_took: Callable[[float], None] = lambda _: None
        """Told after every commit how many seconds it took to make it durable, without what was done meanwhile."""
        self.on_commit: Callable[[int], None] = lambda _: None
        """Told after every commit how many bytes were written since the last call of `take_committed_bytes`."""
        self.on_reread: Callable[[], None] = lambda: None
        """Told after the shard was read again out of the journal: what was decided last has not happened."""
        self.on_facts: Callable[[list[bytes]], None] | None = None
        """Told the records of every commit, as the bytes that they are, when they are durable."""
        self._committer = asyncio.ensure_future(self._commit_forever())
        self.arm_timer()

    # -- commands -----------------------------------------------------------------------------------------------------

    def submit(self, command: Command) -> asyncio.Future[Any]:
        """Decide now; the future has the reply when it is durable. Raises what the machine refuses."""
        self._admit(command)
        now_ms = self._clock.now_ms()
        if type(command) is not commands.Open:
            # Leases whose time ran out while nobody was here start over with the opening; time does its work after it.
            self._advance(now_ms)
        decision = decide(self.shard, command, now_ms, self.log.fit)
        future = self._events.create_future()
        self.park(decision.records, decision.reply, future, ahead=type(command) in ANSWERED_AHEAD)
        if decision.records:
            if self.shard.needs_tick():
                self._advance(now_ms)  # what was let go past its time to live is for nobody
            self._granting.serve(decision.records)
            self.arm_timer()
        return future

    def lease(self, command: commands.Lease | commands.LeaseScope, wait_ms: int) -> asyncio.Future[Any]:
        """Like `submit`, but with nothing to give the caller is parked for up to `wait_ms` until there is something."""
        self._admit(command)
        now_ms = self._clock.now_ms()
        if isinstance(command, commands.Lease):
            self.counters.asked(command.queue, command.group, now_ms)
        else:
            self.counters.asked_scope(command.scope, command.group, now_ms)
        self._advance(now_ms)
        future = self._events.create_future()
        if self._granting.grant(command, future):
            return future
        recalled = isinstance(command, commands.Lease) and command.member and has_changed(self.shard, command)
        if wait_ms and not self.closing and not recalled:
            return self.waiters.park(command, wait_ms)
        self.park([], [], future)
        return future

    async def grown(self, queue: int, partition: int, wait_ms: int) -> None:
        """Wait until something is stored in this partition, or the time is over. Readers share: all are woken."""
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

    def cut(self, cut: Cut) -> asyncio.Future[Any]:
        """End a frame behind everything decided so far, and call `cut` the moment it is durable, before anything else.

        The state as it is now is then the state after that frame.
        """
        if self.failed is not None:
            raise Failed(self.failed)
        if self._without_room:
            raise OutOfSpace("the disk is full")
        future = self._events.create_future()
        parked = Parked(None, future)
        parked.cut = cut
        self._pile.append(parked)
        self._wake()
        return future

    def hurry(self, caller: Rest[Any] | None = None) -> None:
        """Whoever waits for what was decided just now is the only one here: make it durable before returning.

        Does nothing where others may come, who would share the commit, and where it would have to wait. If the caller
        is given, it prepares its answer while the disk is at work, and is to go on when this returns: not before may
        anything of it leave, but through its `leave`. If the disk failed it then raises that.
        """
        if self._pile and not self._committing and self._solitude.expected():
            begun = begin(self._commit(may_block=True, caller=caller))
            if isinstance(begun, Rest):
                # The engine had other work to finish first, or there is no room: then it takes as long as it takes.
                self._finishing = asyncio.ensure_future(_wait_for(begun))

    @property
    def waiting(self) -> int:
        return self.waiters.count

    def waiting_in(self, queue: Queue, group: str) -> int:
        """Consumers of this group that wait for messages of this queue, or of a scope that it is in."""
        in_scopes = sum([self.waiters.count_of(scope, group) for scope in set(scopes_over(queue.path))])
        return self.waiters.count_of(queue.number, group) + in_scopes

    def last_asked_ms(self, queue: Queue, group: str) -> int | None:
        """When a consumer of this group last asked for messages of this queue; None: not since the start."""
        return self.counters.last_asked(queue.number, scopes_over(queue.path), group)

    @property
    def without_room(self) -> bool:
        """True while nothing at all can be written, so that nothing is delivered either."""
        return self._without_room

    @property
    def durable_index(self) -> int:
        """Of the last frame whose replies have left, or are about to."""
        return self._writer.next_index - (2 if self._committing else 1)

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def check_publish(self) -> None:
        """Raises what every publish would be refused with now, whatever is in it."""
        self._admit(_ANY_PUBLISH)

    def brought_to_now(self) -> int:
        """Let time do its work, for whoever looks at the state; says what time it is."""
        now_ms = self._clock.now_ms()
        if self.failed is None and not self._without_room and not self._shut:
            self._advance(now_ms)
        return now_ms

    def _admit(self, command: Command | commands.LeaseScope) -> None:
        if self.failed is not None:
            raise Unavailable(self.failed, retry_after_ms=1_000)
        if self._shut or (self.closing and type(command) in PUBLISHING):
            raise Unavailable("the broker is shutting down", retry_after_ms=1_000)
        if self._without_room:
            raise _no_room()
        # What finishes messages is small, and makes room: it is only counted.
        too_many = len(self._pile) > limits.PENDING_COMMANDS_MAX
        if too_many or (self._pile_bytes > limits.PENDING_BYTES_MAX and type(command) in PUBLISHING):
            raise Unavailable("the disk does not keep up; slow down", retry_after_ms=200)
        if type(command) in PUBLISHING and self.journal.short_of_space:
            self._check_space()
            raise DiskFull("the disk is full; consumers keep working, publishing waits", retry_after_ms=5_000)

    def _check_space(self) -> None:
        """Somebody wanted to publish and could not: is there room again?"""
        if self.journal.short_of_space and self._space_check is None:
            self._space_check = asyncio.ensure_future(self._look_for_space())

    async def _look_for_space(self) -> None:
        try:
            await self.journal.check_space()
        except EngineError as error:
            self._fail(str(error))
        finally:
            self._space_check = None

    # -- time ---------------------------------------------------------------------------------------------------------

    def _advance(self, now_ms: int) -> None:
        """Let time do what it does, before anything is decided at `now_ms`."""
        if self.shard.next_deadline_ms() > now_ms:
            return
        self._make_up_for(self._alarm.late_ms(), now_ms)
        woken: set[int] = set()
        # Again while there is something: a lease that ran out may be due for its next attempt at the same moment.
        while self.shard.next_deadline_ms() <= now_ms:
            woken |= self._advance_shard(now_ms)
            if self.shard.needs_tick():
                decision = decide(self.shard, commands.Tick(self.journal.short_of_space), now_ms)
                self.park(decision.records, None, None)
                # A schedule may have fired; or what others wait behind has come to its end.
                woken.update(record.queue for record in decision.records if isinstance(record, Published | Expired))
                if any(type(record) is ScheduleRefused for record in decision.records):
                    self._check_space()
                for record in decision.records:
                    self._granting.recall(record)
        if self.scopes:
            # All of them before anything is given away: the last one may be the most important.
            for queue in woken:
                self.scopes.stir(queue)
        for queue in woken:
            self._granting.offer(queue)
        self.arm_timer()

    def _advance_shard(self, now_ms: int) -> set[int]:
        try:
            return advance(self.shard, now_ms, self._read_far)
        except (EngineError, OSError) as error:
            # What is due now cannot be read. Whatever was answered in its place would be wrong.
            self._fail(str(error) or repr(error))
            raise Unavailable(str(error), retry_after_ms=1_000) from error

    def arm_timer(self) -> None:
        """Sleep exactly until time has something to do."""
        self._alarm.set(self.shard.next_deadline_ms())

    def _on_alarm(self) -> None:
        if self.failed is None and not self._without_room:
            now_ms = self._clock.now_ms()
            self._make_up_for(self._alarm.late_ms(), now_ms)
            with contextlib.suppress(Unavailable):  # then the shard has failed, and everybody was told
                self._advance(now_ms)
                self.arm_timer()

    def _make_up_for(self, lost_ms: int, now_ms: int) -> None:
        """Nobody was served for so long. Who had a deadline in that time may have done what it asks for, unheard."""
        if lost_ms > LATE_MS:
            self.shard.grace = self.shard.grace.after(now_ms, lost_ms)

    # -- commit -------------------------------------------------------------------------------------------------------

    def park(self, made: list[Record], reply: Any, future: asyncio.Future[Any] | None, *, ahead: bool = False) -> None:
        parked = Parked(reply, future, ahead=ahead)
        for record in made:
            self.counters.note(record, self.shard.leases)
            apply(self.shard, record)
            if self.scopes:
                self.scopes.note(record)
            parked.add(record)
        if parked.leaving:
            self._leaving[parked] = None
        if not made and not self._pile and not self._committing:
            if future is not None:
                future.set_result(reply)
            return
        self._pile.append(parked)
        self._pile_bytes += parked.size
        self._wake()

    def _wake(self) -> None:
        """There is something to commit. The turn of the loop may still bring more, or somebody who is in a hurry."""
        self._idle.clear()
        if not self._awake:
            self._awake = True
            self._events.call_soon(self._look)

    def _look(self) -> None:
        self._awake = False
        if self._pile and not self._committing:
            self._work.set()

    def park_answer(self, granted: list[commands.LeasedRun], future: asyncio.Future[Any]) -> None:
        """An answer that leaves when everything parked before it is durable, and keeps its bytes until then."""
        parked = Parked(granted, future, ahead=True)
        parked.leaving = granted
        self._leaving[parked] = None
        self._pile.append(parked)
        self._idle.clear()
        self._work.set()

    async def _commit_forever(self) -> None:
        while self.failed is None:
            if self._pile and not self._committing:
                await self._commit(may_block=self._solitude.expected())
            else:
                self._work.clear()
                await self._work.wait()

    async def _commit(self, *, may_block: bool, caller: Rest[Any] | None = None) -> None:
        """One frame. Only one at a time is on its way."""
        self._committing = True
        try:
            share = self._take_share()
            parts = [part for parked in share for part in parked.parts]
            locator = 0
            if parts:
                index = self._writer.next_index
                header = self._writer.seal(self._clock.now_ms(), parts)
                ahead = Ahead(share, self._pile, caller, self._clock) if caller is not None else None
                begun = self._clock.monotonic()
                try:
                    locator = await self.journal.append(index, [header, *parts], may_block=may_block, meanwhile=ahead)
                except OutOfSpace:
                    await self._start_over(share)
                    return
                except Exception as error:  # whatever it was, nobody knows what is on the disk now
                    reason = str(error) or repr(error)
                    try:
                        self._fail(reason, share)
                    finally:
                        if caller is not None:
                            caller.take_back(Unavailable(reason, retry_after_ms=1_000))
                    return
                took_s, came = self._clock.monotonic() - begun, len(self._pile)
                if ahead is not None:
                    took_s, came = took_s - ahead.took_s, came - ahead.asked
                self._solitude.observe(may_block, came, took_s)
                self.on_commit_took(took_s)
            self._release(share, locator)
            if self.on_facts is not None and parts:
                self.on_facts(parts)
        finally:
            self._committing = False
            if self._pile:
                self._wake()
            else:
                self._idle.set()

    def _take_share(self) -> list[Parked]:
        """The commands of the next frame: whole commands, up to the size of a commit."""
        share: list[Parked] = []
        size = 0
        while self._pile and (not share or size + self._pile[0].size <= limits.COMMIT_BYTES_MAX):
            parked = self._pile.popleft()
            size += parked.size
            share.append(parked)
            if parked.cut is not None:
                break
        self._pile_bytes -= size
        return share

    def _release(self, share: list[Parked], locator: int) -> None:
        """The frame is durable: its messages can be found, its replies may leave."""
        at = HEADER.size
        if locator:
            self._last_locator = locator
        for parked in share:
            for record, position, length in parked.published:
                self.log.add(record, locator, at + position, length)
                for reader in self._readers.pop((record.queue, record.partition), ()):
                    if not reader.done():
                        reader.set_result(None)
                self.watchers.note(record)
            self.watchers.note_emptied(parked.emptied)
            self._emptying += parked.emptied
            at += parked.size
            if parked.cut is not None:
                parked.cut(self._writer.next_index - 1, self._writer.chain, locator or self._last_locator)
            if parked.future is not None:
                if not parked.future.done():
                    parked.future.set_result(parked.reply)
                elif parked.future.cancelled():
                    self.give_back(parked.reply)
            if parked.leaving or parked.emptied:
                self._events.call_soon(self._left, parked)
        if locator:
            self._committed_bytes += at
            self.on_commit(self._committed_bytes)

    def pieces(self) -> Iterator[tuple[tuple[int, int], PartitionIndex]]:
        """Where the messages of each partition lie, as of the last durable frame."""
        purged = {
            (each.queue, number): end
            for each in self._emptying
            if isinstance(each, QueuePurged)
            for number, end in enumerate(each.ends)
        }
        for place, index in sorted(self.log.indexes.items()):
            yield place, index.since(purged[place]) if place in purged else index

    def leaving(self) -> Iterator[commands.LeasedRun]:
        """Leased, but still to be handed over. Whatever becomes of them meanwhile, the answer needs their bytes."""
        for parked in self._leaving:
            yield from parked.leaving

    def _left(self, parked: Parked) -> None:
        """The answers of this share have left, and those before it."""
        self._leaving.pop(parked, None)
        for emptied in parked.emptied:
            self._emptying.remove(emptied)
            self.log.let_go(emptied)

    def give_back(self, reply: Any) -> None:
        """Whoever asked for these messages went away before they could be handed over."""
        if isinstance(reply, list) and self.failed is None and not self._shut:
            claims = [
                commands.Claim(run.lease, run.nonce, run.first, run.first + run.count)
                for run in reply
                if isinstance(run, commands.LeasedRun) and not run.settled
            ]
            if claims:
                # Too busy to take them back: then the lease runs out.
                with contextlib.suppress(PenstockError):
                    self.submit(commands.Release(claims))

    def take_committed_bytes(self) -> int:
        taken, self._committed_bytes = self._committed_bytes, 0
        return taken

    # -- failure, end -------------------------------------------------------------------------------------------------

    async def _start_over(self, share: list[Parked]) -> None:
        """The commit was not written. Memory is ahead of the journal; the journal is right."""
        self._without_room = True
        began_ms = self._clock.now_ms()
        self._fail_parked([*share, *self._pile], _no_room())
        if self._reload is None:
            self._fail("the disk is full")
            return
        try:
            self.shard, self.log, self._writer = await self._reload()
        except Exception as error:  # then there is no state to go on with
            self._fail(str(error) or repr(error))
            return
        self.counters.adopt(self._clock.now_ms(), self.shard.leases)
        renew_sessions(self.shard, self._clock.now_ms())
        self.scopes = Scopes(self.shard, self.log.published_at)
        self.on_reread()
        await asyncio.sleep(FULL_PAUSE_S)
        self._without_room = False
        now_ms = self._clock.now_ms()
        self._make_up_for(now_ms - began_ms, now_ms)
        self.arm_timer()

    def _fail(self, reason: str, share: list[Parked] | None = None) -> None:
        """Stop for good: no reply leaves that the journal may not remember."""
        self.failed = reason
        self._fail_parked([*(share or []), *self._pile], Unavailable(reason, retry_after_ms=1_000))
        self._idle.set()
        self._on_failure(reason)

    def _fail_parked(self, parked: list[Parked], error: PenstockError) -> None:
        self._pile.clear()
        self._pile_bytes = 0
        self._leaving.clear()
        for one in parked:
            if one.future is not None and not one.future.done():
                one.future.set_exception(error)
        self.waiters.dismiss(error=error)

    def stop_waiting(self) -> None:
        """Answer everyone who waits, and let nobody wait from now on."""
        self.closing = True
        self.waiters.dismiss()
        for readers in self._readers.values():
            for reader in readers:
                if not reader.done():
                    reader.set_result(None)
        self._readers.clear()

    async def drain(self) -> None:
        """Take nothing more, answer everyone, make everything decided durable, stop. The journal stays open."""
        self.stop_waiting()
        self._shut = True
        while not self._idle.is_set():
            await self._idle.wait()
        self._alarm.stop()
        await asyncio.sleep(0)  # whoever was answered just now reads what they were given, while there is a journal
        self._committer.cancel()
        self.failed = self.failed or "the broker is shut down"


async def _wait_for(rest: Rest[None]) -> None:
    await rest


def _no_room() -> DiskFull:
    return DiskFull("the disk is full and even the reserve is used up; nothing was stored", retry_after_ms=5_000)


assert PREFIX.size == 12
