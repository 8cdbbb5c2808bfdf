"""`Client`: the connection to one server, and the way to its queues."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock import limits
from penstock.client.admin.schedules import Schedules
from penstock.client.admin.settings import settings_body
from penstock.client.admin.webhooks import Webhooks
from penstock.client.calls.call import Call
from penstock.client.consume.consumers import KINDS, Consumers, Scope
from penstock.client.consume.messages import Settleable
from penstock.client.consume.session import MessageKinds
from penstock.client.publish.lane import Lane, Publisher, new_producer
from penstock.client.publish.published import PublishedMessage
from penstock.client.publish.send_buffer import SendBuffer
from penstock.client.publish.transactions import Transacted, idempotent, mark_settled, outbox_of, receipts_to_ack
from penstock.client.queue import Queue
from penstock.client.runtime import AsyncioRuntime, Runtime
from penstock.client.transport.base import Transport, open_transport
from penstock.client.transport.carrier import Carrier
from penstock.client.transport.endpoint import ServerEndpoint
from penstock.client.transport.retry import RetryPolicy, is_transport_failure
from penstock.client.units import Duration, milliseconds, seconds
from penstock.client.workers.runner import WorkerDeclarations, WorkerRunner, exit_code
from penstock.client.workers.worker import GRACE_S
from penstock.errors import Unavailable
from penstock.ids import QueuePath, parse_queue, parse_scope
from penstock.wire.replies import QueueReply, QueuesReply
from penstock.wire.settings import QueueSettings
from penstock.wire.stats import SummaryReply
from penstock.wire.users import TicketReply

if TYPE_CHECKING:
    from penstock.client.protection import Protection

BUFFER_MESSAGES = 50_000
"""A few full frames: enough to build the next one while one travels."""
BUFFER_BYTES = 64 * limits.MIB
LINGER_MS_MAX = 60_000


class Client(WorkerDeclarations[Coroutine[Any, Any, PublishedMessage]]):
    """A connection pool to one server, and everything one can ask of it. Use it with `async with`, from one loop.

    `url`              where `penstock serve` listens: http://, ws://, or grpc:// for its other port; https, wss and
                       grpcs for TLS, checked by `ssl` (not for grpcs; default: the system's rules)
    `key`              API key or JWT, sent as `Authorization: Bearer …`; default: the user part of the URL, or the
                       environment variable PENSTOCK_KEY
    `timeout`          the time that an answer may take, on top of what a call waits on purpose
    `connect_timeout`  the time that a connection may take
    `retry_for`        how long to repeat a call that failed for a passing reason; 0: never, `math.inf`: for ever
    `connections`      most requests at the same time; long polls of consumers are not counted
    `linger`           how long a frame of single publishes may wait for company; 0: only while another one travels
    `buffer_messages`  `publish` waits while so many messages are on their way and not answered yet,
    `buffer_bytes`     or so many bytes
    `protection`       encryption and signatures by this client (`penstock.protection`)

    Durations are seconds or `timedelta`, here and in all methods. Creating a client connects to nothing. Methods raise
    `PenstockError` subclasses named after the API's codes, and `Unavailable` if the server cannot be reached.
    """

    address: tuple[str, int] | None = None
    """Host and port of the server; None if it is in this process."""

    def __init__(
        self, url: str = "http://127.0.0.1:7400", *, key: str | None = None, ssl: ssl.SSLContext | None = None,
        timeout: Duration = 30.0, connect_timeout: Duration = 5.0, retry_for: Duration = 30.0, connections: int = 64,
        linger: Duration = 0.0, buffer_messages: int = BUFFER_MESSAGES, buffer_bytes: int = BUFFER_BYTES,
        protection: Protection | None = None,
    ):  # fmt: skip
        endpoint = ServerEndpoint(
            url, token=key, tls=ssl, timeout=timeout, connect_timeout=connect_timeout, connections_max=connections
        )  # fmt: skip
        self.address = endpoint.address
        linger_s = milliseconds("linger", linger, LINGER_MS_MAX) / 1000
        self._assemble(open_transport(endpoint), retry_for, linger_s, SendBuffer(buffer_messages, buffer_bytes))
        self._carrier.protection = protection

    _kinds: MessageKinds[Any, Any] = KINDS
    _runtime: Callable[[], Runtime] = AsyncioRuntime

    def _assemble(
        self, transport: Transport, retry_for: Duration, linger_s: float = 0.0, buffer: SendBuffer | None = None
    ) -> None:
        """The rest of the constructor."""
        self._linger_s = linger_s
        self._buffer = buffer or SendBuffer(BUFFER_MESSAGES, BUFFER_BYTES)
        self._carrier = Carrier(transport, RetryPolicy(seconds("retry_for", retry_for)), self._runtime)
        self.schedules = Schedules(self._carrier)
        """Messages that a calendar publishes."""
        self.webhooks = Webhooks(self._carrier)
        """Deliveries to HTTP endpoints."""
        self._producer = new_producer()
        self._publishers: dict[QueuePath, Publisher] = {}
        self._queues: dict[str, Queue] = {}
        """By the name that was asked for: many programs call `client.queue("orders").publish(…)` each time."""
        self._consumers = Consumers(self._carrier, self._kinds)
        self._workers = WorkerRunner()

    def _new_publisher(self, path: QueuePath) -> Publisher:
        return Lane(self._carrier, path, self._producer, self._buffer, self._linger_s)

    def queue(self, name: str) -> Queue:
        """The queue of this name (`"orders"`, `"email/high"`, …). Asks nothing yet."""
        queue = self._queues.get(name)
        if queue is None:
            path = parse_queue(name)
            if path not in self._publishers:
                self._publishers[path] = self._new_publisher(path)
            queue = self._queues[name] = Queue(path, self._carrier, self._publishers[path], self._consumers)
        return queue

    def scope(self, name: str) -> Scope:
        """All queues of a namespace (`"email"`) or of a task of it (`"email/notifications"`), to consume from."""
        return Scope(parse_scope(name), self._consumers)

    async def create_queue(
        self, name: str, settings: QueueSettings | None = None, *, confirm: str | None = None, **changes: Any
    ) -> Queue:  # fmt: skip
        """Make sure that the queue exists: with all of `settings`, or with those that are named (`max_retries=5`, see
        the API's table). Of an existing queue exactly the named ones change; a change that would let go of stored
        messages needs to be confirmed like `delete`. A duration may be named without `_ms`: `lease=60`.
        """
        queue = self.queue(name)
        body = settings_body(settings, changes)
        await self._carrier.ask("put_queue", QueueReply, queue=queue.path, confirm=confirm, body=body)
        return queue

    async def queues(self, prefix: str = "", *, page: int = 1, limit: int = 50) -> QueuesReply:
        """One page of the queues whose path starts with `prefix`."""
        return await self._carrier.ask("list_queues", QueuesReply, prefix=prefix, page=page, limit=limit)

    async def summary(self) -> SummaryReply:
        """Numbers over all queues."""
        return await self._carrier.ask("summary", SummaryReply)

    async def ticket(self) -> TicketReply:
        """A text that opens one WebSocket within 30 s, as `/v1/ws?ticket=…`: for a page or a tool that can set no
        header, and must not have the key. The connection has the scopes of this client, and ends with its credential.
        """
        return await self._carrier.ask("create_ticket", TicketReply)

    async def transact(
        self, *, ack: Iterable[Settleable | str] = (), publish: Iterable[Sequence[Any]] = ()
    ) -> Transacted:
        """Ack all of `ack` (messages, batches or receipts) and publish all of `publish`, or do nothing at all.

        Each message to publish is `(queue, value)` or `(queue, value, {"key": …, …})` with the options of
        `Queue.publish`. Raises StaleReceipt if the lease of one message had ended: then nothing happened. An answer
        that got lost is asked for again until the client's patience ends, and a transaction that happened is never
        done twice, nor reported as failed. If it raises Unavailable, the outcome is unknown.
        """
        chosen = list(ack)
        receipts, outbox = receipts_to_ack(chosen), outbox_of(publish)
        done = await self._carrier.transact(receipts, idempotent(outbox.items, receipts))
        mark_settled(chosen)
        return done

    async def ready(self) -> bool:
        """True if the server takes requests, False if it answers that it does not. Asks once."""
        call = Call("readiness", "GET", "/readyz", lambda response: response.status == 200)
        try:
            return await self._carrier.request(call, self._carrier.new_retry(within_s=0.0))
        except Unavailable as error:
            if is_transport_failure(error):
                raise
            return False

    # -- workers ----------------------------------------------------------------------------------------------------

    async def run_workers(
        self, *, wait: Duration | None = None, grace: Duration = GRACE_S, signals: bool = True
    ) -> bool:
        """Run every function declared with `worker`, until SIGTERM, SIGINT or `stop_workers`; the client stays open.

        Then no more messages are taken, those not begun go back to the queue, and handlers that run have `grace`
        seconds to finish. True if all of them did. With `wait` it ends by itself when nothing came to any worker for so
        long, as tests want it. Signals are handled in the main thread; `signals=False` leaves them alone.

        The workers wait for a server that goes away; any other refusal is raised, after the other workers were stopped
        too.
        """
        return await self._workers.run(self, wait=wait, grace=grace, signals=signals)

    def run(self, *, grace: Duration = GRACE_S) -> int:
        """The whole program of a worker: open the client, run its workers until a signal, close it.

        For a program without an event loop of its own. Returns the exit code: 0, or 1 if handlers had to be cut off.
        """

        async def main() -> bool:
            async with self:
                return await self.run_workers(grace=grace)

        return exit_code(asyncio.run(main()))

    # -- closing ----------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Finish what was begun, then disconnect: publishes are answered, acks sent, leases taken ahead given back."""
        try:
            await self._consumers.aclose()
            while not self._buffer.is_empty:  # publishes that still wait to enter the buffer count too
                for publisher in self._publishers.values():
                    await publisher.drain()
                await self._carrier.runtime().sleep(0)
        finally:
            self._consumers.stop()
            await self._carrier.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


def client_over(transport: Transport, retry_for: Duration = 30.0) -> Client:
    """A client over another transport than a URL can name."""
    client = Client.__new__(Client)
    client._assemble(transport, retry_for)
    return client
