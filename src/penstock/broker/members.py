"""Groups whose partitions are assigned, as the facade shows them: join, heartbeat, leave, owners of partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock import limits
from penstock.broker.types import Entropy, ShareReply, Submit
from penstock.core import commands
from penstock.core.state import Queue
from penstock.core.state.members import Share
from penstock.core.state.sessions import busy_partitions
from penstock.ids import QueuePath
from penstock.runtime.view import ShardView

NAME_BITS = 64
"""Random bits in the generated name of a member that joins without one: unique, and not guessable."""


class Members:
    def __init__(self, view: ShardView, submit: Submit, entropy: Entropy):
        self._view = view
        self._submit = submit
        self._entropy = entropy

    async def join(
        self,
        path: QueuePath,
        *,
        group: str = "default",
        member: str | None = None,
        session_ms: int = 30_000,
        drain_ms: int = 30_000,
    ) -> ShareReply:
        """Become a member, which makes the group an assigned one: partitions are shared out among its members."""
        number = self._view.queue(path).number
        name = member or f"member-{self._entropy(NAME_BITS):0{NAME_BITS // 4}x}"
        share = await self._submit(commands.Join(number, group, name, session_ms, drain_ms))
        return _reply(name, share)

    async def heartbeat(
        self, path: QueuePath, *, group: str = "default", member: str, generation: int, released: Sequence[int] = ()
    ) -> ShareReply:
        """Renew the session and return the member's partitions. `released` ends handovers of partitions to give up."""
        number = self._view.queue(path).number
        command = commands.Heartbeat(number, group, member, generation, list(released))
        return _reply(member, await self._submit(command))

    async def leave(
        self, path: QueuePath, *, group: str = "default", member: str, generation: int | None = None
    ) -> bool:
        """False if it was not a member. Its leases may still be settled, for the time that it named when it joined."""
        number = self._view.queue(path).number
        left: bool = await self._submit(commands.Leave(number, group, member, generation))
        return left


def _reply(member: str, share: Share) -> ShareReply:
    return ShareReply(
        member, share.generation, share.assigned, share.awaited, share.giving_up, share.session_ms,
        share.session_ms // limits.HEARTBEATS_PER_SESSION,
    )  # fmt: skip


def describe(queue: Queue, group: int, now_ms: int) -> dict[str, Any]:
    """The member fields of `GET /v1/groups`. A plain group has no members and keeps its last generation, at first 0."""
    membership = queue.memberships.get(group)
    if membership is None:
        return {"kind": "plain", "generation": 0, "members": []}
    busy = busy_partitions(queue, group)
    return {
        "kind": "assigned" if membership.members else "plain",
        "generation": membership.generation,
        "members": [
            {
                "member": member.id,
                "generation": max(member.joined, member.confirmed),
                "partitions": share.assigned,
                "awaited": share.awaited,
                "giving_up": share.giving_up,
                "session_ms": member.session_ms,
                "drain_ms": member.drain_ms,
                "heard_at_ms": min(member.heard_ms, now_ms),
            }
            for member in membership.members.values()
            for share in [membership.share(member.id, busy)]
        ],
    }


def owner_of(queue: Queue, group: int, partition: int) -> str | None:
    membership = queue.memberships.get(group)
    return (membership.slots[partition].owner or None) if membership is not None else None
