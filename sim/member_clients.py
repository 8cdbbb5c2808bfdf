"""Consumers that are members of a group: correct, slow and silent ones, and some that return after their session has
expired."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

from penstock.broker.types import LeaseReply, ShareReply
from penstock.errors import PenstockError, QueueNotFound, StaleGeneration, UnknownMember
from sim.network import NoAnswer

if TYPE_CHECKING:
    from sim.workload import Workload


class MemberSession:
    """The knowledge of one incarnation of a member."""

    def __init__(self, share: ShareReply):
        self.member = share.member
        self.generation = share.generation
        self.giving_up: list[int] = []
        self.lost = False


class MemberClient:
    """One consumer of a group with assigned partitions, through several incarnations."""

    def __init__(self, workload: Workload, queue: str, group: str, name: str):
        self._workload = workload
        self._queue = queue
        self._group = group
        self._name = name
        self._rng: Random = workload.plan.rng(f"member-{name}")

    async def live(self, until_s: float) -> None:
        workload, rng = self._workload, self._rng
        while workload.now_s() < until_s:
            session = await self._join()
            if session is None:
                await asyncio.sleep(rng.random() * 3)
                continue
            ends_s = workload.now_s() + rng.choice((5, 20, 60, 1e9))
            beating = asyncio.ensure_future(self._beat(session))
            try:
                await self._work(session, min(ends_s, until_s))
            finally:
                beating.cancel()
            if not session.lost and rng.random() < 0.6:
                await self._call("members.leave", member=session.member, generation=session.generation)
            # Otherwise it stops without leaving the group.
            await asyncio.sleep(rng.random() * 8)

    async def _join(self) -> MemberSession | None:
        rng = self._rng
        share = await self._call(
            "members.join",
            member=self._name if rng.random() < 0.5 else None,
            session_ms=rng.choice((1_500, 4_000, 8_000)),
            drain_ms=rng.choice((0, 500, 4_000)),
        )
        return MemberSession(share) if isinstance(share, ShareReply) else None

    async def _beat(self, session: MemberSession) -> None:
        """Some members adopt an assignment at once, some later; some send no heartbeats for a while, or never again."""
        rng = self._rng
        while not session.lost:
            await asyncio.sleep(rng.choice((0.5, 1.0, 2.0, 2.0, 4.0, 9.0)))
            await self._heartbeat(session, adopts=rng.random() < 0.7)

    async def _heartbeat(self, session: MemberSession, *, adopts: bool) -> None:
        seats = self._workload.ledger.memberships
        place = (self._queue, self._group, session.member)
        seats.acted[place] = max(seats.acted.get(place, 0), session.generation)
        released = session.giving_up if self._rng.random() < 0.3 else []
        told = await self._call(
            "members.heartbeat", member=session.member, generation=session.generation, released=released,
            about=self._workload.ledger.now_ms,
        )  # fmt: skip
        if isinstance(told, StaleGeneration | UnknownMember):
            session.lost = True
        elif isinstance(told, ShareReply):
            session.giving_up = told.giving_up
            if adopts:
                session.generation = told.generation

    async def _work(self, session: MemberSession, until_s: float) -> None:
        workload, rng = self._workload, self._rng
        acks: list[str] = []
        while workload.now_s() < until_s and not (session.lost and rng.random() < 0.8):
            wait_ms = rng.choice((0, 2_000, 8_000))
            reply = await self._call(
                "messages.lease", max=rng.choice((1, 3, 10)), wait_ms=wait_ms, consumer=session.member,
                member=session.member, generation=session.generation, lease_ms=rng.choice((None, None, 1_500, 6_000)),
                ack=acks, wait_s=wait_ms / 1000,
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
            if reply.generation is not None and reply.generation > session.generation and rng.random() < 0.7:
                await self._heartbeat(session, adopts=True)
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
