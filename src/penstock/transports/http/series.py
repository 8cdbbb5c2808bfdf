"""`/v1/series`: minutes of the last two days, ten minutes of the last month."""

from __future__ import annotations

import gzip

from penstock.broker.series import WHOLE, group_key
from penstock.broker.series_block import COLUMNS
from penstock.transports.http.answer import Answer, json_answer
from penstock.transports.http.edge import Edge
from penstock.transports.http.request import Request
from penstock.wire.parse import parse_query, parse_queue
from penstock.wire.series import DAY_MS, SeriesQuery


async def series(edge: Edge, request: Request) -> Answer:
    asked = parse_query(SeriesQuery, request.query)
    key = WHOLE if asked.queue is None else parse_queue(asked.queue)
    if asked.group is not None:
        key = group_key(key, asked.group)
    until_ms = min(asked.until_ms or edge.clock.now_ms(), edge.clock.now_ms())
    first_ms = until_ms - DAY_MS if asked.from_ms is None else min(asked.from_ms, until_ms)
    columns = COLUMNS if asked.columns is None else tuple(asked.columns.split(","))
    answer = json_answer(await edge.broker.series.read(key, first_ms, until_ms, columns))
    return compressed(answer) if _takes_gzip(request) else answer


def compressed(answer: Answer) -> Answer:
    """A day of minutes is about ten times smaller than its JSON."""
    headers = (*answer.headers, (b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))
    return answer._replace(body=gzip.compress(answer.body, 4, mtime=0), headers=headers)


def _takes_gzip(request: Request) -> bool:
    return any(name == b"accept-encoding" and b"gzip" in value for name, value in request.fields.headers)
