"""`/v1/dlq`: look at what was given up, bring it back, or delete it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.broker.types import FoundLetter
from penstock.transports import translate
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.render import dead_letter
from penstock.transports.http.request import Request
from penstock.wire.messages import (
    ConfirmQuery,
    DeadLettersQuery,
    DeleteDeadLettersRequest,
    NoQuery,
    RedriveRequest,
    RedrivesQuery,
    StopRedriveRequest,
)
from penstock.wire.parse import parse_json, parse_query

_redrive_decoder = msgspec.json.Decoder(RedriveRequest)
_stop_decoder = msgspec.json.Decoder(StopRedriveRequest)
_delete_decoder = msgspec.json.Decoder(DeleteDeadLettersRequest)


async def dead_letters(edge: Edge, request: Request) -> Answer:
    found = await translate.dead_letters(edge.broker, parse_query(DeadLettersQuery, request.query))
    letters: Sequence[FoundLetter] = found.pop("dead_letters")
    return json_answer({"messages": _shown(letters), **found})


async def redrive(edge: Edge, request: Request) -> Answer:
    parse_query(NoQuery, request.query)
    asked = parse_json(_redrive_decoder, request.json_body())
    reply = await translate.redrive(edge.broker, asked)
    if asked.dry_run:
        reply["sample"] = _shown(reply["sample"])
    return json_answer(reply)


async def redrives(edge: Edge, request: Request) -> Answer:
    return json_answer(await translate.redrives(edge.broker, parse_query(RedrivesQuery, request.query)))


async def stop_redrive(edge: Edge, request: Request) -> Answer:
    parse_query(NoQuery, request.query)
    asked = parse_json(_stop_decoder, request.json_body())
    return json_answer(await translate.stop_redrive(edge.broker, asked))


async def delete(edge: Edge, request: Request) -> Answer:
    confirm = parse_query(ConfirmQuery, request.query).confirm
    asked = parse_json(_delete_decoder, request.json_body())
    return json_answer(await translate.delete_dead_letters(edge.broker, asked, confirm))


def _shown(letters: Sequence[FoundLetter]) -> list[msgspec.Raw]:
    return [msgspec.Raw(dead_letter(letter)) for letter in letters]
