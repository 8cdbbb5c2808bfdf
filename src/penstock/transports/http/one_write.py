"""An answer leaves in one piece."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock import limits

JOIN_BELOW_BYTES = 16 * limits.KIB
"""A small head and body are cheaper to join than to hand over as two."""


class OneWrite:
    """A transport that sends the head and the body of an answer together.

    The server writes them one after the other, and on a socket without delay that is two packets, two system calls and
    two wake-ups of the client, which can do nothing with the first.
    """

    __slots__ = ("_head", "_transport")

    def __init__(self, transport: asyncio.Transport):
        self._transport = transport
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        elif data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 100"):
            self._head = data
        else:
            self._transport.write(data)

    def write_answer(self, head: bytes, body: bytes) -> None:
        """Both are there already."""
        if len(body) < JOIN_BELOW_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))

    def close(self) -> None:
        if self._head:
            self.write(b"")
        self._transport.close()

    def unwrap(self) -> asyncio.Transport:
        """The transport itself, for whoever takes the connection over."""
        assert not self._head
        return self._transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
