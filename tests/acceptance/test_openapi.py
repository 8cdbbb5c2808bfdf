"""The server conforms to `/openapi.json`, for random requests."""

from __future__ import annotations

import json

import pytest
import schemathesis
from http_server import running
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from penstock.transports.http import openapi

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    response_schema_conformance,
    content_type_conformance,
    negative_data_rejection,
]

schemathesis.serializer.alias("application/vnd.penstock.batch", "application/octet-stream")
schema = schemathesis.openapi.from_dict(json.loads(openapi.document()))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    # Durability is not what is tested here, and without it the many small writes cost nothing.
    with running(tmp_path_factory.mktemp("openapi") / "data", "--fsync", "never") as running_server:
        running_server.publish("orders", {"order": 1})
        yield running_server


def test_the_server_serves_the_document_that_is_tested_here(server):
    assert server.ask("GET", "/openapi.json").body == openapi.document()


def keeps_its_word(operation):
    @schema.include(method=operation.method, path=operation.path).parametrize()
    @settings(
        max_examples=25,
        deadline=None,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    def test(case, server):
        # Waiting is tested elsewhere; here it would only take time.
        if isinstance(case.body, dict):
            case.body.pop("wait_ms", None)
        if case.query:
            case.query.pop("wait_ms", None)
        response = case.call(base_url=server.url)
        checks = [check for check in CHECKS if check is not negative_data_rejection or not refuses_otherwise(response)]
        case.validate_response(response, checks=checks)

    return test


def refuses_otherwise(response):
    """True for a refusal that the check of invalid data does not know: a body that is too large, a row of a batch."""
    if response.status_code == 207:
        return any(row["status"] == 400 for row in response.json()["results"])
    return response.status_code == 413


# One test each, with a name of its own: what is called the same runs once where several workers share the work.
for _found in schema.get_all_operations():
    _operation = _found.ok()
    if _operation.path == "/v1/events/stream":
        continue  # its reply does not end; test_event_stream.py reads it
    globals()[f"test_{_operation.label}_keeps_its_word"] = keeps_its_word(_operation)
