"""What transports have in common whose calls know nothing of each other, and cannot be called back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from penstock.client.calls.api import Call
from penstock.client.transport.http1 import Response


class SeparateCalls(ABC):
    @abstractmethod
    async def exchange(self, call: Call[Any]) -> Response: ...

    def can_follow(self, before: Call[Any]) -> bool:  # noqa: ARG002
        return False

    async def exchange_behind(self, call: Call[Any], before: Call[Any]) -> Response:  # noqa: ARG002
        return await self.exchange(call)

    def recall(self, call: Call[Any]) -> bool:  # noqa: ARG002
        return False
