"""Diligent consumers for the end of a run: one for every group of every queue, and they ack what they get."""

from __future__ import annotations

import asyncio
import contextlib

from penstock.broker.types import LeaseReply
from penstock.errors import PenstockError, QueueNotFound
from sim.ledger import Ledger
from sim.loop import VirtualLoop
from sim.network import Network, NoAnswer

WAIT_MS = 60_000
LOOK_EVERY_S = 5.0


class Drain:
    def __init__(self, loop: VirtualLoop, network: Network, ledger: Ledger):
        self._loop = loop
        self._network = network
        self._ledger = ledger
        self._drained: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._watch = loop.create_task(self._find_work())
        self._silence = loop.create_task(self._stop_schedules())

    async def _find_work(self) -> None:
        """Queues and groups may still appear: requests that were long on their way."""
        while True:
            for queue in list(self._ledger.queues.values()):
                for group in ("default", *queue.groups.values()):
                    place = (queue.path, group)
                    if place not in self._drained or self._drained[place].done():
                        self._drained[place] = self._loop.create_task(self._empty(*place))
            await asyncio.sleep(LOOK_EVERY_S)

    async def _stop_schedules(self) -> None:
        """Nothing new comes from now on; a schedule that was long on its way is stopped as well."""
        while True:
            for name in list(self._ledger.calendars.by_name):
                with contextlib.suppress(NoAnswer, PenstockError):
                    await self._network.call("schedules.remove", name)
            await asyncio.sleep(1.0)

    async def _empty(self, path: str, group: str) -> None:
        name = f"drain-{group}"
        while True:
            try:
                reply: LeaseReply = await self._network.call(
                    "lease", path, group=group, max=100, wait_ms=WAIT_MS, consumer=name, wait_s=WAIT_MS / 1000
                )
                receipts = [
                    f"{run.receipt}{run.offset + position}"
                    for run in reply.runs
                    if run.receipt is not None
                    for position in range(run.count)
                ]
                if receipts:
                    await self._network.call("ack", receipts)
            except QueueNotFound:
                return
            except (NoAnswer, PenstockError):
                await asyncio.sleep(0.3)
