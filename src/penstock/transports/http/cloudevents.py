"""CloudEvents on `POST /v1/publish?queue=…`. The mode follows from the content type and the `ce-` headers."""

from __future__ import annotations

from functools import partial

from penstock.broker.types import PublishPart, PublishReply
from penstock.errors import UnsupportedMediaType
from penstock.transports.http.answer import Answer
from penstock.transports.http.edge import Edge, Outcome
from penstock.transports.http.fields import EVENT_PREFIX
from penstock.transports.http.render import published_answer, published_items
from penstock.transports.http.request import Request
from penstock.wire import cloudevents
from penstock.wire.messages import PublishEventQuery
from penstock.wire.parse import parse_query, parse_queue
from penstock.wire.publishing import batch_of


def publish_events(edge: Edge, request: Request, started: float) -> Outcome:
    """One event or a batch of them, all or none. Answered like any publish."""
    query = parse_query(PublishEventQuery, request.query)
    part_queue = parse_queue(query.queue)
    kind = request.fields.content_type.decode("latin-1")
    if kind == cloudevents.BATCH_TYPE:
        events = cloudevents.from_json_batch(request.body())
    elif kind == cloudevents.STRUCTURED_TYPE:
        events = [cloudevents.from_json(request.body())]
    elif request.fields.content_type.startswith(cloudevents.FAMILY):
        raise UnsupportedMediaType(
            f"events as {kind[:100]!r} are not taken here; send {cloudevents.STRUCTURED_TYPE}, "
            f"{cloudevents.BATCH_TYPE}, or the attributes as headers that begin with ce-",
            details={"field": "content-type"},
        )
    else:
        attributes = [(name, value) for name, value in request.fields.headers if name.startswith(EVENT_PREFIX)]
        # With its parameters, which are part of the data's type.
        full_type = next(
            (value.decode("latin-1") for name, value in request.fields.headers if name == b"content-type"), ""
        )
        events = [cloudevents.from_headers(attributes, full_type, request.body())]
    if not events:
        return Answer(201, b'{"messages":[],"durable":true}')  # the format allows an empty batch
    batch = batch_of([cloudevents.as_message(event, dedup=query.dedup) for event in events])

    def answer(reply: PublishReply) -> Answer:
        body = published_answer(published_items(reply.runs, [None], len(events)), reply.durable)
        return Answer(201, body, on_sent=partial(edge.count_publish, reply.runs, started))

    return edge.broker.messages.publish([PublishPart(part_queue, batch)]).then(answer)
