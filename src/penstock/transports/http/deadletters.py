"""`/v1/dlq`: look at what was given up, bring it back, or delete it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.broker.types import FoundLetter
from penstock.ids import check_group
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
from penstock.wire.parse import parse_json, parse_query, parse_queue

_redrive_decoder = msgspec.json.Decoder(RedriveRequest)
_stop_decoder = msgspec.json.Decoder(StopRedriveRequest)
_delete_decoder = msgspec.json.Decoder(DeleteDeadLettersRequest)


async def dead_letters(edge: Edge, request: Request) -> Answer:
    query = parse_query(DeadLettersQuery, request.query)
    found = await edge.broker.dead_letters(
        parse_queue(query.queue),
        group=_group(query.group),
        filter=query.filter,
        page=query.page,
        limit=query.limit,
        after=query.after,
    )
    letters: Sequence[FoundLetter] = found.pop("dead_letters")
    return json_answer({"messages": _shown(letters), **found})


async def redrive(edge: Edge, request: Request) -> Answer:
    parse_query(NoQuery, request.query)
    asked = parse_json(_redrive_decoder, await request.json_body())
    reply = await edge.broker.redrive(
        parse_queue(asked.queue),
        group=_group(asked.group),
        filter=asked.filter,
        ids=asked.ids,
        target=None if asked.target is None else parse_queue(asked.target),
        delay_ms=asked.delay_ms or 0,
        priority=asked.priority,
        rate_per_s=asked.rate_per_s,
        dry_run=asked.dry_run,
        redrive_id=asked.redrive_id,
    )
    if asked.dry_run:
        reply["sample"] = _shown(reply["sample"])
    return json_answer(reply)


async def redrives(edge: Edge, request: Request) -> Answer:
    query = parse_query(RedrivesQuery, request.query)
    return json_answer(edge.broker.redrives(parse_queue(query.queue), query.redrive_id))


async def stop_redrive(edge: Edge, request: Request) -> Answer:
    parse_query(NoQuery, request.query)
    asked = parse_json(_stop_decoder, await request.json_body())
    return json_answer(await edge.broker.stop_redrive(parse_queue(asked.queue), asked.redrive_id))


async def delete(edge: Edge, request: Request) -> Answer:
    confirm = parse_query(ConfirmQuery, request.query).confirm
    asked = parse_json(_delete_decoder, await request.json_body())
    return json_answer(
        await edge.broker.delete_dead_letters(
            parse_queue(asked.queue), group=_group(asked.group), filter=asked.filter, ids=asked.ids, confirm=confirm
        )
    )


def _group(name: str | None) -> str | None:
    return None if name is None else check_group(name)


def _shown(letters: Sequence[FoundLetter]) -> list[msgspec.Raw]:
    return [msgspec.Raw(dead_letter(letter)) for letter in letters]
