"""All transports of the SDK. `test_sdk.py` runs over each of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from http_server import Server, running

import penstock
import penstock.sync


class Carrier(Protocol):
    def client(self, **options: Any) -> penstock.Client: ...
    def sync_client(self, **options: Any) -> penstock.sync.Client: ...


class Remote:
    """A server in a process of its own, reached by a URL."""

    def __init__(self, url: str):
        self.url = url

    @classmethod
    def of(cls, scheme: str, server: Server) -> Remote:
        return cls({"http": server.url, "ws": f"ws://127.0.0.1:{server.port}", "grpc": f"grpc://{server.grpc}"}[scheme])

    def client(self, **options: Any) -> penstock.Client:
        return penstock.Client(self.url, **options)

    def sync_client(self, **options: Any) -> penstock.sync.Client:
        return penstock.sync.Client(self.url, **options)


class Embedded:
    """A broker in the client's own process."""

    def __init__(self, data_dir: Path):
        self._data_dir = data_dir

    def client(self, **options: Any) -> penstock.Client:
        return penstock.open(self._data_dir, **options)

    def sync_client(self, **options: Any) -> penstock.sync.Client:
        return penstock.sync.open(self._data_dir, **options)


SCHEMES = ("http", "ws", "grpc")
CARRIERS = (*SCHEMES, "embedded")


@contextmanager
def carried_by(name: str, server: Server, data_dir: Path) -> Iterator[Carrier]:
    """`server` is the one for all that are reached by URL."""
    if name == "embedded":
        yield Embedded(data_dir)
    else:
        yield Remote.of(name, server)


__all__ = ["CARRIERS", "SCHEMES", "Carrier", "Remote", "Server", "carried_by", "running"]
