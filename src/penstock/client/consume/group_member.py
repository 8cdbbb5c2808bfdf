"""Being a member of a group: joins when needed, sends heartbeats by a timer, applies what they answer."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection

from penstock.client.consume.membership import AssignmentChange, GroupMembership
from penstock.client.consume.options import RELEASE_WITHIN_S
from penstock.client.runtime import Runtime, Timer, Timers
from penstock.client.transport.carrier import Carrier
from penstock.errors import PenstockError

log = logging.getLogger("penstock.client")


class GroupMember:
    """One consumer's membership. `on_revoked` is called at once with partitions that are no longer its own."""

    def __init__(
        self, carrier: Carrier, membership: GroupMembership, on_revoked: Callable[[Collection[int]], None],
        runtime: Runtime, timers: Timers,
    ):  # fmt: skip
        self.membership = membership
        self._carrier = carrier
        self._on_revoked = on_revoked
        self._runtime = runtime
        self._timers = timers
        self._lock = runtime.lock()
        self._timer: Timer | None = None
        self._beating = runtime.jobs()
        self._has_left = False

    async def ensure(self) -> None:
        """Be a member. Raises what joining was refused with."""
        async with self._lock:
            if not self.membership.joined:
                await self._apply(self.membership.adopt(await self._carrier.request(self.membership.join())))
        if self._timer is None and not self._beating:
            self._start_timer()

    async def catch_up(self, generation: int | None) -> None:
        """The group is at this generation: ask for its assignment if the member does not know it."""
        if self.membership.is_behind(generation):
            await self._beat_logged()

    async def beat(self) -> None:
        """Send a heartbeat and apply the answer. Raises a refusal after which joining again does not help."""
        async with self._lock:
            if not self.membership.joined:
                return
            retry = self._carrier.new_retry(within_s=self.membership.heartbeat_s)
            try:
                share = await self._carrier.request(self.membership.heartbeat(), retry)
            except PenstockError as error:
                if not self.membership.may_join_again(error):
                    raise
                await self._apply(self.membership.lose())
            else:
                await self._apply(self.membership.adopt(share))

    async def lost_place(self, error: PenstockError) -> bool:
        """After a refusal: True if the place was lost and another may be taken."""
        if not self.membership.may_join_again(error):
            return False
        async with self._lock:
            await self._apply(self.membership.lose())
        return True

    async def leave(self) -> None:
        """Leave the group. If the server cannot be reached, the session runs out."""
        self.stop()
        async with self._lock:
            if self.membership.may_be_member:
                with contextlib.suppress(PenstockError):
                    retry = self._carrier.new_retry(within_s=RELEASE_WITHIN_S)
                    await self._carrier.request(self.membership.leave(), retry)
                await self._apply(self.membership.lose())

    def stop(self) -> None:
        self._has_left = True
        if self._timer is not None:
            self._timer.cancel()
        self._beating.cancel()

    def _start_timer(self) -> None:
        if not self._has_left:
            self._timer = self._timers.call_at(self._runtime.time() + self.membership.heartbeat_s, self._start_beating)

    def _start_beating(self) -> None:
        self._beating.start(self._beat_and_wait(), "penstock heartbeat")

    async def _beat_and_wait(self) -> None:
        await self._beat_logged()
        self._start_timer()

    async def _beat_logged(self) -> None:
        try:
            await self.beat()
        except PenstockError as error:
            # The next lease call meets the same refusal, and the consumer raises it.
            log.warning("heartbeat of %s failed: %s", self.membership.member, error)

    async def _apply(self, change: AssignmentChange) -> None:
        if change.revoked:
            self._on_revoked(change.revoked)
        for hook, partitions in self.membership.hooks(change):
            try:
                await self._runtime.call_hook(hook, partitions)
            except Exception:
                log.exception("a hook for partitions %s failed", partitions)
