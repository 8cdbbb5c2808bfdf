"""What both subprotocols have in common: from a message to a frame of `wire/stream.py`, and from answers to bytes.

Both end in the same asked-for calls, so that the session does not know which one its client speaks. What leaves is
sealed: the bytes that go to the socket, header included. A server's frames are not masked, so the same bytes will do
for every reader of the same page.
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


class Identified(msgspec.Struct):
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


def retry_after_s(answer: Answer) -> int | None:
    return next((int(value) for name, value in answer.headers if name == b"retry-after"), None)
