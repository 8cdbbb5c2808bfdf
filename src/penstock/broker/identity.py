"""Ids that outlive a restart: that of the broker's storage, and that of every queue created in it.

A shard numbers its queues and never uses a number twice, so storage and number name one incarnation of a queue. A queue
that is deleted and created again has the same path and another uuid.
"""

from __future__ import annotations

from uuid import UUID, uuid5

from penstock.core.state import Queue
from penstock.errors import Conflict, InvalidRequest
from penstock.ids import ulid_text


class Identity:
    """Pure functions of the storage's id and a queue's number."""

    def __init__(self, node: bytes, shard: int):
        self._namespace = UUID(bytes=node)
        self.shard = shard
        """The number of the shard."""
        self.broker = ulid_text(int.from_bytes(node, "big"))
        """The id that the data directory keeps; a broker in memory has another one at each start."""

    def uuid_of(self, number: int) -> str:
        """The uuid of the queue with this number, whether or not the queue still exists."""
        return str(uuid5(self._namespace, f"{self.shard}/{number}"))

    def check_shard(self, shard: int | None) -> None:
        """Raises InvalidRequest if the caller means another shard; None means this one."""
        if shard not in (None, self.shard):
            raise InvalidRequest(f"shard: there is no shard {shard}", details={"field": "shard"})

    def check(self, queue: Queue, uuid: str | None) -> None:
        """Raises Conflict if the caller means another incarnation of the queue; None means any."""
        present = self.uuid_of(queue.number) if uuid is not None else None
        if uuid != present:
            raise Conflict(
                f"queue {queue.path} was deleted and created again: its uuid is {present}, not {uuid}",
                details={"field": "uuid", "uuid": present},
            )
