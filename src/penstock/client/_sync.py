"""The blocking shell: `Client` and `Queue` for threads and scripts. Public as `penstock.sync`.

It shares everything but the waiting with the asyncio shell. A client may be used from many threads; each call is made
by the thread that asks for it.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

from penstock import limits
from penstock.client import _calls as calls
from penstock.client._client import client_over as async_client_over
from penstock.client._delivery import LogBatch, StoredMessage
from penstock.client._frames import (
    Frame,
    encode_headers,
    frame_of_rows,
    frames,
    make_options,
    milliseconds,
    row,
    with_headers,
)
from penstock.client._members import Assigned
from penstock.client._numbers import Sequencer, new_producer
from penstock.client._outbox import Transacted, outbox_of, receipts_to_ack, recognisable, settled_by
from penstock.client._published import Published, PublishedMessage
from penstock.client._retry import Policy, is_transport_failure
from penstock.client._sync_carrier import Carrier
from penstock.client._sync_consumer import BatchConsumer, Consumer, Session
from penstock.client._sync_message import Message, MessageBatch
from penstock.client._sync_schedules import Schedules
from penstock.client._sync_scope import Scope
from penstock.client._sync_webhooks import Webhooks
from penstock.client._terms import Terms, make_terms
from penstock.client._transport import Settings, SyncTransport, Transport, open_sync_transport, open_transport
from penstock.client._worker import GRACE_S
from penstock.client._workers import Declaring, Workers, exit_code
from penstock.errors import Unavailable
from penstock.ids import QueuePath, parse_queue, parse_scope
from penstock.wire.replies import PublishRunsReply


class Client(Declaring):
    """The blocking twin of `penstock.Client`: same arguments, same methods, same errors. Use it with `with`.

    Creating a client connects to nothing.
    """

    address: tuple[str, int] | None = None
    """Host and port of the server; None if it is in this process."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:7400",
        *,
        token: str | None = None,
        ssl: ssl.SSLContext | None = None,
        timeout: float = 30.0,
        connect_timeout: float = 5.0,
        retry_for: float = 30.0,
    ):
        settings = Settings(url, token, ssl, timeout, connect_timeout)
        self.address = settings.address
        self._assemble(open_sync_transport(settings), partial(open_transport, settings), retry_for)

    def _assemble(
        self, transport: SyncTransport, open_async_transport: Callable[[], Transport], retry_for: float
    ) -> None:
        """The rest of the constructor, whatever carries the calls; workers need a way for an event loop as well."""
        self._open_async_transport = open_async_transport
        self._retry_for = retry_for
        self._carrier = Carrier(transport, Policy(retry_for))
        self.schedules = Schedules(self._carrier)
        """Messages that a calendar publishes."""
        self.webhooks = Webhooks(self._carrier)
        """Deliveries to HTTP endpoints."""
        self._producer = new_producer()
        self._lock = threading.Lock()
        self._sequencers: dict[QueuePath, Sequencer] = {}
        self._sessions: WeakSet[Session] = WeakSet()
        """Those that somebody still uses: a loop, a message in somebody's hands, a helper with acks to send."""
        self._workers = Workers()

    def queue(self, name: str) -> Queue:
        """The queue of this name (`"orders"`, `"email/high"`, …). Asks nothing yet."""
        path = parse_queue(name)
        with self._lock:
            sequencer = self._sequencers.setdefault(path, Sequencer(self._producer))
        return Queue(path, self._carrier, sequencer, self._sessions)

    def scope(self, name: str) -> Scope:
        """All queues of a namespace (`"email"`) or of a task of it (`"email/notifications"`), to consume from."""
        return Scope(parse_scope(name), self._carrier, self._sessions)

    def create_queue(self, name: str, *, confirm: str | None = None, **config: Any) -> Queue:
        """Make sure that the queue exists with these settings (see the API's table). Of an existing queue exactly the
        named settings change; a change that would let go of stored messages needs to be confirmed like `delete`."""
        queue = self.queue(name)
        self._carrier.request(calls.put_queue(queue.path, config, confirm=confirm))
        return queue

    def queues(self, prefix: str = "", *, page: int = 1, limit: int = 50) -> dict[str, Any]:
        """One page of the queues whose path starts with `prefix`: `{"queues": […], "total", "page", "limit"}`."""
        return self._carrier.request(calls.list_queues(prefix=prefix, page=page, limit=limit))

    def summary(self) -> dict[str, Any]:
        """Numbers over all queues."""
        return self._carrier.request(calls.summary())

    def transact(
        self, *, ack: Iterable[Message | MessageBatch | str] = (), publish: Iterable[Sequence[Any]] = ()
    ) -> Transacted:
        """Ack all of `ack` (messages, batches or receipts) and publish all of `publish`, or do nothing at all.

        What to publish is `(queue, value)` or `(queue, value, {"key": …, …})` with the options of `Queue.publish`.
        Raises StaleReceipt if the lease of one message had ended: then nothing happened. An answer that got lost is
        asked for again until the client's patience ends, and a transaction that happened is never done twice, nor
        reported as failed. If it raises Unavailable, the outcome is unknown.
        """
        chosen = list(ack)
        receipts, outbox = receipts_to_ack(chosen), outbox_of(publish)
        done = self._carrier.transact(receipts, recognisable(outbox.items, receipts))
        settled_by(chosen)
        return done

    def ready(self) -> bool:
        """True if the server takes requests, False if it says that it does not. Asks once."""
        try:
            return self._carrier.request(calls.ready(), self._carrier.new_retry(within_s=0.0))
        except Unavailable as error:
            if is_transport_failure(error):
                raise
            return False

    # -- functions instead of loops ---------------------------------------------------------------------------

    def run_workers(self, *, wait: float | None = None, grace: float = GRACE_S, signals: bool = True) -> bool:
        """Run every function declared with `worker`, until SIGTERM, SIGINT or `stop_workers`; the client stays open.

        Then nothing more is taken, what was not begun goes back to the queue, and what runs has `grace` seconds to
        finish. True if all of it did. With `wait` it ends by itself when nothing came to any worker for so long, which
        is what tests want. Signals are heard in the main thread; `signals=False` leaves them alone.

        A server that goes away is waited for; any other refusal is raised, after the other workers were stopped too.
        """

        async def main() -> bool:
            # Taking messages, renewing leases and sending acks is what the asyncio shell does best. Only the functions
            # run in threads.
            async with async_client_over(self._open_async_transport(), self._retry_for) as client:
                client._carrier.tracing = self._carrier.tracing
                return await self._workers.run(client, wait=wait, grace=grace, signals=signals)

        return asyncio.run(main())

    def run(self, *, grace: float = GRACE_S) -> int:
        """The whole program of a worker: open the client, run its workers until a signal, close it.

        Returns the exit code: 0, or 1 if handlers had to be cut off.
        """
        with self:
            finished = self.run_workers(grace=grace)
        return exit_code(finished)

    # -- the end ----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Finish what was begun, then disconnect: acks are sent, leases taken ahead given back."""
        sessions = list(self._sessions)
        try:
            for session in sessions:
                session.close()
        finally:
            for session in sessions:
                session.stop()
            self._carrier.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def client_over(
    transport: SyncTransport, open_async_transport: Callable[[], Transport], retry_for: float = 30.0
) -> Client:
    """A client whose calls take another way than a URL can name."""
    client = Client.__new__(Client)
    client._assemble(transport, open_async_transport, retry_for)
    return client


class Queue:
    """The blocking twin of `penstock.Queue`; see there for what the options mean."""

    def __init__(self, path: QueuePath, carrier: Carrier, sequencer: Sequencer, sessions: WeakSet[Session]):
        self._carrier = carrier
        self._sequencer = sequencer
        self._sessions = sessions
        self.path = path
        """The full path, `namespace/task/name`."""

    def __repr__(self) -> str:
        return f"<Queue {self.path}>"

    # -- publish ----------------------------------------------------------------------------------------------

    def publish(
        self,
        value: Any,
        *,
        key: str | None = None,
        delay: float | None = None,
        deliver_at: datetime | float | None = None,
        ttl: float | None = None,
        priority: int = 0,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
        max_retries: int | None = None,
        tenant: str | None = None,
    ) -> PublishedMessage:
        """Publish a JSON value, or bytes as they are. Durable on return; stored once, however often it was sent.

        One call, one request. Many messages go many times faster through `publish_many`.
        """
        options = make_options(
            key=key, delay=delay, deliver_at=deliver_at, ttl=ttl, priority=priority, id=id, headers=headers,
            max_retries=max_retries, tenant=tenant,
        )  # fmt: skip
        made = row(value, options)
        tracing = self._carrier.tracing
        if tracing is None:
            return Published([self._send(frame_of_rows([made]), None)])[0]
        with tracing.publishing(self.path, headers, count=None, size=len(made.payload)) as sending:
            placed = Published([self._send(frame_of_rows([with_headers(made, sending.headers)]), None)])[0]
            sending.sent(placed.id, placed.partition)
            return placed

    def publish_many(
        self,
        values: Iterable[Any],
        *,
        keys: Iterable[str | None] | None = None,
        ids: Iterable[str | None] | None = None,
        priorities: Iterable[int] | None = None,
        key: str | None = None,
        delay: float | None = None,
        deliver_at: datetime | float | None = None,
        ttl: float | None = None,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
        max_retries: int | None = None,
        tenant: str | None = None,
        tenants: Iterable[str | None] | None = None,
        sequence: calls.ProducerSeq | None = None,
    ) -> Published:
        """Publish many values (JSON or bytes) in order. All of them are durable on return.

        Up to 10,000 messages and 8 MiB are one frame, which is stored whole or not at all; more are sent as several,
        one after the other. If one fails, the ones before it are stored and the ones after it are not.
        """
        options = make_options(
            key=key, delay=delay, deliver_at=deliver_at, ttl=ttl, priority=priority, headers=headers,
            max_retries=max_retries, tenant=tenant,
        )  # fmt: skip
        tracing = self._carrier.tracing
        if tracing is None:
            chunks = frames(values, options, keys=keys, ids=ids, priorities=priorities, tenants=tenants)
            return self._send_all(chunks, sequence)
        count = len(values) if isinstance(values, Sized) else None
        with tracing.publishing(self.path, headers, count=count, size=None) as sending:
            options = options._replace(headers=encode_headers(sending.headers))
            chunks = frames(values, options, keys=keys, ids=ids, priorities=priorities, tenants=tenants)
            return self._send_all(chunks, sequence)

    def _send_all(self, chunks: Iterator[Frame], sequence: calls.ProducerSeq | None) -> Published:
        replies = []
        for frame in chunks:
            self._carrier.kept = frame.kept
            replies.append(self._send(frame, sequence))
            if sequence is not None:
                sequence = sequence._replace(seq=sequence.seq + frame.rows)
        return Published(replies)

    def _send(self, frame: Frame, sequence: calls.ProducerSeq | None) -> PublishRunsReply:
        return self._carrier.request(
            calls.publish(self.path, frame.data, sequence or self._sequencer.take(frame.rows))
        )  # fmt: skip

    # -- consume ----------------------------------------------------------------------------------------------

    def consume(
        self, group: str = "default", *, prefetch: int = 100, lease: float = 30.0, wait: float | None = None,
        consumer: str = "", assigned: bool | Assigned = False,
    ) -> Consumer:  # fmt: skip
        """Iterate over messages, each leased to you until it is settled: `with message:` acks or nacks it.

        Up to `prefetch` messages are taken at once. While the consumer lives their leases are renewed. With `wait` the
        iteration ends when nothing came for that many seconds. With `assigned` the consumer joins the group as a
        member with a share of the partitions; hooks are called by the thread that hears of a change.
        """
        size = ("prefetch", prefetch)
        terms = make_terms(
            self.path, group=group, size=size, lease=lease, wait=wait, consumer=consumer, assigned=assigned
        )
        return Consumer(self._open_session(terms))

    def consume_batches(
        self, group: str = "default", *, max: int = 1000, lease: float = 30.0, wait: float | None = None,
        consumer: str = "", assigned: bool | Assigned = False,
    ) -> BatchConsumer:  # fmt: skip
        """Iterate over batches of up to `max` messages; the fastest way to consume."""
        size = ("max", max)
        terms = make_terms(
            self.path, group=group, size=size, lease=lease, wait=wait, consumer=consumer, assigned=assigned
        )
        return BatchConsumer(self._open_session(terms))

    def _open_session(self, terms: Terms) -> Session:
        session = Session(self._carrier, terms)
        self._sessions.add(session)
        return session

    # -- look without leasing ---------------------------------------------------------------------------------

    def read(
        self, *, partition: int = 0, offset: int | str | None = None, max: int = 100, wait: float = 0.0,
        client_id: str | None = None,
    ) -> LogBatch:  # fmt: skip
        """Messages of one partition from `offset` on; leases nothing. Waits up to `wait` seconds for the first one.

        `offset` is a number, "earliest" (the default), "latest", "at:<epoch ms>", "id:<message id>" (from that message
        on) or "after:<message id>"; with a `client_id` also "kept", which is the default then: where `keep_offsets` or
        `follow` left off under that name, or the earliest.
        """
        wait_ms = milliseconds("wait", wait, limits.WAIT_MS_MAX)
        return self._carrier.request(
            calls.read(self.path, partition=partition, offset=offset, max=max, wait_ms=wait_ms, client_id=client_id)
        )

    def follow(
        self, *, partition: int = 0, offset: int | str | None = None, max: int = 1000, wait: float | None = None,
        client_id: str | None = None,
    ) -> Iterator[LogBatch]:  # fmt: skip
        """Read one partition on and on, batch by batch. Ends when nothing came for `wait` seconds; None: never.

        With a `client_id` the server keeps the position: a batch counts as read when the next one is asked for, and the
        next `follow` under this name goes on behind it. After a crash the last batch may come again.
        """
        since = time.monotonic()
        while True:
            poll_s = calls.follow_poll_s(wait, time.monotonic() - since)
            batch = self.read(partition=partition, offset=offset, max=max, wait=poll_s, client_id=client_id)
            offset = batch.next_offset
            if batch:
                yield batch
                if client_id is not None:
                    self.keep_offsets(client_id, {partition: batch.next_offset})
                since = time.monotonic()
            elif wait is not None and time.monotonic() - since >= wait:
                return

    def offsets(self, client_id: str) -> dict[int, int]:
        """Where the reader of this name left off: partition -> offset. Empty if nothing is kept."""
        return self._carrier.request(calls.offsets(self.path, client_id))

    def keep_offsets(self, client_id: str, offsets: Mapping[int, int]) -> dict[int, int]:
        """Keep where this reader is; partitions that are not named keep theirs. Forgotten when unused for 30 days."""
        return self._carrier.request(calls.keep_offsets(self.path, client_id, offsets))

    def forget_offsets(self, client_id: str) -> dict[int, int]:
        return self._carrier.request(calls.forget_offsets(self.path, client_id))

    def peek(self, *, max: int = 10, group: str = "default") -> list[StoredMessage]:
        """The messages that would be delivered next, without leasing them."""
        return self._carrier.request(calls.peek(self.path, max=max, group=group))

    # -- look closely -----------------------------------------------------------------------------------------

    def explain(self, id: str | None = None, *, group: str = "default") -> dict[str, Any]:
        """Why a message is not being delivered to a group now; without an id, the head of every partition.

        `{"messages": [{"state", "deliverable", "reasons": [{"kind", "blocks", …}], "text", …}], …}`
        """
        return self._carrier.request(calls.explain(self.path, id=id, group=group))

    def history(self, id: str) -> dict[str, Any]:
        """What became of a message, as far back as the journal goes: `{"events": […], "complete": bool, …}`."""
        return self._carrier.request(calls.history(self.path, id))

    def autoscale(
        self, *, group: str = "default", target_drain: float = 60.0, min_workers: int = 0,
        max_workers: int | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """How fast messages come and go, and how many workers would drain the queue in `target_drain` seconds."""
        return self._carrier.request(
            calls.autoscale(
                self.path, group=group, target_drain=target_drain, min_workers=min_workers, max_workers=max_workers
            )
        )

    # -- scheduled messages -----------------------------------------------------------------------------------

    def cancel(self, *, ids: Iterable[str] | None = None, key: str | None = None) -> dict[str, Any]:
        """Cancel by ids or by key what was not delivered yet: `{"cancelled": n, "results": […]}`."""
        return self._carrier.request(calls.cancel(self.path, ids=ids, key=key))

    def reschedule(
        self, *, ids: Iterable[str] | None = None, key: str | None = None, delay: float | None = None,
        deliver_at: datetime | float | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Give scheduled messages, by ids or by key, another time: `delay` from now, or `deliver_at`."""
        return self._carrier.request(
            calls.reschedule(self.path, ids=ids, key=key, delay=delay, deliver_at=deliver_at)
        )  # fmt: skip

    # -- the queue itself -------------------------------------------------------------------------------------

    def config(self) -> dict[str, Any]:
        return self._carrier.request(calls.get_queue(self.path))

    def configure(self, *, confirm: str | None = None, **changes: Any) -> dict[str, Any]:
        """Change some settings, keep the others. Raises QueueNotFound; to create one, `Client.create_queue`. A change
        that would let go of stored messages needs to be confirmed like `delete`."""
        return self._carrier.request(calls.patch_queue(self.path, changes, confirm=confirm))

    def delete(self, *, confirm: str | None = None) -> dict[str, Any]:
        """Delete the queue and all it holds. Without `confirm` it raises Conflict, whose `details` have the token to
        confirm with and what would be lost."""
        return self._carrier.request(calls.delete_queue(self.path, confirm=confirm))

    def purge(self, *, confirm: str | None = None) -> dict[str, Any]:
        """Drop every message and keep the queue. Needs to be confirmed like `delete`."""
        return self._carrier.request(calls.purge_queue(self.path, confirm=confirm))

    def stats(self) -> dict[str, Any]:
        return self._carrier.request(calls.stats(self.path))

    def groups(self) -> dict[str, Any]:
        return self._carrier.request(calls.groups(self.path))

    # -- dead letters -----------------------------------------------------------------------------------------

    def dead_letters(
        self, *, filter: str | None = None, group: str | None = None, page: int = 1, limit: int = 50,
        after: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """One page of the messages that were given up, oldest first: `{"messages": […], "total", "next", …}`.

        `filter` chooses, in the language of docs/dead-letters.md. `after` is the `next` of an earlier page.
        """
        return self._carrier.request(
            calls.dead_letters(self.path, filter=filter, group=group, page=page, limit=limit, after=after)
        )

    def redrive(
        self, *, filter: str | None = None, ids: Iterable[str] | None = None, group: str | None = None,
        target: str | None = None, delay: float = 0.0, priority: int | None = None, rate: int = 100,
        dry_run: bool = True, redrive_id: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Bring dead letters back, chosen by `filter` (empty: all) or by message `ids`.

        A dry run, which is the default, answers `count` and a `sample`. With `dry_run=False` it begins, in the
        background and at `rate` messages a second; `redrives` tells how far it is. Without `target` the messages
        become ready again for the group that gave them up; with it, copies are published in that queue. The same
        `redrive_id` again starts nothing and answers what the first one did.
        """
        return self._carrier.request(
            calls.redrive(
                self.path, filter=filter, ids=ids, group=group, target=target, delay=delay, priority=priority,
                rate=rate, dry_run=dry_run, redrive_id=redrive_id,
            )
        )  # fmt: skip

    def redrives(self, redrive_id: str | None = None) -> list[dict[str, Any]]:
        """Redrives under way and the latest that ended, newest first; or the one of this id (raises NotFound)."""
        found: list[dict[str, Any]] = (self._carrier.request(calls.redrives(self.path, redrive_id)))["redrives"]
        return found

    def stop_redrive(self, redrive_id: str) -> dict[str, Any]:
        """Let it move no more. What has moved stays moved."""
        return self._carrier.request(calls.stop_redrive(self.path, redrive_id))

    def delete_dead_letters(
        self, *, filter: str | None = None, ids: Iterable[str] | None = None, group: str | None = None,
        confirm: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Delete dead letters, chosen as for `redrive`. Needs to be confirmed like `delete`."""
        return self._carrier.request(
            calls.delete_dead_letters(self.path, filter=filter, ids=ids, group=group, confirm=confirm)
        )

    # -- groups -----------------------------------------------------------------------------------------------

    def create_group(self, group: str, *, start: calls.Place = "earliest") -> dict[str, Any]:
        """Create a group before its first lease; one that exists stays where it is. `start` is "earliest", "latest",
        "at:<epoch ms>", or an offset per partition."""
        return self._carrier.request(calls.put_group(self.path, group, start=start))

    def seek_group(self, group: str, to: calls.Place, *, dry_run: bool = False) -> dict[str, Any]:
        """Let a group begin anew at another place, which is written as `start` of `create_group`; its leases there end.
        Answers what is delivered again and what is skipped, per partition; a dry run does nothing else."""
        return self._carrier.request(calls.seek_group(self.path, group, to=to, dry_run=dry_run))

    def delete_group(self, group: str, *, confirm: str | None = None) -> dict[str, Any]:
        """Delete a group, its dead letters, and what only it had not finished. Needs to be confirmed like `delete`."""
        return self._carrier.request(calls.delete_group(self.path, group, confirm=confirm))
