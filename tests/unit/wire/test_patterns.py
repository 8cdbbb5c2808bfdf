"""A text that is not of the form it should be is answered with that form in words, and with nothing of a machine's."""

from __future__ import annotations

import msgspec
import pytest

from penstock.errors import InvalidRequest
from penstock.wire import patterns
from penstock.wire.events import EventRangesQuery, EventsQuery
from penstock.wire.holds import HoldRequest
from penstock.wire.messages import ExtentQuery, ReadQuery
from penstock.wire.parse import parse_json, parse_query
from penstock.wire.readers import KeepOffsetsRequest
from penstock.wire.stream import Subscribe

READER = {"type": "subscribe", "role": "reader", "queue": "q"}


def refused(error: InvalidRequest, field: str, form: str) -> None:
    assert error.details == {"field": field}
    assert error.message.startswith(field) and error.message.endswith(f": expected {patterns.WORDS[form]}")


@pytest.mark.parametrize(
    ("kind", "query", "field", "form"),
    [
        (ReadQuery, b"queue=q&offset=soon", "offset", patterns.READ_OFFSET),
        (ExtentQuery, b"queue=q&at=kept", "at", patterns.PLACE),
        (EventsQuery, b"after=soon", "after", patterns.EVENT_POSITION),
        (EventRangesQuery, b"after=1.2", "after", patterns.PLACE),
    ],
)
def test_in_a_query(kind, query, field, form):
    with pytest.raises(InvalidRequest) as error:
        parse_query(kind, query)
    refused(error.value, field, form)


@pytest.mark.parametrize(
    ("kind", "body", "field", "form"),
    [
        (Subscribe, {**READER, "offset": "soon"}, "offset", patterns.READ_OFFSET),
        (Subscribe, {**READER, "offsets": {"x": 1}}, "offsets", patterns.PARTITION),
        (Subscribe, {**READER, "sub": "-"}, "sub", patterns.SUBSCRIPTION),
        (KeepOffsetsRequest, {"queue": "q", "client_id": "c", "offsets": {"0\n": 1}}, "offsets", patterns.PARTITION),
        (HoldRequest, {"queues": {"q": {"x": 1}}}, "queues", patterns.PARTITION),
    ],
)
def test_in_a_body(kind, body, field, form):
    with pytest.raises(InvalidRequest) as error:
        parse_json(msgspec.json.Decoder(kind), msgspec.json.encode(body))
    refused(error.value, field, form)
