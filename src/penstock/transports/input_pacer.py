"""The input of one connection, parsed in slices, so that no connection occupies the event loop.

A few kilobytes can hold thousands of empty WebSocket frames or one-byte HTTP chunks, and each costs as much to parse as
a large one. The pacer therefore counts units (frames, chunks, requests), not bytes: after `UNITS_PER_TURN` units the
rest of the input waits for the next turn of the event loop, and nothing more is read from the socket until then. The
size of a slice follows the input: it shrinks when a slice holds many units and grows back when it holds few, so that
ordinary input is parsed whole.

Units that complete no request (empty fragments, pings, chunks of one byte) are overhead. A connection whose input is
mostly overhead is parsed for at most a quarter of the time, so that the event loop and the disk's thread stay free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from penstock import limits

UNITS_PER_TURN = 64
"""About half a millisecond of WebSocket frames."""
OVERHEAD_PAUSE = 3
"""The pause behind a turn of overhead, in durations of that turn."""
SLICE_BYTES_MIN = 512
SLICE_BYTES_START = 16 * limits.KIB
SLICE_BYTES_MAX = 256 * limits.KIB


class Parsed(NamedTuple):
    """The units of a slice, and how many of them completed a request."""

    units: int
    requests: int


class InputPacer:
    """Unparsed input of one connection. The connection reads from its socket only while `is_empty`."""

    __slots__ = ("_at", "_changed", "_input", "_loop", "_parse", "_scheduled", "_slice_bytes", "held", "is_empty")

    def __init__(self, parse: Callable[[bytes], Parsed], changed: Callable[[], None], loop: asyncio.AbstractEventLoop):
        """`parse` handles a slice of the input; `changed` is called when `is_empty` changes."""
        self._parse = parse
        self._changed = changed
        self._loop = loop
        self._input = b""
        self._at = 0
        """The input up to here is parsed."""
        self.held = False
        """True: parsing has stopped until `hold`."""
        self.is_empty = True
        """True if no input waits for a later turn."""
        self._scheduled: asyncio.Handle | None = None
        self._slice_bytes = SLICE_BYTES_START

    def receive(self, data: bytes) -> None:
        """Parse `data` behind the input that waits, as far as this turn allows."""
        if self.is_empty:
            self._input = data
            self._run()
        else:
            self._input, self._at = self._input[self._at :] + data, 0

    def hold(self, held: bool) -> None:
        """Stop parsing, or go on: for a connection whose parsed requests have to wait."""
        self.held = held
        if not held and not self.is_empty:
            self._schedule()

    def clear(self) -> None:
        """Drop the input: nothing more of it will be parsed."""
        self._input, self._at, self.is_empty = b"", 0, True
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None

    def close(self) -> None:
        """The connection is lost: drop the input and the references back to the connection."""
        self.clear()
        self._parse, self._changed = _drop, _ignore

    def take(self) -> bytes:
        """The input that is not parsed, for another protocol on the same connection."""
        rest = self._input[self._at :]
        self.clear()
        return rest

    def _schedule(self, pause_s: float = 0.0) -> None:
        if self._scheduled is None:
            if pause_s:
                self._scheduled = self._loop.call_later(pause_s, self._run)
            else:
                self._scheduled = self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = None
        data, units, requests, was_empty = self._input, 0, 0, self.is_empty
        begun = self._loop.time()
        while self._at < len(data) and not self.held and units < UNITS_PER_TURN:
            begin, self._at = self._at, min(len(data), self._at + self._slice_bytes)
            part = data if self._at - begin == len(data) else data[begin : self._at]
            parsed = self._parse(part)
            units += parsed.units
            requests += parsed.requests
            if parsed.units > UNITS_PER_TURN:
                self._slice_bytes = max(SLICE_BYTES_MIN, len(part) * UNITS_PER_TURN // parsed.units)
            elif parsed.units <= UNITS_PER_TURN // 4 and self._slice_bytes < SLICE_BYTES_MAX:
                self._slice_bytes *= 2
            if self._input is not data:
                return  # the connection was closed, and its input dropped
        if self._at == len(data):
            if was_empty:
                self._input, self._at = b"", 0
                return  # the ordinary case: nothing waited before, and nothing waits now
            self.clear()
        else:
            self.is_empty = False
            if not self.held:
                is_overhead = 2 * requests < units
                self._schedule(OVERHEAD_PAUSE * (self._loop.time() - begun) if is_overhead else 0.0)
        if self.is_empty is not was_empty:
            self._changed()


def _drop(_data: bytes) -> Parsed:
    return Parsed(0, 0)


def _ignore() -> None:
    return
