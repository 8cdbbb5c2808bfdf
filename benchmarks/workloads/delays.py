"""Pending delays: the lateness of a due message among many that are due far in the future."""

from __future__ import annotations

import time

from benchmarks.payload import number_of, payload
from benchmarks.peers.penstock_http import PenstockHttp
from benchmarks.report import Row, figure
from benchmarks.stats import percentile, percentile_by_parts
from benchmarks.workloads.run import Run, new_queue

PEER = "penstock-http-ack-in-lease"
FAR_MS = 3_600_000
LEAD_MS = 2_000
DUE_PER_MS = 1
_BATCH = 1_000


async def delays_200k(run: Run) -> list[Row]:
    """200,000 pending delays; for 20 s one falls due every millisecond; a long-polling consumer takes them."""
    name = "delays_200k"
    pending, window_ms = (20_000, 2_000) if run.quick else (200_000, 20_000)
    async with run.peers(name, [PEER]) as (peers, rows):
        if PEER not in peers:
            return rows
        peer = peers[PEER]
        assert isinstance(peer, PenstockHttp)
        queue = new_queue()
        await peer.create(queue)
        rss_before = peer.server.rss_bytes()
        far_from = _now_ms() + FAR_MS
        await _publish(peer, queue, [far_from + number for number in range(pending - window_ms * DUE_PER_MS)])
        # The far messages are published by now; the near ones must be published before the first is due.
        first = int(_now_ms()) + LEAD_MS
        due = [first + number // DUE_PER_MS for number in range(window_ms * DUE_PER_MS)]
        await _publish(peer, queue, due)
        growth = peer.server.rss_bytes() - rss_before
        in_time = _now_ms() < first
        lateness: list[float] = []

        def arrived(content: bytes) -> None:
            lateness.append(_now_ms() - due[number_of(content)])

        cpu = peer.server.cpu_seconds()
        await peer.listen(queue, len(due), arrived)
        cpu = peer.server.cpu_seconds() - cpu
    note = f"{pending:,} pending, {len(due):,} due at {1000 * DUE_PER_MS}/s"
    if not in_time:
        note += "; the first were due before the last was published"
    return [
        *(
            figure(name, f"lateness {which}", PEER, "ms", value, note)
            for which, value in {
                "min": min(lateness),
                "p50": percentile(lateness, 50),
                "p99": percentile(lateness, 99),
                "p99 by parts": percentile_by_parts(lateness, 99),
                "max": max(lateness),
            }.items()
        ),
        figure(name, "rss growth", PEER, "MiB", growth / 2**20, note),
        figure(name, "server cpu", PEER, "µs/msg", cpu * 1e6 / len(due), "due, lease and ack"),
        *rows,
    ]


async def _publish(peer: PenstockHttp, queue: str, due_ms: list[float] | list[int]) -> None:
    for start in range(0, len(due_ms), _BATCH):
        numbers = range(start, min(start + _BATCH, len(due_ms)))
        await peer.publish_at(queue, [payload(n) for n in numbers], [int(due_ms[n]) for n in numbers])


def _now_ms() -> float:
    return time.time() * 1000
