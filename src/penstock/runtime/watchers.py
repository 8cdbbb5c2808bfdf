"""Callbacks on appends to a queue, for transports that follow a queue for a long time.

`ShardLoop.grown` waits once, for one call; a callback here stays registered until it is removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeAlias

from penstock.core.records import Published, QueueDeleted, QueuePurged

Changed: TypeAlias = Callable[[int | None], None]
"""Called with the partition that has grown; None: the queue was deleted."""


class Watchers:
    """The callbacks of one shard."""

    def __init__(self) -> None:
        self._by_queue: dict[int, list[Changed]] = {}
        self._ends: dict[int, dict[object, Callable[[], None]]] = {}
        """Callbacks on deletion only: they cost a publish nothing."""
        self._changes: dict[tuple[int, int | None], None] = {}

    def watch(self, queue: int, changed: Changed) -> Callable[[], None]:
        """Register the callback. Returns a function that removes it."""
        self._by_queue.setdefault(queue, []).append(changed)

        def end() -> None:
            watching = self._by_queue[queue]
            watching.remove(changed)
            if not watching:
                del self._by_queue[queue]

        return end

    def watch_end(self, queue: int, gone: Callable[[], None]) -> Callable[[], None]:
        """Register a callback on the deletion of the queue. Returns a function that removes it."""
        key = object()
        self._ends.setdefault(queue, {})[key] = gone

        def end() -> None:
            watching = self._ends.get(queue, {})
            watching.pop(key, None)
            if not watching:
                self._ends.pop(queue, None)

        return end

    def note(self, stored: Published) -> None:
        if stored.queue in self._by_queue:
            self._changed(stored.queue, stored.partition)

    def note_emptied(self, emptied: Iterable[QueueDeleted | QueuePurged]) -> None:
        for record in emptied:
            if isinstance(record, QueueDeleted) and (record.queue in self._by_queue or record.queue in self._ends):
                self._changed(record.queue, None)

    def _changed(self, queue: int, partition: int | None) -> None:
        """Call the callbacks in the next turn of the event loop: once per partition, and outside of the commit."""
        if not self._changes:
            asyncio.get_running_loop().call_soon(self._call_back)
        self._changes[queue, partition] = None

    def _call_back(self) -> None:
        changes, self._changes = self._changes, {}
        for queue, partition in changes:
            for changed in list(self._by_queue.get(queue, ())):
                changed(partition)
            if partition is None:
                for gone in self._ends.pop(queue, {}).values():
                    gone()
