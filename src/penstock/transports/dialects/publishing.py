"""Publishing for dialects: messages that each name their queue, stored atomically or one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.broker.types import ProducerSeq, PublishedRun, PublishPart
from penstock.errors import DiskFull, PenstockError, Unavailable
from penstock.ids import QueuePath, ulid_text
from penstock.transports.http.edge import Edge
from penstock.wire.messages import PublishMessage
from penstock.wire.publishing import batch_of


class PublishItem(NamedTuple):
    queue: QueuePath
    message: PublishMessage


class StoredItem(NamedTuple):
    """A stored message. For a duplicate the id is that of the first message."""

    id: str
    at_ms: int
    duplicate: bool


async def store(
    edge: Edge,
    items: Sequence[PublishItem],
    producer: ProducerSeq | None = None,
    *,
    create_as: dict[str, Any] | None = None,
) -> list[StoredItem]:
    """Store all items or none, in one commit. With a producer all items must be of one queue."""
    rows: dict[QueuePath, list[int]] = {}
    for row, item in enumerate(items):
        rows.setdefault(item.queue, []).append(row)
    batch = batch_of([item.message for item in items])
    batches = [batch] if len(rows) == 1 else batch.split(list(rows.values()))
    parts = [PublishPart(queue, part) for queue, part in zip(rows, batches, strict=True)]
    started = edge.clock.monotonic()
    reply = await edge.broker.messages.publish(parts, producer, create_as=create_as)
    edge.count_publish(reply.runs, started)
    return _by_item(reply.runs, list(rows.values()), len(items))


async def store_each(
    edge: Edge, items: Sequence[PublishItem], *, create_as: dict[str, Any] | None = None
) -> list[StoredItem | PenstockError]:
    """Store each item on its own. Items are published as one batch, which is split on a refusal."""
    try:
        return list(await store(edge, items, create_as=create_as)) if items else []
    except PenstockError as error:
        if len(items) == 1 or isinstance(error, Unavailable | DiskFull):
            return [error] * len(items)
    half = len(items) // 2
    return await store_each(edge, items[:half], create_as=create_as) + await store_each(
        edge, items[half:], create_as=create_as
    )


def _by_item(runs: Sequence[PublishedRun], parts: Sequence[Sequence[int]], count: int) -> list[StoredItem]:
    stored: list[StoredItem | None] = [None] * count
    taken = [0] * len(parts)
    for run in runs:
        rows: Sequence[int] | None = run.rows
        if rows is None:
            rows = range(taken[run.part], taken[run.part] + run.count)
            taken[run.part] += run.count
        for index, row in enumerate(rows):
            number = run.id + index
            stored[parts[run.part][row]] = StoredItem(ulid_text(number), number >> 80, run.duplicate)
    return [each for each in stored if each is not None]
