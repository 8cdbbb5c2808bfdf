"""`/ws/dashboard`: events of messages, queues and workers. Events that exceed the buffer of a slow client are dropped.

A worker is a consumer name of a lease. It is connected with its first lease, and disconnected when it has taken no
lease for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from penstock.broker.feed import Happening
from penstock.errors import QueueNotFound
from penstock.ids import QueuePath
from penstock.pending import value_of
from penstock.transports.dialects.delivered import iso_timestamp
from penstock.transports.dialects.sockets import FrameBuffer
from penstock.transports.http.edge import Edge

TICK_S = 1.0
"""The interval at which the depths of changed queues are sent."""
STALE_WORKER_MS = 30_000
WORKERS_MAX = 1_000

_EVENTS = {
    "published": "message.pushed",
    "leased": "message.processing",
    "acked": "message.completed",
    "retried": "message.failed",
    "dead_lettered": "message.failed",
}


class Dashboard:
    """One connection. Frames of the client are ignored."""

    def __init__(self, edge: Edge, output: FrameBuffer):
        self._edge = edge
        self._output = output
        self._changed_queues: set[str] = set()
        self._workers: dict[str, int] = {}
        """Name -> time of its last lease."""
        self._dropped = 0
        self._stop_watching = edge.broker.feed.watch(self._on_events)
        self._ticking = asyncio.ensure_future(self._tick())

    async def receive(self, text: str) -> None:
        """Ignore the frame."""

    async def ended(self, *, lost: bool) -> None:  # noqa: ARG002
        self._stop_watching()
        self._ticking.cancel()
        await asyncio.gather(self._ticking, return_exceptions=True)

    def _on_events(self, happenings: list[Happening]) -> None:
        for happening in happenings:
            self._changed_queues.add(happening.queue)
            if happening.kind == "queue_created":
                ns, task, queue = happening.queue.split("/")
                self._emit("queue.created", happening.at_ms, ns=ns, task=task, queue=queue)
            if happening.kind == "leased" and happening.consumer:
                self._note_worker(happening.consumer, happening.at_ms)
            event = _EVENTS.get(happening.kind)
            for transaction in happening.messages if event is not None else ():
                self._emit(
                    event or "",
                    happening.at_ms,
                    queue=happening.queue,
                    transactionId=transaction,
                    **({"workerId": happening.consumer} if happening.kind == "leased" else {}),
                    **({"error": happening.error} if event == "message.failed" else {}),
                )

    def _note_worker(self, worker: str, at_ms: int) -> None:
        if worker not in self._workers:
            if len(self._workers) >= WORKERS_MAX:
                return
            self._emit("worker.connected", at_ms, workerId=worker)
        self._workers[worker] = at_ms

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            await self.tick(self._edge.clock.now_ms())

    async def tick(self, now_ms: int) -> None:
        """Send depths of changed queues, disconnected workers and the number of dropped events."""
        changed, self._changed_queues = self._changed_queues, set()
        for path in sorted(changed):
            with contextlib.suppress(QueueNotFound):
                shown = await value_of(self._edge.broker.queues.get(QueuePath(path)))
                self._emit("queue.depth", now_ms, queue=path, depth=shown["depth"])
        for worker, seen_ms in list(self._workers.items()):
            if now_ms - seen_ms >= STALE_WORKER_MS:
                del self._workers[worker]
                self._emit("worker.disconnected", now_ms, workerId=worker)
        if self._dropped and self._output.offer({"event": "events.dropped", "data": {"count": self._dropped}}):
            self._dropped = 0

    def _emit(self, event: str, at_ms: int, **data: Any) -> None:
        if not self._output.offer({"event": event, "data": {**data, "timestamp": iso_timestamp(at_ms)}}):
            self._dropped += 1
