"""Several shards in one process that loses its power again and again: the router, placement and receipts.

The worlds of `world.py` have one shard, whose state machine they check in depth. Here the layer above is checked: real
files of several shards on a simulated disk, the real router, clients that publish, lease and settle at the same time,
and after each power loss these invariants:

- S1: a message whose publish was answered is in its queue, unless its ack was sent
- S2: a queue lives on one shard
- S3: a publish that was refused has stored nothing
- S4: the receipt of a message that is held settles it, whichever receipts are sent with it

    python -m sim.shards 1 2 3
"""

from __future__ import annotations

import asyncio
import sys
from random import Random
from typing import cast

from penstock.batch import Batch, build, layout
from penstock.broker.router import routed_over
from penstock.broker.service import Broker
from penstock.broker.types import PublishPart
from penstock.engines.local.engine import LocalEngine
from penstock.errors import Conflict, CrossShard, PenstockError
from penstock.ids import QueuePath, parse_queue
from penstock.placement import shard_of
from penstock.runtime.host import ShardHost, open_shard
from penstock.testing.clock import ManualClock
from penstock.testing.files import SimFiles
from penstock.testing.inprocess import messages
from sim.violation import Violation

SHARDS = 4
LIVES = 6
CLIENTS = 4
QUEUES = [parse_queue(f"n{number % 3}/default/q{number}") for number in range(9)]
PLACEMENTS = ("queue", "namespace", "shard:1", "shard:2")


class PowerLoss(Exception):
    """The end of a life."""


class ShardedWorld:
    def __init__(self, seed: int):
        self._rng = Random(f"{seed}/shards")
        self._files = SimFiles()
        self._clock = ManualClock()
        self._sent = 0
        self._stored: dict[bytes, QueuePath] = {}
        """Messages whose publish was answered."""
        self._acking: set[bytes] = set()
        """Messages whose ack was sent, answered or not."""
        self._refused: set[bytes] = set()
        self._hosts: list[ShardHost] = []
        self._broker: Broker

    def run(self) -> None:
        """Raises Violation."""
        for _ in range(LIVES):
            try:
                asyncio.run(self._life())
            except PowerLoss:
                self._files.kill()
                self._files.crash(self._rng)
        asyncio.run(self._last_look())

    async def _open(self) -> None:
        engine = LocalEngine("/data", files=self._files, segment_bytes=4096, zero_ahead_bytes=512)
        node = engine.node_id(self._rng.randbytes(16)[:15].rjust(16, b"\0"))
        count = engine.shard_count(SHARDS)
        if count != SHARDS:
            raise Violation("S2", f"the store has {count} shards after a restart, not {SHARDS}")
        self._hosts = [await open_shard(engine, number, self._clock, node) for number in range(SHARDS)]
        brokers = [Broker(host, self._rng.getrandbits, shards=SHARDS) for host in self._hosts]
        self._broker = cast(Broker, routed_over(brokers, self._clock.now_ms))

    async def _life(self) -> None:
        await self._open()
        await self._check()
        clients = [asyncio.ensure_future(self._client()) for _ in range(CLIENTS)]
        for _ in range(self._rng.randrange(20, 400)):
            await asyncio.sleep(0)
            for client in clients:
                if client.done():
                    client.result()
        raise PowerLoss

    async def _last_look(self) -> None:
        await self._open()
        await self._check()
        await self._broker.close()

    # -- clients ------------------------------------------------------------------------------------------------------

    async def _client(self) -> None:
        while True:
            step = self._rng.choice((self._publish, self._publish, self._publish_to_two, self._consume, self._place))
            await step()

    def _part(self, queue: QueuePath) -> tuple[bytes, PublishPart]:
        self._sent += 1
        payload = b"%d" % self._sent
        return payload, PublishPart(queue, Batch.open(build([payload], kind=layout.KIND_BYTES)))

    async def _publish(self) -> None:
        queue = self._rng.choice(QUEUES)
        payload, part = self._part(queue)
        await self._broker.messages.publish([part])
        self._stored[payload] = queue

    async def _publish_to_two(self) -> None:
        queues = self._rng.sample(QUEUES, 2)
        parts = [self._part(queue) for queue in queues]
        try:
            await self._broker.messages.publish([part for _, part in parts])
        except CrossShard:
            self._refused.update(payload for payload, _ in parts)
        else:
            self._stored.update((payload, part.queue) for payload, part in parts)

    async def _place(self) -> None:
        queue = self._rng.choice(QUEUES)
        try:
            await self._broker.queues.put(queue, {"placement": self._rng.choice(PLACEMENTS)})
        except Conflict:
            return  # it exists on another shard

    async def _consume(self) -> None:
        """Lease from two queues, and settle all that was leased in one call."""
        held = []
        for queue in self._rng.sample(QUEUES, 2):
            try:
                held += messages((await self._broker.messages.lease(queue, max=3)).runs)
            except PenstockError:
                continue  # there is no such queue yet
        self._rng.shuffle(held)
        for message in held:
            if message.payload in self._refused:
                raise Violation("S3", f"{message.payload!r} was delivered, and its publish was refused")
        self._acking.update(message.payload for message in held)
        results = await self._broker.messages.ack([message.receipt for message in held])
        if [result.status for result in results] != ["acked"] * len(held):
            raise Violation("S4", f"receipts that are held were answered {[result.status for result in results]}")

    # -- invariants ---------------------------------------------------------------------------------------------------

    async def _check(self) -> None:
        places: dict[str, list[int]] = {}
        for host in self._hosts:
            for queue in host.loop.shard.queues.values():
                lives_here = shard_of(queue.path, queue.config.placement, SHARDS) == host.number
                if lives_here:
                    places.setdefault(queue.path, []).append(host.number)
                elif queue.depth():
                    raise Violation("S2", f"{queue.path} has messages on shard {host.number}, where it does not live")
        for path, shards in places.items():
            if len(shards) > 1:
                raise Violation("S2", f"{path} lives on shards {shards}")
        found: dict[bytes, str] = {}
        for path in places:
            log = await self._broker.log.read(QueuePath(path), max=None)
            for message in messages(log.runs):
                if message.payload in found or message.payload in self._refused:
                    raise Violation("S3", f"{message.payload!r} is stored twice, or its publish was refused")
                found[message.payload] = message.queue
        for payload, wanted in self._stored.items():
            if found.get(payload) != wanted and payload not in self._acking:
                raise Violation("S1", f"{payload!r} was published to {wanted}, and is in {found.get(payload)}")


def run(seed: int) -> str | None:
    """The violation that this seed finds."""
    try:
        ShardedWorld(seed).run()
    except Violation as violation:
        return str(violation)
    return None


def main() -> None:
    for seed in map(int, sys.argv[1:]):
        violation = run(seed)
        if violation is not None:
            sys.stdout.write(f"{seed} {violation}\n")
            break


if __name__ == "__main__":
    main()
