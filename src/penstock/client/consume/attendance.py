"""Staying a member with asyncio: joins when needed, sends heartbeats in the background, takes over what they say."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable, Collection

from penstock.client.consume.membership import Change, Seat
from penstock.client.consume.options import RELEASE_WITHIN_S
from penstock.client.transport.carrier import Carrier
from penstock.errors import PenstockError

log = logging.getLogger("penstock.client")


class Attendance:
    """One consumer's membership. `on_revoked` is told at once which partitions are no longer its own."""

    def __init__(self, carrier: Carrier, seat: Seat, on_revoked: Callable[[Collection[int]], None]):
        self.seat = seat
        self._carrier = carrier
        self._on_revoked = on_revoked
        self._lock = asyncio.Lock()
        self._beating: asyncio.Task[None] | None = None

    async def ensure(self) -> None:
        """Be a member. Raises what joining was refused with."""
        async with self._lock:
            if not self.seat.joined:
                await self._take_over(self.seat.adopt(await self._carrier.request(self.seat.join())))
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat_for_ever(), name="penstock heartbeat")

    async def catch_up(self, generation: int | None) -> None:
        """The group is at this generation: hear what has changed, if anything has."""
        if self.seat.is_behind(generation):
            await self.beat_quietly()

    async def beat(self) -> None:
        """Be heard, and take over the answer. Raises what cannot be mended by joining again."""
        async with self._lock:
            if not self.seat.joined:
                return
            try:
                share = await self._carrier.request(
                    self.seat.heartbeat(), self._carrier.new_retry(within_s=self.seat.heartbeat_s)
                )
            except PenstockError as error:
                if not self.seat.is_out(error):
                    raise
                await self._take_over(self.seat.lose())
            else:
                await self._take_over(self.seat.adopt(share))

    async def beat_quietly(self) -> None:
        try:
            await self.beat()
        except PenstockError as error:
            # The next lease call meets the same, and tells the consumer.
            log.warning("heartbeat of %s failed: %s", self.seat.member, error)

    async def put_out(self, error: PenstockError) -> bool:
        """After a refusal: True if the place was lost and another may be taken."""
        if not self.seat.is_out(error):
            return False
        async with self._lock:
            await self._take_over(self.seat.lose())
        return True

    async def leave(self) -> None:
        """The end. If the server cannot be told, the session runs out."""
        self.stop()
        async with self._lock:
            if self.seat.may_be_member:
                with contextlib.suppress(PenstockError):
                    await self._carrier.request(
                        self.seat.leave(), self._carrier.new_retry(within_s=RELEASE_WITHIN_S)
                    )  # fmt: skip
                await self._take_over(self.seat.lose())

    def stop(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None

    async def _beat_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.seat.heartbeat_s)
            await self.beat_quietly()

    async def _take_over(self, change: Change) -> None:
        if change.revoked:
            self._on_revoked(change.revoked)
        for hook, partitions in self.seat.hooks(change):
            try:
                outcome = hook(partitions)
                if inspect.isawaitable(outcome):
                    await outcome
            except Exception:
                log.exception("a hook for partitions %s failed", partitions)
