"""Publish requests that list messages one by one, atomic or not. All transports share this module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from penstock.broker.types import ProducerSeq, PublishedRun, PublishPart, PublishReply, TransactReply
from penstock.errors import InvalidRequest, PenstockError, RateLimited, TooLarge
from penstock.ids import QueuePath
from penstock.pending import PendingReply
from penstock.transports.metrics import Metrics
from penstock.wire.messages import Producer, PublishMessage, TransactRequest
from penstock.wire.publishing import ParsedPublish, batch_of, queue_of, rows_by_queue

if TYPE_CHECKING:
    from penstock.broker.service import Broker

Parts: TypeAlias = list[Sequence[int] | None]
"""Per part of a publish: the rows of the request that are in the part, None for all rows."""


def publish_all(broker: Broker, asked: ParsedPublish) -> tuple[PendingReply[PublishReply], Parts]:
    messages = cast(Sequence[PublishMessage], asked.messages)
    parts, rows = _parts(asked.queue, messages, in_order=asked.producer is not None)
    return broker.messages.publish(parts, producer_seq(asked.producer)), rows


def transact(broker: Broker, asked: TransactRequest) -> tuple[PendingReply[TransactReply], Parts]:
    parts, rows = _parts(None, asked.publish, in_order=False) if asked.publish else ([], [])
    return broker.messages.transact(asked.ack, parts), rows


def _parts(
    default: str | None, messages: Sequence[PublishMessage], *, in_order: bool
) -> tuple[list[PublishPart], Parts]:
    batch = batch_of(messages)
    split = rows_by_queue(default, messages, in_order=in_order)
    parts: Parts = [rows for _, rows in split]
    batches = [batch] if parts == [None] else batch.split([rows for rows in parts if rows is not None])
    return [PublishPart(queue, each) for (queue, _), each in zip(split, batches, strict=True)], parts


def producer_seq(producer: Producer | None, skipped: int = 0) -> ProducerSeq | None:
    """The sequence number of the first stored message, if `skipped` messages before it are not stored."""
    return None if producer is None else ProducerSeq(producer.id, producer.epoch, producer.seq + skipped)


def rows_of_request(runs: Sequence[PublishedRun], parts: Parts) -> Iterator[tuple[PublishedRun, Sequence[int]]]:
    """Each run with the rows of the request that hold its messages."""
    taken = [0] * len(parts)
    for run in runs:
        rows: Sequence[int] | None = run.rows
        if rows is None:
            rows = range(taken[run.part], taken[run.part] + run.count)
            taken[run.part] += run.count
        of_request = parts[run.part]
        yield run, rows if of_request is None else [of_request[row] for row in rows]


class RunEntry(NamedTuple):
    """One stored message: the run that it belongs to and its position in that run."""

    run: PublishedRun
    position: int


class _Item(NamedTuple):
    row: int
    queue: QueuePath
    message: PublishMessage


class PartialPublish:
    """A publish with `atomic: false`. Messages of one queue are published as one batch, which is split on a refusal."""

    def __init__(self, broker: Broker, metrics: Metrics, asked: ParsedPublish):
        self._broker = broker
        self._metrics = metrics
        self._asked = asked
        self._outcomes: list[RunEntry | PenstockError | None] = [None] * len(asked.messages)
        self.durable = True
        self.ignored: tuple[str, ...] = ()

    async def publish(self) -> list[RunEntry | PenstockError]:
        """The outcome of each message, in the order of the request."""
        for group in self._groups():
            await self._publish_group(group)
        return cast("list[RunEntry | PenstockError]", self._outcomes)

    def _groups(self) -> list[list[_Item]]:
        """The valid messages, grouped by queue. The outcome of an invalid message is its error."""
        items = []
        for row, message in enumerate(self._asked.messages):
            try:
                if isinstance(message, PenstockError):
                    raise message
                items.append(_Item(row, queue_of(message, self._asked.queue), message))
                batch_of([message], first_row=row)
            except PenstockError as error:
                self._outcomes[row] = error
        items = [item for item in items if self._outcomes[item.row] is None]
        if self._asked.producer is None:
            # The sort is stable, so the order within a queue stays.
            items.sort(key=lambda item: item.queue)
            return [list(group) for _, group in groupby(items, key=lambda item: item.queue)]
        # Sequence numbers of a producer count up by row, so a group must not skip a row.
        runs = groupby(enumerate(items), key=lambda pair: (pair[1].queue, pair[1].row - pair[0]))
        return [[item for _, item in run] for _, run in runs]

    async def _publish_group(self, items: list[_Item]) -> None:
        seq = producer_seq(self._asked.producer, skipped=items[0].row)
        try:
            batch = batch_of([item.message for item in items], first_row=items[0].row)
            reply = await self._broker.messages.publish([PublishPart(items[0].queue, batch)], seq)
        except PenstockError as error:
            if len(items) > 1 and isinstance(error, InvalidRequest | TooLarge | RateLimited):
                # One message caused the refusal: halving isolates it, and the others are still published in groups.
                await self._publish_group(items[: len(items) // 2])
                await self._publish_group(items[len(items) // 2 :])
                return
            for item in items:
                self._outcomes[item.row] = error
            return
        self.durable = self.durable and reply.durable
        self.ignored = self.ignored or reply.ignored
        self._metrics.published(reply.runs)
        for run, rows in rows_of_request(reply.runs, [[item.row for item in items]]):
            for index, row in enumerate(rows):
                self._outcomes[row] = RunEntry(run, index)
