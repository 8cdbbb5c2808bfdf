"""The asyncio shell: `Client` and `Queue`."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence, Sized
from datetime import datetime
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

from penstock import limits
from penstock.client import _calls as calls
from penstock.client._carrier import Carrier
from penstock.client._consumer import BatchConsumer, Consumer, Session
from penstock.client._delivery import LogBatch, StoredMessage
from penstock.client._frames import PLAIN, encode_headers, frames, make_options, milliseconds, row, with_headers
from penstock.client._members import Assigned
from penstock.client._message import Message, MessageBatch
from penstock.client._numbers import new_producer
from penstock.client._outbox import Transacted, outbox_of, receipts_to_ack, recognisable, settled_by
from penstock.client._producer import Lane
from penstock.client._published import Published, PublishedMessage
from penstock.client._retry import Policy, is_transport_failure
from penstock.client._room import Room
from penstock.client._schedules import Schedules
from penstock.client._scope import Scope
from penstock.client._terms import Terms, make_terms
from penstock.client._transport import Settings, Transport, open_transport
from penstock.client._webhooks import Webhooks
from penstock.client._worker import GRACE_S
from penstock.client._workers import Declaring, Workers, exit_code
from penstock.errors import Unavailable
from penstock.ids import QueuePath, parse_queue, parse_scope

BUFFER_MESSAGES = 50_000
"""A few full frames: enough to build the next one while one travels."""
BUFFER_BYTES = 64 * limits.MIB
LINGER_MS_MAX = 60_000


class Client(Declaring):
    """A connection pool to one server, and everything one can ask of it. Use it with `async with`, from one loop.

    `url`              where `penstock serve` listens: http://, ws://, or grpc:// for its other port; https, wss and
                       grpcs for TLS, checked by `ssl` (not for grpcs; default: the system's rules)
    `token`            sent as `Authorization: Bearer …`
    `timeout`          seconds that an answer may take, on top of what a call waits on purpose
    `connect_timeout`  seconds that a connection may take
    `retry_for`        seconds to keep repeating a call that failed for a passing reason; 0: never, `math.inf`: for ever
    `connections`      most requests at the same time; long polls of consumers are not counted
    `linger`           seconds that a frame of single publishes may wait for company; 0: only while another one travels
    `buffer_messages`  `publish` waits while so many messages are on their way and not answered yet,
    `buffer_bytes`     or so many bytes

    Creating a client connects to nothing. Methods raise `PenstockError` subclasses named after the API's codes, and
    `Unavailable` if the server cannot be reached.
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
        connections: int = 64,
        linger: float = 0.0,
        buffer_messages: int = BUFFER_MESSAGES,
        buffer_bytes: int = BUFFER_BYTES,
    ):
        settings = Settings(url, token, ssl, timeout, connect_timeout, connections)
        self.address = settings.address
        milliseconds("linger", linger, LINGER_MS_MAX)
        self._assemble(open_transport(settings), retry_for, linger, Room(buffer_messages, buffer_bytes))

    def _assemble(
        self, transport: Transport, retry_for: float, linger_s: float = 0.0, room: Room | None = None
    ) -> None:  # fmt: skip
        """The rest of the constructor, whatever carries the calls."""
        self._linger_s = linger_s
        self._room = room or Room(BUFFER_MESSAGES, BUFFER_BYTES)
        self._carrier = Carrier(transport, Policy(retry_for))
        self.schedules = Schedules(self._carrier)
        """Messages that a calendar publishes."""
        self.webhooks = Webhooks(self._carrier)
        """Deliveries to HTTP endpoints."""
        self._producer = new_producer()
        self._lanes: dict[QueuePath, Lane] = {}
        self._queues: dict[str, Queue] = {}
        """By the name that was asked for: `client.queue("orders").publish(…)` is how many programs call it."""
        self._sessions: WeakSet[Session] = WeakSet()
        """Those that somebody still uses: a loop, a message in somebody's hands, an ack on its way."""
        self._workers = Workers()

    def queue(self, name: str) -> Queue:
        """The queue of this name (`"orders"`, `"email/high"`, …). Asks nothing yet."""
        queue = self._queues.get(name)
        if queue is None:
            path = parse_queue(name)
            if path not in self._lanes:
                self._lanes[path] = Lane(self._carrier, path, self._producer, self._room, self._linger_s)
            queue = self._queues[name] = Queue(path, self._carrier, self._lanes[path], self._sessions)
        return queue

    def scope(self, name: str) -> Scope:
        """All queues of a namespace (`"email"`) or of a task of it (`"email/notifications"`), to consume from."""
        return Scope(parse_scope(name), self._carrier, self._sessions)

    async def create_queue(self, name: str, *, confirm: str | None = None, **config: Any) -> Queue:
        """Make sure that the queue exists with these settings (see the API's table). Of an existing queue exactly the
        named settings change; a change that would let go of stored messages needs to be confirmed like `delete`."""
        queue = self.queue(name)
        await self._carrier.request(calls.put_queue(queue.path, config, confirm=confirm))
        return queue

    async def queues(self, prefix: str = "", *, page: int = 1, limit: int = 50) -> dict[str, Any]:
        """One page of the queues whose path starts with `prefix`: `{"queues": […], "total", "page", "limit"}`."""
        return await self._carrier.request(calls.list_queues(prefix=prefix, page=page, limit=limit))

    async def summary(self) -> dict[str, Any]:
        """Numbers over all queues."""
        return await self._carrier.request(calls.summary())

    async def transact(
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
        done = await self._carrier.transact(receipts, recognisable(outbox.items, receipts))
        settled_by(chosen)
        return done

    async def ready(self) -> bool:
        """True if the server takes requests, False if it says that it does not. Asks once."""
        try:
            return await self._carrier.request(calls.ready(), self._carrier.new_retry(within_s=0.0))
        except Unavailable as error:
            if is_transport_failure(error):
                raise
            return False

    # -- functions instead of loops ---------------------------------------------------------------------------

    async def run_workers(self, *, wait: float | None = None, grace: float = GRACE_S, signals: bool = True) -> bool:
        """Run every function declared with `worker`, until SIGTERM, SIGINT or `stop_workers`; the client stays open.

        Then nothing more is taken, what was not begun goes back to the queue, and what runs has `grace` seconds to
        finish. True if all of it did. With `wait` it ends by itself when nothing came to any worker for so long, which
        is what tests want. `signals=False` leaves signals alone.

        A server that goes away is waited for; any other refusal is raised, after the other workers were stopped too.
        """
        return await self._workers.run(self, wait=wait, grace=grace, signals=signals)

    def run(self, *, grace: float = GRACE_S) -> int:
        """The whole program of a worker: open the client, run its workers until a signal, close it.

        For a program without an event loop of its own. Returns the exit code: 0, or 1 if handlers had to be cut off.
        """

        async def main() -> bool:
            async with self:
                return await self.run_workers(grace=grace)

        return exit_code(asyncio.run(main()))

    # -- the end ----------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Finish what was begun, then disconnect: publishes are answered, acks sent, leases taken ahead given back."""
        sessions = list(self._sessions)
        try:
            await asyncio.gather(*(session.aclose() for session in sessions))
            while not self._room.is_empty:  # also those who still wait to be let in
                await asyncio.gather(*(lane.drain() for lane in self._lanes.values()))
                await asyncio.sleep(0)
        finally:
            for session in sessions:
                session.stop()
            await self._carrier.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


def client_over(transport: Transport, retry_for: float = 30.0) -> Client:
    """A client whose calls take another way than a URL can name."""
    client = Client.__new__(Client)
    client._assemble(transport, retry_for)
    return client


class Queue:
    """One queue of a server; made by `Client.queue`. Times are in seconds."""

    def __init__(self, path: QueuePath, carrier: Carrier, lane: Lane, sessions: WeakSet[Session]):
        self._carrier = carrier
        self._lane = lane
        self._sessions = sessions
        self.path = path
        """The full path, `namespace/task/name`."""

    def __repr__(self) -> str:
        return f"<Queue {self.path}>"

    # -- publish ----------------------------------------------------------------------------------------------

    async def publish(
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
        """Publish a JSON value, or bytes as they are. Durable on return.

        Calls that run at the same time travel together. Messages of one client to one queue are stored in the order of
        the calls, and each once, however often the network made the client repeat itself; `id` extends that to your
        own repetitions: a second message with the same id within 24 hours is answered with the first one.

        Messages of one `key` share a partition, and so their order. `delay` or `deliver_at` (an aware datetime or epoch
        seconds) hold the message back, `ttl` lets it expire, `max_retries` overrides the queue's setting. The
        `priority` counts in queues ordered by `lanes` or as a `heap`; with `fair_share` the tenants take turns.

        Raises TypeError for a value that is not JSON, InvalidRequest or TooLarge for what the server would refuse.
        If it raises Unavailable the outcome is unknown: the message may have been stored. Cancelling the caller does
        not take the message back.
        """
        if (
            key is None and delay is None and deliver_at is None and ttl is None and priority == 0 and id is None
            and headers is None and max_retries is None and tenant is None
        ):  # fmt: skip
            options = PLAIN  # what most messages are
        else:
            options = make_options(
                key=key, delay=delay, deliver_at=deliver_at, ttl=ttl, priority=priority, id=id, headers=headers,
                max_retries=max_retries, tenant=tenant,
            )  # fmt: skip
        made = row(value, options)
        tracing = self._carrier.tracing
        if tracing is None:
            return await self._lane.publish(made)
        with tracing.publishing(self.path, headers, count=None, size=len(made.payload)) as sending:
            placed = await self._lane.publish(with_headers(made, sending.headers))
            sending.sent(placed.id, placed.partition)
            return placed

    async def publish_many(
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
        one after the other, while `values` is read. `keys`, `ids`, `priorities` and `tenants` give one each per
        message, the other options hold for all.

        `sequence` (producer, epoch, number of the first message) replaces the client's own numbering, for programs
        that repeat the very same batch after a restart and want it stored once.
        """
        options = make_options(
            key=key, delay=delay, deliver_at=deliver_at, ttl=ttl, priority=priority, headers=headers,
            max_retries=max_retries, tenant=tenant,
        )  # fmt: skip
        tracing = self._carrier.tracing
        if tracing is None:
            chunks = frames(values, options, keys=keys, ids=ids, priorities=priorities, tenants=tenants)
            return Published(await self._lane.publish_frames(chunks, sequence))
        count = len(values) if isinstance(values, Sized) else None
        with tracing.publishing(self.path, headers, count=count, size=None) as sending:
            options = options._replace(headers=encode_headers(sending.headers))
            chunks = frames(values, options, keys=keys, ids=ids, priorities=priorities, tenants=tenants)
            return Published(await self._lane.publish_frames(chunks, sequence))

    # -- consume ----------------------------------------------------------------------------------------------

    def consume(
        self, group: str = "default", *, prefetch: int = 100, lease: float = 30.0, wait: float | None = None,
        consumer: str = "", assigned: bool | Assigned = False,
    ) -> Consumer:  # fmt: skip
        """Iterate over messages, each leased to you until it is settled; see `Message`.

        Up to `prefetch` messages wait in a local buffer, which is refilled when half of it is used; with `prefetch=1`
        nothing is leased before you ask for it. `lease` is how long the server waits for a consumer that died; while it
        lives the lease is renewed. With `wait` the iteration ends when nothing came for that many seconds. `consumer`
        is a name for people who look at the queue.

        With `assigned` the consumer joins the group as a member: it gets a share of the partitions, keeps it as others
        come and go, and hands over what moves; see `Assigned`, which may be given instead of True.
        """
        size = ("prefetch", prefetch)
        terms = make_terms(
            self.path, group=group, size=size, lease=lease, wait=wait, consumer=consumer, assigned=assigned
        )
        return Consumer(self._open_session(terms, low_water=prefetch // 2 if prefetch > 1 else -1))

    def consume_batches(
        self, group: str = "default", *, max: int = 1000, lease: float = 30.0, wait: float | None = None,
        consumer: str = "", assigned: bool | Assigned = False,
    ) -> BatchConsumer:  # fmt: skip
        """Iterate over batches of up to `max` messages; the fastest way to consume. See `MessageBatch`.

        Who handles batches within 50 ms, in `async with`, has up to two more leased while handling one.
        """
        size = ("max", max)
        terms = make_terms(
            self.path, group=group, size=size, lease=lease, wait=wait, consumer=consumer, assigned=assigned
        )
        return BatchConsumer(self._open_session(terms, low_water=-1))

    def _open_session(self, terms: Terms, *, low_water: int) -> Session:
        session = Session(self._carrier, terms, low_water=low_water)
        self._sessions.add(session)
        return session

    # -- look without leasing ---------------------------------------------------------------------------------

    async def read(
        self, *, partition: int = 0, offset: int | str | None = None, max: int = 100, wait: float = 0.0,
        client_id: str | None = None,
    ) -> LogBatch:  # fmt: skip
        """Messages of one partition from `offset` on; leases nothing. Waits up to `wait` seconds for the first one.

        `offset` is a number, "earliest" (the default), "latest", "at:<epoch ms>", "id:<message id>" (from that message
        on) or "after:<message id>"; with a `client_id` also "kept", which is the default then: where `keep_offsets` or
        `follow` left off under that name, or the earliest.
        """
        wait_ms = milliseconds("wait", wait, limits.WAIT_MS_MAX)
        return await self._carrier.request(
            calls.read(self.path, partition=partition, offset=offset, max=max, wait_ms=wait_ms, client_id=client_id)
        )

    async def follow(
        self, *, partition: int = 0, offset: int | str | None = None, max: int = 1000, wait: float | None = None,
        client_id: str | None = None,
    ) -> AsyncIterator[LogBatch]:  # fmt: skip
        """Read one partition on and on, batch by batch. Ends when nothing came for `wait` seconds; None: never.

        With a `client_id` the server keeps the position: a batch counts as read when the next one is asked for, and the
        next `follow` under this name goes on behind it. After a crash the last batch may come again.
        """
        loop = asyncio.get_running_loop()
        since = loop.time()
        while True:
            poll_s = calls.follow_poll_s(wait, loop.time() - since)
            batch = await self.read(partition=partition, offset=offset, max=max, wait=poll_s, client_id=client_id)
            offset = batch.next_offset
            if batch:
                yield batch
                if client_id is not None:
                    await self.keep_offsets(client_id, {partition: batch.next_offset})
                since = loop.time()
            elif wait is not None and loop.time() - since >= wait:
                return

    async def offsets(self, client_id: str) -> dict[int, int]:
        """Where the reader of this name left off: partition -> offset. Empty if nothing is kept."""
        return await self._carrier.request(calls.offsets(self.path, client_id))

    async def keep_offsets(self, client_id: str, offsets: Mapping[int, int]) -> dict[int, int]:
        """Keep where this reader is; partitions that are not named keep theirs. Forgotten when unused for 30 days."""
        return await self._carrier.request(calls.keep_offsets(self.path, client_id, offsets))

    async def forget_offsets(self, client_id: str) -> dict[int, int]:
        return await self._carrier.request(calls.forget_offsets(self.path, client_id))

    async def peek(self, *, max: int = 10, group: str = "default") -> list[StoredMessage]:
        """The messages that would be delivered next, without leasing them."""
        return await self._carrier.request(calls.peek(self.path, max=max, group=group))

    # -- look closely -----------------------------------------------------------------------------------------

    async def explain(self, id: str | None = None, *, group: str = "default") -> dict[str, Any]:
        """Why a message is not being delivered to a group now; without an id, the head of every partition.

        `{"messages": [{"state", "deliverable", "reasons": [{"kind", "blocks", …}], "text", …}], …}`
        """
        return await self._carrier.request(calls.explain(self.path, id=id, group=group))

    async def history(self, id: str) -> dict[str, Any]:
        """What became of a message, as far back as the journal goes: `{"events": […], "complete": bool, …}`."""
        return await self._carrier.request(calls.history(self.path, id))

    async def autoscale(
        self, *, group: str = "default", target_drain: float = 60.0, min_workers: int = 0,
        max_workers: int | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """How fast messages come and go, and how many workers would drain the queue in `target_drain` seconds."""
        return await self._carrier.request(
            calls.autoscale(
                self.path, group=group, target_drain=target_drain, min_workers=min_workers, max_workers=max_workers
            )
        )

    # -- scheduled messages -----------------------------------------------------------------------------------

    async def cancel(self, *, ids: Iterable[str] | None = None, key: str | None = None) -> dict[str, Any]:
        """Cancel by ids or by key what was not delivered yet: `{"cancelled": n, "results": […]}`.

        A message whose result is `cancelled` will not be delivered.
        """
        return await self._carrier.request(calls.cancel(self.path, ids=ids, key=key))

    async def reschedule(
        self, *, ids: Iterable[str] | None = None, key: str | None = None, delay: float | None = None,
        deliver_at: datetime | float | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Give scheduled messages, by ids or by key, another time: `delay` from now, or `deliver_at`."""
        return await self._carrier.request(
            calls.reschedule(self.path, ids=ids, key=key, delay=delay, deliver_at=deliver_at)
        )

    # -- the queue itself -------------------------------------------------------------------------------------

    async def config(self) -> dict[str, Any]:
        return await self._carrier.request(calls.get_queue(self.path))

    async def configure(self, *, confirm: str | None = None, **changes: Any) -> dict[str, Any]:
        """Change some settings, keep the others. Raises QueueNotFound; to create one, `Client.create_queue`. A change
        that would let go of stored messages needs to be confirmed like `delete`."""
        return await self._carrier.request(calls.patch_queue(self.path, changes, confirm=confirm))

    async def delete(self, *, confirm: str | None = None) -> dict[str, Any]:
        """Delete the queue and all it holds. Without `confirm` it raises Conflict, whose `details` have the token to
        confirm with and what would be lost."""
        return await self._carrier.request(calls.delete_queue(self.path, confirm=confirm))

    async def purge(self, *, confirm: str | None = None) -> dict[str, Any]:
        """Drop every message and keep the queue. Needs to be confirmed like `delete`."""
        return await self._carrier.request(calls.purge_queue(self.path, confirm=confirm))

    async def stats(self) -> dict[str, Any]:
        return await self._carrier.request(calls.stats(self.path))

    async def groups(self) -> dict[str, Any]:
        return await self._carrier.request(calls.groups(self.path))

    # -- dead letters -----------------------------------------------------------------------------------------

    async def dead_letters(
        self, *, filter: str | None = None, group: str | None = None, page: int = 1, limit: int = 50,
        after: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """One page of the messages that were given up, oldest first: `{"messages": […], "total", "next", …}`.

        `filter` chooses, in the language of docs/dead-letters.md. `after` is the `next` of an earlier page.
        """
        return await self._carrier.request(
            calls.dead_letters(self.path, filter=filter, group=group, page=page, limit=limit, after=after)
        )

    async def redrive(
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
        return await self._carrier.request(
            calls.redrive(
                self.path, filter=filter, ids=ids, group=group, target=target, delay=delay, priority=priority,
                rate=rate, dry_run=dry_run, redrive_id=redrive_id,
            )
        )  # fmt: skip

    async def redrives(self, redrive_id: str | None = None) -> list[dict[str, Any]]:
        """Redrives under way and the latest that ended, newest first; or the one of this id (raises NotFound)."""
        found: list[dict[str, Any]] = (await self._carrier.request(calls.redrives(self.path, redrive_id)))["redrives"]
        return found

    async def stop_redrive(self, redrive_id: str) -> dict[str, Any]:
        """Let it move no more. What has moved stays moved."""
        return await self._carrier.request(calls.stop_redrive(self.path, redrive_id))

    async def delete_dead_letters(
        self, *, filter: str | None = None, ids: Iterable[str] | None = None, group: str | None = None,
        confirm: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Delete dead letters, chosen as for `redrive`. Needs to be confirmed like `delete`."""
        return await self._carrier.request(
            calls.delete_dead_letters(self.path, filter=filter, ids=ids, group=group, confirm=confirm)
        )

    # -- groups -----------------------------------------------------------------------------------------------

    async def create_group(self, group: str, *, start: calls.Place = "earliest") -> dict[str, Any]:
        """Create a group before its first lease; one that exists stays where it is. `start` is "earliest", "latest",
        "at:<epoch ms>", or an offset per partition."""
        return await self._carrier.request(calls.put_group(self.path, group, start=start))

    async def seek_group(self, group: str, to: calls.Place, *, dry_run: bool = False) -> dict[str, Any]:
        """Let a group begin anew at another place, which is written as `start` of `create_group`; its leases there end.
        Answers what is delivered again and what is skipped, per partition; a dry run does nothing else."""
        return await self._carrier.request(calls.seek_group(self.path, group, to=to, dry_run=dry_run))

    async def delete_group(self, group: str, *, confirm: str | None = None) -> dict[str, Any]:
        """Delete a group, its dead letters, and what only it had not finished. Needs to be confirmed like `delete`."""
        return await self._carrier.request(calls.delete_group(self.path, group, confirm=confirm))
