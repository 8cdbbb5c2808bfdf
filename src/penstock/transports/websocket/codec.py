"""The base class of both subprotocols: WebSocket messages to frames of `wire/stream.py`, and replies to bytes.

The session is the same for both subprotocols. Encoded frames are the bytes that go to the socket, with the WebSocket
header. Frames of a server are not masked, so all readers of a page get the same bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from websockets.frames import Frame, Opcode

from penstock.broker.types import DeliveredRun, ReadReply
from penstock.errors import PenstockError
from penstock.transports.http.answer import Answer
from penstock.transports.http.request import JSON_TYPE
from penstock.wire import stream
from penstock.wire.delivery import Settled
from penstock.wire.status import STATUS

FrameId = str | int | None


class HttpCall(NamedTuple):
    """An HTTP request that a frame contains."""

    id: FrameId
    published: bool
    """True for a `publish` frame, which is answered with `published`."""
    method: str
    path: str
    query: bytes
    body: bytes
    content_type: bytes = JSON_TYPE
    accept: bytes = JSON_TYPE


class InvalidUtf8(Exception):
    """A text message is not valid UTF-8; the connection ends."""


class IdOnly(msgspec.Struct):
    id: str | int | None = None


class Codec(ABC):
    """One of the two subprotocols. A codec has no state, so all connections share it."""

    protocol: str
    opcode: Opcode
    message_bytes_max: int

    @abstractmethod
    def decode(self, data: bytes) -> stream.EITHER | HttpCall:
        """Decode one message. Raises InvalidRequest if it is not a frame, InvalidUtf8 if it is not text."""

    @abstractmethod
    def id_of(self, data: bytes) -> FrameId:
        """The id of a frame that could not be decoded, None if it is unreadable."""

    @abstractmethod
    def encode(self, frame: stream.ServerFrame) -> bytes: ...

    @abstractmethod
    def results(self, id: FrameId, results: Sequence[Settled]) -> bytes: ...

    @abstractmethod
    def answer(self, asked: HttpCall, answer: Answer) -> bytes: ...

    @abstractmethod
    def read_page(self, sub: str, format: str, queue: str, partition: int, reply: ReadReply) -> bytes: ...

    @abstractmethod
    def lease_page(self, sub: str, format: str, runs: Sequence[DeliveredRun], credit: int) -> bytes: ...

    def error(self, id: FrameId, error: PenstockError) -> bytes:
        return self.encode(stream.Error(id=id, status=STATUS[error.code].http, error=error_body(error)))

    def to_frame(self, payload: bytes) -> bytes:
        return Frame(self.opcode, payload).serialize(mask=False)


def error_body(error: PenstockError) -> stream.FrameError:
    return stream.FrameError(error.code, error.message, error.retryable, error.details)


def retry_after_s(answer: Answer) -> int | None:
    return next((int(value) for name, value in answer.headers if name == b"retry-after"), None)
