"""What a peer is to a workload: the same few calls for every product, each done the way its best users do it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.process import ServerProcess


class NotInstalled(Exception):
    """This peer's server or client is not on this machine; the text says which."""


class Peer(ABC):
    """One product in one configuration, with a server of its own and at least one open connection.

    Clients that block may be used: no workload runs two turns at a time, and where one needs concurrent callers
    (`publish_one`, `listen`) the peer answers with a client that allows it.
    """

    name: str
    promise: str
    """What is true of a message when `publish` has returned, and of an ack when `drain` has."""

    server: ServerProcess

    def __init__(self) -> None:
        self._closing = AsyncExitStack()

    @abstractmethod
    async def start(self, directory: Path) -> None:
        """Server and client, ready. Raises NotInstalled. Whatever it opens it puts on `_closing` at once."""

    async def stop(self) -> None:
        """Ends what `start` began, in reverse, also after a start that failed half way."""
        await self._closing.aclose()

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Product and client, as they are to be named beside the figures."""

    @abstractmethod
    async def create(self, queue: str) -> None: ...

    @abstractmethod
    async def drop(self, queue: str) -> None: ...

    @abstractmethod
    async def publish(self, queue: str, payloads: Sequence[bytes]) -> None:
        """One batch; returns when the server has confirmed all of it."""

    @abstractmethod
    async def drain(self, queue: str, batch: int, count: int) -> None:
        """Take `count` messages by `batch` at a time, hold each payload as bytes, ack each.

        Returns when the server has confirmed the acks, where the product confirms acks at all.
        """

    async def publish_one(self, queue: str, content: bytes) -> None:
        """One message from one of many concurrent callers."""
        raise NotImplementedError(f"{self.name} has no single publish here")

    async def listen(self, queue: str, count: int, arrived: Callable[[bytes], None]) -> None:
        """Wait for `count` messages as they come, tell `arrived` of each at once, ack each."""
        raise NotImplementedError(f"{self.name} does not listen here")
