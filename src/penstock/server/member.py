"""One of several processes that serve a store together: its number, and the addresses of the others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from penstock.broker.router import LocalShard, RoutedBroker
from penstock.broker.routing import ShardCalls
from penstock.broker.service import Broker
from penstock.cluster.frames import LinkProtocol
from penstock.cluster.link import Link, RemoteShard
from penstock.cluster.owner import LinkOwner


class Member(NamedTuple):
    """The place of a process among the others, from the supervisor."""

    number: int
    processes: int
    links: str
    """The directory of the sockets of all processes."""
    confirm_key: bytes
    """Of the tokens for destructive calls: one process gives a token, and another one may get it."""
    listener: socket.socket
    """Of HTTP. All processes accept its connections."""
    grpc_port: int
    """Which all processes bind; 0 if gRPC is off."""

    def shards_of(self, count: int) -> list[int]:
        """The shards of this process."""
        return list(range(self.number, count, self.processes))

    def address_of(self, process: int) -> str:
        return f"{self.links}/{process}"


class Links:
    """The connections of a process to the others, and from them."""

    def __init__(self, member: Member):
        self._member = member
        self._links = {
            process: Link(partial(_connect, member.address_of(process)), f"process {process}")
            for process in range(member.processes)
            if process != member.number
        }
        self._owner: LinkOwner | None = None
        self._server: asyncio.Server | None = None

    def facade(self, brokers: Sequence[Broker], count: int, now_ms: Callable[[], int]) -> RoutedBroker:
        """The facade over all shards; `brokers` are those of this process."""
        here = iter(brokers)
        shards: list[ShardCalls] = []
        for shard in range(count):
            process = shard % self._member.processes
            link = self._links.get(process)
            shards.append(LocalShard(shard, next(here)) if link is None else RemoteShard(shard, link))
        broker = RoutedBroker(shards, now_ms)
        self._owner = LinkOwner(broker.router, broker.commit_now)
        return broker

    async def start(self) -> None:
        """Take calls from the other processes, and connect to them when they do."""
        assert self._owner is not None, "call facade first"
        path = self._member.address_of(self._member.number)
        Path(path).unlink(missing_ok=True)  # noqa: ASYNC240  a directory in memory; of the process before
        self._server = await asyncio.get_running_loop().create_unix_server(self._owner.connection, path)
        for link in self._links.values():
            link.start()

    async def close(self) -> None:
        for link in self._links.values():
            await link.close()
        if self._server is not None:
            self._server.close()
        if self._owner is not None:
            self._owner.close()


async def _connect(path: str, protocol: Callable[[], LinkProtocol]) -> None:
    await asyncio.get_running_loop().create_unix_connection(protocol, path)
