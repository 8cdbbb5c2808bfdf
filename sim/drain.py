"""Diligent consumers for the end of a run: for every group of every queue, and they ack what they get."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from typing import Any

from penstock.broker.types import LeaseReply, ShareReply
from penstock.errors import PenstockError, QueueNotFound, StaleGeneration, UnknownMember
from sim.ledger import Ledger
from sim.loop import VirtualLoop
from sim.network import Network, NoAnswer

WAIT_MS = 60_000
MEMBER_WAIT_MS = 2_000
"""Between two heartbeats."""
SESSION_MS = 12_000
MEMBERS = 2
LOOK_EVERY_S = 5.0


class Drain:
    def __init__(self, loop: VirtualLoop, network: Network, ledger: Ledger, assigned: Collection[tuple[str, str]]):
        self._loop = loop
        self._assigned = assigned
        self._network = network
        self._ledger = ledger
        self._drained: dict[tuple[str, str, int], asyncio.Task[None]] = {}
        self._watch = loop.create_task(self._find_work())
        self._silence = loop.create_task(self._stop_schedules())

    async def _find_work(self) -> None:
        """Queues and groups may still appear: requests that were long on their way."""
        while True:
            for queue in list(self._ledger.queues.values()):
                for group in dict.fromkeys(("default", *queue.groups.values())):
                    assigned = (queue.path, group) in self._assigned
                    for number in range(MEMBERS if assigned else 1):
                        place = (queue.path, group, number)
                        if place not in self._drained or self._drained[place].done():
                            work = self._attend(queue.path, group) if assigned else self._empty(queue.path, group)
                            self._drained[place] = self._loop.create_task(work)
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
                await self._ack(reply)
            except QueueNotFound:
                return
            except (NoAnswer, PenstockError):
                await asyncio.sleep(0.3)

    async def _attend(self, path: str, group: str) -> None:
        """As a member that does everything right: heartbeats, adopts what it hears, joins again when it must."""
        seat: ShareReply | None = None
        place: dict[str, Any] = {"group": group}
        while True:
            try:
                if seat is None:
                    seat = await self._network.call("join_group", path, session_ms=SESSION_MS, **place)
                assert seat is not None
                name: dict[str, Any] = {"member": seat.member, "generation": seat.generation, **place}
                acted = self._ledger.seats.acted
                acted[path, group, seat.member] = max(acted.get((path, group, seat.member), 0), seat.generation)
                seat = await self._network.call("heartbeat", path, about=self._ledger.now_ms, **name)
                name["generation"] = seat.generation
                wait_s = MEMBER_WAIT_MS / 1000
                reply: LeaseReply = await self._network.call(
                    "lease", path, max=100, wait_ms=MEMBER_WAIT_MS, consumer=seat.member, wait_s=wait_s, **name
                )
                await self._ack(reply)
            except QueueNotFound:
                return
            except (UnknownMember, StaleGeneration):
                seat = None
            except (NoAnswer, PenstockError):
                await asyncio.sleep(0.3)

    async def _ack(self, reply: LeaseReply) -> None:
        receipts = [
            f"{run.receipt}{run.offset + position}"
            for run in reply.runs
            if run.receipt is not None
            for position in range(run.count)
        ]
        if receipts:
            await self._network.call("ack", receipts)
