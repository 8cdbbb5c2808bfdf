"""The other end of a link: calls of other processes to the shards of this one.

The connection is as trusted as the store: only processes of the same store reach it, and permission was checked where
the request came in. If a caller does not read its replies, no further calls are taken from it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, cast

from penstock.broker.router import Router
from penstock.broker.routes import ROUTES
from penstock.cluster.codec import codec_of, encode_error
from penstock.cluster.frames import Kind, LinkProtocol, read_call
from penstock.cluster.watches import WATCHES
from penstock.errors import PenstockError, Unavailable
from penstock.logs import get_logger
from penstock.pending import PendingReply

_log = get_logger("penstock.cluster")
_CANCELLED = Unavailable("the caller has cancelled this call")


class LinkOwner:
    """Makes the calls that arrive over all connections."""

    def __init__(self, router: Router, commit_now: Callable[[], None]):
        self._router = router
        self.commit_now = commit_now
        self.connections: set[OwnerConnection] = set()

    def connection(self) -> OwnerConnection:
        """A protocol for a new connection."""
        return OwnerConnection(self)

    def close(self) -> None:
        for connection in list(self.connections):
            connection.close()

    def perform(self, shard: int, routed: bool, method: str, arguments: Any, options: Any) -> Any:
        if not self._router.is_here(shard):
            raise Unavailable(f"shard {shard} is served by another process", retry_after_ms=100)
        if routed:
            return ROUTES[method](self._router, method, arguments, options)
        return self._router.call(shard, method, arguments, options)


class OwnerConnection(LinkProtocol):
    def __init__(self, owner: LinkOwner):
        super().__init__()
        self._owner = owner
        self._running: dict[int, PendingReply[Any] | asyncio.Future[Any]] = {}
        self._stops: dict[int, Callable[[], None]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._owner.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        """The caller is gone: leases that wait end, and messages that were granted meanwhile are returned."""
        self._owner.connections.discard(self)
        running, self._running = self._running, {}
        for reply in running.values():
            reply.cancel()
        stops, self._stops = self._stops, {}
        for stop in stops.values():
            stop()

    def pause_writing(self) -> None:
        cast(asyncio.ReadTransport, self._transport).pause_reading()

    def resume_writing(self) -> None:
        cast(asyncio.ReadTransport, self._transport).resume_reading()

    # -- frames -------------------------------------------------------------------------------------------------------

    def frame_received(self, kind: Kind, number: int, body: bytes) -> None:
        if kind is Kind.CALL:
            self._call(number, body)
        elif kind is Kind.WATCH:
            self._watch(number, body)
        elif kind is Kind.CANCEL:
            reply = self._running.get(number)
            if reply is not None:
                reply.cancel()
            stop = self._stops.pop(number, None)
            if stop is not None:
                stop()
        elif kind is Kind.WITHDRAW:
            waiting = self._running.get(number)
            if isinstance(waiting, PendingReply):
                waiting.withdraw()

    def chunk_ended(self) -> None:
        self._owner.commit_now()

    def _call(self, number: int, body: bytes) -> None:
        shard, routed, method, encoded = read_call(body)
        codec = codec_of(method)
        try:
            arguments, options = codec.decode_arguments(encoded)
            result = self._owner.perform(shard, routed, method, arguments, options)
        except Exception as error:
            self._refuse(number, method, error)
            return
        if isinstance(result, PendingReply):
            self._running[number] = result
            result.then(codec.encode_reply).deliver(lambda reply: self._done(number, method, reply))
        elif inspect.isawaitable(result):
            task = self._running[number] = asyncio.ensure_future(result)
            task.add_done_callback(lambda task: self._task_done(number, method, task))
        else:
            self.send(Kind.REPLY, number, codec.encode_reply(result))

    def _done(self, number: int, method: str, reply: PendingReply[bytes]) -> None:
        self._running.pop(number, None)
        if reply.cancelled():
            self._refuse(number, method, _CANCELLED)
            return
        try:
            self.send(Kind.REPLY, number, reply.result())
        except Exception as error:
            self._refuse(number, method, error)

    def _task_done(self, number: int, method: str, task: asyncio.Future[Any]) -> None:
        self._running.pop(number, None)
        if task.cancelled():
            self._refuse(number, method, _CANCELLED)
            return
        error = task.exception()
        if error is None:
            self.send(Kind.REPLY, number, codec_of(method).encode_reply(task.result()))
        elif isinstance(error, Exception):
            self._refuse(number, method, error)

    def _watch(self, number: int, body: bytes) -> None:
        shard, routed, method, encoded = read_call(body)
        arguments, _ = codec_of(method).decode_arguments(encoded)
        encode = WATCHES[method].encode

        def notify(argument: Any) -> None:
            self.send(Kind.NOTICE, number, encode(argument))

        try:
            self._stops[number] = self._owner.perform(shard, routed, method, (*arguments, notify), {})
        except PenstockError as error:
            if method == "log.watch":
                self.send(Kind.NOTICE, number, encode(None))  # the next read of the watcher says why
            elif method == "log.watch_end":
                self.send(Kind.NOTICE, number, encode(error))
            else:
                _log.warning("watch_refused", method=method, reason=error.message)

    def _refuse(self, number: int, method: str, error: Exception) -> None:
        if not isinstance(error, PenstockError):
            _log.error("forwarded_call_failed", method=method, exc_info=error)
        self.send(Kind.ERROR, number, encode_error(error))
