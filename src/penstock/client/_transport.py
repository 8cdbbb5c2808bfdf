"""What carries calls: one protocol per shell, one implementation per URL scheme.

A transport moves one request and brings its response back. It decides nothing: what to send and how to read the answer
is the call's business, whether to try again the carrier's.
"""

from __future__ import annotations

import ssl
from typing import Any, NamedTuple, Protocol

from penstock.client._calls import Call
from penstock.client._http1 import Origin, Response
from penstock.client._pool import Pool
from penstock.client._sync_pool import Pool as SyncPool


class Transport(Protocol):
    """Of the asyncio shell. Used from one event loop."""

    @property
    def reached(self) -> bool:
        """True once any request was answered."""

    async def exchange(self, call: Call[Any]) -> Response:
        """Carry one request, whatever it is answered with.

        Raises Unreachable if the server has surely not seen it, AnswerLost if it may have, and PenstockError if the
        other side is not one of ours. Cancelling the caller withdraws the request as far as that is possible.
        """

    def close(self) -> None:
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
    def address(self) -> tuple[str, int]:
        """Host and port. Raises InvalidRequest for a URL of no use."""
        origin = Origin.parse(self.url)
        return origin.host, origin.port


def open_transport(settings: Settings) -> Transport:
    """The transport that the URL asks for. Connects to nothing yet. Raises InvalidRequest for a URL of no use."""
    return Pool(
        Origin.parse(settings.url), token=settings.token, tls=settings.ssl,
        connect_timeout_s=settings.connect_timeout_s, timeout_s=settings.timeout_s,
        connections_max=settings.connections,
    )  # fmt: skip


def open_sync_transport(settings: Settings) -> SyncTransport:
    """As `open_transport`, for the blocking shell."""
    return SyncPool(
        Origin.parse(settings.url), token=settings.token, tls=settings.ssl,
        connect_timeout_s=settings.connect_timeout_s, timeout_s=settings.timeout_s,
    )  # fmt: skip
