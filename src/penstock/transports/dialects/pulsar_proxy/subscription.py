"""`/ws`: topics pushed to a client that acknowledges them. Frames in, frames out; the socket is elsewhere.

A client is a group, as for polls: what it has not acknowledged when the lease runs out, or when the connection is lost,
comes again, on this connection or on its next one.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from penstock import limits
from penstock.errors import Conflict, InvalidRequest, PenstockError, StaleReceipt
from penstock.ids import QueuePath, check_client_id, ulid_text
from penstock.transports.dialects.delivered import Delivered, flat, one_by_one
from penstock.transports.dialects.pulsar_proxy.poll import acknowledge, begin_groups, make_topics
from penstock.transports.dialects.pulsar_proxy.shapes import (
    TOPICS_MAX,
    ClientName,
    id_meant,
    message_shown,
    position,
    topic_paths,
)
from penstock.transports.dialects.several import lease_any
from penstock.transports.dialects.sockets import Outlet
from penstock.transports.http.edge import Edge
from penstock.wire.messages import Request
from penstock.wire.parse import parse_json

WINDOW = 100
"""Messages that a client may have without acknowledging them."""
PAGE = 16
"""Messages leased at a time: they are in memory until the client has taken them, however slowly."""
PAUSE_MS = 1_000
"""After a refusal that passes by itself and does not say when."""

Topics = Annotated[list[str], Meta(min_length=1, max_length=TOPICS_MAX)]


class Subscribe(Request, tag_field="type", tag="subscribe"):
    topics: Topics
    client_id: ClientName
    offset: str | None = None
    """`last`, or the last message that was received: where a client that is new begins. Without: with the oldest."""


class Unsubscribe(Request, tag_field="type", tag="unsubscribe"):
    topics: Topics


class Ack(Request, tag_field="type", tag="ack"):
    message_id: Annotated[str, Meta(max_length=64)]


class Ping(Request, tag_field="type", tag="ping"):
    pass


class Pong(Request, tag_field="type", tag="pong"):
    pass


_decoder = msgspec.json.Decoder(Subscribe | Unsubscribe | Ack | Ping | Pong)


class Held(NamedTuple):
    receipt: str
    queue: str
    deadline_ms: int


class Subscription:
    """One connection."""

    def __init__(self, edge: Edge, outlet: Outlet):
        self._edge = edge
        self._outlet = outlet
        self._id = f"sess_{secrets.token_hex(8)}"
        self._client = ""
        self._topics: dict[QueuePath, None] = {}
        self._held: dict[str, Held] = {}
        """By message id: delivered here, and not acknowledged. The leases are the broker's; this says which to end."""
        self._acknowledged = asyncio.Event()
        self._delivering: asyncio.Task[None] | None = None

    async def receive(self, text: str) -> None:
        about: dict[str, Any] = {}
        try:
            frame = parse_json(_decoder, text.encode())
            if isinstance(frame, Ack):
                about = {"message_id": frame.message_id}
            await _HANDLERS[type(frame)](self, frame)
        except PenstockError as error:
            await self._refuse(error, about)

    async def _refuse(self, error: PenstockError, about: dict[str, Any]) -> None:
        reason = error.details.get("reason", error.code)
        await self._outlet.send({"type": "error", "error": reason, "message": error.message, **about})

    # -- frames in ----------------------------------------------------------------------------------------------------

    async def _subscribe(self, frame: Subscribe) -> None:
        """More topics may be added later, by the same client."""
        client, topics = check_client_id(frame.client_id), topic_paths(frame.topics)
        words = {None: "earliest", "last": "latest"}
        offset = words.get(frame.offset) or f"after:{ulid_text(position(frame.offset or '', 'offset'))}"
        if self._client not in ("", client):
            raise Conflict(f"this connection is {self._client}'s", details={"field": "client_id"})
        if len({*self._topics, *topics}) > TOPICS_MAX:
            raise InvalidRequest(f"at most {TOPICS_MAX} topics", details={"field": "topics"})
        await make_topics(self._edge, topics)
        await begin_groups(self._edge, topics, client, offset)
        await self._stop_delivering()
        self._client = client
        self._topics |= dict.fromkeys(topics)
        shown = [flat(topic) for topic in topics]
        await self._outlet.send({"type": "subscribed", "topics": shown, "session_id": self._id})
        self._deliver_on()

    async def _unsubscribe(self, frame: Unsubscribe) -> None:
        """What of them was not acknowledged is given back, as if it had not been delivered."""
        topics = topic_paths(frame.topics)
        await self._stop_delivering()
        for topic in topics:
            self._topics.pop(topic, None)
        given_back = {id: held for id, held in self._held.items() if held.queue in topics}
        for id in given_back:
            del self._held[id]
        if given_back:
            await self._edge.broker.release([held.receipt for held in given_back.values()])
        await self._outlet.send({"type": "unsubscribed", "topics": [flat(topic) for topic in topics]})
        self._deliver_on()

    async def _ack(self, frame: Ack) -> None:
        """Answered only if it came too late: then the message comes again, or has come again."""
        held = self._held.pop(id_meant(frame.message_id).upper(), None)
        if held is not None:
            (result,) = await self._edge.broker.ack([held.receipt])
            status = result.status
            self._acknowledged.set()
        elif self._client:
            (status,) = await acknowledge(self._edge, [frame.message_id], self._client)
        else:
            raise InvalidRequest("subscribe first", details={"field": "type"})
        if status != "acked":
            raise StaleReceipt("nobody holds this message, or somebody else does")

    async def _ping(self, frame: Ping) -> None:  # noqa: ARG002
        await self._outlet.send({"type": "pong"})

    async def _pong(self, frame: Pong) -> None:
        pass

    # -- messages out -------------------------------------------------------------------------------------------------

    def _deliver_on(self) -> None:
        if self._topics and self._delivering is None:
            self._delivering = asyncio.ensure_future(self._deliver())

    async def _stop_delivering(self) -> None:
        if self._delivering is not None:
            self._delivering.cancel()
            await asyncio.gather(self._delivering, return_exceptions=True)
            self._delivering = None

    async def _deliver(self) -> None:
        while True:
            room = await self._room()
            try:
                runs = await lease_any(
                    self._edge.broker,
                    list(self._topics),
                    group=self._client,
                    max=min(room, PAGE),
                    wait_ms=limits.WAIT_MS_MAX,
                    consumer=self._client,
                )
            except PenstockError as error:
                if not error.retryable:
                    self._topics.clear()
                    self._delivering = None
                    await self._refuse(error, {})
                    return
                await asyncio.sleep((error.retry_after_ms or PAUSE_MS) / 1000)
                continue
            messages = sorted(one_by_one(runs), key=lambda message: message.number)
            # Noted before the first is sent: whatever happens now, none of them is forgotten.
            for message in messages:
                self._hold(message)
            self._edge.metrics.delivered(runs, self._edge.clock.now_ms())
            for message in messages:
                await self._outlet.send({"type": "message", **message_shown(message)})

    def _hold(self, message: Delivered) -> None:
        if message.receipt is not None:
            self._held[message.id] = Held(message.receipt, message.queue, message.deadline_at_ms or 0)

    async def _room(self) -> int:
        """How many messages may be sent; waits while there are none. What a lease ran out for is not here any more."""
        while True:
            now_ms = self._edge.clock.now_ms()
            self._held = {id: held for id, held in self._held.items() if held.deadline_ms > now_ms}
            if len(self._held) < WINDOW:
                return WINDOW - len(self._held)
            self._acknowledged.clear()
            soonest = min(held.deadline_ms for held in self._held.values())
            try:
                async with asyncio.timeout(max(1, soonest - now_ms) / 1000):
                    await self._acknowledged.wait()
            except TimeoutError:
                continue

    # -- the end ------------------------------------------------------------------------------------------------------

    async def ended(self, *, lost: bool) -> None:
        """What a lost client held counts as a failed attempt: one of them may be what it died of."""
        await self._stop_delivering()
        receipts = [held.receipt for held in self._held.values()]
        self._held = {}
        if not receipts:
            return
        try:
            if lost:
                await self._edge.broker.nack(receipts, error="the connection was lost")
            else:
                await self._edge.broker.release(receipts)
        except PenstockError:
            pass  # too busy, or stopping: then the leases run out


_HANDLERS: dict[type, Callable[[Subscription, Any], Coroutine[Any, Any, None]]] = {
    Subscribe: Subscription._subscribe,
    Unsubscribe: Subscription._unsubscribe,
    Ack: Subscription._ack,
    Ping: Subscription._ping,
    Pong: Subscription._pong,
}
