"""Analytics of queues: the past from the tables of a lake, the present from the broker itself.

One thread reads the tables, one query at a time, so the event loop never waits for the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from penstock import limits
from penstock.analytics.time_span import QueueFilter, TimeSpan, time_span
from penstock.broker.stats import Stats
from penstock.broker.types import QueueRow
from penstock.errors import NotFound, QueueNotFound, Unavailable
from penstock.wire.analytics import (
    AnalyticsNow,
    AnalyticsQueuesReply,
    AnalyticsReply,
    DepthPoint,
    DepthsReply,
    LatencyPoint,
    LatencyReply,
    ThroughputPoint,
    ThroughputReply,
)

if TYPE_CHECKING:
    from penstock.analytics.reader import AnalyticsReader

T = TypeVar("T")

NOT_CONFIGURED = "this broker has no lake to read analytics from: start it with `penstock serve --lake DIR`"


class Analytics:
    def __init__(self, stats: Stats, now_ms: Callable[[], int]):
        self._stats = stats
        self._now_ms = now_ms
        self._reader: AnalyticsReader | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._in_line = 0

    def use(self, lake: str) -> None:
        """Read from this lake from now on. Raises ModuleNotFoundError if the extra `lake` is not installed."""
        from penstock.analytics.reader import AnalyticsReader

        self._reader = AnalyticsReader(lake)

    async def queues(
        self, prefix: str, from_ms: int | None, to_ms: int | None, page: int, limit: int
    ) -> AnalyticsQueuesReply:
        span, chosen = self._span(from_ms, to_ms, None), QueueFilter(prefix=prefix)
        found, until = await self._ask(lambda reader: (reader.queues(chosen, span), reader.analysed_until_ms()))
        now = {row.queue: _now(row) for row in await self._stats.rows(prefix)}
        shown = found[(page - 1) * limit : page * limit]
        for queue in shown:
            queue.now = now.get(queue.queue)
        return AnalyticsQueuesReply(span.from_ms, span.to_ms, until, shown, len(found), page, limit)

    async def history(
        self, *, queue: str | None = None, prefix: str = "", from_ms: int | None, to_ms: int | None, step_ms: int | None
    ) -> AnalyticsReply:
        """Of one queue, or of all whose path begins with `prefix`. Raises QueueNotFound if neither knows the queue."""
        span, chosen = self._span(from_ms, to_ms, step_ms), QueueFilter(queue, prefix)

        def read(reader: AnalyticsReader) -> AnalyticsReply:
            until = reader.analysed_until_ms()
            past = reader.summary(chosen, span)
            return AnalyticsReply(
                *span, until, past.counts, *past.timings, points=past.points, groups=past.groups,
                consumers=reader.consumers(chosen, span), failures=reader.failures(chosen, span),
                now=[], depth=past.depth, dead=past.dead,
            )  # fmt: skip

        reply = await self._ask(read)
        reply.now = await self._present(queue, prefix)
        if queue is not None and not reply.now and not reply.groups and not reply.counts.published:
            raise QueueNotFound(f"there is no queue {queue}, and nothing was counted of it in this time")
        return reply

    async def depths(
        self, queue: str | None, from_ms: int | None, to_ms: int | None, step_ms: int | None
    ) -> DepthsReply:
        found = await self.history(queue=queue, from_ms=from_ms, to_ms=to_ms, step_ms=step_ms)
        points = [DepthPoint(point.at_ms, point.depth, point.dead) for point in found.points]
        return DepthsReply(found.from_ms, found.to_ms, found.step_ms, found.analysed_until_ms, points, found.now)

    async def throughput(
        self, queue: str | None, from_ms: int | None, to_ms: int | None, step_ms: int | None
    ) -> ThroughputReply:
        found = await self.history(queue=queue, from_ms=from_ms, to_ms=to_ms, step_ms=step_ms)
        seconds = found.step_ms / 1000
        points = [
            ThroughputPoint(
                point.at_ms, point.counts.published / seconds, point.counts.delivered / seconds,
                point.counts.acked / seconds, point.counts.retried / seconds, point.counts.dead_lettered / seconds,
            )
            for point in found.points
        ]  # fmt: skip
        return ThroughputReply(found.from_ms, found.to_ms, found.step_ms, found.analysed_until_ms, points, found.now)

    async def latency(
        self, queue: str | None, from_ms: int | None, to_ms: int | None, step_ms: int | None
    ) -> LatencyReply:
        found = await self.history(queue=queue, from_ms=from_ms, to_ms=to_ms, step_ms=step_ms)
        points = [LatencyPoint(point.at_ms, point.wait, point.processing, point.end_to_end) for point in found.points]
        return LatencyReply(found.from_ms, found.to_ms, found.step_ms, found.analysed_until_ms, points)

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _present(self, queue: str | None, prefix: str) -> list[AnalyticsNow]:
        rows = await self._stats.rows(prefix if queue is None else queue)
        return [_now(row) for row in rows if queue is None or row.queue == queue]

    async def _ask(self, question: Callable[[AnalyticsReader], T]) -> T:
        reader = self._reader
        if reader is None:
            raise NotFound(NOT_CONFIGURED)
        if self._in_line >= limits.ANALYTICS_READS_MAX:
            raise Unavailable(f"{self._in_line} questions to the lake are in line already", retry_after_ms=1_000)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "analytics")
        self._in_line += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, question, reader)
        finally:
            self._in_line -= 1

    def _span(self, from_ms: int | None, to_ms: int | None, step_ms: int | None) -> TimeSpan:
        if self._reader is None:
            raise NotFound(NOT_CONFIGURED)
        return time_span(from_ms, to_ms, step_ms, self._now_ms())


def _now(row: QueueRow) -> AnalyticsNow:
    rates = row.rates
    return AnalyticsNow(
        row.queue, row.depth, row.ready, row.scheduled, row.leased, row.waiting_for_retry, row.dead,
        rates["published_per_s"], rates["delivered_per_s"], rates["acked_per_s"],
    )  # fmt: skip
