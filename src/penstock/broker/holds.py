"""Holds as their owners see them: by the names of queues, and with how much they span."""

from __future__ import annotations

from penstock.broker.identity import Identity
from penstock.broker.types import Submit
from penstock.core import commands
from penstock.core.state import Hold
from penstock.errors import InvalidRequest, NotFound
from penstock.runtime.view import ShardView
from penstock.wire.holds import HoldRemovedReply, HoldReply, HoldRequest, HoldsReply


class Holds:
    def __init__(self, view: ShardView, submit: Submit, identity: Identity):
        self._view = view
        self._submit = submit
        self._identity = identity

    async def set(self, name: str, asked: HoldRequest, paths: dict[str, str]) -> HoldReply:
        """`paths` are the full paths of the queues that were named. Raises Conflict for another incarnation of one."""
        self.check(asked, paths)
        offsets = {
            self._view.queue(path).number: {int(partition): offset for partition, offset in asked.queues[given].items()}
            for given, path in paths.items()
        }
        events = self._events(asked)
        hold: Hold = await self._submit(
            commands.SetHold(name, 0 if events is None else events + 1, offsets, asked.max_bytes)
        )
        return self._shown(hold)

    def _events(self, asked: HoldRequest) -> int | None:
        """The frame of this shard's journal."""
        return asked.shards.get(str(self._identity.shard), asked.events)

    def check(self, asked: HoldRequest, paths: dict[str, str]) -> None:
        """Raise the refusal of `set`."""
        for shard in asked.shards:
            self._identity.check_shard(int(shard))
        for given, uuid in asked.uuids.items():
            if given not in paths:
                raise InvalidRequest(f"uuids: {given} is not among the queues", details={"field": "uuids"})
            self._identity.check(self._view.queue(paths[given]), uuid)
        events = self._events(asked)
        if events is not None and events > self._view.durable_index:
            raise InvalidRequest(
                f"events: the journal ends with frame {self._view.durable_index}, before {events}",
                details={"field": "events"},
            )
        for path in paths.values():
            self._view.queue(path)

    def get(self, name: str) -> HoldReply:
        hold = self._view.holds().get(name)
        if hold is None:
            raise NotFound(f"there is no hold {name!r}")
        return self._shown(hold)

    def list(self) -> HoldsReply:
        return HoldsReply([self._shown(hold) for _, hold in sorted(self._view.holds().items())])

    async def remove(self, name: str) -> HoldRemovedReply:
        return HoldRemovedReply(name, await self._submit(commands.EndHold(name, "removed")))

    def _shown(self, hold: Hold) -> HoldReply:
        known = {number: queue for number in hold.offsets if (queue := self._view.queue_numbered(number)) is not None}
        queues = {
            known[number].path: {str(partition): offset for partition, offset in offsets.items()}
            for number, offsets in hold.offsets.items()
            if number in known
        }
        events = hold.index - 1 if hold.index else None
        return HoldReply(
            hold.name, events, queues, hold.max_bytes,
            0 if hold.lost_at else self._view.spanned_bytes(hold), hold.set_at, hold.lost_at or None,
            {queue.path: self._identity.uuid_of(number) for number, queue in known.items()},
            {} if events is None else {str(self._identity.shard): events},
        )  # fmt: skip
