"""Consumers as members of a group with assigned partitions.

`GroupMembership` is the state of a member, without I/O; `GroupMember` joins when needed and sends heartbeats.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from penstock import limits
from penstock.client.calls.call import Call, operation
from penstock.client.consume.options import RELEASE_WITHIN_S, Assigned, Hook
from penstock.client.runtime import Runtime, Timer, Timers
from penstock.client.transport.carrier import Carrier
from penstock.client.units import milliseconds
from penstock.errors import PenstockError, StaleGeneration, UnknownMember
from penstock.ids import QueuePath
from penstock.wire.replies import LeftReply, ShareReply

log = logging.getLogger("penstock.client")


class AssignmentChange(NamedTuple):
    assigned: list[int]
    revoked: list[int]


class GroupMembership:
    """The member's view of its group: its name, its partitions, the generation that it knows."""

    def __init__(self, queue: QueuePath, group: str, options: Assigned):
        self._queue = queue
        self._group = group
        self._options = options
        self._session_ms = milliseconds("session", options.session, limits.SESSION_MS_MAX, limits.SESSION_MS_MIN)
        self._drain_ms = milliseconds("drain", options.drain, limits.DRAIN_MS_MAX)
        self._name = options.member
        self._asked = ""
        """The name of the join that is under way or succeeded. A repeated join is then of the same member."""
        self.member = ""
        """Empty while it has not joined."""
        self.generation = 0
        self.partitions: list[int] = []
        """The assigned partitions; those that still move from another member deliver nothing yet."""
        self.heartbeat_s = self._session_ms / 1000 / limits.HEARTBEATS_PER_SESSION

    @property
    def joined(self) -> bool:
        return bool(self.member)

    @property
    def may_be_member(self) -> bool:
        """True also if a join was sent and its answer never came."""
        return bool(self._asked)

    def join(self) -> Call[ShareReply]:
        self._asked = self._asked or self._name or f"member-{secrets.token_hex(8)}"
        return operation(
            "join_group", ShareReply, queue=self._queue, group=self._group, member=self._asked,
            session_ms=self._session_ms, drain_ms=self._drain_ms,
        )  # fmt: skip

    def heartbeat(self) -> Call[ShareReply]:
        return operation(
            "heartbeat", ShareReply, queue=self._queue, group=self._group, member=self.member,
            generation=self.generation,
        )  # fmt: skip

    def leave(self) -> Call[LeftReply]:
        """With its generation: a member that has replaced this one stays."""
        return operation(
            "leave_group", LeftReply, queue=self._queue, group=self._group, member=self._asked,
            generation=self.generation or None,
        )  # fmt: skip

    def adopt(self, share: ShareReply) -> AssignmentChange:
        """Take over the server's answer to a join or a heartbeat."""
        before = set(self.partitions)
        self.member, self.generation, self.partitions = share.member, share.generation, share.assigned
        self.heartbeat_s = share.heartbeat_ms / 1000
        now = set(self.partitions)
        return AssignmentChange(sorted(now - before), sorted(before - now))

    def lose(self) -> AssignmentChange:
        """It is not a member any more."""
        revoked, self.partitions = self.partitions, []
        self.member, self._asked, self.generation = "", "", 0
        return AssignmentChange([], revoked)

    def is_behind(self, generation: int | None) -> bool:
        return generation is not None and generation > self.generation

    def may_join_again(self, error: PenstockError) -> bool:
        """True if this refusal says that the member has lost its place, and it may take another."""
        # A consumer with a name of its own choice was replaced by another one of that name. If it joined again it would
        # replace that one, and so on for ever.
        replaced = isinstance(error, StaleGeneration) and self._name is not None
        return isinstance(error, StaleGeneration | UnknownMember) and not replaced

    def hooks(self, change: AssignmentChange) -> Sequence[tuple[Hook, list[int]]]:
        """The hooks to call, in order, and the partitions to call each with."""
        pairs = ((self._options.on_revoked, change.revoked), (self._options.on_assigned, change.assigned))
        return [(hook, partitions) for hook, partitions in pairs if hook is not None and partitions]


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
