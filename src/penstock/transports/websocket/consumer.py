"""A subscription that leases messages, up to the credit of the client.

It has one lease call at a time, for as many messages as the credit allows, up to a page. An empty queue makes the call
wait like a long poll. While the output of the connection is paused it leases nothing, because it could not send it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock import limits
from penstock.broker.outstanding import OutstandingLeases
from penstock.broker.types import LeaseReply
from penstock.errors import InvalidRequest, PenstockError
from penstock.ids import QueuePath, check_group, parse_scope
from penstock.pending import PendingReply, value_of
from penstock.wire import stream
from penstock.wire.delivery import Settled
from penstock.wire.parse import parse_queue

if TYPE_CHECKING:
    from penstock.transports.websocket.session import WebSocketSession

PAUSE_MS = 1_000
"""The pause after a retryable error without `retry_after_ms`."""


class ConsumerSubscription:
    """One consumer of one connection."""

    __slots__ = (
        "_end_watch",
        "_format",
        "_leasing",
        "_queue",
        "_session",
        "_take",
        "credit",
        "name",
        "outstanding",
        "refill",
        "when_lost",
    )  # fmt: skip

    role = "consumer"

    def __init__(self, session: WebSocketSession, asked: stream.Subscribe):
        self.name = asked.name
        self.credit = asked.credit or 0
        self.refill = bool(asked.refill)
        self.when_lost = asked.when_lost or "retry"
        self.outstanding = OutstandingLeases()
        self._session = session
        self._format = asked.format
        self._leasing: asyncio.Task[None] | None = None
        self._queue: QueuePath | None = None
        self._end_watch: Callable[[], None] | None = None
        broker = session.broker
        take: Callable[..., PendingReply[LeaseReply]]
        if asked.scope is not None:
            take = partial(broker.messages.lease_scope, parse_scope(asked.scope))
        else:
            self._queue = parse_queue(asked.queue or "")
            take = partial(broker.messages.lease, self._queue)
        self._take = partial(
            take, group=check_group(asked.group or "default"), lease_ms=asked.lease_ms, consumer=asked.consumer or ""
        )

    async def begin(self, asked: stream.Subscribe) -> stream.Subscribed:
        if self._queue is not None:
            await value_of(self._session.broker.queues.get(self._queue))  # raises QueueNotFound
            # A consumer without credit has no lease call that would fail, so it watches for the end of the queue.
            ended = partial(self._session.end_subscription, self)
            self._end_watch = self._session.broker.log.watch_end(self._queue, ended)
        return stream.Subscribed(id=asked.id, sub=self.name, credit=self.credit)

    def grant(self, credit: int) -> None:
        if self.credit + credit > limits.LEASE_MESSAGES_MAX:
            raise InvalidRequest(
                f"credit may not exceed {limits.LEASE_MESSAGES_MAX}; {self.credit} are left unused",
                details={"field": "credit"},
            )
        self.credit += credit

    def settled(self, results: Sequence[Settled]) -> None:
        """Apply outcomes of receipts. Receipts of messages that this consumer did not send are ignored."""
        if self.outstanding:
            freed = self.outstanding.settle(results, self._session.sockets.clock.now_ms())
            if self.refill and freed:
                self.credit = min(self.credit + freed, limits.LEASE_MESSAGES_MAX)
                self.pump()

    def pump(self) -> None:
        if self.credit and self._leasing is None and self._session.delivering:
            self._leasing = asyncio.get_running_loop().create_task(self._lease())

    def pause(self) -> None:
        """Cancel the lease call. The broker releases messages that it granted meanwhile."""
        if self._leasing is not None:
            self._leasing.cancel()
            self._leasing = None

    async def _lease(self) -> None:
        session = self._session
        try:
            while self.credit and session.delivering:
                try:
                    reply = await self._take(
                        max=min(self.credit, limits.WEBSOCKET_PAGE_MESSAGES),
                        wait_ms=limits.WAIT_MS_MAX,
                        bytes_max=limits.WEBSOCKET_PAGE_BYTES,
                    )
                except PenstockError as error:
                    if not error.retryable:
                        self._leasing = None
                        session.end_subscription(self, error)
                        return
                    await asyncio.sleep((error.retry_after_ms or PAUSE_MS) / 1000)
                    continue
                if reply.runs:
                    self._deliver(reply)
        finally:
            if self._leasing is asyncio.current_task():
                self._leasing = None

    def _deliver(self, reply: LeaseReply) -> None:
        session = self._session
        now_ms = session.sockets.clock.now_ms()
        if not session.delivering:
            # The output was paused in the same turn of the event loop: the messages are released unsent.
            unsent = OutstandingLeases()
            unsent.add(reply.runs, now_ms)
            session.sockets.return_leases(unsent.receipts(), lost=False)
            return
        count = sum(run.count for run in reply.runs)
        self.credit -= count
        self.outstanding.add(reply.runs, now_ms)
        session.sockets.metrics.delivered(reply.runs, now_ms)
        session.deliver(session.codec.lease_page(self.name, self._format, reply.runs, self.credit), self.role, count)

    def stop(self) -> None:
        self.pause()
        if self._end_watch is not None:
            self._end_watch()
            self._end_watch = None

    def outstanding_receipts(self) -> list[str]:
        return self.outstanding.receipts()
