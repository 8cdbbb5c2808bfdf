"""`/ws`: messages of topics, pushed to a client that acknowledges them. This module handles frames, not sockets.

A client is a group, as for polls. Messages that it has not acknowledged when the lease expires or the connection is
lost are delivered again, on this connection or on its next one.
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
from penstock.transports.dialects.delivered import DeliveredMessage, messages_of_runs, short_name
from penstock.transports.dialects.multi_queue import lease_any
from penstock.transports.dialects.pulsar_proxy.poll import acknowledge, create_groups, create_topics
from penstock.transports.dialects.pulsar_proxy.shapes import (
    TOPICS_MAX,
    ClientName,
    internal_id,
    message_json,
    position,
    topic_paths,
)
from penstock.transports.dialects.sockets import FrameBuffer
from penstock.transports.http.edge import Edge
from penstock.wire.messages import Request
from penstock.wire.parse import parse_json

WINDOW = 100
"""Messages that a client may have without acknowledging them."""
PAGE = 16
"""Messages per lease. They are in memory until they are written to the client."""
PAUSE_MS = 1_000
"""The pause after a retryable error without `retry_after_ms`."""

Topics = Annotated[list[str], Meta(min_length=1, max_length=TOPICS_MAX)]


class SubscribeFrame(Request, tag_field="type", tag="subscribe"):
    topics: Topics
    client_id: ClientName
    offset: str | None = None
    """The start of a new client: `last`, or the id of the last received message. Default: the oldest message."""


class UnsubscribeFrame(Request, tag_field="type", tag="unsubscribe"):
    topics: Topics


class SubscriberAck(Request, tag_field="type", tag="ack"):
    message_id: Annotated[str, Meta(max_length=64)]


class PingFrame(Request, tag_field="type", tag="ping"):
    pass


class PongFrame(Request, tag_field="type", tag="pong"):
    pass


_decoder = msgspec.json.Decoder(SubscribeFrame | UnsubscribeFrame | SubscriberAck | PingFrame | PongFrame)


class UnackedMessage(NamedTuple):
    receipt: str
    queue: str
    deadline_ms: int


class Subscription:
    """One connection."""

    def __init__(self, edge: Edge, output: FrameBuffer):
        self._edge = edge
        self._output = output
        self._id = f"sess_{secrets.token_hex(8)}"
        self._client = ""
        self._topics: dict[QueuePath, None] = {}
        self._held: dict[str, UnackedMessage] = {}
        """Messages by id that were delivered on this connection and not acknowledged."""
        self._acknowledged = asyncio.Event()
        self._delivering: asyncio.Task[None] | None = None

    async def receive(self, text: str) -> None:
        about: dict[str, Any] = {}
        try:
            frame = parse_json(_decoder, text.encode())
            if isinstance(frame, SubscriberAck):
                about = {"message_id": frame.message_id}
            self._edge.charge(settles=not isinstance(frame, SubscribeFrame))
            await _HANDLERS[type(frame)](self, frame)
        except PenstockError as error:
            await self._refuse(error, about)

    async def _refuse(self, error: PenstockError, about: dict[str, Any]) -> None:
        reason = error.details.get("reason", error.code)
        await self._output.send({"type": "error", "error": reason, "message": error.message, **about})

    # -- frames in ----------------------------------------------------------------------------------------------------

    async def _subscribe(self, frame: SubscribeFrame) -> None:
        """Subscribe to topics. The same client may add topics later."""
        client, topics = check_client_id(frame.client_id), topic_paths(frame.topics)
        words = {None: "earliest", "last": "latest"}
        offset = words.get(frame.offset) or f"after:{ulid_text(position(frame.offset or '', 'offset'))}"
        if self._client not in ("", client):
            raise Conflict(f"this connection belongs to client {self._client}", details={"field": "client_id"})
        if len({*self._topics, *topics}) > TOPICS_MAX:
            raise InvalidRequest(f"at most {TOPICS_MAX} topics", details={"field": "topics"})
        await create_topics(self._edge, topics)
        await create_groups(self._edge, topics, client, offset)
        await self._stop_delivering()
        self._client = client
        self._topics |= dict.fromkeys(topics)
        shown = [short_name(topic) for topic in topics]
        await self._output.send({"type": "subscribed", "topics": shown, "session_id": self._id})
        self._resume_delivery()

    async def _unsubscribe(self, frame: UnsubscribeFrame) -> None:
        """Unsubscribe from topics and release their unacknowledged messages."""
        topics = topic_paths(frame.topics)
        await self._stop_delivering()
        for topic in topics:
            self._topics.pop(topic, None)
        released = {id: held for id, held in self._held.items() if held.queue in topics}
        for id in released:
            del self._held[id]
        if released:
            await self._edge.broker.messages.release([held.receipt for held in released.values()])
        await self._output.send({"type": "unsubscribed", "topics": [short_name(topic) for topic in topics]})
        self._resume_delivery()

    async def _ack(self, frame: SubscriberAck) -> None:
        """Acknowledge one message. An error is sent only if the ack was too late."""
        held = self._held.pop(internal_id(frame.message_id).upper(), None)
        if held is not None:
            (result,) = await self._edge.broker.messages.ack([held.receipt])
            status = result.status
            self._acknowledged.set()
        elif self._client:
            (status,) = await acknowledge(self._edge, [frame.message_id], self._client)
        else:
            raise InvalidRequest("subscribe first", details={"field": "type"})
        if status != "acked":
            raise StaleReceipt("no lease of this client holds the message")

    async def _ping(self, frame: PingFrame) -> None:  # noqa: ARG002
        await self._output.send({"type": "pong"})

    async def _pong(self, frame: PongFrame) -> None:
        pass

    # -- messages out -------------------------------------------------------------------------------------------------

    def _resume_delivery(self) -> None:
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
            messages = sorted(messages_of_runs(runs), key=lambda message: message.number)
            # Recorded before the first send, so that a cancelled delivery releases all of them.
            for message in messages:
                self._hold(message)
            self._edge.metrics.delivered(runs, self._edge.clock.now_ms())
            for message in messages:
                await self._output.send({"type": "message", **message_json(message)})

    def _hold(self, message: DeliveredMessage) -> None:
        if message.receipt is not None:
            self._held[message.id] = UnackedMessage(message.receipt, message.queue, message.deadline_at_ms or 0)

    async def _room(self) -> int:
        """Wait until messages may be sent and return how many. Messages with expired leases no longer count."""
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
        """Nack the messages of a lost client, because one of them may have crashed it; release them otherwise."""
        await self._stop_delivering()
        receipts = [held.receipt for held in self._held.values()]
        self._held = {}
        if not receipts:
            return
        try:
            if lost:
                await self._edge.broker.messages.nack(receipts, error="the connection was lost")
            else:
                await self._edge.broker.messages.release(receipts)
        except PenstockError:
            pass  # the broker is too busy or stopping: the leases expire


_HANDLERS: dict[type, Callable[[Subscription, Any], Coroutine[Any, Any, None]]] = {
    SubscribeFrame: Subscription._subscribe,
    UnsubscribeFrame: Subscription._unsubscribe,
    SubscriberAck: Subscription._ack,
    PingFrame: Subscription._ping,
    PongFrame: Subscription._pong,
}
