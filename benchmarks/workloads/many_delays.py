"""A million pending delays: their memory, the lateness of due messages beside them, cancels, restarts."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random

import msgspec

from benchmarks.payload import number_of, payload, payloads
from benchmarks.peers.http_client import HttpConnection
from benchmarks.peers.penstock_http import PenstockHttp
from benchmarks.report import Row, figure
from benchmarks.stats import percentile, percentile_by_parts
from benchmarks.workloads.run import Run, data_directory

SYSTEM = "penstock-http-ack-in-lease"
QUEUE = "reminders"
HOUR_MS = 3_600_000
FAR_MS = 30 * 24 * HOUR_MS
"""The furthest due time."""
NEAR_SHARE = 0.1
"""Due within the hour; the rest later."""
NEAR_FROM_MS = 600_000
LEAD_MS = 3_000
DUE_PER_MS = 1
CANCELS = 1_000
NOISE_BATCH = 100
NOISE_PAUSE_S = 0.012
LOOK_EVERY = 20
"""Publishes between two checks for snapshots."""
_BATCH = 1_000


async def delays_1m(run: Run) -> list[Row]:
    """1,000,000 pending delays, 90 % beyond an hour, beside 1,000 a second that come due while snapshots are taken."""
    name = "delays_1m"
    if not run.wants(SYSTEM):
        return []
    pending, window_ms = (50_000, 3_000) if run.quick else (1_000_000, 30_000)
    peer = PenstockHttp(ack_in_lease=True)
    with data_directory() as directory:
        await peer.start(directory)
        try:
            run.versions |= peer.versions()
            await peer.create(QUEUE)
            await peer.create("noise")
            rss_before = peer.server.rss_bytes()
            chance, ids, peak = Random(1), [], 0
            for start in range(0, pending, _BATCH):
                now = int(_now_ms())
                due = [now + _wait_ms(chance) for _ in range(_BATCH)]
                ids += await peer.publish_at(QUEUE, [payload(start + row) for row in range(_BATCH)], due)
                peak = max(peak, peer.server.rss_bytes())
            growth = await _settled_rss(peer) - rss_before
            lateness, snapshots, cpu = await _due_beside_them(peer, directory, window_ms)
            growth_after = peer.server.rss_bytes() - rss_before
            chosen = chance.sample(ids, CANCELS)
            began = time.perf_counter()
            cancelled = await peer.cancel(QUEUE, ids=chosen)
            by_id = time.perf_counter() - began
            assert cancelled == CANCELS, f"{cancelled} of {CANCELS} were cancelled"
            began = time.perf_counter()
            await peer.cancel(QUEUE, key=f"k{due[0]}")
            by_key = time.perf_counter() - began
            stopping, starting = await peer.restart(kill=False)
            _, starting_after_kill = await peer.restart(kill=True)
        finally:
            await peer.stop()
    note = f"{pending:,} pending"
    beside = f"{len(lateness):,} due at {1000 * DUE_PER_MS}/s, {snapshots} snapshots meanwhile"
    return [
        figure(name, "rss growth", SYSTEM, "MiB", growth / 2**20, f"{note}; when the server has caught up with them"),
        figure(name, "rss growth, highest", SYSTEM, "MiB", (peak - rss_before) / 2**20, "while they came in"),
        figure(name, "rss growth after use", SYSTEM, "MiB", growth_after / 2**20, note),
        *(
            figure(name, f"lateness {which}", SYSTEM, "ms", value, beside)
            for which, value in {
                "min": min(lateness),
                "p50": percentile(lateness, 50),
                "p99": percentile(lateness, 99),
                "p99 by parts": percentile_by_parts(lateness, 99),
                "max": max(lateness),
            }.items()
        ),
        figure(name, "server cpu", SYSTEM, "µs/msg", cpu * 1e6 / len(lateness), "due, lease and ack, and the noise"),
        figure(name, f"cancel {CANCELS} ids", SYSTEM, "s", by_id, "chosen by chance, one call"),
        figure(name, "cancel by key", SYSTEM, "s", by_key, "one message"),
        figure(name, "restart after SIGTERM", SYSTEM, "s", stopping + starting, f"{stopping:.2f} s of it to stop"),
        figure(name, "restart after kill -9", SYSTEM, "s", starting_after_kill, note),
    ]


async def _settled_rss(peer: PenstockHttp) -> int:
    """Resident memory when the files of far delays and snapshots are written: unchanged for two seconds."""
    seen: list[int] = []
    for _ in range(40):
        seen.append(peer.server.rss_bytes())
        if len(seen) >= 5 and len(set(seen[-5:])) == 1:
            break
        await asyncio.sleep(0.5)
    return seen[-1]


def _wait_ms(chance: Random) -> int:
    if chance.random() < NEAR_SHARE:
        return chance.randint(NEAR_FROM_MS, HOUR_MS)
    return chance.randint(HOUR_MS, FAR_MS)


async def _due_beside_them(peer: PenstockHttp, directory: Path, window_ms: int) -> tuple[list[float], int, float]:
    """The lateness of each message, the snapshots taken meanwhile, CPU seconds of the server."""
    first = int(_now_ms()) + LEAD_MS
    due = [first + number // DUE_PER_MS for number in range(window_ms * DUE_PER_MS)]
    for start in range(0, len(due), _BATCH):
        rows = range(start, min(start + _BATCH, len(due)))
        await peer.publish_at(QUEUE, [payload(row) for row in rows], [due[row] for row in rows])
    assert _now_ms() < first, "the first was due before the last was published"
    lateness: list[float] = []

    def arrived(content: bytes) -> None:
        lateness.append(_now_ms() - due[number_of(content)])

    cpu = peer.server.cpu_seconds()
    with _noise(peer, directory) as snapshots:
        await peer.listen(QUEUE, len(due), arrived)
    return lateness, len(snapshots), peer.server.cpu_seconds() - cpu


@contextmanager
def _noise(peer: PenstockHttp, directory: Path) -> Iterator[set[str]]:
    """Another client publishes, so that the journal grows and snapshots are due; yields the names of new snapshots."""
    blobs = directory / "data" / "shard-0" / "blobs"
    before = {path.name for path in blobs.glob("snapshot-*")}
    seen: set[str] = set()
    over = threading.Event()
    # Encoded once: the consumer shares this process, and encoding would be measured as lateness.
    messages = [{"payload": msgspec.Raw(content)} for content in payloads(NOISE_BATCH, 1_000)]
    body = msgspec.json.encode({"queue": "noise", "messages": messages})

    def publish() -> None:
        connection = HttpConnection(peer.server.url)
        for number in count():
            if over.wait(NOISE_PAUSE_S):
                break
            connection.post(b"/v1/publish", body)
            if number % LOOK_EVERY == 0:
                seen.update({path.name for path in blobs.glob("snapshot-*[0-9]")} - before)
        connection.close()

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def _now_ms() -> float:
    return time.time() * 1000
