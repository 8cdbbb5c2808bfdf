"""The subprotocol `penstock.v1+json`: text messages. JSON payloads are written as they were published."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
from websockets.frames import Opcode

from penstock import limits
from penstock.broker.types import DeliveredRun, ReadReply
from penstock.errors import InvalidRequest
from penstock.transports.http.answer import Answer
from penstock.transports.http.render import delivered_messages
from penstock.transports.http.request import JSON_TYPE
from penstock.transports.websocket.codec import Codec, FrameId, HttpCall, IdOnly, InvalidUtf8, retry_after_s
from penstock.wire import stream
from penstock.wire.delivery import Settled, results_json
from penstock.wire.parse import parse_json

_json = msgspec.json.Encoder()


class JsonCodec(Codec):
    protocol = stream.JSON_PROTOCOL
    opcode = Opcode.TEXT
    message_bytes_max = limits.WEBSOCKET_TEXT_BYTES_MAX

    _decoder = msgspec.json.Decoder(stream.JSON_FRAMES)
    _id_decoder = msgspec.json.Decoder(IdOnly)

    def decode(self, data: bytes) -> stream.EITHER | HttpCall:
        try:
            data.isascii() or data.decode()
        except UnicodeDecodeError:
            raise InvalidUtf8 from None
        frame = parse_json(self._decoder, data)
        if isinstance(frame, stream.Subscribe) and frame.format == "batch":
            raise InvalidRequest(
                f"batches are binary: connect with the subprotocol {stream.MSGPACK_PROTOCOL}",
                details={"field": "format"},
            )
        if isinstance(frame, stream.PublishFrame):
            # The messages are passed on as received; only the other fields are encoded again.
            head: dict[str, Any] = {"atomic": frame.atomic}
            if frame.queue is not None:
                head["queue"] = frame.queue
            if frame.producer is not None:
                head["producer"] = frame.producer
            body = b'%b,"messages":%b}' % (_json.encode(head)[:-1], bytes(frame.messages))
            return HttpCall(frame.id, True, "POST", "/v1/publish", b"", body)
        if isinstance(frame, stream.CallFrame):
            return HttpCall(frame.id, False, frame.method, frame.path, frame.query.encode(), bytes(frame.body))
        return cast(stream.EITHER, frame)

    def id_of(self, data: bytes) -> FrameId:
        try:
            return self._id_decoder.decode(data).id
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def encode(self, frame: stream.ServerFrame) -> bytes:
        return self.to_frame(_json.encode(frame))

    def results(self, id: FrameId, results: Sequence[Settled]) -> bytes:
        return self.to_frame(b'{"type":"results"%b,"results":%b}' % (_id_field(id), results_json(results)))

    def answer(self, asked: HttpCall, answer: Answer) -> bytes:
        if asked.published and answer.status < 300:
            # The fields of the frame, then those of the HTTP reply.
            head = b'{"type":"published"%b,"status":%d,' % (_id_field(asked.id), answer.status)
            return self.to_frame(head + answer.body[1:])
        retry = retry_after_s(answer)
        more = b"" if retry is None else b',"retry_after_s":%d' % retry
        if asked.published:
            # A refused publish is answered with an `error` frame, as any other refused frame.
            return self.to_frame(
                b'{"type":"error"%b,"status":%d%b,%b' % (_id_field(asked.id), answer.status, more, answer.body[1:])
            )
        body = answer.body if answer.content_type == JSON_TYPE else _json.encode(answer.body.decode("utf-8", "replace"))
        return self.to_frame(
            b'{"type":"reply"%b,"status":%d%b,"body":%b}' % (_id_field(asked.id), answer.status, more, body or b"null")
        )

    def read_page(self, sub: str, format: str, queue: str, partition: int, reply: ReadReply) -> bytes:  # noqa: ARG002
        return self.to_frame(
            b'{"type":"messages","sub":%b,"queue":"%b","partition":%d,"messages":%b,"next_offset":%d,"end_offset":%d%b}'
            % (
                _json.encode(sub),
                queue.encode(),
                partition,
                delivered_messages(reply.runs, leased=False),
                reply.next_offset,
                reply.end_offset,
                b',"skipped":%d' % reply.skipped if reply.skipped else b"",
            )
        )

    def lease_page(self, sub: str, format: str, runs: Sequence[DeliveredRun], credit: int) -> bytes:  # noqa: ARG002
        return self.to_frame(
            b'{"type":"messages","sub":%b,"messages":%b,"credit":%d}'
            % (_json.encode(sub), delivered_messages(runs, leased=True), credit)
        )


def _id_field(id: FrameId) -> bytes:
    return b"" if id is None else b',"id":' + _json.encode(id)
