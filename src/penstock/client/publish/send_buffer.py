"""Backpressure: how much a client may have under way. A publish that would exceed it waits, first come first served."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from penstock.errors import InvalidRequest


class _WaitingPublish(NamedTuple):
    messages: int
    bytes: int
    granted: asyncio.Future[None]


class SendBuffer:
    """Counts messages that were handed over and are not answered yet, of all queues of a client.

    Calls enter in the order in which they ask, so that a message that waits keeps its place in the queue's order. A
    frame larger than the whole buffer enters when the buffer is empty.
    """

    __slots__ = ("_bytes", "_bytes_max", "_messages", "_messages_max", "_turns")

    def __init__(self, messages_max: int, bytes_max: int):
        for name, most in (("buffer_messages", messages_max), ("buffer_bytes", bytes_max)):
            if most < 1:
                raise InvalidRequest(f"{name}: {most!r} leaves no room for anything", details={"field": name})
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._messages = 0
        self._bytes = 0
        self._turns: deque[_WaitingPublish] = deque()

    @property
    def is_empty(self) -> bool:
        """True if nothing is under way and no publish waits."""
        return not self._messages and not self._turns

    def enter_now(self, messages: int, size: int) -> bool:
        """True if there was room, which is then taken."""
        if self._turns or not self._has(messages, size):
            return False
        self._messages += messages
        self._bytes += size
        return True

    async def enter(self, messages: int, size: int) -> None:
        """Take room, waiting for it. `leave` gives it back."""
        if self.enter_now(messages, size):
            return
        turn = _WaitingPublish(messages, size, asyncio.get_running_loop().create_future())
        self._turns.append(turn)
        try:
            await turn.granted
        except BaseException:
            # Cancelled: either before its turn, or with the room in hand that it no longer needs.
            if turn.granted.cancelled():
                self._grant()
            else:
                self.leave(messages, size)
            raise

    def leave(self, messages: int, size: int) -> None:
        self._messages -= messages
        self._bytes -= size
        self._grant()

    def _has(self, messages: int, size: int) -> bool:
        if not self._messages:
            return True
        return self._messages + messages <= self._messages_max and self._bytes + size <= self._bytes_max

    def _grant(self) -> None:
        while self._turns:
            turn = self._turns[0]
            if not turn.granted.done():
                if not self._has(turn.messages, turn.bytes):
                    return
                self._messages += turn.messages
                self._bytes += turn.bytes
                turn.granted.set_result(None)
            self._turns.popleft()
