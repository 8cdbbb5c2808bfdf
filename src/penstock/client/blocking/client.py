"""The blocking client: each method runs the coroutine of the same name to its end. Public as `penstock.sync`.

A client may be used from many threads; each call is made by the thread that asks for it.
"""

from __future__ import annotations

import asyncio
import ssl
import weakref
from collections.abc import Callable
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, cast

from penstock.client.admin import schedules, webhooks
from penstock.client.blocking.messages import KINDS, BlockingBatch, BlockingMessage
from penstock.client.blocking.runtime import BlockingRuntime, blocking, blocking_iterator, run_to_end, settling
from penstock.client.blocking.transport import LoopThreadTransport, SocketPool, open_blocking_transport
from penstock.client.calls.call import Call
from penstock.client.client import Client, client_over
from penstock.client.consume import consumers
from penstock.client.publish.lane import DirectLane, Publisher
from penstock.client.publish.published import PublishedMessage
from penstock.client.queue import Queue
from penstock.client.transport.base import Transport, open_transport
from penstock.client.transport.carrier import Carrier
from penstock.client.transport.direct import Ask, InProcessTransport, LoopThread, OtherLoopTransport
from penstock.client.transport.endpoint import HTTP, ServerEndpoint
from penstock.client.transport.retry import RetryPolicy
from penstock.client.units import Duration
from penstock.client.workers.runner import WorkerDeclarations, WorkerRunner, exit_code
from penstock.client.workers.worker import GRACE_S
from penstock.errors import InvalidRequest
from penstock.ids import QueuePath
from penstock.wire.settings import QueueSettings

if TYPE_CHECKING:
    from penstock.client.protection import Protection

C = TypeVar("C", bound="BlockingIterator")
P = ParamSpec("P")
T = TypeVar("T")


class CallerClient(Client):
    """The client whose coroutines run in the thread that calls them."""

    _kinds = KINDS

    def __init__(self, transport: Transport, retry_for: Duration, runtime: BlockingRuntime):
        self._runtime = lambda: runtime
        self._assemble(transport, retry_for)

    def _new_publisher(self, path: QueuePath) -> Publisher:
        return DirectLane(self._carrier, path, self._producer)


class BlockingClient(WorkerDeclarations[PublishedMessage]):
    """The blocking twin of `penstock.Client`: same arguments, same methods, same errors. Use it with `with`.

    Creating a client connects to nothing.
    """

    address: tuple[str, int] | None = None
    """Host and port of the server; None if it is in this process."""

    def __init__(
        self, url: str = "http://127.0.0.1:7400", *, key: str | None = None, ssl: ssl.SSLContext | None = None,
        timeout: Duration = 30.0, connect_timeout: Duration = 5.0, retry_for: Duration = 30.0,
        protection: Protection | None = None,
    ):  # fmt: skip
        endpoint = ServerEndpoint(url, token=key, tls=ssl, timeout=timeout, connect_timeout=connect_timeout)
        self.address = endpoint.address
        runtime = BlockingRuntime()
        self._assemble(
            open_blocking_transport(endpoint, runtime), partial(open_transport, endpoint), retry_for, runtime
        )  # fmt: skip
        self._carrier.protection = protection

    def _assemble_in_process(self, ask: Ask, thread: LoopThread, retry_for: Duration) -> None:
        """Instead of the constructor, for a broker in an event loop of this process."""
        runtime = BlockingRuntime()
        self._assemble(
            LoopThreadTransport(InProcessTransport(ask), thread, runtime),
            lambda: OtherLoopTransport(InProcessTransport(ask), thread),
            retry_for,
            runtime,
        )

    def _assemble(
        self,
        transport: Transport,
        open_async_transport: Callable[[], Transport],
        retry_for: Duration,
        runtime: BlockingRuntime,
    ) -> None:
        """The rest of the constructor. Workers run in an event loop, which needs a transport of its own."""
        self._runtime = runtime
        self._inner = CallerClient(transport, retry_for, runtime)
        self._open_async_transport = open_async_transport
        self._retry_for = retry_for
        self.schedules = BlockingSchedules(self._inner.schedules)
        """Messages that a calendar publishes."""
        self.webhooks = BlockingWebhooks(self._inner.webhooks)
        """Deliveries to HTTP endpoints."""
        self._workers = WorkerRunner()

    @property
    def _carrier(self) -> Carrier:
        return self._inner._carrier

    def queue(self, name: str) -> BlockingQueue:
        """The queue of this name (`"orders"`, `"email/high"`, …). Asks nothing yet."""
        return BlockingQueue(self._runtime.call(self._inner.queue, name), self._runtime)

    def scope(self, name: str) -> BlockingScope:
        """All queues of a namespace (`"email"`) or of a task of it (`"email/notifications"`), to consume from."""
        return BlockingScope(self._inner.scope(name), self._runtime)

    @wraps(Client.create_queue)
    def create_queue(
        self, name: str, settings: QueueSettings | None = None, *, confirm: str | None = None, **changes: Any
    ) -> BlockingQueue:  # fmt: skip
        run_to_end(self._inner.create_queue(name, settings, confirm=confirm, **changes))
        return self.queue(name)

    queues = blocking(Client.queues)
    summary = blocking(Client.summary)
    ticket = blocking(Client.ticket)
    transact = blocking(Client.transact)
    ready = blocking(Client.ready)

    # -- workers ----------------------------------------------------------------------------------------------------

    def run_workers(self, *, wait: Duration | None = None, grace: Duration = GRACE_S, signals: bool = True) -> bool:
        """Run every function declared with `worker`, until SIGTERM, SIGINT or `stop_workers`; the client stays open.

        As `penstock.Client.run_workers`. An event loop takes messages, renews leases and sends acks; only the functions
        run in threads.
        """

        async def main() -> bool:
            async with client_over(self._open_async_transport(), self._retry_for) as client:
                client._carrier.tracing = self._carrier.tracing
                client._carrier.protection = self._carrier.protection
                return await self._workers.run(client, wait=wait, grace=grace, signals=signals)

        return asyncio.run(main())

    def run(self, *, grace: Duration = GRACE_S) -> int:
        """The whole program of a worker: open the client, run its workers until a signal, close it.

        Returns the exit code: 0, or 1 if handlers had to be cut off.
        """
        with self:
            finished = self.run_workers(grace=grace)
        return exit_code(finished)

    # -- closing ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Finish what was begun, then disconnect: acks are sent, leases taken ahead given back."""
        self._runtime.run(self._inner.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def client_in_process(ask: Ask, thread: LoopThread, retry_for: Duration) -> BlockingClient:
    """A client of a broker in an event loop of this process."""
    client = BlockingClient.__new__(BlockingClient)
    client._assemble_in_process(ask, thread, retry_for)
    return client


# -- consumers ------------------------------------------------------------------------------------------------------


class BlockingIterator:
    """The part that the two iterators share. Dropping one closes its session."""

    def __init__(self, inner: consumers.SessionIterator):
        self._inner = inner
        self._session = inner._session
        self._runtime = cast(BlockingRuntime, self._session.runtime)

    close = settling(consumers.SessionIterator.aclose)
    __exit__ = settling(consumers.SessionIterator.__aexit__)

    def __enter__(self) -> Self:
        return self

    def __iter__(self) -> Self:
        return self


class BlockingConsumer(BlockingIterator):
    """Iterator of messages; made by `Queue.consume`."""

    def __next__(self) -> BlockingMessage:
        message: Any = self._runtime.call(self._session.take_message)
        if message is None:
            try:
                message = self._runtime.run(consumers.Consumer.__anext__(cast(Any, self)))
            except StopAsyncIteration:
                raise StopIteration from None
        return cast(BlockingMessage, message)


class BlockingBatchConsumer(BlockingIterator):
    """Iterator of batches; made by `Queue.consume_batches`."""

    def __next__(self) -> BlockingBatch:
        try:
            return cast(BlockingBatch, self._runtime.run(consumers.BatchConsumer.__anext__(cast(Any, self))))
        except StopAsyncIteration:
            raise StopIteration from None


def _consuming(
    method: Callable[Concatenate[Any, P], consumers.SessionIterator], kind: Callable[[consumers.SessionIterator], C]
) -> Callable[Concatenate[Any, P], C]:
    """`consume` and `consume_batches` of a queue or a scope."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> C:
        return kind(self._runtime.call(method, self._inner, *args, **kwargs))

    return call


class BlockingScope:
    """The blocking twin of `penstock.Scope`."""

    def __init__(self, inner: consumers.Scope, runtime: BlockingRuntime):
        self._inner = inner
        self._runtime = runtime
        self.path = inner.path

    def __repr__(self) -> str:
        return repr(self._inner)

    consume = _consuming(consumers.Scope.consume, BlockingConsumer)
    consume_batches = _consuming(consumers.Scope.consume_batches, BlockingBatchConsumer)


class BlockingQueue:
    """The blocking twin of `penstock.Queue`."""

    def __init__(self, inner: Queue, runtime: BlockingRuntime):
        self._inner = inner
        self._runtime = runtime
        self.path = inner.path
        """The full path, `namespace/task/name`."""

    def __repr__(self) -> str:
        return repr(self._inner)

    publish = blocking(Queue.publish)
    publish_many = blocking(Queue.publish_many)

    consume = _consuming(Queue.consume, BlockingConsumer)
    consume_batches = _consuming(Queue.consume_batches, BlockingBatchConsumer)

    read = blocking(Queue.read)
    follow = blocking_iterator(Queue.follow)
    offsets = blocking(Queue.offsets)
    keep_offsets = blocking(Queue.keep_offsets)
    forget_offsets = blocking(Queue.forget_offsets)
    peek = blocking(Queue.peek)

    config = blocking(Queue.config)
    configure = blocking(Queue.configure)
    delete = blocking(Queue.delete)
    purge = blocking(Queue.purge)
    stats = blocking(Queue.stats)
    groups = blocking(Queue.groups)
    create_group = blocking(Queue.create_group)
    seek_group = blocking(Queue.seek_group)
    delete_group = blocking(Queue.delete_group)

    explain = blocking(Queue.explain)
    history = blocking(Queue.history)
    autoscale = blocking(Queue.autoscale)

    scheduled = blocking(Queue.scheduled)
    cancel = blocking(Queue.cancel)
    reschedule = blocking(Queue.reschedule)

    dead_letters = blocking(Queue.dead_letters)
    redrive = blocking(Queue.redrive)
    redrives = blocking(Queue.redrives)
    stop_redrive = blocking(Queue.stop_redrive)
    delete_dead_letters = blocking(Queue.delete_dead_letters)


class BlockingSchedules:
    """The blocking twin of `penstock.Schedules`."""

    def __init__(self, inner: schedules.Schedules):
        self._inner = inner

    set = blocking(schedules.Schedules.set)
    get = blocking(schedules.Schedules.get)
    list = blocking(schedules.Schedules.list)
    pause = blocking(schedules.Schedules.pause)
    resume = blocking(schedules.Schedules.resume)
    delete = blocking(schedules.Schedules.delete)


class BlockingWebhooks:
    """The blocking twin of `penstock.Webhooks`."""

    def __init__(self, inner: webhooks.Webhooks):
        self._inner = inner

    add = blocking(webhooks.Webhooks.add)
    get = blocking(webhooks.Webhooks.get)
    list = blocking(webhooks.Webhooks.list)
    change = blocking(webhooks.Webhooks.change)
    pause = blocking(webhooks.Webhooks.pause)
    resume = blocking(webhooks.Webhooks.resume)
    rotate = blocking(webhooks.Webhooks.rotate)
    test = blocking(webhooks.Webhooks.test)
    attempts = blocking(webhooks.Webhooks.attempts)
    delete = blocking(webhooks.Webhooks.delete)


class BlockingCalls:
    """Single calls to one server over HTTP, without the objects of a client.

    Connections are kept until the object is dropped; a forked process must make its own.
    """

    def __init__(self, url: str, *, token: str | None, timeout_s: float, retry_for_s: float):
        """Raises InvalidRequest for a URL of no use."""
        runtime = BlockingRuntime()
        endpoint = ServerEndpoint(url, token=token, timeout=timeout_s)
        if endpoint.scheme != HTTP:
            raise InvalidRequest(f"{url!r} is not a http:// address", details={"field": "url"})
        self._pool = SocketPool(endpoint, runtime)
        self._carrier = Carrier(self._pool, RetryPolicy(retry_for_s), lambda: runtime)
        weakref.finalize(self, self._pool.close_idle)

    def request(self, call: Call[T], *, patient: bool) -> T:
        """The result. A server that was never reached is an error at once, unless the caller is `patient`."""
        self._pool.reached |= patient
        return run_to_end(self._carrier.request(call))
