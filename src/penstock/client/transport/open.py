"""The transport that a URL asks for."""

from __future__ import annotations

import ssl
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from penstock.client.transport.asyncio_pool import AsyncioPool
from penstock.client.transport.base import Transport
from penstock.client.transport.http1 import Origin
from penstock.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.client.transport.grpc_channel import GrpcTransport
    from penstock.client.transport.websocket import WebSocketTransport

HTTP = "http"
_PORTS = {"ws": 80, "grpc": 7401}
"""The other schemes, and where they are served unless the URL says otherwise."""


class ConnectSettings(NamedTuple):
    """The options of a client that concern its connections."""

    url: str
    token: str | None
    ssl: ssl.SSLContext | None
    timeout_s: float
    connect_timeout_s: float
    connections: int = 64

    @property
    def scheme(self) -> str:
        """That of the URL, without the `s` of TLS. Raises InvalidRequest for an unknown one."""
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


def open_transport(settings: ConnectSettings) -> Transport:
    """Connects to nothing yet. Raises InvalidRequest for a URL of no use."""
    origin = settings.origin
    if settings.scheme == "grpc":
        kind: type[GrpcTransport] = _optional("grpc_channel", "grpc").GrpcTransport
        return kind(
            origin, token=settings.token, connect_timeout_s=settings.connect_timeout_s, timeout_s=settings.timeout_s
        )
    if settings.scheme == "ws":
        web: type[WebSocketTransport] = _optional("websocket", "ws").WebSocketTransport
        return web(
            origin, token=settings.token, tls=settings.ssl, connect_timeout_s=settings.connect_timeout_s,
            timeout_s=settings.timeout_s,
        )  # fmt: skip
    return AsyncioPool(
        origin, token=settings.token, tls=settings.ssl, connect_timeout_s=settings.connect_timeout_s,
        timeout_s=settings.timeout_s, connections_max=settings.connections,
    )  # fmt: skip


def _optional(name: str, extra: str) -> ModuleType:
    """A module of this package whose dependencies are an extra of the installation."""
    try:
        return import_module(f"penstock.client.transport.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "penstock":
            raise
        raise ModuleNotFoundError(
            f"this kind of URL needs more: pip install 'penstock[{extra}]' ({error.name} is missing)", name=error.name
        ) from error
