"""An archiver, which copies the queues as an archive does: set a hold, read the messages after it, keep a copy, move
the hold."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.broker.types import ReadReply
from penstock.errors import Conflict, PenstockError
from penstock.wire.holds import ExtentReply, HoldReply, HoldRequest
from sim.network import NoAnswer

if TYPE_CHECKING:
    from sim.workload import Workload

NAME = "archive"


class Archiver:
    """Its copies survive a restart of the broker; it relies on nothing else."""

    def __init__(self, workload: Workload):
        self._workload = workload
        self._rng = workload.plan.rng("archivist")
        self._copied: dict[str, dict[int, int]] = {}
        """Queue -> partition -> the first offset that is not copied."""
        self._max_bytes = self._rng.choice((3_000, 10**9, 10**9))

    async def live(self) -> None:
        rng = self._rng
        while self._workload.working():
            await asyncio.sleep(rng.expovariate(1 / (4 * self._workload.plan.pace)))
            if await self._hold() and rng.random() < 0.9:
                for queue in self._workload.plan.queues:
                    await self._copy(queue.path)
            elif rng.random() < 0.3:
                # The hold was deleted, or dropped because it spanned too much: begin again.
                await self._call("holds.remove", NAME)
                await asyncio.sleep(rng.choice((1, 20)))

    async def _hold(self) -> bool:
        places = {
            queue: {str(partition): offset for partition, offset in offsets.items()}
            for queue, offsets in self._copied.items()
        }
        asked = HoldRequest(queues=places, max_bytes=self._max_bytes)
        held = await self._call("holds.set", NAME, asked, {queue: queue for queue in places})
        if isinstance(held, Conflict):
            await self._call("holds.remove", NAME)
        elif isinstance(held, PenstockError) and not held.retryable:
            self._copied.clear()  # the queue was deleted, or created again
        return isinstance(held, HoldReply)

    async def _copy(self, queue: str) -> None:
        extent = await self._call("log.extent", queue)
        if not isinstance(extent, ExtentReply):
            return
        offsets = self._copied.setdefault(queue, {})
        for part in extent.partitions:
            at = offsets.get(part.partition, 0)
            reply = await self._call(
                "log.read", queue, partition=part.partition, offset=str(at), max=self._rng.choice((1, 10, 500)),
                wait_ms=0, about=NAME,
            )  # fmt: skip
            if isinstance(reply, ReadReply):
                offsets[part.partition] = reply.next_offset

    async def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        try:
            return await self._workload.network.call(method, *arguments, **options)
        except (NoAnswer, PenstockError) as error:
            return error
