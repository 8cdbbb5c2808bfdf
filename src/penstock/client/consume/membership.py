"""The place of a consumer in a group with assigned partitions. Without I/O."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from penstock import limits
from penstock.client.calls import lease as calls
from penstock.client.calls.call import Call
from penstock.client.units import milliseconds
from penstock.errors import PenstockError, StaleGeneration, UnknownMember
from penstock.ids import QueuePath, check_member
from penstock.wire.replies import LeftReply, ShareReply

Hook = Callable[[list[int]], Any]


class Assigned(msgspec.Struct, frozen=True, kw_only=True):
    """How to be a member of a group: `consume(group=…, assigned=Assigned(…))`.

    `member`       a name that stays the same over restarts of the program; default: a new one each time. A consumer
                   that joins under the name of a member replaces it, and the replaced one raises `StaleGeneration`
    `session`      seconds without a heartbeat (which is sent in the background) after which the member has left
    `drain`        seconds that it may take to finish what it holds of a partition that moves to another member
    `on_assigned`  called with partitions that are to be this member's, before the first message of them
    `on_revoked`   called with partitions that no longer are. Messages that were handed out may still be settled

    Hooks must not close their own consumer.
    """

    member: str | None = None
    session: float = 30.0
    drain: float = 30.0
    on_assigned: Hook | None = None
    on_revoked: Hook | None = None


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
        self._name = None if options.member is None else check_member(options.member)
        self._asked = ""
        """The name of the join that is under way or succeeded. A repeated join is then of the same member."""
        self.member = ""
        """Empty while it has not joined."""
        self.generation = 0
        self.partitions: list[int] = []
        """The assigned partitions; those that still move from another member deliver nothing yet."""
        self.heartbeat_s = options.session / limits.HEARTBEATS_PER_SESSION

    @property
    def joined(self) -> bool:
        return bool(self.member)

    @property
    def may_be_member(self) -> bool:
        """True also if a join was sent and its answer never came."""
        return bool(self._asked)

    def join(self) -> Call[ShareReply]:
        self._asked = self._asked or self._name or f"member-{secrets.token_hex(8)}"
        return calls.join_group(
            self._queue, group=self._group, member=self._asked, session_ms=self._session_ms, drain_ms=self._drain_ms
        )

    def heartbeat(self) -> Call[ShareReply]:
        return calls.heartbeat(self._queue, group=self._group, member=self.member, generation=self.generation)

    def leave(self) -> Call[LeftReply]:
        """With its generation: a member that has replaced this one stays."""
        return calls.leave_group(self._queue, group=self._group, member=self._asked, generation=self.generation or None)

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
