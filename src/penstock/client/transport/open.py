"""What carries calls: one protocol per shell, one implementation per URL scheme.

A transport moves one request and brings its response back. It decides nothing: what to send and how to read the answer
is the call's business, whether to try again the carrier's.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.client.calls.api import Call
from penstock.client.transport.asyncio_pool import Pool
from penstock.client.transport.http1 import Origin, Response
from penstock.client.transport.loop_thread import Background
from penstock.client.transport.socket_pool import Pool as SyncPool
from penstock.errors import InvalidRequest, PenstockError

if TYPE_CHECKING:
    from penstock.client.transport.grpc_channel import GrpcTransport
    from penstock.client.transport.websocket import WebSocketTransport

HTTP = "http"
_PORTS = {"ws": 80, "grpc": 7401}
"""The other schemes, and where they are served unless the URL says otherwise."""


class Transport(Protocol):
    """Of the asyncio shell. Used from one event loop."""

    @property
    def reached(self) -> bool:
        """True once any request was answered."""

    @property
    def sends_at_once(self) -> bool:
        """True if the next request leaves before `exchange` first waits for anything, and without a task around it."""

    async def exchange(self, call: Call[Any]) -> Response:
        """Carry one request, whatever it is answered with.

        Raises Unreachable if the server has surely not seen it, AnswerLost if it may have, and PenstockError if the
        other side is not one of ours. Cancelling the caller withdraws the request as far as that is possible.
        """

    def can_follow(self, before: Call[Any]) -> bool:
        """True if `exchange_behind` would send on the way that carries `before`, which is not answered yet."""

    async def exchange_behind(self, call: Call[Any], before: Call[Any]) -> Response:
        """Carry a request that is handled after `before`, and answered after it. Fails if that one fails."""

    def recall(self, call: Call[Any]) -> bool:
        """Ask that a call which waits at the server be answered now, with what there is.

        False if that cannot be asked: then cancelling the caller is the only way, and an answer that is on its way
        is lost with it.
        """

    async def close(self) -> None:
        """Let go of everything; requests that are under way fail."""


class SyncTransport(Protocol):
    """Of the blocking shell. Used from any thread."""

    @property
    def reached(self) -> bool: ...

    def exchange(self, call: Call[Any]) -> Response: ...

    def close(self) -> None: ...


class Settings(NamedTuple):
    """What a client was told about the way to its server."""

    url: str
    token: str | None
    ssl: ssl.SSLContext | None
    timeout_s: float
    connect_timeout_s: float
    connections: int = 64

    @property
    def scheme(self) -> str:
        """That of the URL, without the `s` of TLS. Raises InvalidRequest for one that nobody serves."""
        scheme = self.url.partition("://")[0]
        for known in (HTTP, *_PORTS):
            if scheme in (known, f"{known}s"):
                return known
        raise InvalidRequest(
            f"{self.url!r} is not a server address: it must look like http://host:port, ws://host:port or grpc://host:port",
            details={"field": "url"},
        )

    @property
    def origin(self) -> Origin:
        """Raises InvalidRequest for a URL of no use."""
        scheme = self.scheme
        origin = Origin.parse(self.url) if scheme == HTTP else Origin.parse(self.url, scheme, _PORTS[scheme])
        if scheme == "grpc" and (origin.prefix or self.ssl is not None):
            raise InvalidRequest(
                "grpc:// takes neither a path nor an ssl context; TLS is checked by the system's rules",
                details={"field": "url"},
            )
        return origin

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return self.origin.host, self.origin.port


def open_transport(settings: Settings) -> Transport:
    """The transport that the URL asks for. Connects to nothing yet. Raises InvalidRequest for a URL of no use."""
    origin = settings.origin
    if settings.scheme == "grpc":
        kind: type[GrpcTransport] = _part("grpc_channel", "grpc").GrpcTransport
        return kind(
            origin, token=settings.token, connect_timeout_s=settings.connect_timeout_s, timeout_s=settings.timeout_s
        )
    if settings.scheme == "ws":
        web: type[WebSocketTransport] = _part("websocket", "ws").WebSocketTransport
        return web(
            origin, token=settings.token, tls=settings.ssl, connect_timeout_s=settings.connect_timeout_s,
            timeout_s=settings.timeout_s,
        )  # fmt: skip
    return Pool(
        origin, token=settings.token, tls=settings.ssl, connect_timeout_s=settings.connect_timeout_s,
        timeout_s=settings.timeout_s, connections_max=settings.connections,
    )  # fmt: skip


def open_sync_transport(settings: Settings) -> SyncTransport:
    """As `open_transport`, for the blocking shell."""
    if settings.scheme != HTTP:
        return InBackground(open_transport(settings))
    return SyncPool(
        settings.origin, token=settings.token, tls=settings.ssl, connect_timeout_s=settings.connect_timeout_s,
        timeout_s=settings.timeout_s,
    )  # fmt: skip


class InBackground:
    """A transport of the asyncio shell for the blocking one, in a thread of its own."""

    def __init__(self, transport: Transport):
        self._transport = transport
        self._home = Background("penstock client")

    @property
    def reached(self) -> bool:
        return self._transport.reached

    def exchange(self, call: Call[Any]) -> Response:
        return self._home.run(self._transport.exchange(call))

    def close(self) -> None:
        with suppress(PenstockError):  # closed before
            self._home.run(self._transport.close())
        self._home.stop()


def _part(name: str, extra: str) -> ModuleType:
    try:
        return import_module(f"penstock.client.transport.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "penstock":
            raise
        raise ModuleNotFoundError(
            f"this kind of URL needs more: pip install 'penstock[{extra}]' ({error.name} is missing)", name=error.name
        ) from error
