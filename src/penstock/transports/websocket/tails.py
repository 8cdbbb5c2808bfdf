"""The ends of queues that somebody follows: when one grows, its new messages are read once and written once.

However many readers stand at the same place, there is one look into the log, one rendering, and the same bytes for all
of them. Readers are woken by the commit, in slices, so that a crowd does not hold up the event loop. A reader that is
further back reads pages of its own until it has caught up.
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
    from penstock.transports.websocket.reader import Reader

WAKE_SLICE = 200
"""Readers served between two turns of the event loop."""
PAGES_KEPT = 16
"""Of one round. Those who have caught up all need the same one; the others are on their own anyway."""


class Page(NamedTuple):
    frame: bytes
    messages: int
    next_offset: int
    end_offset: int


class Tail:
    """Of one queue, for as long as somebody follows it."""

    def __init__(self, broker: Broker, queue: QueuePath):
        self.queue = queue
        self.readers: dict[Reader, None] = {}
        self._broker = broker
        self._end_watch: Callable[[], None] = broker.watch(queue, self._changed)
        self._pages: dict[tuple[Codec, str, str, int, int], Page] = {}
        """Of this round only."""
        self._round: deque[Reader] = deque()
        """Who is still to be told of `_telling`."""
        self._telling: dict[int | None, None] = {}
        self._grown: dict[int | None, None] = {}
        """What has changed since the round began: one more round, however often that was."""

    def close(self) -> None:
        self._end_watch()
        self._round.clear()
        self._grown.clear()

    def page(self, codec: Codec, sub: str, format: str, partition: int, first: int) -> Page | None:
        """What stands there, up to the size of a page; None at the end. Raises QueueNotFound."""
        key = (codec, sub, format, partition, first)
        page = self._pages.get(key)
        if page is not None:
            return page
        begun = begin(
            self._broker.read(
                self.queue,
                partition=partition,
                offset=str(first),
                max=limits.WEBSOCKET_PAGE_MESSAGES,
                bytes_max=limits.WEBSOCKET_PAGE_BYTES,
            )
        )
        assert isinstance(begun, Finished), "a read that is not told to wait does not"
        reply: ReadReply = begun.result
        if reply.next_offset <= first:
            return None
        count = sum(run.count for run in reply.runs)
        frame = codec.read_page(sub, format, self.queue, partition, reply)
        page = Page(frame, count, reply.next_offset, reply.end_offset)
        if self._round:
            if len(self._pages) >= PAGES_KEPT:
                self._pages.clear()
            self._pages[key] = page
        return page

    def _changed(self, partition: int | None) -> None:
        self._grown[partition] = None
        if not self._round:
            self._begin_round()

    def _begin_round(self) -> None:
        self._telling, self._grown = self._grown, {}
        self._round.extend(self.readers)
        self._wake()

    def _wake(self) -> None:
        for _ in range(min(WAKE_SLICE, len(self._round))):
            reader = self._round[0]
            for partition in self._telling:
                if reader in self.readers:
                    reader.grown(self.queue, partition)
            # Only now: while somebody is left to be told, pages are kept.
            if self._round:
                self._round.popleft()
        if self._round:
            asyncio.get_running_loop().call_soon(self._wake)
            return
        self._pages.clear()
        if self._grown:
            asyncio.get_running_loop().call_soon(self._begin_round)


class Tails:
    """All that are followed."""

    def __init__(self, broker: Broker):
        self._broker = broker
        self._by_queue: dict[QueuePath, Tail] = {}

    def join(self, queue: QueuePath, reader: Reader) -> Tail:
        tail = self._by_queue.get(queue)
        if tail is None:
            tail = self._by_queue[queue] = Tail(self._broker, queue)
        tail.readers[reader] = None
        return tail

    def leave(self, queue: QueuePath, reader: Reader) -> None:
        tail = self._by_queue.get(queue)
        if tail is not None and tail.readers.pop(reader, reader) is None and not tail.readers:
            tail.close()
            del self._by_queue[queue]
