"""What the ledger knows of window buffers and scopes: nothing goes early, and nothing before what is more important."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core import records
from sim.entries import LedgerQueue, Message
from sim.seats import Seats
from sim.violation import Violation


class Buffer:
    """The window of one queue."""

    def __init__(self) -> None:
        self.newest_at = 0
        self.since = 0
        """When the window was set: what was there before counts from then on."""
        self.open_for = 0
        """The nonce of the lease that it was last open for: one decision takes from several partitions."""
        self.flushed: dict[tuple[int, int], int] = {}
        """(group, partition) -> offset: what is below may go."""


class Buffers:
    def __init__(self) -> None:
        self._by_queue: dict[int, Buffer] = {}

    def configured(self, queue: LedgerQueue, record: records.QueueConfigured) -> None:
        """Before the queue has the new configuration."""
        if record.config.window_ms and (queue.number not in self._by_queue):
            buffer = self._by_queue[queue.number] = Buffer()
            buffer.since = record.at
            if any(len(partition.messages) > partition.start for partition in queue.partitions):
                buffer.newest_at = record.at
        elif not record.config.window_ms:
            self._by_queue.pop(queue.number, None)

    def published(self, queue: LedgerQueue, at: int) -> None:
        if queue.number in self._by_queue:
            self._by_queue[queue.number].newest_at = at

    def purged(self, queue: LedgerQueue) -> None:
        if queue.number in self._by_queue:
            self._by_queue[queue.number] = Buffer()

    def leased(self, queue: LedgerQueue, record: records.Leased) -> None:
        """Before the messages are marked as taken. Raises Violation if the window was closed (I14)."""
        buffer = self._by_queue.get(queue.number)
        if buffer is None or record.at >= buffer.newest_at + queue.config.window_ms:
            return
        if record.nonce == buffer.open_for and not record.flush:
            return  # the same lease. It flushes if what it found flushed was not enough for it
        buffer.open_for = record.nonce
        # What is left of what may go may be held back by its key: then the rest is flushed all the same.
        if not record.flush and any(
            message.offset < buffer.flushed.get((record.group, message.partition), 0)
            for message in waiting(queue, record.group, record.at)
        ):
            return  # something is left of what may go, and while it is, the window is open
        if not self._has_waited(queue, buffer, record.group, record.at):
            age = record.at - buffer.newest_at
            raise Violation("I15", f"{queue.path} delivered {age} ms after its newest message, its window was closed")
        for number, partition in enumerate(queue.partitions):
            buffer.flushed[record.group, number] = len(partition.messages)

    def is_quiet(self, queue: LedgerQueue, at: int) -> bool:
        """True if the window is open for everybody."""
        buffer = self._by_queue.get(queue.number)
        return buffer is None or at >= buffer.newest_at + queue.config.window_ms

    def _has_waited(self, queue: LedgerQueue, buffer: Buffer, group: int, at: int) -> bool:
        config = queue.config
        longest = config.window_max_wait_ms
        if longest is None:
            longest = max(10 * config.window_ms, 1_000)
        oldest = [max(message.at, buffer.since) for message in waiting(queue, group, at)]
        return bool(longest) and bool(oldest) and at >= min(oldest) + longest


def waiting(queue: LedgerQueue, group: int, at: int) -> Iterable[Message]:
    """What could be delivered to this group now, if it is not past its time to live."""
    for partition in queue.partitions:
        for fate in partition.open.get(group, {}).values():
            if not fate.lease and max(fate.message.due, fate.due) <= at:
                yield fate.message


def ready(queue: LedgerQueue, group: int, at: int) -> Iterable[Message]:
    """What can be delivered to this group now. What outlived its time in somebody's hands may be, or not."""
    return (message for message in waiting(queue, group, at) if not 0 < message.expires <= at)


def check_scope(
    queues: Iterable[LedgerQueue], buffers: Buffers, seats: Seats, record: records.Leased, chosen: LedgerQueue
) -> None:
    """A lease from a scope must not pass over a queue that is more important and has something (I16).

    What is there for a group with members is for them alone.
    """
    group = chosen.groups[record.group]
    for queue in queues:
        if queue.config.queue_priority <= chosen.config.queue_priority:
            continue
        if queue.one_by_one:
            continue
        for number, name in queue.groups.items():
            if name == group and not seats.taken(queue.number, number) and buffers.is_quiet(queue, record.at):
                for message in ready(queue, number, record.at):
                    raise Violation("I16", f"{chosen.path} was served before {queue.path}, where {message} was ready")
