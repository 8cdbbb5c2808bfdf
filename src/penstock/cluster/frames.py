"""The frames of a link: a header with the length, the kind and the number of the call, and a body.

A call has a number, which its reply, its error and all later frames about it repeat. Frames of one direction arrive in
the order in which they were sent.
"""

from __future__ import annotations

import asyncio
from enum import IntEnum
from struct import Struct
from typing import cast

from penstock import limits

_HEADER = Struct("<IBQ")
_CALL = Struct("<HBB")


class Kind(IntEnum):
    CALL = 1
    """To the owner: make this call."""
    WATCH = 2
    """To the owner: make this call, whose last argument is a function, and send a frame whenever it is called."""
    CANCEL = 3
    """To the owner: the caller gives the reply up, or watches no longer."""
    WITHDRAW = 4
    """To the owner: the caller wants the reply now, even if it is empty."""
    REPLY = 5
    ERROR = 6
    NOTICE = 7
    """To the caller: the function of a watch was called with these arguments."""


def call_body(shard: int, method: str, arguments: bytes, *, routed: bool) -> bytes:
    """`routed`: the owner of the shard finds the shard of the call itself, by the route of the method."""
    name = method.encode()
    return _CALL.pack(shard, routed, len(name)) + name + arguments


def read_call(body: bytes) -> tuple[int, bool, str, bytes]:
    """(shard, routed, method, arguments)"""
    shard, routed, length = _CALL.unpack_from(body)
    end = _CALL.size + length
    return shard, bool(routed), body[_CALL.size : end].decode(), body[end:]


class LinkProtocol(asyncio.Protocol):
    """One end of a connection."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._transport.set_write_buffer_limits(high=limits.LINK_UNSENT_BYTES_MAX)

    def send(self, kind: Kind, number: int, body: bytes = b"") -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines((_HEADER.pack(len(body), kind, number), body))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        start, end = 0, len(buffer)
        while end - start >= _HEADER.size:
            length, kind, number = _HEADER.unpack_from(buffer, start)
            if length > limits.LINK_FRAME_BYTES_MAX:
                raise ValueError(f"a frame of {length} bytes")  # not from this program: the connection ends
            if end - start - _HEADER.size < length:
                break
            body = bytes(memoryview(buffer)[start + _HEADER.size : start + _HEADER.size + length])
            start += _HEADER.size + length
            self.frame_received(Kind(kind), number, body)
        del buffer[:start]
        self.chunk_ended()

    def frame_received(self, kind: Kind, number: int, body: bytes) -> None:
        raise NotImplementedError

    def chunk_ended(self) -> None:
        """All frames that arrived together were received."""
