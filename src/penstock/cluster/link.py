"""The calls of this process to another process of the same store.

A `Link` has one connection at a time, and opens the next one when it has ended. A call that is made without a
connection is held for a moment, because a process that ended is usually replaced within a second. A call that was sent
when its connection ended has an unknown outcome: it fails, unless it may be repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from penstock import limits
from penstock.broker.routing import Arguments, Options
from penstock.broker.types import LeaseReply
from penstock.cluster.codec import codec_of, decode_error
from penstock.cluster.frames import Kind, LinkProtocol, call_body
from penstock.cluster.watches import WATCHES
from penstock.errors import PenstockError, Unavailable
from penstock.logs import get_logger
from penstock.pending import PendingReply

_log = get_logger("penstock.cluster")

REPEATABLE = frozenset(
    {
        "messages.lease", "messages.lease_scope", "messages.queues_of", "messages.scope_head", "log.read", "log.peek",
        "log.extent", "queues.get", "queues.list", "queues.paths", "queues.placement", "stats.queue", "stats.rows",
        "stats.summary", "stats.consumers", "groups.list", "scheduled.page", "schedules.get", "schedules.list",
        "schedules.has", "webhooks.get", "webhooks.list", "holds.list", "redrives.list", "dead_letters.page",
        "letter_groups.largest", "events.read", "events.read_bulk", "events.ranges", "events.history",
        "explanations.explain", "series.read", "series.recent", "readers.get", "autoscale.signal",
    }
)  # fmt: skip
"""Methods that may be called again if the reply is missing: they look, or what they grant ends with the process."""

Connect = Callable[[Callable[[], LinkProtocol]], Awaitable[Any]]
"""Opens a connection with this protocol."""


class _Call:
    def __init__(self, shard: int, method: str, body: bytes, reply: PendingReply[Any], *, repeatable: bool):
        self.shard = shard
        self.method = method
        self.body = body
        self.reply = reply
        self.repeatable = repeatable
        self.sent = False
        self.held_since = 0.0


class _Watch:
    def __init__(self, method: str, body: bytes, notify: Callable[..., None]):
        self.method = method
        self.body = body
        self.notify = notify


class Link:
    """Calls to one process."""

    def __init__(self, connect: Connect, name: str):
        """`name` is that of the process, for errors and log lines."""
        self._connect = connect
        self._name = name
        self._numbers = 0
        self._calls: dict[int, _Call] = {}
        """Sent or held, in the order of their numbers."""
        self._watches: dict[int, _Watch] = {}
        self._connection: _Connection | None = None
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self._sweep: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._keep_connected())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("link_failed", peer=self._name, exc_info=error)

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    async def close(self) -> None:
        """Calls that have no reply fail."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._sweep is not None:
            self._sweep.cancel()
        if self._connection is not None:
            self._connection.close()
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.reply.fail(self._not_sent() if not call.sent else self._unknown())

    # -- calls --------------------------------------------------------------------------------------------------------

    def call(self, shard: int, method: str, arguments: Arguments, options: Options, *, routed: bool) -> Any:
        """A pending reply; for a method that watches, the function that ends the watch."""
        if method in WATCHES:
            return self._watch(shard, method, arguments, routed=routed)
        codec = codec_of(method)
        body = call_body(shard, method, codec.encode_arguments(arguments, options), routed=routed)
        reply: PendingReply[Any] = PendingReply()
        repeatable = method in REPEATABLE and not options.get("ack")
        call = _Call(shard, method, body, reply, repeatable=repeatable)
        self._numbers = number = self._numbers + 1
        if self._closed:
            reply.fail(self._not_sent())
            return reply
        self._calls[number] = call
        reply.on_cancel = partial(self._cancelled, number)
        reply.on_withdraw = partial(self._withdrawn, number)
        if self._connection is not None:
            call.sent = True
            self._connection.send(Kind.CALL, number, body)
        else:
            self._hold(call)
        return reply

    def _cancelled(self, number: int) -> None:
        """The call stays known until it is answered: the reply may be under way, with messages to return."""
        call = self._calls.get(number)
        if call is None:
            return
        call.repeatable = False
        if call.sent and self._connection is not None:
            self._connection.send(Kind.CANCEL, number)
        else:
            del self._calls[number]

    def _withdrawn(self, number: int) -> None:
        call = self._calls.get(number)
        if call is None:
            return
        if call.sent and self._connection is not None:
            self._connection.send(Kind.WITHDRAW, number)
        else:
            del self._calls[number]
            call.reply.fail(self._not_sent())

    def _give_back(self, shard: int, lease: LeaseReply) -> None:
        """Return the messages of a lease whose caller went away, by way of the process that answered it: they may be of
        a shard that this process itself serves."""
        receipts = [
            f"{run.receipt}{run.offset}-{run.offset + run.count - 1}" for run in lease.runs if run.receipt is not None
        ]
        if receipts:
            self.call(shard, "messages.release", (receipts,), {}, routed=True)

    def received(self, kind: Kind, number: int, body: bytes) -> None:
        """A frame from the other process."""
        if kind is Kind.NOTICE:
            watch = self._watches.get(number)
            if watch is not None:
                WATCHES[watch.method].notify(watch.notify, body)
            return
        call = self._calls.pop(number, None)
        if call is None:
            return
        reply = call.reply
        reply.on_withdraw = None
        if kind is Kind.ERROR:
            reply.on_cancel = None
            reply.fail(decode_error(body))
            return
        value = codec_of(call.method).decode_reply(body)
        if isinstance(value, LeaseReply) and value.runs:
            if reply.cancelled():
                self._give_back(call.shard, value)
                return
            reply.on_cancel = partial(self._give_back, call.shard, value)
        else:
            reply.on_cancel = None
        reply.complete(value)

    # -- watches ------------------------------------------------------------------------------------------------------

    def _watch(self, shard: int, method: str, arguments: Arguments, *, routed: bool) -> Callable[[], None]:
        *others, notify = arguments
        codec = codec_of(method)
        body = call_body(shard, method, codec.encode_arguments(tuple(others), {}), routed=routed)
        self._numbers = number = self._numbers + 1
        self._watches[number] = _Watch(method, body, notify)
        if self._connection is not None:
            self._connection.send(Kind.WATCH, number, body)

        def stop() -> None:
            if self._watches.pop(number, None) is not None and self._connection is not None:
                self._connection.send(Kind.CANCEL, number)

        return stop

    # -- the connection -----------------------------------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        wait_s = limits.LINK_RETRY_S
        while True:
            connection = _Connection(self)
            try:
                await self._connect(partial(_same, connection))
            except OSError:
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, limits.LINK_RETRY_S_MAX)
                continue
            wait_s = limits.LINK_RETRY_S
            self._connected(connection)
            await connection.ended.wait()
            self._disconnected()

    def _connected(self, connection: _Connection) -> None:
        _log.info("link_connected", peer=self._name)
        self._connection = connection
        for number, watch in self._watches.items():
            connection.send(Kind.WATCH, number, watch.body)
        for number, call in self._calls.items():
            call.sent = True
            connection.send(Kind.CALL, number, call.body)

    def _disconnected(self) -> None:
        _log.warning("link_disconnected", peer=self._name, calls=len(self._calls))
        self._connection = None
        calls, self._calls = self._calls, {}
        for number, call in calls.items():
            if call.repeatable:
                call.sent = False
                self._calls[number] = call
                self._hold(call)
            else:
                call.reply.fail(self._unknown())
        for watch in list(self._watches.values()):
            WATCHES[watch.method].interrupted(watch.notify)

    def _hold(self, call: _Call) -> None:
        loop = asyncio.get_running_loop()
        call.held_since = loop.time()
        if self._sweep is None:
            self._sweep = loop.call_later(limits.LINK_HELD_S, self._give_up)

    def _give_up(self) -> None:
        """Refuse the calls that were held for too long."""
        self._sweep = None
        loop = asyncio.get_running_loop()
        for number, call in list(self._calls.items()):
            if call.sent:
                continue
            left = call.held_since + limits.LINK_HELD_S - loop.time()
            if left > 0:
                self._sweep = loop.call_later(left, self._give_up)
                return
            del self._calls[number]
            call.reply.fail(self._not_sent())

    def _not_sent(self) -> PenstockError:
        return Unavailable(f"{self._name}, which serves this shard, cannot be reached", retry_after_ms=1_000)

    def _unknown(self) -> PenstockError:
        return Unavailable(
            f"{self._name}, which serves this shard, ended during the call", details={"outcome": "unknown"},
            retry_after_ms=1_000,
        )  # fmt: skip


class _Connection(LinkProtocol):
    def __init__(self, link: Link):
        super().__init__()
        self._link = link
        self.ended = asyncio.Event()

    def frame_received(self, kind: Kind, number: int, body: bytes) -> None:
        self._link.received(kind, number, body)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self.ended.set()


def _same(connection: _Connection) -> _Connection:
    return connection


class RemoteShard:
    """A shard that another process serves, for the router."""

    is_here = False

    def __init__(self, number: int, link: Link):
        self.number = number
        self._link = link

    def call(self, method: str, arguments: Arguments, options: Options) -> Any:
        return self._link.call(self.number, method, arguments, options, routed=False)

    def route(self, method: str, arguments: Arguments, options: Options) -> Any:
        """Make the call by its route, in the process of this shard."""
        return self._link.call(self.number, method, arguments, options, routed=True)
