"""`POST /v1/publish`: JSON messages, all or each on its own, or a ready-made batch frame."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple, cast

import msgspec

from penstock.batch import Batch
from penstock.batch.check import check_client_frame
from penstock.broker.types import ProducerSeq, PublishPart
from penstock.errors import InvalidRequest, PenstockError, RateLimited, TooLarge
from penstock.ids import QueuePath
from penstock.transports.http.answer import Answer, error_body
from penstock.transports.http.edge import Edge
from penstock.transports.http.render import published_answer, published_items, published_runs, published_whole
from penstock.transports.http.request import BATCH_TYPE, Request
from penstock.wire.messages import NoQuery, Producer, PublishFrameQuery, PublishMessage
from penstock.wire.parse import parse_query, parse_queue
from penstock.wire.publishing import (
    PlainPublish,
    Publish,
    batch_of,
    parse_publish,
    plain_batch,
    queue_of,
    rows_by_queue,
)
from penstock.wire.status import STATUS

_encoder = msgspec.json.Encoder()


async def publish(edge: Edge, request: Request) -> Answer:
    started = edge.clock.monotonic()
    if request.content_type == BATCH_TYPE:
        answer = await _publish_frame(edge, request)
    else:
        if request.query:
            parse_query(NoQuery, request.query)
        asked = parse_publish(await request.json_body())
        if isinstance(asked, PlainPublish):
            answer = await _publish_plain(edge, asked)
        else:
            answer = await (_publish_all(edge, asked) if asked.atomic else _EachAlone(edge, asked).publish())
    edge.metrics.publish_took(edge.clock.monotonic() - started)
    return answer


async def _publish_frame(edge: Edge, request: Request) -> Answer:
    query = parse_query(PublishFrameQuery, request.query)
    queue = parse_queue(query.queue)
    batch = check_client_frame(Batch.open(await request.body()))
    producer = None
    if query.producer is not None:
        producer = ProducerSeq(query.producer, cast(int, query.epoch), cast(int, query.seq))
    reply = await edge.broker.publish([PublishPart(queue, batch)], producer)
    edge.metrics.published(reply.runs)
    return Answer(201, published_runs(reply.runs, reply.durable))


async def _publish_plain(edge: Edge, asked: PlainPublish) -> Answer:
    part = PublishPart(parse_queue(asked.queue), plain_batch(asked))
    reply = await edge.broker.publish([part], _producer_seq(asked.producer))
    edge.metrics.published(reply.runs)
    answer = published_whole(reply.runs, reply.durable)
    if answer is None:
        answer = published_answer(published_items(reply.runs, [None], part.batch.count), reply.durable)
    return Answer(201, answer)


async def _publish_all(edge: Edge, asked: Publish) -> Answer:
    messages = cast(Sequence[PublishMessage], asked.messages)
    batch = batch_of(messages)
    split = rows_by_queue(asked.queue, messages, in_order=asked.producer is not None)
    parts = [PublishPart(queue, batch if rows is None else batch.pick(rows)) for queue, rows in split]
    reply = await edge.broker.publish(parts, _producer_seq(asked.producer))
    edge.metrics.published(reply.runs)
    items = published_items(reply.runs, [rows for _, rows in split], len(messages))
    return Answer(201, published_answer(items, reply.durable))


def _producer_seq(producer: Producer | None, skipped: int = 0) -> ProducerSeq | None:
    """The number of the first message that is stored, where `skipped` ones before it are not."""
    return None if producer is None else ProducerSeq(producer.id, producer.epoch, producer.seq + skipped)


class _Item(NamedTuple):
    row: int
    queue: QueuePath
    message: PublishMessage


class _EachAlone:
    """A publish that is not atomic. Messages still travel together; only a refusal takes a group apart."""

    def __init__(self, edge: Edge, asked: Publish):
        self._edge = edge
        self._asked = asked
        self._outcomes: list[str | PenstockError] = [""] * len(asked.messages)
        self._durable = True

    async def publish(self) -> Answer:
        for group in self._groups():
            await self._publish_group(group)
        results = ",".join(map(_result, self._outcomes))
        durable = "true" if self._durable else "false"
        return Answer(207, f'{{"results":[{results}],"durable":{durable}}}'.encode())

    def _groups(self) -> list[list[_Item]]:
        """The messages that have no fault of their own, those of one queue together."""
        items = []
        for row, message in enumerate(self._asked.messages):
            try:
                if isinstance(message, PenstockError):
                    raise message
                items.append(_Item(row, queue_of(message, self._asked.queue), message))
                batch_of([message], first_row=row)
            except PenstockError as error:
                self._outcomes[row] = error
        items = [item for item in items if not self._outcomes[item.row]]
        if self._asked.producer is None:
            # Sorting is stable: within a queue the order stays.
            items.sort(key=lambda item: item.queue)
            return [list(group) for _, group in groupby(items, key=lambda item: item.queue)]
        # A producer's numbers count up by row, so a group must not skip one.
        runs = groupby(enumerate(items), key=lambda pair: (pair[1].queue, pair[1].row - pair[0]))
        return [[item for _, item in run] for _, run in runs]

    async def _publish_group(self, items: list[_Item]) -> None:
        seq = _producer_seq(self._asked.producer, skipped=items[0].row)
        try:
            batch = batch_of([item.message for item in items], first_row=items[0].row)
            reply = await self._edge.broker.publish([PublishPart(items[0].queue, batch)], seq)
        except PenstockError as error:
            if len(items) > 1 and isinstance(error, InvalidRequest | TooLarge | RateLimited):
                # One of them is to blame, and halving finds it in few steps while the others still go in groups.
                await self._publish_group(items[: len(items) // 2])
                await self._publish_group(items[len(items) // 2 :])
                return
            for item in items:
                self._outcomes[item.row] = error
            return
        self._durable = self._durable and reply.durable
        self._edge.metrics.published(reply.runs)
        for item, text in zip(items, published_items(reply.runs, [None], len(items)), strict=True):
            self._outcomes[item.row] = text


def _result(outcome: str | PenstockError) -> str:
    if isinstance(outcome, PenstockError):
        return _encoder.encode({"status": STATUS[outcome.code].http, "error": error_body(outcome)}).decode()
    return f'{{"status":201,{outcome}'
