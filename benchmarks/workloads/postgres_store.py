"""Penstock on PostgreSQL beside two queues in the same PostgreSQL server, in the same rounds."""

from __future__ import annotations

import asyncio
import threading
import time
from statistics import median

import asyncpg

from benchmarks.payload import payloads
from benchmarks.peers.http_client import HttpConnection
from benchmarks.peers.penstock_http import PenstockHttp
from benchmarks.peers.port import Peer
from benchmarks.peers.postgres import Postgres
from benchmarks.peers.procrastinate import Procrastinate
from benchmarks.report import Row, figure
from benchmarks.rounds import take_turns
from benchmarks.stats import Spread
from benchmarks.workloads.run import Run, comparison, data_directory, failures, new_queue
from benchmarks.workloads.turns import CycleTurn
from penstock.engines.postgres.engine import PostgresEngine
from penstock.testing.check_engine import opened

NAME = "postgres_store"
LATENCIES = 200
APPENDS = 1_500
QUEUED = 1_000_000


async def postgres_store(run: Run) -> list[Row]:
    """Publish, lease and ack in batches of 100; latency of a long poll; appends beside a held transaction; restart."""
    with data_directory() as directory:
        table = Postgres()
        peers: dict[str, Peer] = {"postgres": table}
        try:
            await table.start(_made(directory / "postgres-home"))
            penstock = PenstockHttp(False, "--store", f"{table.dsn}?schema=bench")
            peers |= {"penstock-postgres": penstock, "procrastinate": Procrastinate(table.dsn, table.server)}
            await penstock.start(_made(directory / "penstock"))
            await peers["procrastinate"].start(directory)
            for peer in peers.values():
                run.versions |= peer.versions()
            turns = {who: CycleTurn(peer, 100, run.pace.seconds) for who, peer in peers.items()}
            samples, errors = await take_turns(turns, run.pace.rounds)
            rows = failures(NAME, errors)
            for what in ("publish", "drain"):
                rates = {who: [getattr(cycle, what).rate for cycle in each] for who, each in samples.items()}
                rows += comparison(NAME, what, "msg/s", rates, peers)
            rows.append(_row("publish to long poll p50", "ms", await asyncio.to_thread(_latencies, penstock)))
            rows.append(_row("append p50, held transaction / none", "x", await _held(table.dsn)))
            rows.append(_row("restart with queued messages", "s", await _restart(penstock, run)))
            return rows
        finally:
            for peer in reversed(peers.values()):
                await peer.stop()


def _made(path):  # type: ignore[no-untyped-def]
    path.mkdir()
    path.chmod(0o711)
    return path


def _row(what: str, unit: str, values: list[float]) -> Row:
    return figure(NAME, what, "penstock-postgres", unit, Spread.of(values), "")


def _latencies(peer: PenstockHttp) -> list[float]:
    """Milliseconds from the publish of one message to the reply of a consumer that waits for it, median of each ten."""
    queue = new_queue()
    peer.server.create_queue(queue)
    arrived: list[float] = []
    sent: list[float] = []
    ready = threading.Semaphore(0)

    def consume() -> None:
        connection = HttpConnection(peer.server.url)
        for _ in range(LATENCIES):
            ready.release()
            connection.post(b"/v1/lease", b'{"queue":"%s","max":1,"wait_ms":10000}' % queue.encode())
            arrived.append(time.perf_counter())
        connection.close()

    consumer = threading.Thread(target=consume)
    consumer.start()
    connection = HttpConnection(peer.server.url)
    for number in range(LATENCIES):
        ready.acquire()
        time.sleep(0.005)
        sent.append(time.perf_counter())
        connection.post(b"/v1/publish", b'{"queue":"%s","messages":[{"payload":%d}]}' % (queue.encode(), number))
    consumer.join()
    connection.close()
    taken = [1000 * (there - left) for left, there in zip(sent, arrived, strict=True)]
    return [median(taken[at : at + 10]) for at in range(0, LATENCIES, 10)]


async def _held(dsn: str) -> list[float]:
    """The p50 of an append at the end of a run beside a transaction that is held open, to that without one."""
    engine = PostgresEngine(f"{dsn}?schema=held")
    owner = await opened(engine)
    body = b"x" * 20_000

    async def p50(count: int) -> float:
        times = []
        for _ in range(count):
            begun = time.perf_counter()
            await owner.append([body])
            times.append(time.perf_counter() - begun)
        return median(times)

    await p50(200)
    ratios = []
    for _ in range(3):
        free = await p50(APPENDS // 3)
        holder = await asyncpg.connect(dsn)
        await holder.execute("begin isolation level repeatable read")
        await holder.fetch("select count(*) from held.shard")
        await p50(APPENDS)
        ratios.append(await p50(APPENDS // 3) / free)
        await holder.close()
    await owner.journal.close()
    await engine.close()
    return ratios


async def _restart(peer: PenstockHttp, run: Run) -> list[float]:
    queue, contents = new_queue(), payloads(1000)
    await peer.create(queue)
    for _ in range((100_000 if run.quick else QUEUED) // len(contents)):
        await peer.publish(queue, contents)
    _, ready_s = await peer.restart(kill=True)
    await peer.drain(queue, 100, 1000)
    return [ready_s]
