"""`/v1/dlq`: the operations whose replies have dead letters."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.broker.types import FoundLetter
from penstock.transports import translate
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.plain import json_reader
from penstock.transports.http.render import dead_letter
from penstock.transports.http.request import Request
from penstock.wire.messages import DeadLettersQuery, RedriveRequest
from penstock.wire.parse import parse_query, parse_queue
from penstock.wire.queue_table import LetterGroupsQuery

_decode_redrive = json_reader(RedriveRequest)


async def dead_letters(edge: Edge, request: Request) -> Answer:
    found = await translate.find_letters(edge.broker, parse_query(DeadLettersQuery, request.query))
    letters: Sequence[FoundLetter] = found.pop("dead_letters")
    return json_answer({"messages": _shown(letters), **found})


async def reasons(edge: Edge, request: Request) -> Answer:
    asked = parse_query(LetterGroupsQuery, request.query)
    return json_answer(await edge.broker.letter_groups.largest(parse_queue(asked.queue), asked.max))


async def redrive(edge: Edge, request: Request) -> Answer:
    asked = _decode_redrive(request)
    reply = await translate.redrive_letters(edge.broker, asked)
    if asked.dry_run:
        reply["sample"] = _shown(reply["sample"])
    return json_answer(reply)


def _shown(letters: Sequence[FoundLetter]) -> list[msgspec.Raw]:
    return [msgspec.Raw(dead_letter(letter)) for letter in letters]
