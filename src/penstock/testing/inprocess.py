"""A complete broker inside a test, without sockets and with a manual clock.

    async with in_process() as box:
        await box.publish("orders", b"1", b"2", delay_ms=[0, 60_000])
        first = await box.lease("orders", max=10)
        await box.broker.messages.ack([message.receipt for message in first])
        await box.advance(60_000)
        assert [message.payload for message in await box.lease("orders")] == [b"2"]
        await box.restart()

The default store is in memory. `open_engine` opens another store; it is called again at each restart.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, cast

from penstock import limits
from penstock.batch import Batch, build, layout
from penstock.broker.confirm import Confirmations
from penstock.broker.router import routed_over
from penstock.broker.service import Broker
from penstock.broker.types import DeliveredRun, ProducerSeq, PublishPart, PublishReply
from penstock.broker.vault import Vault
from penstock.core.commands import Tick
from penstock.engines.memory import MemoryEngine
from penstock.ids import parse_queue, ulid_text
from penstock.journal.port import Engine
from penstock.runtime.host import ShardHost, open_shard
from penstock.runtime.node_memory import NodeMemory
from penstock.testing.clock import ManualClock
from penstock.testing.linked import LinkedProcess, linked

_COLUMNS = {
    "priority": layout.PRIORITY, "delay_ms": layout.DELAY_MS, "deliver_at_ms": layout.DELIVER_AT_MS,
    "ttl_ms": layout.TTL_MS, "max_retries": layout.MAX_RETRIES, "key": layout.KEY, "id": layout.ID,
    "headers": layout.HEADERS, "tenant": layout.TENANT,
}  # fmt: skip


class Delivered(NamedTuple):
    """One delivered message."""

    queue: str
    partition: int
    offset: int
    id: str
    payload: bytes
    attempt: int
    receipt: str
    """Empty if the queue delivers at most once."""
    deadline_at_ms: int | None
    published_at_ms: int


class InProcess:
    """Use `in_process`."""

    def __init__(self, open_engine: Callable[[], Engine], clock: ManualClock, seed: int, options: dict[str, Any]):
        self._open_engine = open_engine
        self._random = random.Random(seed)  # noqa: S311  reproducible on purpose
        self._options = options
        self.clock = clock
        self.engine: Engine
        self.host: ShardHost
        """The first shard."""
        self.hosts: list[ShardHost]
        self.broker: Broker
        self.brokers: Sequence[Broker]
        """The facade of each process."""
        self.processes: list[LinkedProcess] = []
        """Where there are several."""
        self.failures: list[str] = []
        """The reasons of journal failures, which stop the shard."""

    async def start(self) -> None:
        options = dict(self._options)
        auto_create, encrypt_all = options.pop("auto_create", True), options.pop("encrypt_all", False)
        shards, processes = options.pop("shards", 1), options.pop("processes", 1)
        hot_bytes = options.pop("hot_bytes", limits.HOT_BYTES_MAX)
        options.setdefault("memory", NodeMemory(hot_bytes))
        self.engine = self._open_engine()
        try:
            self.hosts = [
                await open_shard(
                    self.engine, number, self.clock, bytes(15) + b"\1", on_failure=self.failures.append, **options
                )
                for number in range(shards)
            ]
        except BaseException:
            await self.engine.close()
            raise
        self.host = self.hosts[0]
        # The same key each time, so that secrets encrypted before a restart can be decrypted after it.
        vault = Vault(lambda: bytes(range(32)))
        confirmations = Confirmations(self._random.randbytes(32))
        brokers = [
            Broker(
                host,
                self._random.getrandbits,
                auto_create=auto_create,
                vault=vault,
                encrypt_all=encrypt_all,
                shards=shards,
                confirmations=confirmations,
            )
            for host in self.hosts
        ]
        self.processes = linked(brokers, processes, self.clock.now_ms) if processes > 1 else []
        if self.processes:
            self.broker = cast(Broker, self.processes[0].broker)
        else:
            self.broker = brokers[0] if shards == 1 else cast(Broker, routed_over(brokers, self.clock.now_ms))
        self.brokers = [cast(Broker, process.broker) for process in self.processes] or [self.broker]

    async def stop(self, *, final_snapshot: bool = True) -> None:
        for process in self.processes:
            await process.close_links()
        for process in self.processes[1:]:
            await process.broker.close(final_snapshot=final_snapshot)
        await self.broker.close(final_snapshot=final_snapshot)
        await self.engine.close()

    async def restart(self, *, final_snapshot: bool = True) -> None:
        await self.stop(final_snapshot=final_snapshot)
        await self.start()

    async def advance(self, ms: int) -> None:
        """Advance the clock and run the timers of the broker."""
        self.clock.advance(ms)
        for host in self.hosts:
            await host.loop.submit(Tick())

    async def publish(
        self,
        queue: str,
        *payloads: bytes,
        producer: tuple[str, int, int] | None = None,
        **columns: Sequence[int | bytes],
    ) -> PublishReply:
        """Publish one batch; each of `columns` has one value per payload."""
        parts = self.parts(queue, *payloads, **columns)
        return await self.broker.messages.publish(parts, ProducerSeq(*producer) if producer else None)

    def parts(self, queue: str, *payloads: bytes, **columns: Sequence[int | bytes]) -> list[PublishPart]:
        """One batch, as `messages.publish` takes it."""
        named: Any = {_COLUMNS[name]: values for name, values in columns.items()}
        return [PublishPart(parse_queue(queue), Batch.open(build(payloads, kind=layout.KIND_BYTES, columns=named)))]

    async def lease(self, queue: str, **options: Any) -> list[Delivered]:
        return messages((await self.broker.messages.lease(parse_queue(queue), **options)).runs)


def messages(runs: Sequence[DeliveredRun]) -> list[Delivered]:
    """The messages of these runs."""
    return [
        Delivered(
            run.queue,
            run.partition,
            run.offset + row,
            ulid_text(run.id + row),
            payload,
            run.attempt,
            f"{run.receipt}{run.offset + row}" if run.receipt is not None else "",
            run.deadline_at_ms,
            run.published_at_ms,
        )
        for run in runs
        for row, payload in enumerate(run.batch.payloads())
    ]


@asynccontextmanager
async def in_process(
    open_engine: Callable[[], Engine] | None = None,
    *,
    clock: ManualClock | None = None,
    seed: int = 1,
    **options: Any,
) -> AsyncIterator[InProcess]:
    """A running broker; `options` are those of `open_shard`, and `auto_create`, `encrypt_all` and `shards` of
    `Broker`. With `processes`, that many facades serve the shards in turn and reach each other over sockets, as
    processes do; `broker` is the facade of the first."""
    if open_engine is None:
        memory = MemoryEngine()
        open_engine = lambda: memory  # noqa: E731  one store for all restarts
    box = InProcess(open_engine, clock or ManualClock(), seed, options)
    await box.start()
    try:
        yield box
    finally:
        await box.stop()
