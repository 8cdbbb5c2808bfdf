"""`/v1/webhooks`: groups whose messages are sent to a URL."""

from __future__ import annotations

import msgspec

from penstock import limits
from penstock.transports import translate
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.messages import NoQuery
from penstock.wire.parse import T, parse_json, parse_query
from penstock.wire.webhooks import (
    AttemptsQuery,
    RotateRequest,
    WebhookChanges,
    WebhookNamed,
    WebhookRequest,
    WebhooksQuery,
)

WEBHOOKS_PREFIX = "/v1/webhooks/"

_request_decoder = msgspec.json.Decoder(WebhookRequest)
_changes_decoder = msgspec.json.Decoder(WebhookChanges)
_named_decoder = msgspec.json.Decoder(WebhookNamed)
_rotate_decoder = msgspec.json.Decoder(RotateRequest)


async def list_webhooks(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.list_webhooks(edge.broker, parse_query(WebhooksQuery, request.query)))


async def create_webhook(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.create_webhook(edge.broker, await _body(request, _request_decoder)), 201)


async def get_webhook(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.get_webhook(edge.broker, WebhookNamed(_id_in_path(request))))


async def change_webhook(edge: Edge, request: Request) -> Answer:
    changes = await _body(request, _changes_decoder)
    return json_answer(await edge.broker.webhooks.change(_id_in_path(request), changes))


async def delete_webhook(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.delete_webhook(edge.broker, WebhookNamed(_id_in_path(request))))


async def pause_webhook(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.pause_webhook(edge.broker, await _body(request, _named_decoder)))


async def resume_webhook(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.resume_webhook(edge.broker, await _body(request, _named_decoder)))


async def rotate_webhook(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.rotate_webhook(edge.broker, await _body(request, _rotate_decoder)))


async def test_webhook(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.test_webhook(edge.broker, await _body(request, _named_decoder)))


async def webhook_attempts(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.webhook_attempts(edge.broker, parse_query(AttemptsQuery, request.query)))


async def _body(request: Request, decoder: msgspec.json.Decoder[T]) -> T:
    parse_query(NoQuery, request.query)
    return parse_json(decoder, request.json_body(limits.WEBHOOK_BYTES_MAX))


def _id_in_path(request: Request) -> str:
    parse_query(NoQuery, request.query)
    return request.path.removeprefix(WEBHOOKS_PREFIX)
