"""Two processes that divide the shards of a store, linked as real ones are, one of which is killed again and again.

The world of `shards.py` with two facades in one event loop. Their links are connections in memory that cut the stream
into pieces and end at any moment. The second process is killed: its links end, its requests have no answer, and its
successor takes over its shards and fences what is left of it. To the invariants of `shards.py` come:

- P1: a publish whose outcome is unknown is stored once or not at all
- P2: while no connection ends, a lease whose caller goes away holds no message

    python -m sim.processes 1 2 3
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from random import Random
from typing import Any, cast

from penstock import limits
from penstock.broker.router import LocalShard, RoutedBroker
from penstock.broker.routing import ShardCalls
from penstock.broker.service import Broker
from penstock.cluster.frames import LinkProtocol
from penstock.cluster.link import Link, RemoteShard
from penstock.cluster.owner import LinkOwner
from penstock.engines.local.engine import LocalEngine
from penstock.errors import PenstockError, Unavailable
from penstock.ids import QueuePath
from penstock.runtime.host import ShardHost, open_shard
from penstock.testing.inprocess import messages
from sim.shards import QUEUES, SHARDS, PowerLoss, ShardedWorld
from sim.violation import Violation

PROCESSES = 2
CLIENTS = 3
"""Of each process."""
QUIET_TURNS = 500


class _Pipe(asyncio.Transport):
    """One end of a connection in memory. Bytes arrive in later turns of the event loop, in pieces of random size."""

    def __init__(self, rng: Random):
        super().__init__()
        self._rng = rng
        self.other: _Pipe
        self.protocol: LinkProtocol
        self._closing = False

    def writelines(self, parts: Any) -> None:
        data = b"".join(parts)
        loop = asyncio.get_running_loop()
        while data:
            cut = self._rng.randrange(1, len(data) + 1)
            loop.call_soon(self.other.arrive, data[:cut])
            data = data[cut:]

    def arrive(self, data: bytes) -> None:
        if not self._closing:
            self.protocol.data_received(data)

    def is_closing(self) -> bool:
        return self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever kept unsent."""

    def close(self) -> None:
        """Bytes under way in either direction are lost."""
        for end in (self, self.other):
            if not end._closing:
                end._closing = True
                asyncio.get_running_loop().call_soon(end.protocol.connection_lost, None)


class _Process:
    """One process: its shards, its facade, and its end of the links."""

    def __init__(self, hosts: list[ShardHost], broker: RoutedBroker, owner: LinkOwner, link: Link):
        self.hosts = hosts
        self.broker = broker
        self.owner = owner
        self.link = link


class ProcessWorld(ShardedWorld):
    def __init__(self, seed: int):
        super().__init__(seed)
        self._rng = Random(f"{seed}/processes")
        self._calm = seed % 3 == 0
        """No connection ends."""
        self._ending = False
        """The clients begin nothing new."""
        self._engine: LocalEngine
        self._node = b""
        self._processes: list[_Process] = []
        self._pipes: list[_Pipe] = []

    # -- processes ----------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        self._engine = LocalEngine("/data", files=self._files, segment_bytes=4096, zero_ahead_bytes=512)
        self._node = self._engine.node_id(self._rng.randbytes(16)[:15].rjust(16, b"\0"))
        self._engine.shard_count(SHARDS)
        self._processes, self._pipes, self._ending = [], [], False
        for number in range(PROCESSES):
            self._processes.append(await self._start(number))
        self._gather()

    async def _start(self, number: int) -> _Process:
        shards = range(number, SHARDS, PROCESSES)
        hosts = [await open_shard(self._engine, shard, self._clock, self._node) for shard in shards]
        link = Link(self._connect_to(1 - number), f"process {1 - number}")
        here = {host.number: Broker(host, self._rng.getrandbits, shards=SHARDS) for host in hosts}
        calls: list[ShardCalls] = [
            LocalShard(shard, here[shard]) if shard in here else RemoteShard(shard, link) for shard in range(SHARDS)
        ]
        broker = RoutedBroker(calls, self._clock.now_ms)
        owner = LinkOwner(broker.router, broker.commit_now)
        link.start()
        return _Process(hosts, broker, owner, link)

    def _gather(self) -> None:
        self._hosts = sorted((host for each in self._processes for host in each.hosts), key=lambda host: host.number)
        self._broker = cast(Broker, self._processes[0].broker)

    def _connect_to(self, number: int) -> Any:
        async def connect(protocol: Callable[[], LinkProtocol]) -> None:
            while len(self._processes) <= number:  # noqa: ASYNC110  a turn of a simulated world
                await asyncio.sleep(0)
            mine, theirs = _Pipe(self._rng), _Pipe(self._rng)
            mine.other, theirs.other = theirs, mine
            mine.protocol, theirs.protocol = protocol(), self._processes[number].owner.connection()
            for end in (theirs, mine):
                end.protocol.connection_made(end)
            self._pipes.append(mine)

        return connect

    def _cut(self) -> None:
        pipes, self._pipes = self._pipes, []
        for pipe in pipes:
            pipe.close()

    async def _kill(self) -> None:
        """Kill the second process and start its successor."""
        killed = self._processes[1]
        self._cut()
        await killed.link.close()
        killed.owner.close()
        self._processes[1] = await self._start(1)  # fences what still runs of the killed one
        self._gather()

    # -- a life -------------------------------------------------------------------------------------------------------

    async def _life(self) -> None:
        await self._open()
        await self._check()
        clients = {(number, each): self._begin(number) for number in range(PROCESSES) for each in range(CLIENTS)}
        for _ in range(self._rng.randrange(50, 600)):
            await asyncio.sleep(0)
            if not self._calm and self._rng.random() < 0.01:
                self._cut()
            if not self._calm and self._rng.random() < 0.005:
                for (number, each), client in clients.items():
                    if number == 1:
                        client.cancel()  # its connection is gone
                        clients[number, each] = self._begin(0)
                await self._kill()
            for client in clients.values():
                if client.done() and not client.cancelled():
                    client.result()
        if self._calm:
            await self._check_leases(list(clients.values()))
        raise PowerLoss

    def _begin(self, number: int) -> asyncio.Future[None]:
        return asyncio.ensure_future(self._client_of(self._processes[number]))

    async def _client_of(self, process: _Process) -> None:
        broker = cast(Broker, process.broker)
        steps = (self._publish_by, self._publish_by, self._consume_by, self._give_up_by, self._place_by)
        while not self._ending:
            await self._rng.choice(steps)(broker)

    async def _publish_by(self, broker: Broker) -> None:
        queue = self._rng.choice(QUEUES)
        payload, part = self._part(queue)
        try:
            await broker.messages.publish([part])
        except Unavailable as error:
            if "outcome" not in error.details:
                self._refused.add(payload)  # it was not sent
        else:
            self._stored[payload] = queue

    async def _place_by(self, broker: Broker) -> None:
        try:
            await broker.queues.put(self._rng.choice(QUEUES), {"placement": self._rng.choice(("queue", "namespace"))})
        except PenstockError:
            return  # it exists on another shard, or a connection has ended

    async def _consume_by(self, broker: Broker) -> None:
        held = []
        for queue in self._rng.sample(QUEUES, 2):
            try:
                held += messages((await broker.messages.lease(queue, max=3)).runs)
            except PenstockError:
                continue
        self._acking.update(message.payload for message in held)
        try:
            results = await broker.messages.ack([message.receipt for message in held])
        except Unavailable:
            return
        # With connections that end a lease may have been granted twice, and the first time nobody got it.
        if self._calm and [result.status for result in results] != ["acked"] * len(held):
            raise Violation("S4", f"receipts that are held were answered {[result.status for result in results]}")

    async def _give_up_by(self, broker: Broker) -> None:
        """Lease, and go away at any moment."""
        leasing = asyncio.ensure_future(self._lease(broker, self._rng.choice(QUEUES)))
        for _ in range(self._rng.randrange(8)):
            await asyncio.sleep(0)
        if leasing.done() and not leasing.exception():
            self._acking.update(message.payload for message in leasing.result())
            try:
                await broker.messages.ack([message.receipt for message in leasing.result()])
            except Unavailable:
                return
        else:
            leasing.cancel()
            await asyncio.gather(leasing, return_exceptions=True)

    async def _lease(self, broker: Broker, queue: QueuePath) -> list[Any]:
        return messages((await broker.messages.lease(queue, max=2, wait_ms=60_000)).runs)

    # -- invariants ---------------------------------------------------------------------------------------------------

    async def _check_leases(self, clients: list[asyncio.Future[None]]) -> None:
        """All clients finish what they do. Messages that they did not get must be ready again."""
        self._ending = True
        await asyncio.gather(*clients)
        leased = 1
        for _ in range(QUIET_TURNS):
            await asyncio.sleep(0)
            leased = (await self._broker.stats.summary())["leased"]
            if not leased:
                return
        raise Violation("P2", f"{leased} messages are leased, and no client has them")


def run(seed: int) -> str | None:
    """The violation that this seed finds."""
    pause, limits.LINK_RETRY_S = limits.LINK_RETRY_S, 0.0  # in real time it would make a seed depend on the machine
    try:
        ProcessWorld(seed).run()
    except Violation as violation:
        return str(violation)
    finally:
        limits.LINK_RETRY_S = pause
    return None


def main() -> None:
    for seed in map(int, sys.argv[1:]):
        violation = run(seed)
        if violation is not None:
            sys.stdout.write(f"{seed} {violation}\n")
            break


if __name__ == "__main__":
    main()
