"""One complete HTTP request: its headers and its body."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock import limits
from penstock.errors import InvalidRequest, TooLarge, UnsupportedMediaType
from penstock.pending import PendingReply
from penstock.transports.http.fields import Fields

if TYPE_CHECKING:
    from penstock.broker.types import DeliveredRun
    from penstock.security.principal import Principal

_PROTO_HTTPS = re.compile(rb'(?:^|[;,\s])proto="?https', re.IGNORECASE)
JSON_TYPE = b"application/json"
FORM_TYPE = b"application/x-www-form-urlencoded"
BATCH_TYPE = b"application/vnd.penstock.batch"


class ClientGone(Exception):
    """The client closed the connection: no answer can reach it."""


class ClientHalfClosed(ClientGone):
    """The client closed its half of the connection. It may still read an answer."""


class Peer(NamedTuple):
    """The client side of a connection."""

    address: str
    certificate: tuple[str, ...] = ()
    """The names of the client certificate, if there is one."""
    secure: bool = False
    """The connection has TLS."""


UNKNOWN_PEER = Peer("")


def peer_of(transport: asyncio.BaseTransport) -> Peer:
    """The common name of a certificate is no identity: only its URI and DNS names are."""
    address = transport.get_extra_info("peername")
    certificate = transport.get_extra_info("peercert") or {}
    names = [name for kind, name in certificate.get("subjectAltName", ()) if kind in ("URI", "DNS")]
    secure = transport.get_extra_info("ssl_object") is not None
    return Peer(str(address[0]) if address else "", tuple(names), secure)


class LeaseTrace(Protocol):
    """The trace of a request that is sampled."""

    def leased(self, runs: Sequence[DeliveredRun]) -> None:
        """These messages will be delivered."""


class Request:
    """A request with its whole body, and the state of its client while it is answered."""

    __slots__ = (
        "_body", "_gone", "by_cookie", "disconnected", "fields", "half_closed", "in_session", "made_for", "method",
        "must_close", "operation", "path", "peer", "pending", "principal", "query", "size", "trace",
    )  # fmt: skip

    def __init__(self, method: str, path: str, query: bytes, fields: Fields, body: bytes):
        self.method = method
        self.path = path
        self.query = query
        self.fields = fields
        self.operation = "none"
        """The name of the operation, once it is found."""
        self.must_close = False
        """True: the connection closes after the answer."""
        self.peer: Peer = UNKNOWN_PEER
        self.principal: Principal | None = None
        """The identity behind the request, if the server asks for credentials."""
        self.by_cookie = False
        """The identity is that of a cookie, which browsers send unasked."""
        self.in_session = False
        """True: it came through a connection that ends when its credential does, and where that can be renewed."""
        self.made_for: Request | None = None
        """The request for a page that this one is a part of."""
        self.pending: PendingReply[Any] | None = None
        """The reply that the answer waits for; None if there is none."""
        self.trace: LeaseTrace | None = None
        """Set if the request is traced."""
        self.disconnected = False
        self.half_closed = False
        """The client has closed its side, and may or may not read the answer."""
        self._gone: asyncio.Future[None] | None = None
        self._body = body
        self.size = len(body)

    @property
    def is_secure(self) -> bool:
        """Whether the client speaks TLS: to this server, or to a proxy in front of it, as the proxy or the origin of
        the client's page says. A client that claims it wrongly gets no more than cookies that it cannot use."""
        if self.peer.secure or (self.fields.origin or b"").startswith(b"https://"):
            return True
        headers = self.fields.headers
        if any(name == b"x-forwarded-proto" and value.strip().lower() == b"https" for name, value in headers):
            return True
        return any(name == b"forwarded" and _PROTO_HTTPS.search(value) is not None for name, value in headers)

    @property
    def wants_batch(self) -> bool:
        return BATCH_TYPE in self.fields.accept

    # -- the client --------------------------------------------------------------------------------------------------

    def disconnect(self) -> None:
        """The connection is lost: messages that were leased for this request are returned."""
        self.disconnected = True
        self._notice()
        if self.pending is not None:
            self.pending.cancel()

    def half_close(self) -> None:
        """The client has closed its side: a lease that waits for messages is answered at once."""
        self.half_closed = True
        self._notice()
        if self.pending is not None:
            self.pending.withdraw()

    def _notice(self) -> None:
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    async def gone(self) -> bool:
        """Returns when the client has closed the connection: True if only its half of it."""
        if not self.disconnected and not self.half_closed:
            self._gone = asyncio.get_running_loop().create_future()
            await self._gone
        return self.half_closed and not self.disconnected

    # -- the body ----------------------------------------------------------------------------------------------------

    def json_body(self, size_max: int = limits.REQUEST_BYTES_MAX) -> bytes:
        """The body of a call that takes JSON. A request without a content type is taken for JSON.

        So is the content type of `curl -d`, without an Origin header: forms in browsers send the same type.
        """
        content_type = self.fields.content_type
        is_curl = content_type == FORM_TYPE and self.fields.origin is None
        if content_type not in (JSON_TYPE, b"") and not is_curl:
            raise UnsupportedMediaType(
                f"content type {content_type.decode('latin-1')[:100]!r} is not taken here, send application/json",
                details={"field": "content-type"},
            )
        return self.body(size_max)

    def body(self, size_max: int = limits.REQUEST_BYTES_MAX) -> bytes:
        """Raises TooLarge, or UnsupportedMediaType for a body that is encoded."""
        if self.fields.content_encoding not in (b"", b"identity"):
            raise UnsupportedMediaType(
                "encoded bodies are not taken, send it as it is", details={"field": "content-encoding"}
            )
        if self.size > size_max:
            raise TooLarge(f"a body of more than {size_max} bytes is not taken here; send it in parts")
        return self._body


def body_stalled() -> InvalidRequest:
    return InvalidRequest(
        f"nothing more of the body came for {limits.BODY_STALL_MS // 1000} s", details={"field": "body"}
    )
