"""The ledger's model of window buffers and scopes: no message is delivered early, or before a queue with a higher
priority."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core import records
from sim.entries import LedgerQueue, Message
from sim.memberships import Memberships
from sim.violation import Violation


class Window:
    """The window of one queue."""

    def __init__(self) -> None:
        self.newest_at = 0
        self.since = 0
        """The time at which the window was set: earlier messages count from then on."""
        self.open_for = 0
        """The nonce of the last lease that found it open: one decision takes from several partitions."""
        self.flushed: dict[tuple[int, int], int] = {}
        """(group, partition) -> offset: messages below it are flushed."""


class Windows:
    def __init__(self) -> None:
        self._by_queue: dict[int, Window] = {}

    def configured(self, queue: LedgerQueue, record: records.QueueConfigured) -> None:
        """Called before the queue has the new configuration."""
        if record.config.window_ms and (queue.number not in self._by_queue):
            buffer = self._by_queue[queue.number] = Window()
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
            self._by_queue[queue.number] = Window()

    def leased(self, queue: LedgerQueue, record: records.Leased) -> None:
        """Called before the messages are marked as taken. Raises Violation if the window was closed (I14)."""
        buffer = self._by_queue.get(queue.number)
        if buffer is None or record.at >= buffer.newest_at + queue.config.window_ms:
            return
        if record.nonce == buffer.open_for and not record.flush:
            return  # the same lease: it flushes again if the flushed messages were fewer than it asked for
        buffer.open_for = record.nonce
        # A key may hold back the flushed messages that are left: then the next ones are flushed too.
        if not record.flush and any(
            message.offset < buffer.flushed.get((record.group, message.partition), 0)
            for message in waiting(queue, record.group, record.at)
        ):
            return  # the window stays open while flushed messages are left
        if not self._has_waited(queue, buffer, record.group, record.at):
            age = record.at - buffer.newest_at
            raise Violation("I15", f"{queue.path} delivered {age} ms after its newest message, its window was closed")
        for number, partition in enumerate(queue.partitions):
            buffer.flushed[record.group, number] = len(partition.messages)

    def is_quiet(self, queue: LedgerQueue, at: int) -> bool:
        """True if the window is open for all groups."""
        buffer = self._by_queue.get(queue.number)
        return buffer is None or at >= buffer.newest_at + queue.config.window_ms

    def _has_waited(self, queue: LedgerQueue, buffer: Window, group: int, at: int) -> bool:
        config = queue.config
        longest = config.window_max_wait_ms
        if longest is None:
            longest = max(10 * config.window_ms, 1_000)
        oldest = [max(message.at, buffer.since) for message in waiting(queue, group, at)]
        return bool(longest) and bool(oldest) and at >= min(oldest) + longest


def waiting(queue: LedgerQueue, group: int, at: int) -> Iterable[Message]:
    """The messages that could be delivered to this group now, unless their time to live is over."""
    for partition in queue.partitions:
        for fate in partition.open.get(group, {}).values():
            if not fate.lease and max(fate.message.due, fate.due) <= at:
                yield fate.message


def ready(queue: LedgerQueue, group: int, at: int) -> Iterable[Message]:
    """The messages that can be delivered to this group now. Messages that expired while they were leased may be
    delivered or not."""
    return (message for message in waiting(queue, group, at) if not 0 < message.expires <= at)


def check_scope(
    queues: Iterable[LedgerQueue], buffers: Windows, seats: Memberships, record: records.Leased, chosen: LedgerQueue
) -> None:
    """A lease from a scope must not pass over a queue with a higher priority that has messages (I16).

    Only members can lease the messages of a group with members.
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
