"""What one connection means, without its socket: frames in, frames out, subscriptions, and what they hold.

Frames are begun in the order in which they came, on the spot; answers leave as they are ready. Whatever a frame asks,
exactly one answer leaves. The socket's side says when output is paused and when the connection is over, and is told
what to send and when to close (`Outlet`): tests put a list in its place.

A connection that ends without saying `bye` may have taken a message down with it, so what its consumers held counts as
a failed attempt, as if the leases had run out, only at once; with `bye`, with `unsubscribe`, and where the server
itself is stopping, it is released as if it had not been delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from penstock import limits
from penstock._version import __version__
from penstock.eager import Suspended, begin
from penstock.errors import Conflict, Internal, InvalidRequest, PenstockError, Unavailable
from penstock.transports.http.fields import Fields
from penstock.transports.http.request import Request
from penstock.transports.outstanding import message_count
from penstock.transports.websocket.codec import Asked, Codec, FrameId, NotText, error_body
from penstock.transports.websocket.consumer import Consumer
from penstock.transports.websocket.reader import Reader
from penstock.wire import stream

if TYPE_CHECKING:
    from penstock.transports.websocket.sockets import WebSockets

_log = structlog.get_logger("penstock.websocket")


class Outlet(Protocol):
    """The socket's side."""

    def write(self, sealed: bytes) -> None: ...

    def close(self, close: stream.Close) -> None:
        """Say so to the client; the session is told by `ended` when it is over."""

    def freed(self) -> None:
        """There is room for requests again."""


class Session:
    """One connection."""

    __slots__ = ("_bye", "_finishing", "_over", "_paused", "_stopping", "_subs", "_tasks", "codec", "outlet", "sockets")

    def __init__(self, sockets: WebSockets, codec: Codec, outlet: Outlet):
        self.sockets = sockets
        self.codec = codec
        self.outlet = outlet
        self._subs: dict[str, Reader | Consumer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._paused = False
        self._stopping = False
        self._bye = False
        self._finishing = False
        self._over = False
        outlet.write(
            codec.encode(
                stream.Hello(
                    protocol=codec.protocol,
                    server=__version__,
                    ping_ms=limits.WEBSOCKET_PING_MS,
                    frame_bytes_max=codec.message_bytes_max,
                )
            )
        )

    @property
    def delivering(self) -> bool:
        """May subscriptions send?"""
        return not (self._paused or self._stopping or self._finishing or self._over)

    @property
    def busy(self) -> bool:
        """True while as many requests are under way as may be: read no more."""
        return len(self._tasks) >= limits.WEBSOCKET_REQUESTS_MAX

    @property
    def answering(self) -> bool:
        return bool(self._tasks)

    # -- frames in ----------------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """One message, whole."""
        if self._over:
            return
        try:
            frame = self.codec.decode(data)
        except NotText:
            self.outlet.close(stream.NOT_TEXT)
        except InvalidRequest as error:
            self._send(self.codec.error(self.codec.id_of(data), error))
        else:
            self._begin(self._answered(frame.id, _HANDLERS[type(frame)](self, frame)))

    async def _answered(self, id: FrameId, handling: Coroutine[Any, Any, None]) -> None:
        try:
            await handling
        except PenstockError as error:
            self._send(self.codec.error(id, error))
        except Exception:
            _log.exception("failed")
            self._send(self.codec.error(id, Internal("an unexpected error; the server's log has it")))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        begun = begin(work)
        if isinstance(begun, Suspended) and not self._tasks:
            # Who has one request under way waits for its answer; who has more would rather have them share a commit.
            self.sockets.commit_now()
            begun = begun.go_on()
        if isinstance(begun, Suspended):
            task = asyncio.get_running_loop().create_task(_wait_for(begun))
            self._tasks.add(task)
            task.add_done_callback(self._finished)
        elif self._stopping:
            self._leave_if_done()

    def _finished(self, task: asyncio.Task[None]) -> None:
        was_busy = self.busy
        self._tasks.discard(task)
        if self._over:
            return
        if was_busy or (self._finishing and not self._tasks):
            self.outlet.freed()
        if self._stopping:
            self._leave_if_done()

    async def _subscribe(self, frame: stream.Subscribe) -> None:
        if self._stopping:
            raise Unavailable("the server is stopping", retry_after_ms=1_000)
        if frame.name in self._subs:
            raise Conflict(
                f"there is a subscription {frame.name!r} on this connection; name this one by `sub`",
                details={"field": "sub"},
            )
        if len(self._subs) >= limits.WEBSOCKET_SUBSCRIPTIONS_MAX:
            raise Conflict(f"a connection has at most {limits.WEBSOCKET_SUBSCRIPTIONS_MAX} subscriptions")
        sub = (Reader if frame.role == "reader" else Consumer)(self, frame)
        self._subs[sub.name] = sub
        self.sockets.subscribed(sub.role, 1)
        try:
            subscribed = await sub.begin(frame)
        except BaseException:
            if self._subs.get(sub.name) is sub:
                self._drop(sub)
            raise
        if self._subs.get(sub.name) is not sub:
            sub.stop()  # unsubscribed while its places were looked up
            raise Conflict(f"{sub.name!r} was unsubscribed before it began", details={"field": "sub"})
        self._send(self.codec.encode(subscribed))
        sub.pump()

    async def _unsubscribe(self, frame: stream.Unsubscribe) -> None:
        sub = self._sub(frame.sub)
        self._drop(sub)
        released = 0
        if receipts := sub.held():
            results = await self.sockets.broker.release(receipts)
            released = sum(message_count(result.receipt) for result in results if result.status == "released")
        self._send(self.codec.encode(stream.Unsubscribed(id=frame.id, sub=frame.sub, released=released)))

    async def _credit(self, frame: stream.Credit) -> None:
        sub = self._sub(frame.sub)
        if not isinstance(sub, Consumer):
            raise InvalidRequest("readers need no credit", details={"field": "sub"})
        sub.grant(frame.credit)
        self._send(self.codec.encode(stream.Credited(id=frame.id, sub=sub.name, credit=sub.credit)))
        sub.pump()

    async def _ack(self, frame: stream.Ack) -> None:
        self._settled(frame.id, await self.sockets.broker.ack(frame.receipts))

    async def _nack(self, frame: stream.Nack) -> None:
        error = (frame.error or "")[: limits.ERROR_CHARS_MAX]
        results = await self.sockets.broker.nack(
            frame.receipts, delay_ms=frame.delay_ms, error=error, max_retries=frame.max_retries
        )
        self._settled(frame.id, results)

    async def _reject(self, frame: stream.Reject) -> None:
        error = (frame.error or "")[: limits.ERROR_CHARS_MAX]
        self._settled(frame.id, await self.sockets.broker.reject(frame.receipts, error=error))

    async def _release(self, frame: stream.Release) -> None:
        self._settled(frame.id, await self.sockets.broker.release(frame.receipts))

    async def _extend(self, frame: stream.Extend) -> None:
        self._settled(frame.id, await self.sockets.broker.extend(frame.receipts, lease_ms=frame.lease_ms))

    async def _ping(self, frame: stream.Ping) -> None:
        self._send(self.codec.encode(stream.Pong(id=frame.id)))

    async def _goodbye(self, frame: stream.Bye) -> None:  # noqa: ARG002
        self._bye = True
        self.outlet.close(stream.NORMAL)

    async def _call(self, asked: Asked) -> None:
        """As if it had come by HTTP: the same operations, the same refusals, the same counters."""
        headers = ((b"host", b"localhost"), (b"content-type", asked.content_type), (b"accept", asked.accept))
        request = Request(asked.method, asked.path, asked.query, Fields(headers), asked.body)
        answer = await self.sockets.respond(request)
        assert answer is not None, "nobody goes away in the middle of this"
        self._send(self.codec.answer(asked, answer))

    def _settled(self, id: FrameId, results: Any) -> None:
        self._send(self.codec.results(id, results))
        for sub in self._subs.values():
            if isinstance(sub, Consumer):
                sub.settled(results)

    def _sub(self, name: str) -> Reader | Consumer:
        sub = self._subs.get(name)
        if sub is None:
            raise InvalidRequest(f"there is no subscription {name!r} on this connection", details={"field": "sub"})
        return sub

    # -- frames out ---------------------------------------------------------------------------------------------------

    def _send(self, sealed: bytes) -> None:
        if not self._over:
            self.outlet.write(sealed)

    def deliver(self, sealed: bytes, role: str, count: int) -> None:
        """From a subscription, which has looked whether it may."""
        self.sockets.sent(role, count)
        self.outlet.write(sealed)

    def paused(self) -> None:
        """Output piles up. Nobody is given anything until it has gone."""
        self._paused = True
        for sub in self._subs.values():
            if isinstance(sub, Consumer):
                sub.pause()

    def resumed(self) -> None:
        self._paused = False
        for sub in list(self._subs.values()):
            sub.pump()

    # -- the end ------------------------------------------------------------------------------------------------------

    def end_subscription(self, sub: Reader | Consumer, error: PenstockError) -> None:
        """It cannot go on, and its client is told why."""
        if self._subs.get(sub.name) is sub:
            self._drop(sub)
            self.sockets.give_back(sub.held(), lost=False)
            self._send(self.codec.encode(stream.Ended(sub=sub.name, error=error_body(error))))

    def _drop(self, sub: Reader | Consumer) -> None:
        del self._subs[sub.name]
        sub.stop()
        self.sockets.subscribed(sub.role, -1)

    def drain(self) -> None:
        """Deliver nothing more; leave when everything held is settled, or when the time for that is up."""
        if self._stopping or self._over:
            return
        self._stopping = True
        for sub in self._subs.values():
            sub.stop()
        if self._done:
            self.outlet.close(stream.RESTART)
            return
        grace_ms = limits.WEBSOCKET_DRAIN_MS
        close = stream.RESTART
        self._send(self.codec.encode(stream.ByeFrame(code=close.code, reason=close.reason, grace_ms=grace_ms)))
        asyncio.get_running_loop().call_later(grace_ms / 1000, self._leave)

    def finish(self) -> None:
        """The client has begun to close: answer what is under way, and deliver nothing more."""
        self._finishing = True
        for sub in self._subs.values():
            sub.stop()

    @property
    def _done(self) -> bool:
        return not self._tasks and not any(isinstance(sub, Consumer) and sub.held_here for sub in self._subs.values())

    def _leave_if_done(self) -> None:
        if self._done:
            self._leave()

    def _leave(self) -> None:
        if not self._over:
            self.outlet.close(stream.RESTART)

    def ended(self) -> None:
        """The connection is over, or will not be used any more. Gives back what is held; once."""
        if self._over:
            return
        self._over = True
        for task in self._tasks:
            task.cancel()
        lost = not (self._bye or self._stopping)
        for sub in self._subs.values():
            sub.stop()
            self.sockets.subscribed(sub.role, -1)
            if isinstance(sub, Consumer) and not (lost and sub.when_lost == "keep"):
                self.sockets.give_back(sub.held(), lost=lost)
        self._subs.clear()


_HANDLERS: dict[type, Callable[[Session, Any], Coroutine[Any, Any, None]]] = {
    stream.Subscribe: Session._subscribe,
    stream.Unsubscribe: Session._unsubscribe,
    stream.Credit: Session._credit,
    stream.Ack: Session._ack,
    stream.Nack: Session._nack,
    stream.Reject: Session._reject,
    stream.Release: Session._release,
    stream.Extend: Session._extend,
    stream.Ping: Session._ping,
    stream.Bye: Session._goodbye,
    Asked: Session._call,
}


async def _wait_for(rest: Suspended[None]) -> None:
    await rest
