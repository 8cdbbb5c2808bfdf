"""Messages of several queues in one answer: leased from all of them, or read on from one message by all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from penstock import limits
from penstock.broker.service import Broker
from penstock.broker.types import DeliveredRun, LeaseReply, ReadReply
from penstock.ids import QueuePath, ulid_text
from penstock.pending import PendingReply
from penstock.transports.dialects.delivered import Delivered, one_by_one

T = TypeVar("T")


# -- leasing ------------------------------------------------------------------------------------------------------


async def lease_any(
    broker: Broker, queues: Sequence[QueuePath], *, group: str, max: int, wait_ms: int, consumer: str
) -> list[DeliveredRun]:
    """Up to `max` messages of these queues. If there are none, wait until one of the queues has some."""

    def take(queue: QueuePath, most: int, wait_ms: int = 0) -> PendingReply[LeaseReply]:
        return broker.lease(queue, group=group, max=most, wait_ms=wait_ms, consumer=consumer)

    runs: list[DeliveredRun] = []
    try:
        # A fair share of each first, so that a busy queue does not hide the others; then whatever there is.
        for most in (-(-max // len(queues)), max):
            for queue in queues:
                room = min(most, max - _count(runs))
                if room > 0 and _bytes(runs) < limits.LEASE_REPLY_BYTES_MAX:
                    runs += (await take(queue, room)).runs
        if not runs and wait_ms:
            waiting = [take(queue, max, wait_ms) for queue in queues]
            await _first_of(waiting, lambda reply: runs.extend(reply.runs))
    except BaseException:
        # Whoever asked is gone, or is told an error instead: what was granted is nobody's.
        await _give_back(broker, runs)
        raise
    kept, surplus = _cut(runs, max)
    await _give_back(broker, surplus)
    return kept


async def _give_back(broker: Broker, runs: Sequence[DeliveredRun]) -> None:
    receipts = [f"{run.receipt}{run.offset}-{run.offset + run.count - 1}" for run in runs if run.receipt is not None]
    if receipts:
        await broker.release(receipts)


def _count(runs: Sequence[DeliveredRun]) -> int:
    return sum(run.count for run in runs)


def _bytes(runs: Sequence[DeliveredRun]) -> int:
    return sum(run.batch.payload_bytes() for run in runs)


def _cut(runs: Sequence[DeliveredRun], max: int) -> tuple[list[DeliveredRun], list[DeliveredRun]]:
    """Whole runs, as far as they fit; and the others. Two queues may have woken at once."""
    kept: list[DeliveredRun] = []
    surplus: list[DeliveredRun] = []
    for run in runs:
        # What was settled by being delivered cannot be given back.
        (kept if _count(kept) + run.count <= max or run.receipt is None else surplus).append(run)
    return kept, surplus


async def _first_of(waiting: Sequence[Awaitable[T]], take: Callable[[T], object]) -> None:
    """Take what the first of them has, and others that are ready at the same moment; the rest are given up.

    Also if whoever waits is cancelled: what came in that moment is taken first.
    """
    tasks = [asyncio.ensure_future(each) for each in waiting]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for each, result in zip(waiting, results, strict=True):
            if not isinstance(result, BaseException):
                take(result)
            elif isinstance(each, PendingReply):
                each.cancel()  # its task may have been cancelled before it began to wait
    if all(isinstance(result, BaseException) for result in results):
        raise next(each for each in results if isinstance(each, Exception))


# -- reading ------------------------------------------------------------------------------------------------------


class Reading(NamedTuple):
    messages: list[Delivered]
    """In the order in which they were published."""
    has_more: bool


async def read_after(broker: Broker, queues: Sequence[QueuePath], after: int, *, max: int, wait_ms: int) -> Reading:
    """Up to `max` messages of these queues with ids after this one, whoever else has them."""
    places = [
        (queue, partition) for queue in queues for partition in range(broker.get_queue(queue)["config"]["partitions"])
    ]
    # Ids grow over all queues, so one of them is a position in each.
    offset = f"after:{ulid_text(after)}"

    def look(queue: QueuePath, partition: int, wait_ms: int = 0) -> Coroutine[Any, Any, ReadReply]:
        return broker.read(queue, partition=partition, offset=offset, max=max, wait_ms=wait_ms)

    async def look_everywhere() -> Reading:
        merge = _Merge(max)
        for place in places:
            merge.add(await look(*place))
        return merge.reading()

    found = await look_everywhere()
    if not found.messages and wait_ms:
        woken: list[ReadReply] = []
        await _first_of([look(*place, wait_ms) for place in places], woken.append)
        found = await look_everywhere()
    return found


class _Merge:
    """The first messages of several reads, by id. Keeps no more of them than one answer may have."""

    def __init__(self, max: int):
        self._max = max
        self._messages: list[Delivered] = []
        self._last: int | None = None
        """Nothing behind this id may be shown: there may be something before it that was not read, or not kept."""

    def add(self, reply: ReadReply) -> None:
        found = one_by_one(reply.runs)
        if found and reply.next_offset < reply.end_offset:
            self._cut(found[-1].number)
        self._messages += found
        self._messages.sort(key=lambda message: message.number)
        room = limits.LEASE_REPLY_BYTES_MAX
        for count, message in enumerate(self._messages):
            room -= len(message.payload)
            if count and (count == self._max or room < 0):
                self._cut(self._messages[count - 1].number)
                del self._messages[count:]
                break

    def _cut(self, last: int) -> None:
        self._last = last if self._last is None else min(last, self._last)

    def reading(self) -> Reading:
        shown = [message for message in self._messages if self._last is None or message.number <= self._last]
        return Reading(shown, self._last is not None)
