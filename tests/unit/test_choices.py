"""Errors about unknown fields and invalid choices say what is possible."""

from __future__ import annotations

import msgspec
import pytest

from penstock.core.config import parse_config
from penstock.errors import InvalidRequest
from penstock.wire.messages import LeaseRequest
from penstock.wire.parse import parse_json
from penstock.wire.publishing import parse_publish


def refusal(call, *arguments) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as refused:
        call(*arguments)
    return refused.value


@pytest.mark.parametrize(
    ("settings", "near"),
    [
        ({"lease": 45_000}, "lease_ms"),
        ({"max_retry": 5}, "max_retries"),
        ({"backoff": {"kimd": "fixed"}}, "kind"),
        ({"retention": {"byte": 1}}, "bytes"),
    ],
)
def test_unknown_setting_is_refused_with_the_nearest_one(settings, near):
    refused = refusal(parse_config, settings)
    assert refused.message.endswith(f"; did you mean '{near}'?")
    assert refused.details["field"] in str(settings)


def test_unknown_field_of_a_request_is_refused_with_the_nearest_one():
    lease = refusal(parse_json, msgspec.json.Decoder(LeaseRequest), b'{"queue": "orders", "wait": 1000}')
    assert lease.message == "Object contains unknown field `wait`; did you mean 'wait_ms'?"
    assert lease.details == {"field": "wait"}
    publish = refusal(parse_publish, b'{"queue": "orders", "messages": [{"payload": 1}, {"paylod": 1}]}')
    assert publish.message.endswith("; did you mean 'payload'?")
    assert publish.details == {"row": 1, "field": "paylod"}


@pytest.mark.parametrize("name", ["zzz", "l" * 5000, "le\\nse", "x`y"])
def test_unknown_field_without_a_near_one_is_named_alone(name):
    body = b'{"queue": "orders", "%b": 1}' % name.encode()
    assert "did you mean" not in refusal(parse_json, msgspec.json.Decoder(LeaseRequest), body).message
