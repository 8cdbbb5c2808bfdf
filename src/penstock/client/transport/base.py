"""What every transport offers. There is one per URL scheme, and for HTTP one per runtime.

A transport moves one request and brings its response back. It decides nothing: the content of the request and the
reading of the answer belong to the call, repetition to the carrier.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from penstock.client.calls.call import Call, Response
from penstock.errors import PenstockError


class Transport(Protocol):
    @property
    def reached(self) -> bool:
        """True once any request was answered."""

    @property
    def sends_at_once(self) -> bool:
        """True if the next request leaves before `exchange` first waits for anything, and without a task around it."""

    async def exchange(self, call: Call[Any]) -> Response:
        """Carry one request.

        Raises Unreachable if the server has surely not seen it, AnswerLost if it may have, and PenstockError if the
        other side is not a Penstock server. Cancelling the caller withdraws the request as far as that is possible.
        """

    def can_follow(self, before: Call[Any]) -> bool:
        """True if `exchange_behind` would send on the connection that carries `before`, which is not answered yet."""

    async def exchange_behind(self, call: Call[Any], before: Call[Any]) -> Response:
        """Carry a request that is handled after `before`, and answered after it. Fails if that one fails."""

    def recall(self, call: Call[Any]) -> bool:
        """Ask the server to answer a call now that waits there on purpose.

        False if the transport cannot ask: then the caller is cancelled, and an answer that is on its way is lost.
        """

    async def close(self) -> None:
        """Disconnect; requests that are under way fail."""


class SeparateCalls(ABC):
    """A transport whose calls know nothing of each other and cannot be recalled."""

    sends_at_once = False

    @abstractmethod
    async def exchange(self, call: Call[Any]) -> Response: ...

    def can_follow(self, before: Call[Any]) -> bool:  # noqa: ARG002
        return False

    async def exchange_behind(self, call: Call[Any], before: Call[Any]) -> Response:  # noqa: ARG002
        return await self.exchange(call)

    def recall(self, call: Call[Any]) -> bool:  # noqa: ARG002
        return False


def client_is_closed() -> PenstockError:
    return PenstockError("this client is closed")
