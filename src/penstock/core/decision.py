"""The decision on a command: the records to make durable, and the reply to send once they are."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.core.records import Record
from penstock.core.state import Queue, Shard
from penstock.errors import QueueNotFound


class Decision(NamedTuple):
    records: list[Record]
    reply: Any


def queue_of(shard: Shard, number: int) -> Queue:
    queue = shard.queues.get(number)
    if queue is None:
        raise QueueNotFound("the queue was deleted meanwhile")
    return queue
