"""`Queue`: publish, consume and read one queue. The other calls about it are in `admin.queue`."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Iterable, Mapping, Sized
from contextlib import ExitStack
from typing import Any

from penstock import limits
from penstock.client.admin.queue import QueueAdmin
from penstock.client.calls import delivery as calls
from penstock.client.calls.delivery import ProducerSeq
from penstock.client.consume.consumers import Consumers, MessageSource
from penstock.client.messages.stored import LogBatch, MessageRun, StoredMessage
from penstock.client.publish.frames import PLAIN, Row, encode_headers, frames, make_options, row, with_headers
from penstock.client.publish.lane import Publisher
from penstock.client.publish.published import Published, PublishedMessage
from penstock.client.transport.carrier import Carrier
from penstock.client.units import Duration, Moment, Position, milliseconds, seconds
from penstock.ids import QueuePath, check_client_id
from penstock.wire.readers import OffsetsReply

log = logging.getLogger("penstock.client")


class Queue(MessageSource, QueueAdmin):
    """One queue of a server; made by `Client.queue`. Durations are seconds or `timedelta`."""

    def __init__(self, path: QueuePath, carrier: Carrier, publisher: Publisher, consumers: Consumers):
        self._carrier = carrier
        self._publisher = publisher
        self._consumers = consumers
        self.path = self._source = path
        """The full path, `namespace/task/name`."""

    def __repr__(self) -> str:
        return f"<Queue {self.path}>"

    # -- publish ----------------------------------------------------------------------------------------------------

    async def publish(
        self, value: Any, *, key: str | None = None, delay: Duration | None = None, deliver_at: Moment | None = None,
        ttl: Duration | None = None, priority: int | None = None, id: str | None = None,
        headers: Mapping[str, str] | None = None, max_retries: int | None = None, tenant: str | None = None,
    ) -> PublishedMessage:  # fmt: skip
        """Publish a JSON value, or bytes as they are. Durable on return.

        Calls that run at the same time travel together; in the blocking client each is a request, and many messages go
        many times faster through `publish_many`. Messages of one client to one queue are stored in the order of the
        calls (of one thread), and each once, however often the network made the client repeat itself; `id` extends that
        to your own repetitions: a second message with the same id within 24 hours is answered with the first one.

        Messages of one `key` share a partition, and so their order. `delay` or `deliver_at` (an aware datetime or epoch
        seconds) hold the message back, `ttl` lets it expire, `max_retries` overrides the queue's setting. The
        `priority` is for queues ordered by `lanes` (without one: 2, normal) or as a `heap`; in a fifo queue it has no
        effect, which is logged. With `fair_share` the tenants take turns.

        Raises TypeError for a value that is not JSON, InvalidRequest or TooLarge for what the server would refuse.
        If it raises Unavailable the outcome is unknown: the message may have been stored. Cancelling the caller does
        not take the message back.
        """
        if (
            key is None and delay is None and deliver_at is None and ttl is None and priority is None and id is None
            and headers is None and max_retries is None and tenant is None
        ):  # fmt: skip
            options = PLAIN  # as most messages are
        else:
            options = make_options(
                key=key, delay=delay, deliver_at=deliver_at, ttl=ttl, priority=priority, id=id, headers=headers,
                max_retries=max_retries, tenant=tenant,
            )  # fmt: skip
        made = row(value, options)
        if self._carrier.tracing is None:
            return await self._publisher.publish(self._protected(made))
        with self._carrier.tracing.publishing(self.path, headers, count=None, size=len(made.payload)) as sending:
            placed = await self._publisher.publish(self._protected(with_headers(made, sending.headers)))
            sending.sent(placed.id, placed.partition)
            return placed

    async def publish_many(
        self, values: Iterable[Any], *, keys: Iterable[str | None] | None = None,
        ids: Iterable[str | None] | None = None, priorities: Iterable[int] | None = None, key: str | None = None,
        delay: Duration | None = None, deliver_at: Moment | None = None, ttl: Duration | None = None,
        priority: int | None = None, headers: Mapping[str, str] | None = None, max_retries: int | None = None,
        tenant: str | None = None, tenants: Iterable[str | None] | None = None, sequence: ProducerSeq | None = None,
    ) -> Published:  # fmt: skip
        """Publish many values (JSON or bytes) in order. All of them are durable on return.

        Up to 10,000 messages and 8 MiB are one frame, which is stored whole or not at all; more are sent as several,
        one after the other, while `values` is read. If one fails, the frames before it are stored and the ones after it
        are not. `keys`, `ids`, `priorities` and `tenants` give one each per message, the other options hold for all.

        `sequence` (producer, epoch, number of the first message) replaces the client's own numbering, for programs
        that repeat the very same batch after a restart and want it stored once.
        """
        options = make_options(
            key=key, delay=delay, deliver_at=deliver_at, ttl=ttl, priority=priority, headers=headers,
            max_retries=max_retries, tenant=tenant,
        )  # fmt: skip
        with ExitStack() as stack:
            if self._carrier.tracing is not None:
                count = len(values) if isinstance(values, Sized) else None
                publishing = self._carrier.tracing.publishing(self.path, headers, count=count, size=None)
                options = options._replace(headers=encode_headers(stack.enter_context(publishing).headers))
            chunks = frames(values, options, keys=keys, ids=ids, priorities=priorities, tenants=tenants)
            if self._carrier.protection is not None:
                chunks = self._carrier.protection.protect_frames(chunks, self.path)
            return Published(await self._publisher.publish_frames(chunks, sequence))

    def _protected(self, made: Row) -> Row:
        protection = self._carrier.protection
        return made if protection is None else protection.protect_row(made, self.path)

    # -- read without leasing ---------------------------------------------------------------------------------------

    async def read(
        self, *, partition: int = 0, offset: Position | None = None, max: int = 100, wait: Duration = 0.0,
        client_id: str | None = None,
    ) -> LogBatch:  # fmt: skip
        """Messages of one partition from `offset` on; leases nothing. Waits up to `wait` for the first one.

        `offset` is a number, "earliest" (the default), "latest", an aware datetime (the first message that was
        published then or later), "id:<message id>" (from that message on) or "after:<message id>"; with a `client_id`
        also "kept", which is the default then: where `keep_offsets` or `follow` left off under that name, or the
        earliest.
        """
        wait_ms = milliseconds("wait", wait, limits.WAIT_MS_MAX)
        batch = await self._carrier.request(
            calls.read(self.path, partition=partition, offset=offset, max=max, wait_ms=wait_ms, client_id=client_id)
        )
        return batch if self._carrier.protection is None else batch.with_runs(self._opened(batch.runs))

    def _opened(self, runs: list[MessageRun]) -> list[MessageRun]:
        """The messages that are authentic. The others are left out, or raised."""
        protection = self._carrier.protection
        if protection is None:
            return runs
        opened, refused = protection.open_runs(runs)
        for each in refused:
            if protection.on_invalid == "raise":
                raise each.error
            log.warning("not handed out: %s", each.error)
        return opened

    async def follow(
        self, *, partition: int = 0, offset: Position | None = None, max: int = 1000, wait: Duration | None = None,
        client_id: str | None = None,
    ) -> AsyncIterator[LogBatch]:  # fmt: skip
        """Read one partition on and on, batch by batch. Ends when nothing came for `wait` seconds; None: never.

        With a `client_id` the server keeps the position: a batch counts as read when the next one is asked for, and the
        next `follow` under this name goes on behind it. After a crash the last batch may come again.
        """
        time, most_s = self._carrier.runtime().time, limits.WAIT_MS_MAX / 1000
        since, idle_s = time(), math.inf if wait is None else seconds("wait", wait)
        while True:
            wait_s = min(most_s, idle_s - (time() - since))
            wait_s = 0.0 if wait_s < 0.0 else wait_s
            batch = await self.read(partition=partition, offset=offset, max=max, wait=wait_s, client_id=client_id)
            offset = batch.next_offset
            if batch:
                yield batch
                if client_id is not None:
                    await self.keep_offsets(client_id, {partition: batch.next_offset})
                since = time()
            elif time() - since >= idle_s:
                return

    async def offsets(self, client_id: str) -> dict[int, int]:
        """Where the reader of this name left off: partition -> offset. Empty if nothing is kept."""
        return _by_partition(await self._ask("get_offsets", OffsetsReply, client_id=check_client_id(client_id)))

    async def keep_offsets(self, client_id: str, offsets: Mapping[int, int]) -> dict[int, int]:
        """Keep where this reader is; partitions that are not named keep theirs. Forgotten when unused for 30 days."""
        named = {str(partition): offset for partition, offset in offsets.items()}
        reader = check_client_id(client_id)
        return _by_partition(await self._ask("keep_offsets", OffsetsReply, client_id=reader, offsets=named))

    async def forget_offsets(self, client_id: str) -> dict[int, int]:
        return _by_partition(await self._ask("forget_offsets", OffsetsReply, client_id=check_client_id(client_id)))

    async def peek(self, *, max: int = 10, group: str = "default") -> list[StoredMessage]:
        """The messages that would be delivered next, without leasing them."""
        found = await self._carrier.request(calls.peek(self.path, max=max, group=group))
        if self._carrier.protection is None:
            return found
        return [StoredMessage(run, 0) for run in self._opened([message.run for message in found])]


def _by_partition(reply: OffsetsReply) -> dict[int, int]:
    return {int(partition): offset for partition, offset in reply.offsets.items()}
