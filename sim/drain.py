"""Correct consumers for the end of a run: one for every group of every queue, which acks every message."""

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
        """Delayed requests may still create queues and groups."""
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
        """No new messages from now on; a schedule from a delayed request is paused too."""
        while True:
            for name in list(self._ledger.schedules.by_name):
                with contextlib.suppress(NoAnswer, PenstockError):
                    await self._network.call("schedules.remove", name)
            await asyncio.sleep(1.0)

    async def _empty(self, path: str, group: str) -> None:
        name = f"drain-{group}"
        while True:
            try:
                reply: LeaseReply = await self._network.call(
                    "messages.lease", path, group=group, max=100, wait_ms=WAIT_MS, consumer=name, wait_s=WAIT_MS / 1000
                )
                await self._ack(reply)
            except QueueNotFound:
                return
            except (NoAnswer, PenstockError):
                await asyncio.sleep(0.3)

    async def _attend(self, path: str, group: str) -> None:
        """A member that follows the protocol: sends heartbeats, adopts assignments, joins again when it must."""
        session: ShareReply | None = None
        place: dict[str, Any] = {"group": group}
        while True:
            try:
                if session is None:
                    session = await self._network.call("members.join", path, session_ms=SESSION_MS, **place)
                assert session is not None
                name: dict[str, Any] = {"member": session.member, "generation": session.generation, **place}
                acted = self._ledger.memberships.acted
                acted[path, group, session.member] = max(
                    acted.get((path, group, session.member), 0), session.generation
                )
                session = await self._network.call("members.heartbeat", path, about=self._ledger.now_ms, **name)
                name["generation"] = session.generation
                wait_s = MEMBER_WAIT_MS / 1000
                reply: LeaseReply = await self._network.call(
                    "messages.lease",
                    path,
                    max=100,
                    wait_ms=MEMBER_WAIT_MS,
                    consumer=session.member,
                    wait_s=wait_s,
                    **name,
                )
                await self._ack(reply)
            except QueueNotFound:
                return
            except (UnknownMember, StaleGeneration):
                session = None
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
            await self._network.call("messages.ack", receipts)
