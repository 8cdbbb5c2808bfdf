"""Consumers that are members of a group: diligent, slow and silent ones, and some that come back from the dead."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

from penstock.broker.types import LeaseReply, ShareReply
from penstock.errors import PenstockError, QueueNotFound, StaleGeneration, UnknownMember
from sim.network import NoAnswer

if TYPE_CHECKING:
    from sim.workload import Workload


class Seat:
    """What one incarnation of a member knows."""

    def __init__(self, share: ShareReply):
        self.member = share.member
        self.generation = share.generation
        self.giving_up: list[int] = []
        self.lost = False


class Attendant:
    """One consumer of a group with assigned partitions, through as many lives as it takes."""

    def __init__(self, workload: Workload, queue: str, group: str, name: str):
        self._workload = workload
        self._queue = queue
        self._group = group
        self._name = name
        self._rng: Random = workload.plan.rng(f"member-{name}")

    async def live(self, until_s: float) -> None:
        workload, rng = self._workload, self._rng
        while workload.now_s() < until_s:
            seat = await self._join()
            if seat is None:
                await asyncio.sleep(rng.random() * 3)
                continue
            ends_s = workload.now_s() + rng.choice((5, 20, 60, 1e9))
            beating = asyncio.ensure_future(self._beat(seat))
            try:
                await self._work(seat, min(ends_s, until_s))
            finally:
                beating.cancel()
            if not seat.lost and rng.random() < 0.6:
                await self._call("leave_group", member=seat.member, generation=seat.generation)
            # Otherwise it dies without a word.
            await asyncio.sleep(rng.random() * 8)

    async def _join(self) -> Seat | None:
        rng = self._rng
        share = await self._call(
            "join_group",
            member=self._name if rng.random() < 0.5 else None,
            session_ms=rng.choice((1_500, 4_000, 8_000)),
            drain_ms=rng.choice((0, 500, 4_000)),
        )
        return Seat(share) if isinstance(share, ShareReply) else None

    async def _beat(self, seat: Seat) -> None:
        """Some adopt what they hear at once, some later; some fall silent for a while, or for good."""
        rng = self._rng
        while not seat.lost:
            await asyncio.sleep(rng.choice((0.5, 1.0, 2.0, 2.0, 4.0, 9.0)))
            await self._heartbeat(seat, adopts=rng.random() < 0.7)

    async def _heartbeat(self, seat: Seat, *, adopts: bool) -> None:
        seats = self._workload.ledger.seats
        place = (self._queue, self._group, seat.member)
        seats.acted[place] = max(seats.acted.get(place, 0), seat.generation)
        released = seat.giving_up if self._rng.random() < 0.3 else []
        told = await self._call(
            "heartbeat", member=seat.member, generation=seat.generation, released=released,
            about=self._workload.ledger.now_ms,
        )  # fmt: skip
        if isinstance(told, StaleGeneration | UnknownMember):
            seat.lost = True
        elif isinstance(told, ShareReply):
            seat.giving_up = told.giving_up
            if adopts:
                seat.generation = told.generation

    async def _work(self, seat: Seat, until_s: float) -> None:
        workload, rng = self._workload, self._rng
        acks: list[str] = []
        while workload.now_s() < until_s and not (seat.lost and rng.random() < 0.8):
            wait_ms = rng.choice((0, 2_000, 8_000))
            reply = await self._call(
                "lease", max=rng.choice((1, 3, 10)), wait_ms=wait_ms, consumer=seat.member, member=seat.member,
                generation=seat.generation, lease_ms=rng.choice((None, None, 1_500, 6_000)), ack=acks,
                wait_s=wait_ms / 1000,
            )  # fmt: skip
            if isinstance(reply, NoAnswer):
                await asyncio.sleep(rng.random())
                continue
            acks = []
            if isinstance(reply, StaleGeneration | UnknownMember):
                return
            if not isinstance(reply, LeaseReply):
                await asyncio.sleep(3 * rng.random() + (2 if isinstance(reply, QueueNotFound) else 0.2))
                continue
            if reply.generation is not None and reply.generation > seat.generation and rng.random() < 0.7:
                await self._heartbeat(seat, adopts=True)
            receipts = workload.receipts(reply, rng)
            if reply.runs or not wait_ms:
                await asyncio.sleep(rng.expovariate(1 / ((2 if reply.runs else 6) * workload.plan.pace)))
            elif not reply.runs:
                await asyncio.sleep(rng.random() * 2)
            if receipts:
                acks = await workload.handle(receipts, rng)

    async def _call(self, method: str, **options: Any) -> Any:
        try:
            return await self._workload.network.call(method, self._queue, group=self._group, **options)
        except (NoAnswer, PenstockError) as error:
            return error
