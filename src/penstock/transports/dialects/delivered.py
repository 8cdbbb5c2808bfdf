"""Delivered messages one by one, because each dialect writes a message in its own form."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from penstock.batch import Batch, layout
from penstock.broker.types import DeliveredRun
from penstock.ids import ulid_text
from penstock.wire.publishing import is_json

_headers_decoder = msgspec.json.Decoder(dict[str, str])
_DEFAULT = "default/default/"


class DeliveredMessage(NamedTuple):
    queue: str
    partition: int
    offset: int
    number: int
    """The message id as a number. Ids grow with time over all queues."""
    id: str
    client_id: str | None
    """The id that the publisher chose."""
    payload: bytes
    json: bool
    headers: dict[str, str]
    key: str | None
    priority: int
    attempt: int
    published_at_ms: int
    receipt: str | None
    deadline_at_ms: int | None

    def payload_field(self) -> dict[str, Any]:
        """A JSON payload as `payload`, other bytes as `payload_b64`."""
        if self.json:
            return {"payload": msgspec.Raw(self.payload)}
        return {"payload_b64": b64encode(self.payload).decode()}


def messages_of_runs(runs: Sequence[DeliveredRun]) -> list[DeliveredMessage]:
    return [_message(run, row) for run in runs for row in range(run.count)]


def _message(run: DeliveredRun, row: int) -> DeliveredMessage:
    batch = run.batch
    payload = batch.payload(row)
    headers = batch.string(layout.HEADERS, row)
    return DeliveredMessage(
        run.queue,
        run.partition,
        run.offset + row,
        run.id + row,
        ulid_text(run.id + row),
        _text(batch, layout.ID, row),
        payload,
        batch.is_json(row) and (batch.checked or is_json(payload)),
        _headers_decoder.decode(headers) if headers else {},
        _text(batch, layout.KEY, row),
        batch.integers(layout.PRIORITY)[row] if batch.has(layout.PRIORITY) else 0,
        run.attempt,
        run.published_at_ms,
        None if run.receipt is None else f"{run.receipt}{run.offset + row}",
        run.deadline_at_ms,
    )


def _text(batch: Batch, column: int, row: int) -> str | None:
    return batch.string(column, row).decode() or None


def iso_timestamp(at_ms: int) -> str:
    """`2025-10-07T12:00:00.000Z`"""
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"


def short_name(queue: str) -> str:
    """The queue path without the prefix `default/default/`."""
    return queue.removeprefix(_DEFAULT)
