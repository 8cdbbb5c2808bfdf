"""Groups whose partitions are assigned, as the facade shows them: join, be heard, leave, and who has what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock import limits
from penstock.broker.types import ShareReply
from penstock.core import commands
from penstock.core.members import Membership, Share
from penstock.core.rebalancing import busy_partitions
from penstock.core.state import Queue
from penstock.runtime.loop import ShardLoop

NAME_BITS = 64
"""Of a member that did not bring a name: unique, and nothing anybody could guess to impersonate it."""


class Members:
    def __init__(self, loop: ShardLoop, entropy: Callable[[int], int]):
        self._loop = loop
        self._entropy = entropy

    async def join(self, queue: Queue, group: str, member: str | None, session_ms: int, drain_ms: int) -> ShareReply:
        name = member or f"member-{self._entropy(NAME_BITS):0{NAME_BITS // 4}x}"
        share = await self._loop.submit(commands.Join(queue.number, group, name, session_ms, drain_ms))
        return _reply(name, share)

    async def heartbeat(
        self, queue: Queue, group: str, member: str, generation: int, released: Sequence[int]
    ) -> ShareReply:
        command = commands.Heartbeat(queue.number, group, member, generation, list(released))
        return _reply(member, await self._loop.submit(command))

    async def leave(self, queue: Queue, group: str, member: str, generation: int | None) -> bool:
        left: bool = await self._loop.submit(commands.Leave(queue.number, group, member, generation))
        return left


def _reply(member: str, share: Share) -> ShareReply:
    return ShareReply(
        member, share.generation, share.assigned, share.awaited, share.giving_up, share.session_ms,
        share.session_ms // limits.HEARTBEATS_PER_SESSION,
    )  # fmt: skip


def membership_of(queue: Queue, group: str) -> Membership | None:
    number = queue.groups.get(group)
    return queue.memberships.get(number) if number is not None else None


def describe(queue: Queue, group: int, now_ms: int) -> dict[str, Any]:
    """What `GET /v1/groups` says about members; a plain group has generation 0 or what it once had, and none."""
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
