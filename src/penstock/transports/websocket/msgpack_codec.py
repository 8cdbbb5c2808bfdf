"""The subprotocol `penstock.v1+msgpack`: binary messages. Payloads and bodies are bytes; batches are sent as stored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast
from urllib.parse import urlencode

import msgspec
from websockets.frames import Opcode

from penstock import limits
from penstock.batch import layout
from penstock.broker.types import DeliveredRun, ReadReply
from penstock.errors import InvalidRequest
from penstock.ids import ulid_texts
from penstock.transports.http.answer import Answer
from penstock.transports.http.render import lease_meta, read_meta
from penstock.transports.http.request import BATCH_TYPE, JSON_TYPE
from penstock.transports.websocket.codec import Codec, FrameId, HttpCall, IdOnly, retry_after_s
from penstock.wire import stream
from penstock.wire.delivery import Settled, encode_delivery
from penstock.wire.messages import PublishMessage, PublishRequest
from penstock.wire.parse import named_error, parse_json

_json = msgspec.json.Encoder()
_msgpack = msgspec.msgpack.Encoder()


class MsgpackCodec(Codec):
    protocol = stream.MSGPACK_PROTOCOL
    opcode = Opcode.BINARY
    message_bytes_max = limits.REQUEST_BYTES_MAX

    _decoder = msgspec.msgpack.Decoder(stream.MSGPACK_FRAMES)
    _id_decoder = msgspec.msgpack.Decoder(IdOnly)

    def decode(self, data: bytes) -> stream.EITHER | HttpCall:
        try:
            frame = self._decoder.decode(data)
        except msgspec.ValidationError as error:
            raise named_error(error) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequest(f"the message is not MessagePack: {error}"[:300]) from None
        if isinstance(frame, stream.BinaryPublish):
            return _binary_publish(frame)
        if isinstance(frame, stream.BinaryCall):
            return HttpCall(
                frame.id, False, frame.method, frame.path, frame.query.encode(), frame.body,
                _media_type(frame.content_type), _media_type(frame.accept),
            )  # fmt: skip
        return cast(stream.EITHER, frame)

    def id_of(self, data: bytes) -> FrameId:
        try:
            return self._id_decoder.decode(data).id
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def encode(self, frame: stream.ServerFrame) -> bytes:
        return self.to_frame(_msgpack.encode(frame))

    def results(self, id: FrameId, results: Sequence[Settled]) -> bytes:
        return self.encode(stream.Results(id=id, results=list(results)))

    def answer(self, asked: HttpCall, answer: Answer) -> bytes:
        if asked.published and answer.status >= 300:
            refused = msgspec.json.decode(answer.body)["error"]
            return self.encode(
                stream.Error(id=asked.id, status=answer.status, error=msgspec.convert(refused, stream.FrameError))
            )
        kind = stream.PublishedFrame if asked.published else stream.Reply
        content_type = None if answer.content_type == JSON_TYPE else answer.content_type.decode("latin-1")
        return self.encode(
            kind(
                id=asked.id,
                status=answer.status,
                body=answer.body,
                content_type=content_type,
                retry_after_s=retry_after_s(answer),
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


def _binary_publish(frame: stream.BinaryPublish) -> HttpCall:
    if frame.batch is not None:
        if not frame.atomic:
            raise InvalidRequest("a batch is atomic: atomic=false needs messages", details={"field": "atomic"})
        query = {"queue": frame.queue} if frame.queue is not None else {}
        if frame.producer is not None:
            query |= {
                "producer": frame.producer.id,
                "epoch": str(frame.producer.epoch),
                "seq": str(frame.producer.seq),
            }
        return HttpCall(frame.id, True, "POST", "/v1/publish", urlencode(query).encode(), frame.batch, BATCH_TYPE)
    messages = [_plain_message(message) for message in frame.messages or ()]
    request = PublishRequest(messages, frame.queue, frame.atomic, frame.producer)
    return HttpCall(frame.id, True, "POST", "/v1/publish", b"", _json.encode(request))


_ANY_JSON = msgspec.json.Decoder(msgspec.Raw)
_CARRIED = [name for name in PublishMessage.__struct_fields__ if name not in ("payload", "payload_b64")]


def _plain_message(message: stream.BinaryMessage) -> PublishMessage:
    """The message as JSON. Clients with many messages use batches, which need no conversion."""
    carried = {name: getattr(message, name) for name in _CARRIED}
    if message.json:
        parse_json(_ANY_JSON, message.payload)  # the request contains the bytes unchanged, so they must be valid
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


def _media_type(text: str) -> bytes:
    if not _PRINTABLE.fullmatch(text):
        raise InvalidRequest("a media type must be printable ASCII", details={"field": "content_type"})
    return text.lower().encode()
