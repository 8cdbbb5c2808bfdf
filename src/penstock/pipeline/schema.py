"""The tables of the data source and their columns."""

from __future__ import annotations

from typing import Any

MESSAGES = {
    "queue": "string",
    "partition": "int",
    "offset": "bigint",
    "id": "string",
    "key": "string",
    "priority": "bigint",
    "headers": "map<string,string>",
    "payload": "binary",
    "published_at": "timestamp",
    "tenant": "string",
    "is_json": "boolean",
    "queue_uuid": "string",
}
EVENTS = {
    "shard": "int",
    "frame": "bigint",
    "record": "int",
    "kind": "string",
    "at": "timestamp",
    "queue": "string",
    "queue_id": "bigint",
    "partition": "int",
    "offset": "bigint",
    "id": "string",
    "group": "string",
    "consumer": "string",
    "lease": "bigint",
    "attempt": "int",
    "reason": "string",
    "error": "string",
    "due_at": "timestamp",
    "deadline_at": "timestamp",
    "until_offset": "bigint",
    "producer": "string",
    "redrive": "string",
    "kept": "boolean",
    "config": "string",
    "queue_uuid": "string",
}
QUEUES = {
    "queue": "string",
    "uuid": "string",
    "partitions": "int",
    "depth": "bigint",
    "ready": "bigint",
    "scheduled": "bigint",
    "leased": "bigint",
    "waiting_for_retry": "bigint",
    "dead": "bigint",
    "oldest_age_ms": "bigint",
    "published": "bigint",
    "acked": "bigint",
    "groups": "array<string>",
    "config": "string",
}
DEAD_LETTERS = {
    **{name: kind for name, kind in MESSAGES.items() if name != "queue_uuid"},
    "group": "string",
    "attempt": "int",
    "reason": "string",
    "error": "string",
    "consumer": "string",
    "first_at": "timestamp",
    "last_at": "timestamp",
    "dead_at": "timestamp",
    "redriven": "int",
}
AUDIT = {
    "sequence": "bigint",
    "at": "timestamp",
    "actor_kind": "string",
    "actor": "string",
    "actor_name": "string",
    "address": "string",
    "request": "string",
    "operation": "string",
    "object": "string",
    "result": "string",
    "previous": "string",
    "hash": "string",
}
TABLES = {"messages": MESSAGES, "events": EVENTS, "queues": QUEUES, "dead_letters": DEAD_LETTERS, "audit": AUDIT}
VALUE = "value"
"""The column of the parsed payload, if the option `payloadSchema` is set."""


def ddl(table: str, payload_schema: str | None, *, headers: bool = True) -> str:
    """The columns as a Spark DDL string."""
    columns = [f"`{name}` {kind}" for name, kind in TABLES[table].items() if headers or name != "headers"]
    if payload_schema is not None:
        columns.append(f"`{VALUE}` struct<{payload_schema}>")
    return ", ".join(columns)


def mismatch(table: str, schema: Any, *, has_value: bool) -> str | None:
    """The error text for a schema (a StructType) with unknown or different columns, or None."""
    columns = TABLES[table]
    for field in schema.fields:
        kind = columns.get(field.name)
        if field.name == VALUE and has_value:
            continue
        if kind is None:
            return f"table {table!r} has no column {field.name!r}; it has {', '.join(columns)}"
        if field.dataType.simpleString() != kind:
            return f"column {field.name!r} of table {table!r} is {kind}, not {field.dataType.simpleString()}"
    return None
