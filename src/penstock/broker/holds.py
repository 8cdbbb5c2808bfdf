"""Holds as their owners see them: by the names of queues, and with how much they span."""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.identity import Identity
from penstock.core import commands
from penstock.core.state import Hold, Queue
from penstock.errors import InvalidRequest, NotFound
from penstock.runtime.holding import spanned_bytes
from penstock.runtime.loop import ShardLoop
from penstock.wire.holds import HoldRemovedReply, HoldReply, HoldRequest, HoldsReply


class Holds:
    def __init__(self, loop: ShardLoop, find: Callable[[str], Queue], identity: Identity):
        self._loop = loop
        self._identity = identity
        self._find = find
        """A queue by its full path; raises QueueNotFound."""

    async def set(self, name: str, asked: HoldRequest, paths: dict[str, str]) -> HoldReply:
        """`paths` are the full paths of the queues that were named. Raises Conflict for another incarnation of one."""
        for given, uuid in asked.uuids.items():
            if given not in paths:
                raise InvalidRequest(f"uuids: {given} is not among the queues", details={"field": "uuids"})
            self._identity.check(self._find(paths[given]), uuid)
        if asked.events is not None and asked.events > self._loop.durable_index:
            raise InvalidRequest(
                f"events: the journal ends with frame {self._loop.durable_index}, before {asked.events}",
                details={"field": "events"},
            )
        offsets = {
            self._find(path).number: {int(partition): offset for partition, offset in asked.queues[given].items()}
            for given, path in paths.items()
        }
        frame = 0 if asked.events is None else asked.events + 1
        hold: Hold = await self._loop.submit(commands.SetHold(name, frame, offsets, asked.max_bytes))
        return self._shown(hold)

    def get(self, name: str) -> HoldReply:
        hold = self._loop.shard.holds.get(name)
        if hold is None:
            raise NotFound(f"there is no hold {name!r}")
        return self._shown(hold)

    def all(self) -> HoldsReply:
        return HoldsReply([self._shown(hold) for _, hold in sorted(self._loop.shard.holds.items())])

    async def remove(self, name: str) -> HoldRemovedReply:
        return HoldRemovedReply(name, await self._loop.submit(commands.EndHold(name, "removed")))

    def _shown(self, hold: Hold) -> HoldReply:
        known = {number: queue for number in hold.offsets if (queue := self._loop.shard.queues.get(number)) is not None}
        queues = {
            known[number].path: {str(partition): offset for partition, offset in offsets.items()}
            for number, offsets in hold.offsets.items()
            if number in known
        }
        return HoldReply(
            hold.name, hold.index - 1 if hold.index else None, queues, hold.max_bytes,
            0 if hold.lost_at else spanned_bytes(self._loop, hold), hold.set_at, hold.lost_at or None,
            {queue.path: self._identity.uuid_of(number) for number, queue in known.items()},
        )  # fmt: skip
