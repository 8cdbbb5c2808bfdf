"""Where readers of the log are: positions by number, by time, by message, and as they left them here."""

from __future__ import annotations

from penstock.broker.types import Submit
from penstock.core import commands
from penstock.core.decide.readers import kept_of
from penstock.core.state import KeptOffsets, Queue
from penstock.errors import InvalidRequest
from penstock.ids import QueuePath, ulid_value
from penstock.runtime.view import ShardView
from penstock.wire.readers import OffsetsReply

_DIGITS_MAX = 18


class Readers:
    def __init__(self, view: ShardView, submit: Submit):
        self._view = view
        self._submit = submit

    def position(self, queue: Queue, partition: int, text: str, client: str | None) -> int:
        """The offset that `text` means in this partition. Raises InvalidRequest for what means nothing."""
        part = queue.partitions[partition]
        if text == "earliest":
            return part.start
        if text == "latest":
            return self.stored_end(queue, partition)
        if text == "kept":
            if client is None:
                raise InvalidRequest("offset=kept needs a client_id", details={"field": "client_id"})
            kept = kept_of(queue, client, self._view.now_ms())
            return part.start if kept is None else kept.offsets.get(partition, part.start)
        kind, _, value = text.rpartition(":")
        if kind in ("id", "after"):
            return self._by_id(queue, partition, value, behind=kind == "after")
        if value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX:
            if kind == "at":
                at = self._view.log.offset_at(queue.number, partition, int(value))
                return self.stored_end(queue, partition) if at is None else at
            if not kind:
                return int(value)
        raise InvalidRequest(
            f"offset {text[:64]!r} is neither a number, 'earliest', 'latest', 'kept', 'at:<ms>', 'id:<message id>' nor "
            "'after:<message id>'",
            details={"field": "offset"},
        )

    def _by_id(self, queue: Queue, partition: int, text: str, *, behind: bool) -> int:
        """Ids grow with offsets, so a message that is gone still has its place."""
        try:
            value = ulid_value(text)
        except InvalidRequest as error:
            raise InvalidRequest(f"offset: {error.message}", details={"field": "offset"}) from None
        found = self._view.log.offset_from_id(queue.number, partition, value + behind)
        return self.stored_end(queue, partition) if found is None else found

    def stored_end(self, queue: Queue, partition: int) -> int:
        """End of what is durable: a decided publish may still be on its way to the disk."""
        return max(self._view.log.ends.get((queue.number, partition), 0), queue.partitions[partition].start)

    async def keep(self, path: QueuePath, client: str, offsets: dict[int, int]) -> OffsetsReply:
        """Remember where this reader is in these partitions."""
        queue = self._view.queue(path)
        kept: KeptOffsets = await self._submit(commands.KeepOffsets(queue.number, client, offsets))
        return _shown(queue, client, kept)

    async def get(self, path: QueuePath, client: str) -> OffsetsReply:
        """The stored offsets, durably. Reading them counts as a use, which puts off their removal."""
        return await self.keep(path, client, {})

    async def forget(self, path: QueuePath, client: str) -> OffsetsReply:
        queue = self._view.queue(path)
        await self._submit(commands.ForgetOffsets(queue.number, client))
        return _shown(queue, client, None)


def _shown(queue: Queue, client: str, kept: KeptOffsets | None) -> OffsetsReply:
    offsets = {} if kept is None else {str(partition): offset for partition, offset in sorted(kept.offsets.items())}
    return OffsetsReply(queue.path, client, offsets, None if kept is None else kept.used_at)
