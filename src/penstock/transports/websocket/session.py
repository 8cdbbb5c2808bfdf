"""The session of one connection, without its socket: frames, subscriptions, leases.

Frames are handled in the order of arrival; replies are sent when they are ready. Every frame has exactly one reply. The
socket calls the session when output is paused and when the connection has ended; the session calls the socket
(`SessionSocket`) to write and to close.

If a connection ends without a `bye` frame, one of its messages may have crashed the client. So its leases are nacked:
the attempt counts, and the messages are retried without waiting for the deadline. After `bye` or `unsubscribe`, and if
the server stops, the leases are released and the attempt does not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from penstock import limits
from penstock._version import __version__
from penstock.broker.outstanding import message_count
from penstock.eager import Suspended, begin
from penstock.errors import Conflict, Internal, InvalidRequest, PenstockError, Unavailable
from penstock.transports.http.fields import Fields
from penstock.transports.http.request import Request
from penstock.transports.websocket.codec import Codec, FrameId, HttpCall, InvalidUtf8, error_body
from penstock.transports.websocket.consumer import ConsumerSubscription
from penstock.transports.websocket.reader import ReaderSubscription
from penstock.wire import stream
from penstock.wire.parse import parse_queue

if TYPE_CHECKING:
    from penstock.security.principal import Principal
    from penstock.transports.auth import Authenticator
    from penstock.transports.websocket.sockets import Admitted, WebSockets

_log = structlog.get_logger("penstock.websocket")


class SessionSocket(Protocol):
    """The methods of a connection that a session needs."""

    def write(self, frame: bytes) -> None: ...

    def close(self, close: stream.Close) -> None:
        """Start the closing handshake. The socket calls `ended` of the session."""

    def freed(self) -> None:
        """The session accepts requests again."""

    def follow(self, auth: Authenticator, principal: Principal) -> None:
        """Close when this principal is accepted no longer."""


class WebSocketSession:
    """One connection."""

    __slots__ = (
        "_admitted", "_bye", "_closes", "_finishing", "_over", "_paused", "_stopping", "_subs", "_tasks", "broker",
        "codec", "socket", "sockets",
    )  # fmt: skip

    def __init__(self, sockets: WebSockets, codec: Codec, socket: SessionSocket, admitted: Admitted | None = None):
        self.sockets = sockets
        self.broker = sockets.broker if admitted is None else admitted.broker
        self._admitted = admitted
        self.codec = codec
        self.socket = socket
        self._subs: dict[str, ReaderSubscription | ConsumerSubscription] = {}
        self._closes: dict[str, list[Callable[[], None]]] = {}
        """Of the subscriptions that are counted as streams of their queues."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._paused = False
        self._stopping = False
        self._bye = False
        self._finishing = False
        self._over = False
        socket.write(
            codec.encode(
                stream.Hello(
                    protocol=codec.protocol,
                    server=__version__,
                    ping_ms=limits.WEBSOCKET_PING_MS,
                    frame_bytes_max=codec.message_bytes_max,
                    expires_at_ms=None if admitted is None else admitted.principal.expires_at_ms or None,
                )
            )
        )

    @property
    def delivering(self) -> bool:
        """True if subscriptions may send."""
        return not (self._paused or self._stopping or self._finishing or self._over)

    @property
    def busy(self) -> bool:
        """True while the number of running requests is at its limit."""
        return len(self._tasks) >= limits.WEBSOCKET_REQUESTS_MAX

    @property
    def answering(self) -> bool:
        return bool(self._tasks)

    # -- frames in ----------------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Handle one complete message."""
        if self._over:
            return
        try:
            frame = self.codec.decode(data)
        except InvalidUtf8:
            self.socket.close(stream.NOT_TEXT)
        except InvalidRequest as error:
            self._send(self.codec.error(self.codec.id_of(data), error))
        else:
            self._begin(self._answered(frame))

    async def _answered(self, frame: Any) -> None:
        try:
            if self._admitted is not None and type(frame) in _COUNTED:
                self._admitted.auth.quotas.demand_request(self._admitted.principal, settles=_COUNTED[type(frame)])
            await _HANDLERS[type(frame)](self, frame)
        except PenstockError as error:
            self._send(self.codec.error(frame.id, error))
        except Exception:
            _log.exception("websocket_frame_failed")
            self._send(self.codec.error(frame.id, Internal("an unexpected error; the server's log has it")))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        begun = begin(work)
        if isinstance(begun, Suspended) and not self._tasks:
            # A client with one request waits for its reply; several requests share a commit.
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
            self.socket.freed()
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
        sub = (ReaderSubscription if frame.role == "reader" else ConsumerSubscription)(self, frame)
        if self._admitted is not None:
            self._closes[sub.name] = self._open_streams(self._admitted.auth, frame)
        self._subs[sub.name] = sub
        self.sockets.subscribed(sub.role, 1)
        try:
            subscribed = await sub.begin(frame)
        except BaseException:
            if self._subs.get(sub.name) is sub:
                self._drop(sub)
            raise
        if self._subs.get(sub.name) is not sub:
            sub.stop()  # an unsubscribe frame arrived during `begin`
            raise Conflict(f"{sub.name!r} was unsubscribed before it started", details={"field": "sub"})
        self._send(self.codec.encode(subscribed))
        sub.pump()

    def _open_streams(self, auth: Authenticator, frame: stream.Subscribe) -> list[Callable[[], None]]:
        """Count the subscription as a stream of its queues. Raises RateLimited."""
        opened: list[Callable[[], None]] = []
        try:
            for queue in frame.queues or ([frame.queue] if frame.queue is not None else []):
                opened.append(auth.quotas.open_queue_stream(parse_queue(queue)))
        except PenstockError:
            for close in opened:
                close()
            raise
        return opened

    async def _unsubscribe(self, frame: stream.Unsubscribe) -> None:
        sub = self._sub(frame.sub)
        self._drop(sub)
        released = 0
        if receipts := sub.outstanding_receipts():
            results = await self.broker.messages.release(receipts)
            released = sum(message_count(result.receipt) for result in results if result.status == "released")
        self._send(self.codec.encode(stream.Unsubscribed(id=frame.id, sub=frame.sub, released=released)))

    async def _credit(self, frame: stream.Credit) -> None:
        sub = self._sub(frame.sub)
        if not isinstance(sub, ConsumerSubscription):
            raise InvalidRequest("readers need no credit", details={"field": "sub"})
        sub.grant(frame.credit)
        self._send(self.codec.encode(stream.Credited(id=frame.id, sub=sub.name, credit=sub.credit)))
        sub.pump()

    async def _ack(self, frame: stream.AckFrame) -> None:
        self._settled(frame.id, await self.broker.messages.ack(frame.receipts))

    async def _nack(self, frame: stream.NackFrame) -> None:
        error = (frame.error or "")[: limits.ERROR_CHARS_MAX]
        results = await self.broker.messages.nack(
            frame.receipts, delay_ms=frame.delay_ms, error=error, max_retries=frame.max_retries
        )
        self._settled(frame.id, results)

    async def _reject(self, frame: stream.RejectFrame) -> None:
        error = (frame.error or "")[: limits.ERROR_CHARS_MAX]
        self._settled(frame.id, await self.broker.messages.reject(frame.receipts, error=error))

    async def _release(self, frame: stream.ReleaseFrame) -> None:
        self._settled(frame.id, await self.broker.messages.release(frame.receipts))

    async def _extend(self, frame: stream.ExtendFrame) -> None:
        self._settled(frame.id, await self.broker.messages.extend(frame.receipts, lease_ms=frame.lease_ms))

    async def _ping(self, frame: stream.Ping) -> None:
        self._send(self.codec.encode(stream.Pong(id=frame.id)))

    async def _renew(self, frame: stream.Renew) -> None:
        if self._admitted is None:
            raise InvalidRequest("this server asks for no credentials, so there is none to renew")
        auth, peer = self._admitted.auth, self._admitted.peer
        principal = auth.renew(self._admitted.principal, frame.credential, peer.address)
        self.socket.follow(auth, principal)
        self._send(self.codec.encode(stream.Renewed(id=frame.id, expires_at_ms=principal.expires_at_ms or None)))

    async def _bye_frame(self, frame: stream.Bye) -> None:  # noqa: ARG002
        self._bye = True
        self.socket.close(stream.NORMAL)

    async def _call(self, asked: HttpCall) -> None:
        """Handle the request as HTTP does: the same operations, errors and counters."""
        headers = ((b"host", b"localhost"), (b"content-type", asked.content_type), (b"accept", asked.accept))
        request = Request(asked.method, asked.path, asked.query, Fields(headers), asked.body)
        if self._admitted is not None:
            request.principal, request.peer = self._admitted.principal, self._admitted.peer
            request.in_session = True
        answer = await self.sockets.respond(request)
        assert answer is not None, "`_never` reports no disconnect"
        self._send(self.codec.answer(asked, answer))

    def _settled(self, id: FrameId, results: Any) -> None:
        self._send(self.codec.results(id, results))
        for sub in self._subs.values():
            if isinstance(sub, ConsumerSubscription):
                sub.settled(results)

    def _sub(self, name: str) -> ReaderSubscription | ConsumerSubscription:
        sub = self._subs.get(name)
        if sub is None:
            raise InvalidRequest(f"there is no subscription {name!r} on this connection", details={"field": "sub"})
        return sub

    # -- frames out ---------------------------------------------------------------------------------------------------

    def _send(self, frame: bytes) -> None:
        if not self._over:
            self.socket.write(frame)

    def deliver(self, frame: bytes, role: str, count: int) -> None:
        """Write a frame of a subscription. The subscription has checked `delivering`."""
        self.sockets.sent(role, count)
        self.socket.write(frame)

    def paused(self) -> None:
        """The output is paused: consumers cancel their lease calls."""
        self._paused = True
        for sub in self._subs.values():
            if isinstance(sub, ConsumerSubscription):
                sub.pause()

    def resumed(self) -> None:
        self._paused = False
        for sub in list(self._subs.values()):
            sub.pump()

    # -- closing ------------------------------------------------------------------------------------------------------

    def end_subscription(self, sub: ReaderSubscription | ConsumerSubscription, error: PenstockError) -> None:
        """End a subscription after an error and send the error to the client."""
        if self._subs.get(sub.name) is sub:
            self._drop(sub)
            self.sockets.return_leases(sub.outstanding_receipts(), lost=False)
            self._send(self.codec.encode(stream.Ended(sub=sub.name, error=error_body(error))))

    def _drop(self, sub: ReaderSubscription | ConsumerSubscription) -> None:
        del self._subs[sub.name]
        self._close_streams(sub.name)
        sub.stop()
        self.sockets.subscribed(sub.role, -1)

    def _close_streams(self, name: str) -> None:
        for close in self._closes.pop(name, ()):
            close()

    def drain(self) -> None:
        """Stop deliveries. Close when all delivered messages are settled, or when the grace time is over."""
        if self._stopping or self._over:
            return
        self._stopping = True
        for sub in self._subs.values():
            sub.stop()
        if self._done:
            self.socket.close(stream.RESTART)
            return
        grace_ms = limits.WEBSOCKET_DRAIN_MS
        close = stream.RESTART
        self._send(self.codec.encode(stream.ByeFrame(code=close.code, reason=close.reason, grace_ms=grace_ms)))
        asyncio.get_running_loop().call_later(grace_ms / 1000, self._leave)

    def finish(self) -> None:
        """The client is closing: send the pending replies and deliver nothing more."""
        self._finishing = True
        for sub in self._subs.values():
            sub.stop()

    @property
    def _done(self) -> bool:
        return not self._tasks and not any(
            isinstance(sub, ConsumerSubscription) and sub.outstanding for sub in self._subs.values()
        )

    def _leave_if_done(self) -> None:
        if self._done:
            self._leave()

    def _leave(self) -> None:
        if not self._over:
            self.socket.close(stream.RESTART)

    def ended(self) -> None:
        """The connection has ended: cancel its requests and settle its leases. Later calls do nothing."""
        if self._over:
            return
        self._over = True
        for task in self._tasks:
            task.cancel()
        lost = not (self._bye or self._stopping)
        for sub in self._subs.values():
            sub.stop()
            self._close_streams(sub.name)
            self.sockets.subscribed(sub.role, -1)
            if isinstance(sub, ConsumerSubscription) and not (lost and sub.when_lost == "keep"):
                self.sockets.return_leases(sub.outstanding_receipts(), lost=lost)
        self._subs.clear()


_COUNTED: dict[type, bool] = {
    stream.Subscribe: False,
    **dict.fromkeys(
        (stream.AckFrame, stream.NackFrame, stream.RejectFrame, stream.ReleaseFrame, stream.ExtendFrame), True
    ),
}
"""Frames that count as requests, and whether they settle messages. A call is counted as the request that it is."""

_HANDLERS: dict[type, Callable[[WebSocketSession, Any], Coroutine[Any, Any, None]]] = {
    stream.Subscribe: WebSocketSession._subscribe,
    stream.Unsubscribe: WebSocketSession._unsubscribe,
    stream.Credit: WebSocketSession._credit,
    stream.AckFrame: WebSocketSession._ack,
    stream.NackFrame: WebSocketSession._nack,
    stream.RejectFrame: WebSocketSession._reject,
    stream.ReleaseFrame: WebSocketSession._release,
    stream.ExtendFrame: WebSocketSession._extend,
    stream.Ping: WebSocketSession._ping,
    stream.Renew: WebSocketSession._renew,
    stream.Bye: WebSocketSession._bye_frame,
    HttpCall: WebSocketSession._call,
}


async def _wait_for(rest: Suspended[None]) -> None:
    await rest
