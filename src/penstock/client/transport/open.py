"""The transport that a URL asks for."""

from __future__ import annotations

from importlib import import_module

from penstock.client.transport.asyncio_pool import AsyncioPool
from penstock.client.transport.base import Transport
from penstock.client.transport.endpoint import ServerEndpoint

_OPTIONAL = {"grpc": ("grpc_channel", "GrpcTransport"), "ws": ("websocket", "WebSocketTransport")}
"""By scheme: the module and the class. Their dependencies are an extra of the installation, named after the scheme."""


def open_transport(endpoint: ServerEndpoint) -> Transport:
    """Connects to nothing yet."""
    if endpoint.scheme not in _OPTIONAL:
        return AsyncioPool(endpoint)
    module, name = _OPTIONAL[endpoint.scheme]
    try:
        kind = getattr(import_module(f"penstock.client.transport.{module}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "penstock":
            raise
        extra = endpoint.scheme
        raise ModuleNotFoundError(
            f"this kind of URL needs more: pip install 'penstock[{extra}]' ({error.name} is missing)", name=error.name
        ) from error
    transport: Transport = kind(endpoint)
    return transport
