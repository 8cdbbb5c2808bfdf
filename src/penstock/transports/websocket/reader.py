"""A subscription that reads messages of one or more queues by offset, without leases.

It sends only while the output of its connection is not paused. Unsent messages take no memory, because a reader keeps
only its offsets and reads messages from the log.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from penstock.broker.types import ReadReply
from penstock.errors import InvalidRequest, PenstockError
from penstock.ids import QueuePath, check_client_id
from penstock.pending import value_of
from penstock.transports.websocket.tails import QueueTail, TailPage
from penstock.wire import stream
from penstock.wire.parse import parse_queue

if TYPE_CHECKING:
    from penstock.transports.websocket.session import WebSocketSession


class ReaderSubscription:
    """One reader of one connection."""

    __slots__ = (
        "_all_partitions", "_format", "_lagging", "_offsets", "_pending", "_reading", "_session", "_tails", "name",
    )  # fmt: skip

    role = "reader"

    def __init__(self, session: WebSocketSession, asked: stream.Subscribe):
        self.name = asked.name
        self._session = session
        self._format = asked.format
        self._all_partitions = asked.partition is None
        """True: also partitions that are added later."""
        self._tails: dict[QueuePath, QueueTail] = {}
        self._offsets: dict[tuple[QueuePath, int], int] = {}
        self._lagging: dict[tuple[QueuePath, int], None] = {}
        """Partitions with unsent messages."""
        self._reading: dict[tuple[QueuePath, int], asyncio.Future[ReadReply]] = {}
        """Partitions whose next page is being read."""
        self._pending = False

    async def begin(self, asked: stream.Subscribe) -> stream.Subscribed:
        """Find the offsets to start at. Raises the errors of a read."""
        names = [asked.queue] if asked.queue is not None else asked.queues or []
        queues = list(dict.fromkeys(parse_queue(name) for name in names))
        for queue in queues:
            await self._find_offsets(queue, asked)
        for queue in queues:
            self._tails[queue] = self._session.sockets.tails.join(queue, self)
        self._lagging = dict.fromkeys(self._offsets)
        offsets: dict[str, dict[str, int]] = {}
        for (queue, partition), offset in self._offsets.items():
            offsets.setdefault(queue, {})[str(partition)] = offset
        return stream.Subscribed(id=asked.id, sub=self.name, offsets=offsets)

    async def _find_offsets(self, queue: QueuePath, asked: stream.Subscribe) -> None:
        broker = self._session.broker
        count: int = (await value_of(broker.queues.get(queue)))["config"]["partitions"]
        client_id = None if asked.client_id is None else check_client_id(asked.client_id)
        given = {int(text): offset for text, offset in (asked.offsets or {}).items()}
        for partition in given:
            if partition >= count or (asked.partition is not None and partition != asked.partition):
                raise InvalidRequest(
                    f"offsets: partition {partition} does not exist or is not subscribed", details={"field": "offsets"}
                )
        # A client that resumes with offsets has received nothing of the partitions that it leaves out.
        usual = "latest" if asked.offsets is None else "earliest"
        others = usual if asked.offset is None else str(asked.offset)
        for partition in range(count) if asked.partition is None else [asked.partition]:
            text = str(given[partition]) if partition in given else others
            found = await broker.log.read(queue, partition=partition, offset=text, max=0, client_id=client_id)
            # The requested offset, also if its messages are trimmed: the first page then reports `skipped`.
            self._offsets[queue, partition] = found.next_offset - found.skipped

    def pump(self) -> None:
        """Send unsent messages, a page of each partition in turn, until the output is paused."""
        self._pending = False
        while self._session.delivering:
            place = next((each for each in self._lagging if each not in self._reading), None)
            if place is None:
                return
            del self._lagging[place]
            if not self._send_page(*place):
                return
            if place in self._lagging and place not in self._reading:
                # More pages follow: other work of the event loop runs between two pages.
                self._pending = True
                asyncio.get_running_loop().call_soon(self._continue)
                return

    def _continue(self) -> None:
        if self._pending:
            self.pump()

    def _send_page(self, queue: QueuePath, partition: int) -> bool:
        """Send one page. Returns False if an error ended the subscription."""
        session = self._session
        place = queue, partition
        try:
            page = self._tails[queue].page(session.codec, self.name, self._format, partition, self._offsets[place])
        except PenstockError as error:
            session.end_subscription(self, error)
            return False
        if isinstance(page, asyncio.Future):
            self._reading[place] = page
            page.add_done_callback(partial(self._read, place))
        elif page is not None:
            self._deliver(place, page)
        return True

    def _deliver(self, place: tuple[QueuePath, int], page: TailPage) -> None:
        self._session.deliver(page.frame, self.role, page.messages)
        self._offsets[place] = page.next_offset
        if page.next_offset < page.end_offset:
            self._lagging[place] = None

    def _read(self, place: tuple[QueuePath, int], reading: asyncio.Future[ReadReply]) -> None:
        """The read of a page that had to wait has ended."""
        if self._reading.pop(place, None) is not reading or reading.cancelled():
            return
        session, (queue, partition) = self._session, place
        try:
            reply = reading.result()
        except PenstockError as error:
            session.end_subscription(self, error)
            return
        page = self._tails[queue].page_of(
            reply, session.codec, self.name, self._format, partition, self._offsets[place]
        )
        if not session.delivering:
            self._lagging[place] = None  # read again when the output goes on
        elif page is not None:
            self._deliver(place, page)
        if not self._pending:
            self.pump()

    def on_append(self, queue: QueuePath, partition: int | None) -> None:
        """Messages were stored in this partition. None: the queue was deleted, and the next read raises."""
        if partition is None:
            self._lagging.update(dict.fromkeys(place for place in self._offsets if place[0] == queue))
        else:
            place = queue, partition
            if place not in self._offsets:
                if not self._all_partitions:
                    return
                self._offsets[place] = 0
            self._lagging[place] = None
        if not self._pending:
            self.pump()

    def stop(self) -> None:
        self._pending = False
        self._lagging.clear()
        reading, self._reading = self._reading, {}
        for each in reading.values():
            each.cancel()
        for queue in self._tails:
            self._session.sockets.tails.leave(queue, self)
        self._tails.clear()

    def outstanding_receipts(self) -> list[str]:
        return []
