"""`/ws/dashboard`: what happens to messages, for people who look on. Events that a slow client cannot take are dropped.

Workers are the names that leases are taken under: one is connected when it is first seen, and disconnected when it was
not seen for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from penstock.broker.feed import Happening
from penstock.errors import QueueNotFound
from penstock.ids import QueuePath
from penstock.transports.dialects.delivered import moment
from penstock.transports.dialects.sockets import Outlet
from penstock.transports.http.edge import Edge

TICK_S = 1.0
"""How often depths are told, of queues in which something happened."""
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
    """One connection. It only listens."""

    def __init__(self, edge: Edge, outlet: Outlet):
        self._edge = edge
        self._outlet = outlet
        self._touched: set[str] = set()
        self._workers: dict[str, int] = {}
        """Name -> when it last took something."""
        self._dropped = 0
        self._stop_watching = edge.broker.feed.watch(self._told)
        self._ticking = asyncio.ensure_future(self._tick())

    async def receive(self, text: str) -> None:
        """Whatever a client says here, nothing is asked of it."""

    async def ended(self, *, lost: bool) -> None:  # noqa: ARG002
        self._stop_watching()
        self._ticking.cancel()
        await asyncio.gather(self._ticking, return_exceptions=True)

    def _told(self, happenings: list[Happening]) -> None:
        for happening in happenings:
            self._touched.add(happening.queue)
            if happening.kind == "queue_created":
                ns, task, queue = happening.queue.split("/")
                self._emit("queue.created", happening.at_ms, ns=ns, task=task, queue=queue)
            if happening.kind == "leased" and happening.consumer:
                self._seen(happening.consumer, happening.at_ms)
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

    def _seen(self, worker: str, at_ms: int) -> None:
        if worker not in self._workers:
            if len(self._workers) >= WORKERS_MAX:
                return
            self._emit("worker.connected", at_ms, workerId=worker)
        self._workers[worker] = at_ms

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.tick(self._edge.clock.now_ms())

    def tick(self, now_ms: int) -> None:
        """What is told by time, and not by what happens."""
        touched, self._touched = self._touched, set()
        for path in sorted(touched):
            with contextlib.suppress(QueueNotFound):
                depth = self._edge.broker.get_queue(QueuePath(path))["depth"]
                self._emit("queue.depth", now_ms, queue=path, depth=depth)
        for worker, seen_ms in list(self._workers.items()):
            if now_ms - seen_ms >= STALE_WORKER_MS:
                del self._workers[worker]
                self._emit("worker.disconnected", now_ms, workerId=worker)
        if self._dropped and self._outlet.offer({"event": "events.dropped", "data": {"count": self._dropped}}):
            self._dropped = 0

    def _emit(self, event: str, at_ms: int, **data: Any) -> None:
        if not self._outlet.offer({"event": event, "data": {**data, "timestamp": moment(at_ms)}}):
            self._dropped += 1
