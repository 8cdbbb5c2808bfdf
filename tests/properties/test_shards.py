"""A random workload has the same results, queue by queue, on one shard, on eight, and on eight in three processes."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import msgspec
import pytest

from penstock.errors import PenstockError
from penstock.ids import parse_queue
from penstock.pending import value_of
from penstock.testing.clock import ManualClock
from penstock.testing.inprocess import InProcess, in_process, messages
from penstock.wire.schedules import ScheduleMessage, ScheduleRequest

QUEUES = [parse_queue(f"shop/default/q{number}") for number in range(6)] + [parse_queue(f"n{n}/a/b") for n in range(6)]
CONFIGS: list[dict[str, Any]] = [
    {},
    {"order": "heap"},
    {"order": "lanes"},
    {"ordered_keys": True, "partitions": 3},
    {"partitions": 4, "max_messages": 40},
    {"retention": {"mode": "keep"}},
]
PLACEMENTS = ["queue", "namespace", "shard:0"]
STEPS = 250


class Pair:
    """The same calls on both brokers. Receipts, message ids and uuids of the two differ; all else is compared."""

    def __init__(self, boxes: list[InProcess], dice: Random):
        self.boxes = boxes
        self.dice = dice
        self.held: list[list[str]] = []
        """The receipts of one message on each of the brokers."""
        self.sent = 0

    async def both(self, call: Any) -> list[Any]:
        """The results of `call(box, number)`; an error is its code."""
        results = []
        for number, box in enumerate(self.boxes):
            try:
                results.append(await call(box, number))
            except PenstockError as error:
                results.append(error.code)
        return results

    def same(self, results: list[Any]) -> None:
        assert results[0] == results[1]

    async def configure(self) -> None:
        for queue in QUEUES:
            config = {**self.dice.choice(CONFIGS), "placement": self.dice.choice(PLACEMENTS), "max_retries": 2}
            config["backoff"] = {"kind": "fixed", "base_ms": 1_000, "jitter": 0}
            await self.both(lambda box, _, queue=queue, config=config: box.broker.queues.put(queue, config))

    async def publish(self, queue: str) -> None:
        payloads = []
        for _ in range(self.dice.randrange(1, 6)):
            self.sent += 1
            payloads.append(b"%d" % self.sent)
        columns: dict[str, list[Any]] = {"priority": [self.dice.randrange(5) for _ in payloads]}
        if self.dice.random() < 0.5:
            columns["key"] = [b"k%d" % self.dice.randrange(4) for _ in payloads]
        if self.dice.random() < 0.3:
            columns["delay_ms"] = [self.dice.choice((0, 500, 5_000)) for _ in payloads]
        if self.dice.random() < 0.3:
            columns["id"] = [b"id%d" % self.dice.randrange(50) for _ in payloads]

        async def call(box: InProcess, _: int) -> Any:
            reply = await box.publish(queue, *payloads, **columns)
            return [(run.queue, run.partition, run.offset, run.count, run.duplicate) for run in reply.runs]

        self.same(await self.both(call))

    async def lease(self, queue: str) -> None:
        options = {"max": self.dice.randrange(1, 8), "group": self.dice.choice(("default", "other"))}
        found = await self.both(lambda box, _: box.lease(queue, **options))
        if isinstance(found[0], str) or isinstance(found[1], str):
            self.same(found)
            return
        self.same([[message._replace(id="", receipt="") for message in each] for each in found])
        self.held += [[one.receipt, other.receipt] for one, other in zip(*found, strict=True)]

    async def settle(self) -> None:
        chosen = self.dice.sample(self.held, min(len(self.held), self.dice.randrange(1, 12)))
        method = self.dice.choice(("ack", "ack", "nack", "reject", "release", "extend"))
        options = {"lease_ms": 5_000} if method == "extend" else {}

        async def call(box: InProcess, number: int) -> Any:
            receipts = [pair[number] for pair in chosen]
            results = await getattr(box.broker.messages, method)(receipts, **options)
            assert [result.receipt for result in results] == receipts
            return [(result.status, result.due_at_ms, result.deadline_at_ms) for result in results]

        self.same(await self.both(call))

    async def cancel(self, queue: str) -> None:
        key = f"k{self.dice.randrange(4)}"
        results = await self.both(lambda box, _: box.broker.scheduled.cancel(queue, key=key))
        if isinstance(results[0], tuple):
            results = [(count, [each.status for each in named]) for count, named in results]
        self.same(results)

    async def schedule(self, queue: str) -> None:
        name = f"s-{queue.replace('/', '-')}"
        asked = ScheduleRequest(queue=queue, cron="* * * * *", message=ScheduleMessage(payload_b64="eA=="))
        self.same([result if isinstance(result, str) else result[1] for result in await self.both(
            lambda box, _: box.broker.schedules.put(name, asked))])  # fmt: skip

    async def purge(self, queue: str) -> None:
        async def call(box: InProcess, _: int) -> Any:
            try:
                await box.broker.queues.purge(queue)
            except PenstockError as refused:
                token = refused.details.get("confirm")
                return await box.broker.queues.purge(queue, confirm=token)

        self.same(await self.both(call))

    async def advance(self) -> None:
        ms = self.dice.choice((100, 1_000, 1_000, 30_000))
        await self.both(lambda box, _: box.advance(ms))

    async def restart(self) -> None:
        snapshot = self.dice.random() < 0.5
        await self.both(lambda box, _: box.restart(final_snapshot=snapshot))

    async def compare(self) -> None:
        """The state of every queue."""

        async def look(box: InProcess, _: int) -> Any:
            found: dict[str, Any] = {"paths": await value_of(box.broker.queues.paths())}
            for queue in found["paths"]:
                stats = msgspec.json.decode(msgspec.json.encode(await box.broker.stats.queue(queue)))  # as shown
                letters = await box.broker.dead_letters.page(queue, filter="", page=1, limit=100)
                log = await box.broker.log.read(queue, max=None)
                found[queue] = (
                    {name: value for name, value in stats.items() if name not in ("uuid", "rates", "totals")},
                    [(each.run.offset, each.group, each.letter.reason) for each in letters["dead_letters"]],
                    [(message.offset, message.payload) for message in messages(log.runs)],
                )
            summary = await box.broker.stats.summary()
            return found, {name: value for name, value in summary.items() if name != "broker"}

        results = await self.both(look)
        assert not isinstance(results[0], str), results[0]
        self.same(results)


async def story(seed: int, processes: int) -> None:
    dice = Random(seed)
    async with AsyncExitStack() as stack:
        # Queues by number on one shard, by number and shard on eight: the clocks are the same, the entropy is not.
        boxes = [
            await stack.enter_async_context(in_process(clock=ManualClock(), **options))
            for options in ({"shards": 1}, {"shards": 8, "processes": processes})
        ]
        pair = Pair(boxes, dice)
        await pair.configure()
        for step in range(STEPS):
            queue = dice.choice(QUEUES)
            roll = dice.random()
            if roll < 0.35:
                await pair.publish(queue)
            elif roll < 0.65:
                await pair.lease(queue)
            elif roll < 0.85:
                await pair.settle()
            elif roll < 0.90:
                await pair.cancel(queue)
            elif roll < 0.92:
                await pair.schedule(queue)
            elif roll < 0.93:
                await pair.purge(queue)
            elif roll < 0.99:
                await pair.advance()
            else:
                await pair.restart()
            if step % 50 == 49:
                await pair.compare()


@pytest.mark.parametrize("seed", range(12))
def test_one_and_eight_shards_have_the_same_results(seed):
    asyncio.run(story(seed, processes=1))


@pytest.mark.parametrize("seed", range(12, 18))
def test_one_shard_and_eight_in_three_processes_have_the_same_results(seed):
    asyncio.run(story(seed, processes=3))
