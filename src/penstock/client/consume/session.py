"""One consumer at work: a buffer that is refilled ahead of need, acks that ride along, leases that do not run out.

One `ConsumerSession` per consumer does the work; `consumers` has the iterators around it. The rules:

- A lease call that carries acks never waits at the server, so an ack is answered within one round trip; only a call
  without acks is a long poll. A busy consumer's loop is thus one call per batch.
- An awaited ack is sent at once. Acks that are handed over (`async with`) wait for the next lease call, but not longer
  than `ACK_LINGER_S`. Acks that are added while a call is under way share the next one.
- A consumer that has emptied its buffer while such a call is under way sends the next one behind it, if there is room
  for what both may bring: server and client then work at the same time instead of waiting for each other in turns. Both
  travel on one connection, so that the first is handled first and messages come in their order.
- Batches are leased one by one as they are asked for. A consumer that handles them quickly gets the next one leased
  while it handles one, by a call that carries the acks of the one before.
- The lease of a message is renewed while it waits in the buffer, while it is the loop's current one, and inside
  `async with`.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from penstock import limits
from penstock.client.calls import delivery as calls
from penstock.client.calls.call import Call
from penstock.client.consume.fetch import Fetch
from penstock.client.consume.membership import GroupMember, GroupMembership
from penstock.client.consume.messages import LeasedBatch, LeasedMessage
from penstock.client.consume.options import RELEASE_WITHIN_S, ConsumeOptions
from penstock.client.consume.renewal import Renewal, renew_at
from penstock.client.consume.settling import AckBatch, AckSender, SettleCalls
from penstock.client.messages.leased import LeasedRun, ReceiptSpan
from penstock.client.transport.carrier import Carrier
from penstock.errors import PenstockError
from penstock.ids import QueuePath
from penstock.wire.delivery import Settled

CLOSE_GRACE_S = 0.05
"""How long a closing consumer waits for a long poll whose answer may be on its way."""

AHEAD_WITHIN_S = 0.05
"""A consumer that handles a batch faster than this, and hands its acks over, gets the next ones leased ahead."""

M = TypeVar("M", bound=LeasedMessage)
B = TypeVar("B", bound=LeasedBatch[Any])

log = logging.getLogger("penstock.client")


class MessageKinds(NamedTuple, Generic[M, B]):
    """The classes that a consumer hands out: their methods are coroutines, or they block."""

    message: type[M]
    batch: type[B]


class ConsumerSession(SettleCalls, Generic[M, B]):
    """Everything that one consumer holds. Lives until `aclose`, also when its iterator is gone."""

    def __init__(self, carrier: Carrier, options: ConsumeOptions, kinds: MessageKinds[M, B], *, low_water: int):
        """Refills in the background when no more than `low_water` messages are left; -1: only when asked."""
        super().__init__(carrier, options)
        runtime = self.runtime
        self._message, self._batch = kinds
        self._low_water = low_water if runtime.concurrent else -1
        self._ready: deque[LeasedRun] = deque()
        self._ready_count = 0
        self.current: M | B | None = None
        """The message or batch that the loop was given last. Its lease is renewed."""
        self._handed_out = 0
        self._handed_at = 0.0
        self._is_quick = False
        """The last batch was handled so fast that the next one is leased ahead."""
        self._timers = timers = runtime.timers(f"penstock {options.source}")
        self._acks = AckSender(carrier, options, runtime, timers)
        self._renewal = Renewal(carrier, options.source, runtime, timers)
        # Called for every message: handed on as they are.
        self.ack_one_soon, self.ack_soon = self._acks.one_soon, self._acks.soon
        self.hold, self.let_go = self._renewal.hold, self._renewal.let_go
        self._fetches: list[Fetch] = []
        """Under way, at most two, the second behind the first."""
        self._fetching = runtime.jobs()
        self._member: GroupMember | None = None
        if options.assigned is not None:
            membership = GroupMembership(QueuePath(options.source), options.group, options.assigned)
            self._member = GroupMember(carrier, membership, self._drop, runtime, timers)
        self._error: PenstockError | None = None
        self._is_closed = False
        self._is_emptied = False
        """The buffer was given back; a call that ends later gives back what it brings."""
        self._closing = runtime.jobs()

    # -- out of the buffer ------------------------------------------------------------------------------------------

    def take_message(self) -> M | None:
        """The next message in the buffer, or None if it is empty.

        Every message of a loop costs one call of this, so it calls as little as it can.
        """
        if self.current is not None:
            self._release_current()
        while self._ready and not self._is_closed:
            run = self._ready[0]
            row = run.next_row
            # An interrupt may come between any two lines: a message that leaves the buffer is the current one before.
            self.current = message = self._message(run, row, self)
            run.next_row = row + 1
            self._ready_count -= 1
            if row + 1 == run.batch.count:
                self._ready.popleft()
                self.let_go(run)
            if self._ready_count <= self._low_water and not self._fetches:
                self._start_fetch(self._options.poll_s())
            if row not in run.lost_rows:
                self._handed_out += 1
                self.hold(message)
                return message
            self.current = None
        return None

    async def next_message(self) -> M | None:
        """The next message, or None if none came for as long as the options allow."""
        while (message := self.take_message()) is None:
            if not await self._fill():
                return None
        return message

    async def next_batch(self) -> B | None:
        """The content of the buffer, up to a whole batch, or None if nothing came for as long as the options allow."""
        if self.current is not None:
            is_quick = self._acks.hands_over and self.runtime.time() - self._handed_at < AHEAD_WITHIN_S
            self._is_quick = is_quick and self.runtime.concurrent
            self._release_current()
        while (self._ready and not self._is_closed) or await self._fill():
            runs = [self._ready.popleft()]
            count = runs[0].batch.count
            while self._ready and count + self._ready[0].batch.count <= self._options.size:
                count += self._ready[0].batch.count
                runs.append(self._ready.popleft())
            self._ready_count -= count
            for run in runs:
                self.let_go(run)
            if runs := [run for run in runs if not run.lost_rows]:
                self.current = batch = self._batch(runs, self)
                self._handed_at = self.runtime.time()
                self._handed_out += 1
                self.hold(batch)
                if self._is_quick and self._options.size > 1 and not self._fetches and not self._is_closed:
                    self._start_fetch(self._options.poll_s())
                return batch
        return None

    def _release_current(self) -> None:
        """The loop goes on to the next message; the last one keeps its lease only inside `async with`."""
        if self.current is not None and not self.current.entered:
            self.let_go(self.current)
        self.current = None

    # -- into the buffer --------------------------------------------------------------------------------------------

    async def _fill(self) -> bool:
        """Wait for messages. False if none came in time; raises the error of the last lease call."""
        since = self.runtime.time()
        while not self._is_closed:
            if not self._fetches:
                self._start_fetch(self._options.poll_s(self.runtime.time() - since))
            elif self._may_follow(self._fetches[0]):
                self._start_fetch(0.0, behind=self._fetches[0])
            if self._fetches:
                await self._fetches[0].over()
            if self._ready:
                return True
            if (error := self._error or self._acks.unreported) is not None:
                self._error = self._acks.unreported = None
                raise error
            if self._options.is_over(self.runtime.time() - since):
                break
        return False

    def _may_follow(self, first: Fetch) -> bool:
        """True if another call should not wait for this one's answer. It has acks to carry, so it never waits."""
        return (
            len(self._fetches) == 1
            and self._room() > 0
            and bool(self._acks)
            and not first.is_long_poll
            and self._member is None
            and self.tracing is None
            and self._carrier.transport.can_follow(first.call)
        )

    def _room(self) -> int:
        """How many messages another call may bring. Batches come whole: a quick consumer has up to two ahead."""
        if self._is_quick:
            return self._options.size
        return self._options.size - self._ready_count - sum(fetch.most for fetch in self._fetches)

    def _start_fetch(self, wait_s: float, *, behind: Fetch | None = None) -> None:
        acks = self._acks.take()
        wait_ms = round(wait_s * 1000) if acks is None and wait_s > 0 else 0
        room = self._room()
        fetch = Fetch(self._lease(room, wait_ms, acks), room, self._carrier.new_retry(), behind, self.runtime)
        self._fetches.append(fetch)
        # At once: on its way before this returns. A task would begin when the caller next waits, which a loop that
        # finds its messages in the buffer does not do before the buffer is empty.
        at_once = behind is not None or self._carrier.transport.sends_at_once
        fetch.task = self._fetching.start(
            self._fetch(fetch, acks),
            f"penstock lease {self._options.source}",
            at_once=at_once and self._member is None and self.tracing is None,
        )
        if fetch in self._fetches:
            self._acks.flush()  # in case there were more than one call can carry

    def _lease(self, most: int, wait_ms: int, acks: AckBatch | None) -> Call[calls.LeaseResult]:
        fields = {**self._options.request, "max": most, "wait_ms": wait_ms}
        if acks is not None:
            fields["ack"] = acks.receipts
        if self._member is not None:
            membership = self._member.membership
            fields |= {"member": membership.member, "generation": membership.generation}
        return calls.lease(fields)

    async def _turn(self, fetch: Fetch) -> None:
        """Before a call is repeated: the other one that is under way comes first, so that messages keep their order.

        If both have failed, the first one is repeated first.
        """
        fetch.fail()
        if fetch.behind is not None:
            await fetch.behind.over()
        elif len(self._fetches) > 1:
            await self._fetches[1].over_or_failed()

    async def _fetch(self, fetch: Fetch, acks: AckBatch | None) -> None:
        retry, member = fetch.retry, self._member
        try:
            if member is not None:
                await member.ensure()
                fetch.call = self._lease(fetch.most, fetch.call.wait_ms, acks)  # with the membership as it is now
            began_ns = time.time_ns()
            with self._traced("ack", acks.spans if acks else (), alone=True):
                behind = fetch.behind.call if fetch.behind is not None else None
                leased = await self._carrier.request(fetch.call, retry, behind=behind, turn=lambda: self._turn(fetch))
            if self.tracing is not None and leased.runs:
                self.tracing.received(self._options.source, self._options.group, began_ns, leased.runs)
        except PenstockError as error:
            withdrawn = self._is_closed and acks is None
            if not withdrawn and (member is None or not await member.lost_place(error)):
                self._error = error
            if acks is not None:
                self._acks.failed(acks, error)
        except BaseException:
            if acks is not None:
                self._acks.put_back(acks)
            raise
        else:
            self._buffer(leased.runs if self._carrier.protection is None else self._opened(leased.runs))
            if acks is not None:
                self._acks.answered(acks, leased.results, retry)
            if self._is_emptied:
                await self.give_back(self._empty())
            elif member is not None:
                # Messages of partitions that were lost meanwhile go back; a newer assignment is asked for now.
                self._drop({run.meta.partition for run in leased.runs} - set(member.membership.partitions))
                await member.catch_up(leased.generation)
        finally:
            self._fetches.remove(fetch)
            fetch.end()

    def _opened(self, runs: Sequence[LeasedRun]) -> Sequence[LeasedRun]:
        """The messages that are authentic; the others are settled here, and never handed out."""
        protection = self._carrier.protection
        assert protection is not None
        opened, refused = protection.open_runs(runs)
        for offset, prefix, error in refused:
            log.warning("not handed out: %s", error)
            if protection.on_invalid == "raise":
                self._error = error
            if prefix is not None:
                verb = "reject" if protection.on_invalid == "reject" else "nack"
                spans = [ReceiptSpan(prefix, offset, offset)]
                text = str(error)[: limits.ERROR_CHARS_MAX]
                self._settling.start(self._settle_logged(verb, spans, error=text), f"penstock {verb}")
        return opened

    def _buffer(self, runs: Sequence[LeasedRun]) -> None:
        now = self.runtime.time()
        for run in runs:
            run.renew_at = renew_at(now, run.lease_ms)
            self._ready.append(run)
            self._ready_count += run.batch.count
            if run.leased:
                self.hold(run)

    # -- partitions that come and go --------------------------------------------------------------------------------

    def _drop(self, partitions: Collection[int]) -> None:
        """These partitions are another member's now: their buffered messages go there, and no attempt is counted."""
        gone = [run for run in self._ready if run.leased and run.meta.partition in partitions]
        if gone:
            self._ready = deque(run for run in self._ready if run not in gone)
            self._ready_count -= sum(run.batch.count - run.next_row for run in gone)
            for run in gone:
                self.let_go(run)
            spans = [span for run in gone for span in run.spans()]
            self._settling.start(self.give_back(spans), f"penstock release {self._options.source}")

    # -- acks -----------------------------------------------------------------------------------------------------

    async def settle(self, verb: str, spans: Sequence[ReceiptSpan], **fields: Any) -> list[Settled]:
        """As every call that settles; an ack travels with the acks of others and with the next lease."""
        if verb != "ack":
            return await super().settle(verb, spans, **fields)
        waiter = self._acks.awaited(spans)
        if self._wants_more():
            self._start_fetch(0.0)
        else:
            self._acks.flush()
        await waiter
        return []

    def _wants_more(self) -> bool:
        """True if the call of an ack should bring the next messages in the same round trip.

        Not the first one: a consumer that takes one batch and leaves shall not have leased another.
        """
        has_room = self._ready_count <= max(self._low_water, 0)
        may_lease = self._member is None or self._member.membership.joined
        return has_room and may_lease and self._handed_out > 1 and not self._fetches and not self._is_closed

    # -- closing ----------------------------------------------------------------------------------------------------

    def close_soon(self) -> None:
        """The iterator was dropped, in any thread."""
        if not self._is_closed:
            self._timers.call_soon_threadsafe(self._start_closing)

    async def aclose(self, *, interrupted: bool = False) -> None:
        """Give back what was not handed out, send every ack, then return.

        A message that is being handled stays leased and may be settled later: calling this again sends that. But if the
        loop was interrupted, a message that it had been given and had not entered goes back as well.
        """
        self._start_closing(interrupted=interrupted)
        await self._closing.drain()
        await self._drain()

    def stop(self) -> None:
        """After `aclose`: the client closes its transport, so there are no more calls."""
        self._renewal.stop()
        self._acks.stop()
        if self._member is not None:
            self._member.stop()
        self._timers.stop()

    def _start_closing(self, *, interrupted: bool = False) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._closing.start(self._close(interrupted), f"penstock close {self._options.source}")

    async def _close(self, interrupted: bool) -> None:
        current = self.current
        self._release_current()
        for fetch in list(self._fetches):
            await self._end_fetch(fetch)
        self._is_emptied = True
        spans = self._empty()
        if interrupted and current is not None and not current.entered:
            spans += current.open_spans()
        self._acks.flush()
        await self.give_back(spans)
        await self._drain()
        if self._member is not None:
            await self._member.leave()
        self._renewal.rest()
        self._timers.close()

    async def _end_fetch(self, fetch: Fetch) -> None:
        """Messages that this call brings must be given back, or they stay leased until the lease ends.

        A long poll may bring nothing for long, so the server is asked to answer now. Where the transport cannot ask,
        the call gets a moment and is then cancelled.
        """
        patience_s = None
        if fetch.is_long_poll:
            fetch.retry.withdrawn = True
            patience_s = RELEASE_WITHIN_S if self._carrier.transport.recall(fetch.call) else CLOSE_GRACE_S
        await fetch.over(patience_s)
        if fetch in self._fetches and fetch.task is not None:
            fetch.task.cancel()
            await fetch.over()

    def _empty(self) -> list[ReceiptSpan]:
        """The content of the buffer, which is empty afterwards."""
        spans = [span for run in self._ready for span in run.spans()]
        for run in self._ready:
            self.let_go(run)
        self._ready.clear()
        self._ready_count = 0
        return spans

    async def _drain(self) -> None:
        """Wait until everything that was settled so far is sent and answered."""
        self._acks.flush()
        while self._acks.sending or self._settling:
            await self._acks.sending.drain()
            await self._settling.drain()
            self._acks.flush()
