"""The interface of a transport. There is one per URL scheme, and for HTTP one per runtime.

A transport moves one request and brings its response back. It decides nothing: the content of the request and the
reading of the answer belong to the call, repetition to the carrier.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any

from penstock.client.calls.call import Call, Response
from penstock.client.transport.endpoint import HTTP, ServerEndpoint
from penstock.errors import PenstockError


class Transport(ABC):
    """By default the calls of a transport know nothing of each other and cannot be recalled."""

    reached = False
    """True once any request was answered."""

    @property
    def sends_at_once(self) -> bool:
        """True if the next request leaves before `exchange` first waits for anything, and without a task around it."""
        return False

    @abstractmethod
    async def exchange(self, call: Call[Any]) -> Response:
        """Carry one request.

        Raises Unreachable if the server has surely not seen it, AnswerLost if it may have, and PenstockError if the
        other side is not a Penstock server. Cancelling the caller withdraws the request as far as that is possible.
        """

    def can_follow(self, before: Call[Any]) -> bool:  # noqa: ARG002
        """True if `exchange_behind` would send on the connection that carries `before`, which is not answered yet."""
        return False

    async def exchange_behind(self, call: Call[Any], before: Call[Any]) -> Response:  # noqa: ARG002
        """Carry a request that is handled after `before`, and answered after it. Fails if that one fails."""
        return await self.exchange(call)

    def recall(self, call: Call[Any]) -> bool:  # noqa: ARG002
        """Ask the server to answer a call now that waits there on purpose.

        False if the transport cannot ask: then the caller is cancelled, and an answer that is on its way is lost.
        """
        return False

    @abstractmethod
    async def close(self) -> None:
        """Disconnect; requests that are under way fail."""


def client_is_closed() -> PenstockError:
    return PenstockError("this client is closed")


_MODULES = {
    HTTP: ("asyncio_pool", "AsyncioPool"),
    "grpc": ("grpc_channel", "GrpcTransport"),
    "ws": ("websocket", "WebSocketTransport"),
}
"""By scheme: the module and the class. The dependencies of the last two are extras, named after the scheme."""


def open_transport(endpoint: ServerEndpoint) -> Transport:
    """The transport that the URL asks for. Connects to nothing yet."""
    module, name = _MODULES[endpoint.scheme]
    try:
        transport: Transport = getattr(import_module(f"penstock.client.transport.{module}"), name)(endpoint)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "penstock":
            raise
        raise ModuleNotFoundError(
            f"this kind of URL needs more: pip install 'penstock[{endpoint.scheme}]' ({error.name} is missing)",
            name=error.name,
        ) from error
    return transport
