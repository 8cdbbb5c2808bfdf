"""The interface of a peer: the same few calls for every product, each in the product's fastest way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.process import ServerProcess


class NotInstalled(Exception):
    """The server or the client of this peer is not installed; the text says which."""


class Peer(ABC):
    """One product in one configuration, with a server of its own and at least one open connection.

    Clients may block: no workload runs two turns at a time, and for concurrent callers (`publish_one`, `listen`) the
    peer uses a client that allows them.
    """

    name: str
    promise: str
    """The guarantee of a message when `publish` has returned, and of an ack when `drain` has."""

    server: ServerProcess

    def __init__(self) -> None:
        self._closing = AsyncExitStack()

    @abstractmethod
    async def start(self, directory: Path) -> None:
        """Start server and client. Raises NotInstalled. Every resource is put on `_closing` as soon as it is open."""

    async def stop(self) -> None:
        """Close the resources of `start` in reverse order, also after a start that failed."""
        await self._closing.aclose()

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Product and client, as the report names them."""

    @abstractmethod
    async def create(self, queue: str) -> None: ...

    @abstractmethod
    async def drop(self, queue: str) -> None: ...

    @abstractmethod
    async def publish(self, queue: str, payloads: Sequence[bytes]) -> None:
        """Publish one batch; returns when the server has confirmed all of it."""

    @abstractmethod
    async def drain(self, queue: str, batch: int, count: int) -> None:
        """Take `count` messages in batches of `batch`, read each payload as bytes, ack each.

        Returns when the server has confirmed the acks, if the product confirms acks.
        """

    async def publish_one(self, queue: str, content: bytes) -> None:
        """Publish one message, for one of many concurrent callers."""
        raise NotImplementedError(f"{self.name} has no single publish here")

    async def listen(self, queue: str, count: int, arrived: Callable[[bytes], None]) -> None:
        """Wait for `count` messages, call `arrived` for each at once, ack each."""
        raise NotImplementedError(f"{self.name} does not listen here")
