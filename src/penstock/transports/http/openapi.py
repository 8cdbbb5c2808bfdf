"""`/openapi.json`: OpenAPI 3.1, generated from `wire/operations.py`.

Fields, bounds, defaults and descriptions come from the structs that decode the requests. A generated client sends the
defaults that it knows, so the settings of a queue have none in requests: a change would reset what it does not name.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import msgspec

from penstock._version import __version__
from penstock.transports.http.plain import FIELD_OF_PARAMETER
from penstock.wire import cloudevents, messages, replies, settings
from penstock.wire.operations import EVENT_STREAM, JSON, OPERATIONS, TEXT, Operation
from penstock.wire.status import STATUS

Schema = dict[str, Any]

_REFERENCE = "#/components/schemas/{name}"
_BINARY: Schema = {"type": "string", "format": "binary"}
_EVENT: Schema = {
    "title": "CloudEvent",
    "type": "object",
    "description": "A CloudEvent 1.0.",
    "required": ["specversion", "id", "source", "type"],
    "properties": {
        "specversion": {"type": "string", "const": "1.0"},
        **{name: {"type": "string", "minLength": 1} for name in ("id", "source", "type")},
    },
}
_OTHER_TYPES: dict[str, Schema] = {
    cloudevents.STRUCTURED_TYPE: {"$ref": _REFERENCE.format(name="CloudEvent")},
    TEXT: {"type": "string"},
    EVENT_STREAM: {"type": "string"},
}
"""Media types besides JSON that have a schema; the others are binary."""
_LEFT_OUT = cloudevents.BATCH_TYPE
"""Generators of clients cannot choose between bodies if one of them is an array."""
_SETTINGS = (
    settings.QueueSettings, settings.BackoffSettings, settings.RetentionSettings, settings.FairShareSettings,
    settings.AlarmSettings,
)  # fmt: skip
_RETRY_AFTER = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}}}


@cache
def document() -> bytes:
    shapes: set[Any] = {replies.ErrorReply, replies.PublishRunsReply}
    for operation in OPERATIONS.values():
        shapes |= {operation.body, operation.reply, operation.created, operation.partial}
    structs = sorted((each for each in shapes if each not in (None, str)), key=lambda each: each.__name__)
    references, components = msgspec.json.schema_components(structs, ref_template=_REFERENCE)
    _split_settings(components)
    queries = {messages.PublishEventQuery, *(operation.query for operation in OPERATIONS.values())}
    _, parameters = msgspec.json.schema_components(queries)
    document = Document(dict(zip(structs, references, strict=True)), parameters)
    paths: Schema = {}
    for operation in OPERATIONS.values():
        paths.setdefault(operation.path, {})[operation.method.lower()] = document.operation(operation)
    described = _with_typed_choices(
        {
            "openapi": "3.1.0",
            "info": {"title": "Penstock", "version": __version__, "summary": "A durable message broker you can query."},
            "paths": paths,
            "components": {"schemas": {**components, "CloudEvent": _EVENT}, "responses": document.errors()},
        }
    )
    return msgspec.json.encode(described)


def _with_typed_choices(value: Any) -> Any:
    """Choices of texts have the type too: without it, generators of clients take them for any value."""
    if isinstance(value, list):
        return [_with_typed_choices(each) for each in value]
    if not isinstance(value, dict):
        return value
    typed = {name: _with_typed_choices(each) for name, each in value.items()}
    choices = typed.get("enum")
    if isinstance(choices, list) and all(isinstance(choice, str) for choice in choices):
        typed.setdefault("type", "string")
    return typed


def _split_settings(components: Schema) -> None:
    """Replies have all settings, with defaults; requests have any of them, as `…Changes`."""
    for struct in _SETTINGS:
        name = struct.__name__
        changes = copy.deepcopy(components[name])
        for property in changes["properties"].values():
            property.pop("default", None)
            for each in (property, *property.get("anyOf", ())):
                if "$ref" in each:
                    each["$ref"] += "Changes"
        components[f"{name}Changes"] = changes | {"title": f"{name}Changes", "additionalProperties": False}
        components[name]["required"] = list(components[name]["properties"])


class Document:
    """The parts of the document that refer to schemas: references to those of bodies, and those of queries by name."""

    def __init__(self, references: dict[Any, Schema], queries: dict[str, Schema]):
        self._references = references
        self._queries = queries

    def operation(self, operation: Operation) -> Schema:
        described: Schema = {"operationId": operation.name, "summary": operation.summary}
        if parameters := self._parameters(operation):
            described["parameters"] = parameters
        if operation.body is not None:
            takes = [media for media in operation.takes if media != _LEFT_OUT]
            content = {media: self._schema(media, operation.body, changes=True) for media in takes}
            described["requestBody"] = {"required": True, "content": content}
        responses: Schema = {}
        for status, shape in ((200, operation.reply), (201, operation.created), (207, operation.partial)):
            if shape is not None or (status == 200 and operation.created is None):
                content = {media: self._schema(media, shape) for media in operation.gives}
                responses[str(status)] = {"description": operation.summary, "content": content}
        for code in operation.codes:
            status_of_code = str(STATUS[code].http)
            responses[status_of_code] = {"$ref": f"#/components/responses/{status_of_code}"}
        described["responses"] = responses
        return described

    def _schema(self, media: str, shape: Any, *, changes: bool = False) -> Schema:
        if media != JSON:
            return {"schema": _OTHER_TYPES.get(media, _BINARY)}
        schema = self._references.get(shape, {"type": "object"})
        if shape is replies.PublishReply:
            schema = {"anyOf": [schema, self._references[replies.PublishRunsReply]]}
        if shape is settings.QueueSettings and changes:
            schema = {"$ref": schema["$ref"] + "Changes"}
        return {"schema": schema}

    def _parameters(self, operation: Operation) -> list[Schema]:
        in_path = operation.path.partition("{")[2].partition("}")[0]
        found = self._fields(operation.query)
        if operation.name == "publish":
            found = [
                *({**each, "required": False, "description": "With a batch frame."} for each in found),
                *(each for each in self._fields(messages.PublishEventQuery) if each["name"] != "queue"),
            ]
            found[0]["description"] = "With a batch frame or a CloudEvent."
            del found[-1]["schema"]["default"]  # a generated client would send it with every publish
        for each in found:
            if in_path and each["name"] == FIELD_OF_PARAMETER.get(in_path, in_path):
                each |= {"name": in_path, "in": "path", "required": True}
        return found

    def _fields(self, query: type) -> list[Schema]:
        """Query parameters out of a struct: its fields are their names."""
        shape = self._queries[query.__name__]
        return [
            {
                "name": name,
                "in": "query",
                "required": name in shape.get("required", ()),
                "schema": _without_null(schema),
            }
            for name, schema in shape["properties"].items()
        ]

    def errors(self) -> Schema:
        """One shared response per status, with the codes that have it."""
        codes: dict[int, list[str]] = {}
        for code, row in STATUS.items():
            codes.setdefault(row.http, []).append(f"`{code}`")
        content = {JSON: {"schema": self._references[replies.ErrorReply]}}
        return {
            str(status): {
                "description": ", ".join(names),
                "content": content,
                **({"headers": _RETRY_AFTER} if status in (429, 503, 507) else {}),
            }
            for status, names in codes.items()
        }


def _without_null(schema: Schema) -> Schema:
    """A query string has no null: an absent parameter stands for it."""
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    return choices[0] if len(choices) == 1 else schema
