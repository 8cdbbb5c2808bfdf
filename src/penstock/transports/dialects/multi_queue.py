"""Leases and reads over several queues with one reply."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from penstock import limits
from penstock.broker.service import Broker
from penstock.broker.types import DeliveredRun, LeaseReply, ReadReply
from penstock.ids import QueuePath, ulid_text
from penstock.pending import PendingReply, value_of
from penstock.transports.dialects.delivered import DeliveredMessage, messages_of_runs

T = TypeVar("T")


# -- leasing ------------------------------------------------------------------------------------------------------


async def lease_any(
    broker: Broker, queues: Sequence[QueuePath], *, group: str, max: int, wait_ms: int, consumer: str
) -> list[DeliveredRun]:
    """Lease up to `max` messages of these queues. If none is ready, wait until one of the queues has some."""

    def lease(queue: QueuePath, most: int, wait_ms: int = 0) -> PendingReply[LeaseReply]:
        return broker.messages.lease(queue, group=group, max=most, wait_ms=wait_ms, consumer=consumer)

    runs: list[DeliveredRun] = []
    try:
        # First an equal share of each queue, so that a busy queue does not starve the others; then as much as fits.
        for most in (-(-max // len(queues)), max):
            for queue in queues:
                room = min(most, max - _count(runs))
                if room > 0 and _bytes(runs) < limits.LEASE_REPLY_BYTES_MAX:
                    runs += (await lease(queue, room)).runs
        if not runs and wait_ms:
            waiting = [lease(queue, max, wait_ms) for queue in queues]
            await _first_of(waiting, lambda reply: runs.extend(reply.runs))
    except BaseException:
        # The client disconnected or gets an error, so it never sees these messages.
        await _release(broker, runs)
        raise
    kept, surplus = _split(runs, max)
    await _release(broker, surplus)
    return kept


async def _release(broker: Broker, runs: Sequence[DeliveredRun]) -> None:
    receipts = [f"{run.receipt}{run.offset}-{run.offset + run.count - 1}" for run in runs if run.receipt is not None]
    if receipts:
        await broker.messages.release(receipts)


def _count(runs: Sequence[DeliveredRun]) -> int:
    return sum(run.count for run in runs)


def _bytes(runs: Sequence[DeliveredRun]) -> int:
    return sum(run.batch.payload_bytes() for run in runs)


def _split(runs: Sequence[DeliveredRun], max: int) -> tuple[list[DeliveredRun], list[DeliveredRun]]:
    """The runs that fit into `max`, and the others. Two queues may have granted leases at once."""
    kept: list[DeliveredRun] = []
    surplus: list[DeliveredRun] = []
    for run in runs:
        # An at-most-once delivery has no receipt and cannot be released.
        (kept if _count(kept) + run.count <= max or run.receipt is None else surplus).append(run)
    return kept, surplus


async def _first_of(waiting: Sequence[Awaitable[T]], take: Callable[[T], object]) -> None:
    """Pass the first result, and others that are ready at the same time, to `take`; cancel the rest.

    If the caller is cancelled, results that are ready at that time are passed to `take` too.
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


class ReadPage(NamedTuple):
    messages: list[DeliveredMessage]
    """In the order of publishing."""
    has_more: bool


async def read_after(broker: Broker, queues: Sequence[QueuePath], after: int, *, max: int, wait_ms: int) -> ReadPage:
    """Read up to `max` messages of these queues with ids after this one. A read takes no leases."""
    partitions = [
        (queue, partition)
        for queue in queues
        for partition in range((await value_of(broker.queues.get(queue)))["config"]["partitions"])
    ]
    # Ids grow with time over all queues, so an id is a position in each of them.
    offset = f"after:{ulid_text(after)}"

    def read(queue: QueuePath, partition: int, wait_ms: int = 0) -> Coroutine[Any, Any, ReadReply]:
        return broker.log.read(queue, partition=partition, offset=offset, max=max, wait_ms=wait_ms)

    async def read_all() -> ReadPage:
        merge = _MergedRead(max)
        for each in partitions:
            merge.add(await read(*each))
        return merge.page()

    found = await read_all()
    if not found.messages and wait_ms:
        woken: list[ReadReply] = []
        await _first_of([read(*each, wait_ms) for each in partitions], woken.append)
        found = await read_all()
    return found


class _MergedRead:
    """The first messages of several reads, sorted by id. Keeps no more messages than one reply may have."""

    def __init__(self, max: int):
        self._max = max
        self._messages: list[DeliveredMessage] = []
        self._last: int | None = None
        """Messages after this id are left out, because messages before them may be unread or dropped here."""

    def add(self, reply: ReadReply) -> None:
        found = messages_of_runs(reply.runs)
        if found and reply.next_offset < reply.end_offset:
            self._split(found[-1].number)
        self._messages += found
        self._messages.sort(key=lambda message: message.number)
        room = limits.LEASE_REPLY_BYTES_MAX
        for count, message in enumerate(self._messages):
            room -= len(message.payload)
            if count and (count == self._max or room < 0):
                self._split(self._messages[count - 1].number)
                del self._messages[count:]
                break

    def _split(self, last: int) -> None:
        self._last = last if self._last is None else min(last, self._last)

    def page(self) -> ReadPage:
        shown = [message for message in self._messages if self._last is None or message.number <= self._last]
        return ReadPage(shown, self._last is not None)
