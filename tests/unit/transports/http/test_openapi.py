"""The OpenAPI document is valid, complete, and safe to generate clients from."""

from __future__ import annotations

import json

import msgspec
import pytest
from openapi_spec_validator import validate

from penstock.core import config
from penstock.transports.http import openapi
from penstock.wire import settings
from penstock.wire.operations import JSON, OPERATIONS

DOCUMENT = json.loads(openapi.document())
SCHEMAS = DOCUMENT["components"]["schemas"]
OPERATIONS_DESCRIBED = {
    described["operationId"]: described for methods in DOCUMENT["paths"].values() for described in methods.values()
}
UNTYPED = {"openapi", "asyncapi"}
"""Operations whose reply is a document with a schema of its own."""


def test_document_is_valid():
    validate(DOCUMENT)


@pytest.mark.parametrize("name", OPERATIONS)
def test_requests_and_replies_are_typed(name):
    described = OPERATIONS_DESCRIBED[name]
    contents = [response["content"] for response in described["responses"].values() if "content" in response]
    if "requestBody" in described:
        contents.append(described["requestBody"]["content"])
    for content in contents:
        schema = content.get(JSON, {"schema": {"type": "string"}})["schema"]
        assert schema != {"type": "object"} or name in UNTYPED


def test_choices_have_a_type():
    def untyped(value):
        if isinstance(value, dict):
            if isinstance(value.get("enum"), list) and "type" not in value:
                yield value
            for each in value.values():
                yield from untyped(each)
        elif isinstance(value, list):
            for each in value:
                yield from untyped(each)

    assert not list(untyped(DOCUMENT))
    assert SCHEMAS["QueueSettings"]["properties"]["order"]["enum"] == ["fifo", "heap", "lanes"]


def test_errors_have_one_form():
    for response in DOCUMENT["components"]["responses"].values():
        assert response["content"][JSON]["schema"] == {"$ref": "#/components/schemas/ErrorReply"}
    assert SCHEMAS["ErrorBody"]["required"] == ["code", "message", "retryable", "details"]


@pytest.mark.parametrize(
    ("shape", "stored"),
    [
        (settings.QueueSettings, config.QueueConfig),
        (settings.BackoffSettings, config.Backoff),
        (settings.RetentionSettings, config.Retention),
        (settings.FairShareSettings, config.FairShare),
        (settings.AlarmSettings, config.DeadLetterAlarm),
    ],
)
def test_settings_have_the_fields_and_defaults_of_the_broker(shape, stored):
    assert msgspec.to_builtins(shape()) == json.loads(msgspec.json.encode(stored()))


def test_bounds_of_settings_are_those_of_the_broker():
    properties = SCHEMAS["QueueSettings"]["properties"]
    for name, low, high in config._BOUNDS:
        schema = properties[name]
        number = next(each for each in (schema, *schema.get("anyOf", ())) if each.get("type") == "integer")
        assert (number["minimum"], number["maximum"]) == (low, high), name


def test_changes_of_settings_have_no_defaults():
    """A generated client sends every default: a change of one setting would reset the others."""
    for name in ("QueueSettings", "BackoffSettings", "RetentionSettings", "FairShareSettings", "AlarmSettings"):
        changes = SCHEMAS[f"{name}Changes"]
        assert changes["properties"].keys() == SCHEMAS[name]["properties"].keys()
        assert not changes.get("required")
        assert not [name for name, schema in changes["properties"].items() if "default" in schema]
        assert SCHEMAS[name]["required"] == list(SCHEMAS[name]["properties"])
    for name in ("put_queue", "patch_queue"):
        body = OPERATIONS_DESCRIBED[name]["requestBody"]["content"][JSON]["schema"]
        assert body == {"$ref": "#/components/schemas/QueueSettingsChanges"}


def test_parameters_of_one_form_of_publish_are_never_sent_by_default():
    """A JSON publish refuses the parameters of batch frames and of CloudEvents."""
    for parameter in OPERATIONS_DESCRIBED["publish"]["parameters"]:
        assert not parameter["required"] and "default" not in parameter["schema"]
