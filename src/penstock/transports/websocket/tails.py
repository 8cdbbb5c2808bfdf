"""The tails of queues that have readers: new messages are read and encoded once for all readers.

Readers at the same offset share one read of the log, one encoding and the same bytes. The commit wakes readers in
slices, so that many readers do not block the event loop. A reader that lags reads its own pages until it has caught up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from penstock import limits
from penstock.broker.types import ReadReply
from penstock.eager import Finished, begin
from penstock.ids import QueuePath
from penstock.transports.websocket.codec import Codec

if TYPE_CHECKING:
    from penstock.broker.service import Broker
    from penstock.transports.websocket.reader import ReaderSubscription

WAKE_SLICE = 200
"""Readers that are notified in one turn of the event loop."""
PAGES_KEPT = 16
"""Pages that are cached during a round. Readers that have caught up all need the same page."""


class TailPage(NamedTuple):
    frame: bytes
    messages: int
    next_offset: int
    end_offset: int


class QueueTail:
    """The tail of one queue, as long as it has readers."""

    def __init__(self, broker: Broker, queue: QueuePath):
        self.queue = queue
        self.readers: dict[ReaderSubscription, None] = {}
        self._broker = broker
        self._end_watch: Callable[[], None] = broker.log.watch(queue, self._changed)
        self._pages: dict[tuple[Codec, str, str, int, int], TailPage] = {}
        """The cached pages of this round."""
        self._round: deque[ReaderSubscription] = deque()
        """Readers that are still to be notified of `_notifying`."""
        self._notifying: dict[int | None, None] = {}
        self._changed_partitions: dict[int | None, None] = {}
        """Partitions that changed since the round began; they are notified in one more round."""

    def close(self) -> None:
        self._end_watch()
        self._round.clear()
        self._changed_partitions.clear()

    def page(
        self, codec: Codec, sub: str, format: str, partition: int, first: int
    ) -> TailPage | asyncio.Future[ReadReply] | None:
        """The page that starts at offset `first`; None at the end. Raises QueueNotFound.

        A read that has to wait, for a store or for another process, is returned as it is: `page_of` makes the page.
        """
        key = (codec, sub, format, partition, first)
        page = self._pages.get(key)
        if page is not None:
            return page
        begun = begin(
            self._broker.log.read(
                self.queue,
                partition=partition,
                offset=str(first),
                max=limits.WEBSOCKET_PAGE_MESSAGES,
                bytes_max=limits.WEBSOCKET_PAGE_BYTES,
            )
        )
        if not isinstance(begun, Finished):
            return asyncio.ensure_future(begun)
        page = self.page_of(begun.result, codec, sub, format, partition, first)
        if self._round and page is not None:
            if len(self._pages) >= PAGES_KEPT:
                self._pages.clear()
            self._pages[key] = page
        return page

    def page_of(
        self, reply: ReadReply, codec: Codec, sub: str, format: str, partition: int, first: int
    ) -> TailPage | None:
        if reply.next_offset <= first:
            return None
        count = sum(run.count for run in reply.runs)
        frame = codec.read_page(sub, format, self.queue, partition, reply)
        return TailPage(frame, count, reply.next_offset, reply.end_offset)

    def _changed(self, partition: int | None) -> None:
        self._changed_partitions[partition] = None
        if not self._round:
            self._begin_round()

    def _begin_round(self) -> None:
        self._notifying, self._changed_partitions = self._changed_partitions, {}
        self._round.extend(self.readers)
        self._wake()

    def _wake(self) -> None:
        for _ in range(min(WAKE_SLICE, len(self._round))):
            reader = self._round[0]
            for partition in self._notifying:
                if reader in self.readers:
                    reader.on_append(self.queue, partition)
            # Removed after the call, because pages are cached only while `_round` is not empty.
            if self._round:
                self._round.popleft()
        if self._round:
            asyncio.get_running_loop().call_soon(self._wake)
            return
        self._pages.clear()
        if self._changed_partitions:
            asyncio.get_running_loop().call_soon(self._begin_round)


class QueueTails:
    """The tails of all queues that have readers."""

    def __init__(self, broker: Broker):
        self._broker = broker
        self._by_queue: dict[QueuePath, QueueTail] = {}

    def join(self, queue: QueuePath, reader: ReaderSubscription) -> QueueTail:
        tail = self._by_queue.get(queue)
        if tail is None:
            tail = self._by_queue[queue] = QueueTail(self._broker, queue)
        tail.readers[reader] = None
        return tail

    def leave(self, queue: QueuePath, reader: ReaderSubscription) -> None:
        tail = self._by_queue.get(queue)
        if tail is not None and tail.readers.pop(reader, reader) is None and not tail.readers:
            tail.close()
            del self._by_queue[queue]
