"""Calls that move messages: publish a frame, lease, read the log, peek; and those that settle."""

from __future__ import annotations

import logging
from base64 import b64decode
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from penstock.batch import Batch, build, layout
from penstock.client.calls.call import Call, Response, call, encode
from penstock.client.messages.leased import LeasedRun
from penstock.client.messages.stored import LogBatch, MessageRun, StoredMessage
from penstock.client.units import Position, position
from penstock.ids import QueuePath, check_client_id
from penstock.wire.delivery import LeaseMeta, ReadMeta, Run, Settled, decode_delivery
from penstock.wire.operations import BATCH
from penstock.wire.replies import Message, PublishRunsReply, SettleReply

log = logging.getLogger("penstock.client")

_quoted = lru_cache(maxsize=64)(quote)
"""For the names of producers: all frames of a client have the same."""
_decode_published = msgspec.json.Decoder(PublishRunsReply).decode
_decode_settled = msgspec.json.Decoder(SettleReply).decode


class ProducerSeq(NamedTuple):
    """The producer of a frame, and the number of its first message; the server stores each number once."""

    producer: str
    epoch: int
    seq: int


def publish(queue: QueuePath, frame: bytes, sequence: ProducerSeq) -> Call[PublishRunsReply]:
    producer = _quoted(sequence.producer)
    target = f"/v1/publish?queue={queue}&producer={producer}&epoch={sequence.epoch}&seq={sequence.seq}"
    return Call("publish", "POST", target, _read_published, frame, BATCH)


def _read_published(response: Response) -> PublishRunsReply:
    reply = _decode_published(response.body)
    if reply.ignored:
        _warn(reply.runs[0].queue, ", ".join(reply.ignored))
    return reply


@lru_cache(maxsize=1024)
def _warn(queue: str, options: str) -> None:
    """Once per queue and process: the message is stored, and the program that published it expects more than that."""
    log.warning("%s: %s has no effect, the order of the queue is fifo; lanes and heap have priorities", queue, options)


# -- lease and settle -----------------------------------------------------------------------------------------------


class LeaseResult(NamedTuple):
    runs: list[LeasedRun]
    results: list[Settled]
    """The outcome of the acks that the call carried."""
    generation: int | None = None
    """Of the group, in answers to its members."""


def lease(fields: dict[str, Any]) -> Call[LeaseResult]:
    """The fields of the API. Made without `call`, because a consumer of single messages makes one for each."""
    wait_ms = fields.get("wait_ms", 0)
    return Call("lease", "POST", "/v1/lease", _read_leased, encode(fields), accept=BATCH, wait_ms=wait_ms)


def _read_leased(response: Response) -> LeaseResult:
    meta, batches = decode_delivery(response.body, LeaseMeta)
    runs = [LeasedRun(run, batch) for run, batch in zip(meta.runs, batches, strict=True)]
    return LeaseResult(runs, meta.results or [], meta.generation)


def settle(verb: str, receipts: Sequence[str], **fields: Any) -> Call[list[Settled]]:
    """`ack`, `nack`, `reject`, `extend` or `release`."""
    return call(verb, _read_results, receipts=receipts, **fields)


def _read_results(response: Response) -> list[Settled]:
    return _decode_settled(response.body).results


# -- read and peek --------------------------------------------------------------------------------------------------


def read(
    queue: QueuePath, *, partition: int, offset: Position | None, max: int, wait_ms: int, client_id: str | None = None
) -> Call[LogBatch]:
    if offset is None:
        offset = "earliest" if client_id is None else "kept"
    reader = None if client_id is None else check_client_id(client_id)
    return call(
        "read", _read_log, accept=BATCH, queue=queue, partition=partition, offset=position("offset", offset), max=max,
        wait_ms=wait_ms, client_id=reader,
    )  # fmt: skip


def _read_log(response: Response) -> LogBatch:
    meta, batches = decode_delivery(response.body, ReadMeta)
    return LogBatch(
        [MessageRun(run, batch) for run, batch in zip(meta.runs, batches, strict=True)],
        next_offset=meta.next_offset,
        end_offset=meta.end_offset,
        start_offset=meta.start_offset,
        skipped=meta.skipped,
    )


def peek(queue: QueuePath, *, max: int, group: str) -> Call[list[StoredMessage]]:
    return call("peek", _read_peeked, queue=queue, max=max, group=group)


class _RawMessage(Message, kw_only=True):
    payload: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


class _Peeked(msgspec.Struct):
    messages: list[_RawMessage]


_decode_peeked = msgspec.json.Decoder(_Peeked).decode


def _read_peeked(response: Response) -> list[StoredMessage]:
    return [StoredMessage(_run_of(message), 0) for message in _decode_peeked(response.body).messages]


def _run_of(message: _RawMessage) -> MessageRun:
    """A message that came as JSON, in a frame: users see one kind of message."""
    is_json = isinstance(message.payload_b64, msgspec.UnsetType)
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
