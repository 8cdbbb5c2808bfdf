"""Holds as their owners see them: by the names of queues, and with how much they span."""

from __future__ import annotations

from collections.abc import Callable

from penstock.core import commands
from penstock.core.state import Hold, Queue
from penstock.errors import InvalidRequest, NotFound
from penstock.runtime.holding import spanned_bytes
from penstock.runtime.loop import ShardLoop
from penstock.wire.holds import HoldRemovedReply, HoldReply, HoldRequest, HoldsReply


class Holds:
    def __init__(self, loop: ShardLoop, find: Callable[[str], Queue]):
        self._loop = loop
        self._find = find
        """A queue by its full path; raises QueueNotFound."""

    async def set(self, name: str, asked: HoldRequest, paths: dict[str, str]) -> HoldReply:
        """`paths` are the full paths of the queues that were named."""
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
        queues = {
            self._loop.shard.queues[number].path: {str(partition): offset for partition, offset in offsets.items()}
            for number, offsets in hold.offsets.items()
            if number in self._loop.shard.queues
        }
        return HoldReply(
            hold.name, hold.index - 1 if hold.index else None, queues, hold.max_bytes,
            0 if hold.lost_at else spanned_bytes(self._loop, hold), hold.set_at, hold.lost_at or None,
        )  # fmt: skip
