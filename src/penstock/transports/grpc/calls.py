"""The handlers of gRPC methods: they parse requests, map errors to statuses and count calls.

A PenstockError becomes its status of the contract; any other exception becomes INTERNAL without details. gRPC passes
requests as bytes, so that an unparsable request gets a status of the contract too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias
from urllib.parse import unquote

import grpc
import structlog
from google.protobuf.message import Message

from penstock import limits
from penstock.broker.audit import ORIGIN, Origin
from penstock.errors import Internal, InvalidRequest, PenstockError, TooLarge, Unauthenticated
from penstock.security.principal import Principal
from penstock.transports.auth import Authenticator, credential_of, settles
from penstock.transports.grpc.edge import GrpcEdge
from penstock.transports.grpc.error_status import abort_with, status_of
from penstock.transports.grpc.http_call import http_call
from penstock.transports.grpc.shapes import parse
from penstock.transports.http.in_process import InProcessHttp
from penstock.transports.http.request import Peer
from penstock.v1 import broker_pb2 as pb

_log = structlog.get_logger("penstock.grpc")

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Unary: TypeAlias = Callable[[GrpcEdge, Any, Context], Awaitable[Message | bytes]]
"""One request, one reply, which may be encoded bytes. Raises PenstockError."""


class StreamCredential:
    """The credential that a stream ends with; a request of the stream may bring another one."""

    def __init__(self, auth: Authenticator, principal: Principal, address: str, end: Callable[[], None]):
        """Raises RateLimited if the principal has too many streams."""
        self._auth = auth
        self._principal = principal
        self._address = address
        self._end = end
        self._close = auth.quotas.open_stream(principal)
        self._unfollow = auth.follow(principal, end)

    def renew(self, credential: str) -> pb.StreamRenewed:
        """Raises Unauthenticated, RateLimited or Forbidden, and the stream goes on as before."""
        principal = self._auth.renew(self._principal, credential, self._address)
        self._unfollow()
        self._unfollow = self._auth.follow(principal, self._end)
        return pb.StreamRenewed(expires_at_ms=principal.expires_at_ms or None)

    def charge(self, *, settles: bool = False) -> None:
        """Count a request of the stream. Raises RateLimited, unless it settles messages."""
        self._auth.quotas.demand_request(self._principal, settles=settles)

    def open_queue(self, queue: str) -> Callable[[], None]:
        """Count the stream for its queue. Returns the function that ends that. Raises RateLimited."""
        return self._auth.quotas.open_queue_stream(queue)

    def stop(self) -> None:
        self._unfollow()
        self._close()


def renewed(credential: StreamCredential | None, text: str) -> pb.StreamRenewed:
    """The answer to a request that brings another credential."""
    if credential is None:
        raise InvalidRequest("this server asks for no credentials, so there is none to renew")
    return credential.renew(text)


Stream: TypeAlias = Callable[[GrpcEdge, Context, StreamCredential | None], Awaitable[None]]
"""Reads requests from the context and writes replies to it until the stream ends. None: there are no credentials."""
Replies: TypeAlias = Callable[[GrpcEdge, Any, Context], Awaitable[None]]
"""One request; writes to the context."""


class CallHandlers:
    """Creates the handlers that gRPC calls, and keeps the running calls."""

    def __init__(self, edge: GrpcEdge):
        self._edge = edge
        self._open: set[asyncio.Task[Any]] = set()

    async def wait_ended(self, within_s: float) -> None:
        """Wait until all running calls have ended, at most `within_s`."""
        if self._open:
            await asyncio.wait(set(self._open), timeout=within_s)

    def unary(self, name: str, kind: type[Message], handle: Unary, size_max: int) -> Any:
        async def call(data: bytes, context: Context) -> bytes | None:
            async with self._track_call(name, context) as (edge, _):
                reply = await handle(edge, parse(kind, data, size_max), context)
                return reply if isinstance(reply, bytes) else _encoded(reply)
            return None

        return grpc.unary_unary_rpc_method_handler(call)

    def http(self, http: InProcessHttp) -> Any:
        """`Call`: the credential is checked by HTTP, and a refusal is a reply."""

        async def call(data: bytes, context: Context) -> bytes | None:
            async with self._track_call("call", context, authenticates=False):
                headers, peer = _client_of(context, self._edge.auth)
                return await http_call(http, parse(pb.CallRequest, data, 2 * limits.REQUEST_BYTES_MAX), headers, peer)
            return None

        return grpc.unary_unary_rpc_method_handler(call)

    def replies(self, name: str, kind: type[Message], handle: Replies) -> Any:
        async def call(data: bytes, context: Context) -> None:
            async with self._track_call(name, context, stream=True) as (edge, _):
                await handle(edge, parse(kind, data), context)

        return grpc.unary_stream_rpc_method_handler(call)

    def stream(self, name: str, handle: Stream) -> Any:
        async def call(requests: object, context: Context) -> None:  # noqa: ARG001
            async with self._track_call(name, context, stream=True) as (edge, credential):
                await handle(edge, context, credential)

        return grpc.stream_stream_rpc_method_handler(call)

    @asynccontextmanager
    async def _track_call(
        self, name: str, context: Context, *, stream: bool = False, authenticates: bool = True
    ) -> AsyncIterator[tuple[GrpcEdge, StreamCredential | None]]:
        """The edge of the call's principal. A stream ends with its credential."""
        task = asyncio.current_task()
        assert task is not None, "gRPC runs every call in a task"
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        status = grpc.StatusCode.OK
        actor, began = "", self._edge.clock.monotonic()
        error: PenstockError | None = None
        ended = False

        def end() -> None:
            nonlocal ended
            ended = True
            task.cancel()

        stop: Callable[[], None] | None = None
        try:
            auth = self._edge.auth
            if auth is None or not authenticates:
                yield self._edge, None
            else:
                principal, address = _authenticated(auth, context, settles=settles(name))
                actor = f"{principal.kind}:{principal.name}"
                auth.quotas.demand_request(principal, settles=settles(name))
                held: StreamCredential | None = None
                if stream:
                    held = StreamCredential(auth, principal, address, end)
                    stop = held.stop
                elif name == "lease":
                    stop = auth.follow(principal, end)
                yield self._edge.edge_for(principal), held
        except PenstockError as refusal:
            error = refusal
        except asyncio.CancelledError:
            # The client cancelled the call, its deadline passed, its connection was lost, or its credential ended.
            if ended:
                error = Unauthenticated("this credential has ended")
                task.uncancel()
            else:
                self._edge.metrics.called(name, grpc.StatusCode.CANCELLED.name)
                raise
        except Exception:
            _log.exception("grpc_call_failed", operation=name)
            error = Internal("an unexpected error; the server's log has it")
        finally:
            if stop is not None:
                stop()
        if error is not None:
            status = status_of(error)
        self._edge.metrics.called(name, status.name)
        if self._edge.metrics.log_call is not None:
            self._edge.metrics.log_call(name, status.name, self._edge.clock.monotonic() - began, actor)
        if error is not None:
            await abort_with(context, error)


def _authenticated(auth: Authenticator, context: Context, *, settles: bool) -> tuple[Principal, str]:
    """The principal and the address of a call. Raises Unauthenticated or RateLimited."""
    headers, peer = _client_of(context, auth)
    ORIGIN.set(Origin(peer.address))
    principal = auth.authenticate(credential_of(headers), peer.address, peer.certificate, settles=settles)
    return principal, peer.address


def _client_of(context: Context, auth: Authenticator | None) -> tuple[list[tuple[bytes, bytes]], Peer]:
    """The metadata of a call, as headers, and the client behind it. Raises Unauthenticated for a certificate that is
    revoked: gRPC does not look at revocation lists in the handshake."""
    shown = context.auth_context()
    if auth is not None and any(map(auth.is_revoked, shown.get("x509_pem_cert", ()))):
        raise Unauthenticated("this client certificate is revoked")
    headers = [
        (name.encode(), value if isinstance(value, bytes) else value.encode("latin-1"))
        for name, value in context.invocation_metadata() or ()
    ]
    names = (*shown.get("peer_uri", ()), *shown.get("peer_dns", ()))
    address = unquote(context.peer() or "").partition(":")[2].rpartition(":")[0]
    peer = Peer(address.strip("[]"), tuple(name.decode() for name in names))
    return headers, peer if auth is None else auth.client_behind(peer, headers)


def _encoded(reply: Message) -> bytes:
    data = reply.SerializeToString()
    if len(data) > limits.GRPC_REPLY_BYTES_MAX:
        raise TooLarge(
            f"the reply would have {len(data)} bytes, more than the {limits.GRPC_REPLY_BYTES_MAX} that every client "
            "accepts; request less at once"
        )
    return data
