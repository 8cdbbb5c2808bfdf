"""Several facades over the shards of one store, linked by sockets as processes are, inside one event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.broker.router import LocalShard, RoutedBroker
from penstock.broker.routing import ShardCalls
from penstock.broker.service import Broker
from penstock.cluster.frames import LinkProtocol
from penstock.cluster.link import Connect, Link, RemoteShard
from penstock.cluster.owner import LinkOwner


class LinkedProcess(NamedTuple):
    broker: RoutedBroker
    owner: LinkOwner
    links: Sequence[Link]
    """Those to the other processes."""

    async def close_links(self) -> None:
        for link in self.links:
            await link.close()
        self.owner.close()


def linked(brokers: Sequence[Broker], processes: int, now_ms: Callable[[], int]) -> list[LinkedProcess]:
    """Process `p` of `n` serves the shards `p`, `p + n`, …"""
    owners: dict[int, LinkOwner] = {}

    def connect_to(process: int) -> Connect:
        async def connect(protocol: Callable[[], LinkProtocol]) -> None:
            here, there = socket.socketpair()
            loop = asyncio.get_running_loop()
            try:
                await loop.create_connection(owners[process].connection, sock=there)
                await loop.create_connection(protocol, sock=here)
            except BaseException:  # closed while it connects
                here.close()
                there.close()
                raise

        return connect

    made = []
    for process in range(processes):
        links = {other: Link(connect_to(other), f"process {other}") for other in range(processes) if other != process}
        shards: list[ShardCalls] = [
            LocalShard(shard, broker) if shard % processes == process else RemoteShard(shard, links[shard % processes])
            for shard, broker in enumerate(brokers)
        ]
        broker = RoutedBroker(shards, now_ms)
        owners[process] = LinkOwner(broker.router, broker.commit_now)
        made.append(LinkedProcess(broker, owners[process], list(links.values())))
    for each in made:
        for link in each.links:
            link.start()
    return made
