"""Deliveries: encoded as stored frames, or message by message.

No reply exceeds the default size limit of gRPC clients: messages that do not fit go into the next reply of a stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from penstock import limits
from penstock.batch import Buffer, layout
from penstock.broker.types import DeliveredRun, FoundLetter
from penstock.ids import ulid_text, ulid_texts
from penstock.v1 import broker_pb2 as pb
from penstock.wire.delivery import Settled
from penstock.wire.protobuf import bytes_field, varint
from penstock.wire.publishing import is_json

_MESSAGE_BYTES = 256
"""Upper bound of the bytes of a message that are not in its frame: queue, id, receipt, times, tags."""
_BATCH_FIELD = pb.Run.BATCH_FIELD_NUMBER
RUNS_FIELD = pb.LeaseReply.RUNS_FIELD_NUMBER
MESSAGES_FIELD = pb.LeaseReply.MESSAGES_FIELD_NUMBER

# All replies with deliveries have the same field numbers for messages and runs, so one function encodes them.
for _reply in (pb.LeaseStreamReply, pb.ReadReply):
    assert (_reply.MESSAGES_FIELD_NUMBER, _reply.RUNS_FIELD_NUMBER) == (MESSAGES_FIELD, RUNS_FIELD)

_headers_decoder = msgspec.json.Decoder(dict[str, str])


def encoded(runs: Sequence[DeliveredRun], *, frames: bool) -> bytes:
    """Fields 1 and 2 of a reply, encoded. The caller appends the other fields, encoded."""
    if not frames:
        return pb.LeaseReply(messages=messages_of(runs)).SerializeToString()
    parts: list[Buffer] = []
    for run in runs:
        about = pb.Run(
            queue=run.queue,
            partition=run.partition,
            offset=run.offset,
            count=run.count,
            id=ulid_text(run.id),
            published_at_ms=run.published_at_ms,
            attempt=run.attempt,
            receipt=run.receipt,
            deadline_at_ms=run.deadline_at_ms,
            lease_ms=run.lease_ms,
        ).SerializeToString()
        head, frame = bytes_field(_BATCH_FIELD, run.batch.frame)
        size = len(about) + len(head) + len(frame)
        parts += (varint(RUNS_FIELD << 3 | 2), varint(size), about, head, frame)
    return b"".join(parts)


def messages_of(runs: Iterable[DeliveredRun]) -> list[pb.Message]:
    return [message for run in runs for message in _messages(run)]


def letter_of(found: FoundLetter) -> pb.DeadLetter:
    letter = found.letter
    return pb.DeadLetter(
        message=_messages(found.run)[0],
        group=found.group,
        reason=letter.reason,
        error=letter.error,
        consumer=letter.consumer,
        first_at_ms=letter.first_at,
        last_at_ms=letter.last_at,
        dead_at_ms=letter.dead_at,
        redriven=letter.redriven,
    )


def settled(results: Sequence[Settled]) -> list[pb.Settled]:
    return [
        pb.Settled(
            receipt=each.receipt, status=each.status, due_at_ms=each.due_at_ms, deadline_at_ms=each.deadline_at_ms
        )
        for each in results
    ]


def _messages(run: DeliveredRun) -> list[pb.Message]:
    batch = run.batch
    count = batch.count
    keys = batch.strings(layout.KEY) if batch.has(layout.KEY) else [b""] * count
    priorities = batch.integers(layout.PRIORITY) if batch.has(layout.PRIORITY) else [0] * count
    headers = batch.strings(layout.HEADERS) if batch.has(layout.HEADERS) else [b""] * count
    tenants = batch.strings(layout.TENANT) if batch.has(layout.TENANT) else [b""] * count
    messages = []
    for row, (text, payload, kind) in enumerate(
        zip(ulid_texts(run.id, count), batch.payloads(), batch.kinds(), strict=True)
    ):
        offset = run.offset + row
        message = pb.Message(
            id=text,
            queue=run.queue,
            partition=run.partition,
            offset=offset,
            priority=priorities[row],
            headers=_headers_decoder.decode(headers[row]) if headers[row] else None,
            attempt=run.attempt,
            published_at_ms=run.published_at_ms,
            deadline_at_ms=run.deadline_at_ms,
            key=keys[row].decode() if keys[row] else None,
            tenant=tenants[row].decode() if tenants[row] else None,
        )
        if run.receipt is not None:
            message.receipt = f"{run.receipt}{offset}"
        # A client may mark any bytes as JSON, so unchecked batches are validated.
        if kind == layout.KIND_JSON and (batch.checked or is_json(payload)):
            message.json = payload.decode()
        else:
            message.payload = payload
        messages.append(message)
    return messages


# -- sizes --------------------------------------------------------------------------------------------------------


def replies(runs: Sequence[DeliveredRun], size_max: int = limits.GRPC_REPLY_BYTES_MAX) -> Iterator[list[DeliveredRun]]:
    """Split the runs into replies of at most `size_max` bytes."""
    reply: list[DeliveredRun] = []
    room = size_max
    for run in runs:
        for piece in _pieces(run, size_max):
            size = _size(piece)
            if size > room and reply:
                yield reply
                reply, room = [], size_max
            reply.append(piece)
            room -= size
    if reply:
        yield reply


def _size(run: DeliveredRun) -> int:
    return len(run.batch.frame) + run.count * _MESSAGE_BYTES


def _pieces(run: DeliveredRun, size_max: int) -> Iterator[DeliveredRun]:
    """Halve the run until every piece fits. A single message is never split."""
    if _size(run) <= size_max or run.count == 1:
        yield run
        return
    middle = run.count // 2
    for first, stop in ((0, middle), (middle, run.count)):
        yield from _pieces(part_of(run, first, stop), size_max)


def part_of(run: DeliveredRun, first: int, stop: int) -> DeliveredRun:
    return replace(
        run, offset=run.offset + first, count=stop - first, id=run.id + first, batch=run.batch.run(first, stop)
    )


def receipts_of(runs: Iterable[DeliveredRun]) -> list[str]:
    """One receipt for all messages of each run."""
    return [f"{run.receipt}{run.offset}-{run.offset + run.count - 1}" for run in runs if run.receipt is not None]
