"""JSON and MessagePack: from a message to a frame of `wire/stream.py`, and from an answer to the bytes of a message.

Both end in the same asked-for calls, so that the session does not know which one its client speaks. What leaves is
sealed: the bytes that go to the socket, header included. A server's frames are not masked, so the same bytes will do
for every reader of the same page.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, cast
from urllib.parse import urlencode

import msgspec
from websockets.frames import Frame, Opcode

from penstock import limits
from penstock.batch import layout
from penstock.broker.types import DeliveredRun, ReadReply
from penstock.errors import InvalidRequest, PenstockError
from penstock.ids import ulid_texts
from penstock.transports.http.answer import Answer
from penstock.transports.http.render import lease_meta, leased_messages, read_messages, read_meta
from penstock.transports.http.request import BATCH_TYPE, JSON_TYPE
from penstock.wire import stream
from penstock.wire.delivery import Settled, encode_delivery, results_json
from penstock.wire.messages import PublishMessage, PublishRequest
from penstock.wire.parse import named_error, parse_json
from penstock.wire.status import STATUS

_json = msgspec.json.Encoder()
_msgpack = msgspec.msgpack.Encoder()

FrameId = str | int | None


class Asked(NamedTuple):
    """A call of the HTTP interface, as a frame asked for it."""

    id: FrameId
    published: bool
    """It was a `publish`, and is answered with `published`."""
    method: str
    path: str
    query: bytes
    body: bytes
    content_type: bytes = JSON_TYPE
    accept: bytes = JSON_TYPE


class NotText(Exception):
    """A text message that is not UTF-8: the connection ends."""


class _Identified(msgspec.Struct):
    id: str | int | None = None


class Codec(ABC):
    """One of the two subprotocols. It has no state: all connections share it."""

    protocol: str
    opcode: Opcode
    message_bytes_max: int

    @abstractmethod
    def decode(self, data: bytes) -> stream.EITHER | Asked:
        """Raises InvalidRequest for everything that is not a frame, NotText."""

    @abstractmethod
    def id_of(self, data: bytes) -> FrameId:
        """The id of a frame that could not be decoded, if it can be told."""

    @abstractmethod
    def encode(self, frame: stream.ServerFrame) -> bytes: ...

    @abstractmethod
    def results(self, id: FrameId, results: Sequence[Settled]) -> bytes: ...

    @abstractmethod
    def answer(self, asked: Asked, answer: Answer) -> bytes: ...

    @abstractmethod
    def read_page(self, sub: str, format: str, queue: str, partition: int, reply: ReadReply) -> bytes: ...

    @abstractmethod
    def lease_page(self, sub: str, format: str, runs: Sequence[DeliveredRun], credit: int) -> bytes: ...

    def error(self, id: FrameId, error: PenstockError) -> bytes:
        return self.encode(stream.Error(id=id, status=STATUS[error.code].http, error=error_body(error)))

    def seal(self, payload: bytes) -> bytes:
        return Frame(self.opcode, payload).serialize(mask=False)


def error_body(error: PenstockError) -> stream.ErrorBody:
    return stream.ErrorBody(error.code, error.message, error.retryable, error.details)


def _retry_after_s(answer: Answer) -> int | None:
    return next((int(value) for name, value in answer.headers if name == b"retry-after"), None)


class JsonCodec(Codec):
    protocol = stream.JSON_PROTOCOL
    opcode = Opcode.TEXT
    message_bytes_max = limits.WEBSOCKET_TEXT_BYTES_MAX

    _decoder = msgspec.json.Decoder(stream.JSON_FRAMES)
    _id_decoder = msgspec.json.Decoder(_Identified)

    def decode(self, data: bytes) -> stream.EITHER | Asked:
        try:
            data.isascii() or data.decode()
        except UnicodeDecodeError:
            raise NotText from None
        frame = parse_json(self._decoder, data)
        if isinstance(frame, stream.Subscribe) and frame.format == "batch":
            raise InvalidRequest(
                f"batches are binary: connect with the subprotocol {stream.MSGPACK_PROTOCOL}",
                details={"field": "format"},
            )
        if isinstance(frame, stream.Publish):
            # The messages go on as the text that came in; everything else is a few bytes.
            head: dict[str, Any] = {"atomic": frame.atomic}
            if frame.queue is not None:
                head["queue"] = frame.queue
            if frame.producer is not None:
                head["producer"] = frame.producer
            body = b'%b,"messages":%b}' % (_json.encode(head)[:-1], bytes(frame.messages))
            return Asked(frame.id, True, "POST", "/v1/publish", b"", body)
        if isinstance(frame, stream.Call):
            return Asked(frame.id, False, frame.method, frame.path, frame.query.encode(), bytes(frame.body))
        return cast(stream.EITHER, frame)

    def id_of(self, data: bytes) -> FrameId:
        try:
            return self._id_decoder.decode(data).id
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def encode(self, frame: stream.ServerFrame) -> bytes:
        return self.seal(_json.encode(frame))

    def results(self, id: FrameId, results: Sequence[Settled]) -> bytes:
        return self.seal(b'{"type":"results"%b,"results":%b}' % (_id_field(id), results_json(results)))

    def answer(self, asked: Asked, answer: Answer) -> bytes:
        if asked.published and answer.status < 300:
            # The answer's own fields, behind ours.
            head = b'{"type":"published"%b,"status":%d,' % (_id_field(asked.id), answer.status)
            return self.seal(head + answer.body[1:])
        retry = _retry_after_s(answer)
        more = b"" if retry is None else b',"retry_after_s":%d' % retry
        if asked.published:
            # A refusal is an `error` frame, whichever frame was refused.
            return self.seal(
                b'{"type":"error"%b,"status":%d%b,%b' % (_id_field(asked.id), answer.status, more, answer.body[1:])
            )
        body = answer.body if answer.content_type == JSON_TYPE else _json.encode(answer.body.decode("utf-8", "replace"))
        return self.seal(
            b'{"type":"reply"%b,"status":%d%b,"body":%b}' % (_id_field(asked.id), answer.status, more, body or b"null")
        )

    def read_page(self, sub: str, format: str, queue: str, partition: int, reply: ReadReply) -> bytes:  # noqa: ARG002
        return self.seal(
            b'{"type":"messages","sub":%b,"queue":"%b","partition":%d,"messages":%b,"next_offset":%d,"end_offset":%d%b}'
            % (
                _json.encode(sub),
                queue.encode(),
                partition,
                read_messages(reply.runs),
                reply.next_offset,
                reply.end_offset,
                b',"skipped":%d' % reply.skipped if reply.skipped else b"",
            )
        )

    def lease_page(self, sub: str, format: str, runs: Sequence[DeliveredRun], credit: int) -> bytes:  # noqa: ARG002
        return self.seal(
            b'{"type":"messages","sub":%b,"messages":%b,"credit":%d}'
            % (_json.encode(sub), leased_messages(runs), credit)
        )


def _id_field(id: FrameId) -> bytes:
    return b"" if id is None else b',"id":' + _json.encode(id)


class MsgpackCodec(Codec):
    protocol = stream.MSGPACK_PROTOCOL
    opcode = Opcode.BINARY
    message_bytes_max = limits.REQUEST_BYTES_MAX

    _decoder = msgspec.msgpack.Decoder(stream.MSGPACK_FRAMES)
    _id_decoder = msgspec.msgpack.Decoder(_Identified)

    def decode(self, data: bytes) -> stream.EITHER | Asked:
        try:
            frame = self._decoder.decode(data)
        except msgspec.ValidationError as error:
            raise named_error(error) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequest(f"the message is not MessagePack: {error}"[:300]) from None
        if isinstance(frame, stream.BinaryPublish):
            return _binary_publish(frame)
        if isinstance(frame, stream.BinaryCall):
            return Asked(
                frame.id, False, frame.method, frame.path, frame.query.encode(), frame.body,
                _latin(frame.content_type), _latin(frame.accept),
            )  # fmt: skip
        return cast(stream.EITHER, frame)

    def id_of(self, data: bytes) -> FrameId:
        try:
            return self._id_decoder.decode(data).id
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def encode(self, frame: stream.ServerFrame) -> bytes:
        return self.seal(_msgpack.encode(frame))

    def results(self, id: FrameId, results: Sequence[Settled]) -> bytes:
        return self.encode(stream.Results(id=id, results=list(results)))

    def answer(self, asked: Asked, answer: Answer) -> bytes:
        if asked.published and answer.status >= 300:
            refused = msgspec.json.decode(answer.body)["error"]
            return self.encode(
                stream.Error(id=asked.id, status=answer.status, error=msgspec.convert(refused, stream.ErrorBody))
            )
        kind = stream.Published if asked.published else stream.Reply
        content_type = None if answer.content_type == JSON_TYPE else answer.content_type.decode("latin-1")
        return self.encode(
            kind(
                id=asked.id,
                status=answer.status,
                body=answer.body,
                content_type=content_type,
                retry_after_s=_retry_after_s(answer),
            )
        )

    def read_page(self, sub: str, format: str, queue: str, partition: int, reply: ReadReply) -> bytes:
        page = stream.Messages(
            sub=sub,
            queue=queue,
            partition=partition,
            next_offset=reply.next_offset,
            end_offset=reply.end_offset,
            skipped=reply.skipped,
        )
        if format == "batch":
            meta = read_meta(reply.runs, reply.next_offset, reply.end_offset, reply.start_offset, reply.skipped)
            page.batch = encode_delivery(meta, [run.batch.frame for run in reply.runs])
        else:
            page.messages = [message for run in reply.runs for message in _binary_messages(run)]
        return self.encode(page)

    def lease_page(self, sub: str, format: str, runs: Sequence[DeliveredRun], credit: int) -> bytes:
        page = stream.Messages(sub=sub, credit=credit)
        if format == "batch":
            page.batch = encode_delivery(lease_meta(runs, None), [run.batch.frame for run in runs])
        else:
            page.messages = [message for run in runs for message in _binary_messages(run)]
        return self.encode(page)


def _binary_publish(frame: stream.BinaryPublish) -> Asked:
    if frame.batch is not None:
        if not frame.atomic:
            raise InvalidRequest("a batch is all or nothing", details={"field": "atomic"})
        query = {"queue": frame.queue} if frame.queue is not None else {}
        if frame.producer is not None:
            query |= {
                "producer": frame.producer.id,
                "epoch": str(frame.producer.epoch),
                "seq": str(frame.producer.seq),
            }
        return Asked(frame.id, True, "POST", "/v1/publish", urlencode(query).encode(), frame.batch, BATCH_TYPE)
    messages = [_plain_message(message) for message in frame.messages or ()]
    request = PublishRequest(messages, frame.queue, frame.atomic, frame.producer)
    return Asked(frame.id, True, "POST", "/v1/publish", b"", _json.encode(request))


_ANY_JSON = msgspec.json.Decoder(msgspec.Raw)
_CARRIED = [name for name in PublishMessage.__struct_fields__ if name not in ("payload", "payload_b64")]


def _plain_message(message: stream.BinaryMessage) -> PublishMessage:
    """The same for the JSON door. A client that has many uses batches, which go through as they are."""
    carried = {name: getattr(message, name) for name in _CARRIED}
    if message.json:
        parse_json(_ANY_JSON, message.payload)  # it is put into the request as it is
        return PublishMessage(payload=msgspec.Raw(message.payload), **carried)
    return PublishMessage(payload_b64=msgspec.to_builtins(message.payload), payload=msgspec.Raw(b"null"), **carried)


def _binary_messages(run: DeliveredRun) -> list[stream.BinaryDelivered]:
    batch = run.batch
    blank: list[bytes] = [b""] * batch.count
    keys = batch.strings(layout.KEY) if batch.has(layout.KEY) else blank
    tenants = batch.strings(layout.TENANT) if batch.has(layout.TENANT) else blank
    headers = batch.strings(layout.HEADERS) if batch.has(layout.HEADERS) else blank
    priorities: Sequence[int] = batch.integers(layout.PRIORITY) if batch.has(layout.PRIORITY) else [0] * batch.count
    return [
        stream.BinaryDelivered(
            message_id=text,
            queue=run.queue,
            partition=run.partition,
            offset=run.offset + row,
            payload=payload,
            published_at_ms=run.published_at_ms,
            json=kind == layout.KIND_JSON,
            receipt=None if run.receipt is None else f"{run.receipt}{run.offset + row}",
            deadline_at_ms=run.deadline_at_ms,
            key=key.decode() or None,
            priority=priority,
            headers=msgspec.json.decode(header, type=dict[str, str]) if header else None,
            tenant=tenant.decode() or None,
            attempt=run.attempt,
        )
        for row, (text, payload, kind, key, priority, header, tenant) in enumerate(
            zip(
                ulid_texts(run.id, batch.count), batch.payloads(), batch.kinds(), keys, priorities, headers, tenants,
                strict=True,
            )
        )
    ]  # fmt: skip


_PRINTABLE = re.compile(r"[ -~]*")


def _latin(text: str) -> bytes:
    if not _PRINTABLE.fullmatch(text):
        raise InvalidRequest("a media type has printable ASCII only", details={"field": "content_type"})
    return text.lower().encode()


CODECS: dict[str, Codec] = {codec.protocol: codec for codec in (JsonCodec(), MsgpackCodec())}
