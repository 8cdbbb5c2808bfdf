"""Read the log of a queue, keep a reader's offsets, peek."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence

import msgspec

from penstock.batch import Batch, build, layout
from penstock.client.calls.call import BATCH, Call, Response, encode, target
from penstock.client.messages.stored import LogBatch, MessageRun, StoredMessage
from penstock.ids import QueuePath, check_client_id
from penstock.wire.delivery import ReadMeta, Run, decode_delivery
from penstock.wire.readers import OffsetsReply

_decode_offsets = msgspec.json.Decoder(OffsetsReply).decode


def read(
    queue: QueuePath, *, partition: int, offset: int | str | None, max: int, wait_ms: int, client_id: str | None = None
) -> Call[LogBatch]:
    if offset is None:
        offset = "earliest" if client_id is None else "kept"
    reader = None if client_id is None else check_client_id(client_id)
    where = target(
        "/v1/read", queue=queue, partition=partition, offset=offset, max=max, wait_ms=wait_ms, client_id=reader
    )
    return Call("GET", where, _read_log, accept=BATCH, wait_ms=wait_ms)


def _read_log(response: Response) -> LogBatch:
    meta, batches = decode_delivery(response.body, ReadMeta)
    return LogBatch(
        [MessageRun(run, batch) for run, batch in zip(meta.runs, batches, strict=True)],
        next_offset=meta.next_offset,
        end_offset=meta.end_offset,
        start_offset=meta.start_offset,
        skipped=meta.skipped,
    )


def offsets(queue: QueuePath, client_id: str) -> Call[dict[int, int]]:
    return Call("GET", target("/v1/offsets", queue=queue, client_id=check_client_id(client_id)), _read_offsets)


def keep_offsets(queue: QueuePath, client_id: str, offsets: Mapping[int, int]) -> Call[dict[int, int]]:
    named = {str(partition): offset for partition, offset in offsets.items()}
    body = {"queue": queue, "client_id": check_client_id(client_id), "offsets": named}
    return Call("POST", "/v1/offsets", _read_offsets, encode(body))


def forget_offsets(queue: QueuePath, client_id: str) -> Call[dict[int, int]]:
    return Call("DELETE", target("/v1/offsets", queue=queue, client_id=check_client_id(client_id)), _read_offsets)


def _read_offsets(response: Response) -> dict[int, int]:
    return {int(partition): offset for partition, offset in _decode_offsets(response.body).offsets.items()}


# -- peek -----------------------------------------------------------------------------------------------------------


def peek(queue: QueuePath, *, max: int, group: str) -> Call[list[StoredMessage]]:
    return Call("GET", target("/v1/peek", queue=queue, max=max, group=group), _read_peeked)


class _JsonMessage(msgspec.Struct):
    id: str
    queue: str
    partition: int
    offset: int
    published_at_ms: int
    payload: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    payload_b64: str | None = None
    key: str | None = None
    priority: int = 0
    headers: dict[str, str] | None = None
    tenant: str | None = None
    attempt: int = 1


class _Peeked(msgspec.Struct):
    messages: list[_JsonMessage]


_decode_peeked = msgspec.json.Decoder(_Peeked).decode


def _read_peeked(response: Response) -> list[StoredMessage]:
    return [StoredMessage(_run_of(message), 0) for message in _decode_peeked(response.body).messages]


def _run_of(message: _JsonMessage) -> MessageRun:
    """A message that came as JSON, in a frame: users see one kind of message."""
    is_json = message.payload_b64 is None
    payload = bytes(message.payload) if is_json else b64decode(message.payload_b64 or "")
    columns: dict[int, Sequence[int] | Sequence[bytes]] = {}
    if message.key:
        columns[layout.KEY] = [message.key.encode()]
    if message.priority:
        columns[layout.PRIORITY] = [message.priority]
    if message.headers:
        columns[layout.HEADERS] = [encode(message.headers)]
    if message.tenant:
        columns[layout.TENANT] = [message.tenant.encode()]
    frame = build([payload], kind=layout.KIND_JSON if is_json else layout.KIND_BYTES, columns=columns)
    meta = Run(
        message.queue, message.partition, message.offset, 1, message.id, message.published_at_ms, len(frame),
        attempt=message.attempt,
    )  # fmt: skip
    return MessageRun(meta, Batch.open(frame))
