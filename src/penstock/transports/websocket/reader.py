"""A subscription that takes nothing away: the messages of one or more queues by position, as they come.

It pushes no more than its connection takes: where the output is paused the reader stays where it is, and what it has
not been sent costs nothing, because it stands in the log.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.errors import InvalidRequest, PenstockError
from penstock.ids import QueuePath, check_client_id
from penstock.transports.websocket.tails import Tail
from penstock.wire import stream
from penstock.wire.parse import parse_queue

if TYPE_CHECKING:
    from penstock.transports.websocket.session import Session


class Reader:
    """One subscription of one connection."""

    __slots__ = ("_behind", "_format", "_pending", "_places", "_session", "_tails", "_whole", "name")

    role = "reader"

    def __init__(self, session: Session, asked: stream.Subscribe):
        self.name = asked.name
        self._session = session
        self._format = asked.format
        self._whole = asked.partition is None
        """All partitions, also those that are added later."""
        self._tails: dict[QueuePath, Tail] = {}
        self._places: dict[tuple[QueuePath, int], int] = {}
        self._behind: dict[tuple[QueuePath, int], None] = {}
        """Places where more stands than was sent."""
        self._pending = False

    async def begin(self, asked: stream.Subscribe) -> stream.Subscribed:
        """Find the places to begin at. Raises what a read would."""
        names = [asked.queue] if asked.queue is not None else asked.queues or []
        queues = list(dict.fromkeys(parse_queue(name) for name in names))
        for queue in queues:
            await self._find_places(queue, asked)
        for queue in queues:
            self._tails[queue] = self._session.sockets.tails.join(queue, self)
        self._behind = dict.fromkeys(self._places)
        offsets: dict[str, dict[str, int]] = {}
        for (queue, partition), offset in self._places.items():
            offsets.setdefault(queue, {})[str(partition)] = offset
        return stream.Subscribed(id=asked.id, sub=self.name, offsets=offsets)

    async def _find_places(self, queue: QueuePath, asked: stream.Subscribe) -> None:
        broker = self._session.sockets.broker
        count: int = broker.get_queue(queue)["config"]["partitions"]
        client_id = None if asked.client_id is None else check_client_id(asked.client_id)
        given = {int(text): offset for text, offset in (asked.offsets or {}).items()}
        for partition in given:
            if partition >= count or (asked.partition is not None and partition != asked.partition):
                raise InvalidRequest(f"offsets: there is no partition {partition} here", details={"field": "offsets"})
        # Whoever resumes has not heard from the partitions that it does not name: all they have is news.
        usual = "latest" if asked.offsets is None else "earliest"
        others = usual if asked.offset is None else str(asked.offset)
        for partition in range(count) if asked.partition is None else [asked.partition]:
            text = str(given[partition]) if partition in given else others
            found = await broker.read(queue, partition=partition, offset=text, max=0, client_id=client_id)
            # Where it was asked to begin, also if that is gone: the first page says how much was skipped.
            self._places[queue, partition] = found.next_offset - found.skipped

    def pump(self) -> None:
        """Send what there is, a page of each place in turn, as long as the connection takes it."""
        self._pending = False
        while self._behind and self._session.delivering:
            place = next(iter(self._behind))
            del self._behind[place]
            if not self._send_page(*place):
                return
            if place in self._behind:
                # Far behind: others have their turn between two pages.
                self._pending = True
                asyncio.get_running_loop().call_soon(self._go_on)
                return

    def _go_on(self) -> None:
        if self._pending:
            self.pump()

    def _send_page(self, queue: QueuePath, partition: int) -> bool:
        """False if the subscription ended over it."""
        session = self._session
        place = queue, partition
        try:
            page = self._tails[queue].page(session.codec, self.name, self._format, partition, self._places[place])
        except PenstockError as error:
            session.end_subscription(self, error)
            return False
        if page is not None:
            session.deliver(page.frame, self.role, page.messages)
            self._places[place] = page.next_offset
            if page.next_offset < page.end_offset:
                self._behind[place] = None
        return True

    def grown(self, queue: QueuePath, partition: int | None) -> None:
        """Something was stored there. None: the queue is gone, which the next look finds out."""
        if partition is None:
            self._behind.update(dict.fromkeys(place for place in self._places if place[0] == queue))
        else:
            place = queue, partition
            if place not in self._places:
                if not self._whole:
                    return
                self._places[place] = 0
            self._behind[place] = None
        if not self._pending:
            self.pump()

    def stop(self) -> None:
        self._pending = False
        self._behind.clear()
        for queue in self._tails:
            self._session.sockets.tails.leave(queue, self)
        self._tails.clear()

    def held(self) -> list[str]:
        return []
