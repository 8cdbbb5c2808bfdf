"""Small tables, row by row: the present queues, dead letters, and the audit trail."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.client import lowlevel as calls
from penstock.ids import QueuePath
from penstock.pipeline.columns import parsed
from penstock.pipeline.connect import BrokerCalls, listed_queues
from penstock.pipeline.schema import VALUE
from penstock.wire.audit import AuditReply

PAGE = 500
AUDIT_PAGE = 1000


def queues(broker: BrokerCalls, prefix: str = "") -> Iterator[dict[str, Any]]:
    for entry in listed_queues(broker, prefix):
        stats = broker.ask_patiently(calls.operation("stats", dict[str, Any], queue=entry["queue"]))
        yield {
            "queue": entry["queue"],
            "uuid": entry.get("uuid"),
            "partitions": entry["config"]["partitions"],
            **{name: stats[name] for name in _STATS},
            "published": stats["totals"]["published"],
            "acked": stats["totals"]["acked"],
            "groups": [group["group"] for group in stats["groups"]],
            "config": msgspec.json.encode(entry["config"]).decode(),
        }


_STATS = ("depth", "ready", "scheduled", "leased", "waiting_for_retry", "dead", "oldest_age_ms")


class _Letter(msgspec.Struct):
    id: str
    queue: str
    partition: int
    offset: int
    priority: int
    headers: dict[str, str]
    attempt: int
    published_at_ms: int
    group: str
    reason: str
    error: str
    consumer: str
    first_at_ms: int
    last_at_ms: int
    dead_at_ms: int
    redriven: int
    key: str | None = None
    tenant: str | None = None
    payload: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    payload_b64: str | None = None


class _Letters(msgspec.Struct):
    messages: list[_Letter]
    next: str | None


def dead_letters(broker: BrokerCalls, queue: QueuePath, value_type: Any = None) -> Iterator[dict[str, Any]]:
    """All dead letters of a queue, oldest first; `value_type` is the Arrow type of `value`, if it is read."""
    after: str | None = None
    while True:
        page = broker.ask_patiently(_page(queue, after))
        for letter in page.messages:
            row = _row(letter)
            if value_type is not None:
                row[VALUE] = parsed([row["payload"]], value_type)[0].as_py()
            yield row
        after = page.next
        if after is None:
            return


def _page(queue: QueuePath, after: str | None) -> calls.Call[_Letters]:
    return calls.operation("dead_letters", _Letters, queue=queue, limit=PAGE, after=after)


def _row(letter: _Letter) -> dict[str, Any]:
    row = {name: getattr(letter, name) for name in _PLAIN}
    row["payload"] = bytes(letter.payload) if letter.payload_b64 is None else b64decode(letter.payload_b64)
    for name in ("published_at", "first_at", "last_at", "dead_at"):
        row[name] = _moment(getattr(letter, f"{name}_ms"))
    row["is_json"] = letter.payload_b64 is None
    row["headers"] = list(letter.headers.items())
    return row


_PLAIN = (
    "id", "queue", "partition", "offset", "key", "priority", "attempt", "group", "reason", "error", "consumer",
    "redriven", "tenant",
)  # fmt: skip


def audit_entries(broker: BrokerCalls) -> Iterator[dict[str, Any]]:
    """The entries of the audit trail, oldest first, up to the newest at the time of the last page."""
    after = 0
    while True:
        call = calls.operation("audit", AuditReply, after=after, limit=AUDIT_PAGE)
        found = broker.ask_patiently(call).entries
        for entry in found:
            yield {**msgspec.structs.asdict(entry), "at": _moment(entry.at_ms)}
        if len(found) < AUDIT_PAGE:
            return
        after = found[-1].sequence


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)
