"""The records of a shard's journal without their payloads, in order, from a position on.

The engine's bulk thread reads the files, one piece at a time. Records are decoded on the event loop in small slices,
and never message by message: the ranges inside a record are left to the reader. One reader at a time uses the journal;
a bounded number of others waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import NamedTuple

import msgspec

from penstock import limits
from penstock.batch import layout
from penstock.errors import Unavailable
from penstock.journal.codec import Stripped, strip
from penstock.journal.frame import Frame
from penstock.journal.port import EngineError
from penstock.runtime.loop import ShardLoop

PIECE_BYTES = 256 * limits.KIB
"""Read and checked in one go by the bulk thread, which must not hold the interpreter lock for long."""
SLICE_RECORDS = 300
NOT_EVENTS = frozenset(
    (b"opened", b"transacted", b"offsets", b"hold", b"hold_ended", b"schedule", b"schedule_paused",
     b"schedule_removed", b"schedule_fired", b"schedule_refused", b"redrive_started", b"redrive_ended",
     b"member_joined", b"members_left", b"handed_over", b"key", b"key_rotated", b"key_revoked",
     b"user", b"user_removed", b"webhook", b"webhook_rotated", b"webhook_state", b"webhook_removed")
)  # fmt: skip
"""Kinds of records that concern no message; some of them contain payloads."""
_TAG_AT = 7
"""A record is a map whose first key is `type`: a byte for the map, five for the key, one for the length of the tag."""


class _Sized(msgspec.Struct, gc=False):
    """The fields of any record that give its number of messages."""

    queue: int = 0
    ranges: list[int] = []
    runs: list[int] = []


_size = msgspec.msgpack.Decoder(_Sized).decode


class EventRecord(NamedTuple):
    """A record that concerns messages or a queue."""

    frame: int
    number: int
    queue: int
    rows: int
    """Messages that it concerns; 1 if it concerns a queue."""
    record: Stripped


class FrameSize(NamedTuple):
    """A frame with the number of its events, as rows, and its size."""

    frame: int
    rows: int
    bytes: int


class Ends(NamedTuple):
    start: int
    """The journal begins behind this frame."""
    end: int


class EventLog:
    """Events of one shard."""

    def __init__(self, loop: ShardLoop):
        self._loop = loop
        self._one_at_a_time = asyncio.Lock()
        self._in_line = 0

    async def ends(self) -> Ends:
        return Ends(await self._loop.journal.first_kept() - 1, self._loop.durable_index)

    async def frame_at(self, at_ms: int) -> int:
        """The last frame before this time."""
        after = await self._loop.journal.index_before(at_ms)
        async for frame in self._frames(after, None):
            if frame.at_ms >= at_ms:
                break
            after = frame.index
        return after

    async def records(self, after: int, number: int, until: int | None) -> AsyncGenerator[EventRecord, None]:
        """The events behind record `number` of frame `after`, in order, up to the end of frame `until`.

        A caller that has enough closes the generator.
        """
        async for frame in self._frames(after - 1, until):
            looked = 0
            for position, record in enumerate(strip(frame.body)):
                looked += 1
                if looked % SLICE_RECORDS == 0:
                    await asyncio.sleep(0)
                if (frame.index == after and position <= number) or kind_of(record) in NOT_EVENTS:
                    continue
                sized = _size(record.meta)
                yield EventRecord(frame.index, position, sized.queue, _rows(sized, record), record)

    async def sizes(self, after: int, until: int | None) -> AsyncGenerator[FrameSize, None]:
        """The frames behind `after`, with the number of their events."""
        async for frame in self._frames(after, until):
            rows = 0
            for position, record in enumerate(strip(frame.body)):
                if kind_of(record) not in NOT_EVENTS:
                    rows += _rows(_size(record.meta), record)
                if position % SLICE_RECORDS == SLICE_RECORDS - 1:
                    await asyncio.sleep(0)
            yield FrameSize(frame.index, rows, frame.size)

    async def _frames(self, after: int, until: int | None) -> AsyncGenerator[Frame, None]:
        last = self._loop.durable_index if until is None else min(until, self._loop.durable_index)
        while after < last:
            frames = await self._read(after)
            if not frames:
                return
            for frame in frames:
                if frame.index > last:
                    return
                yield frame
            after = frames[-1].index

    async def _read(self, after: int) -> list[Frame]:
        if self._in_line >= limits.EVENT_READS_MAX:
            raise Unavailable(f"{self._in_line} readers of events are in line already", retry_after_ms=200)
        self._in_line += 1
        try:
            async with self._one_at_a_time:
                if self._loop.closing or self._loop.failed is not None:
                    raise Unavailable("the broker is shutting down", retry_after_ms=1_000)
                return await self._loop.journal.read_frames(max(0, after), PIECE_BYTES)
        except EngineError as error:
            raise Unavailable(f"the journal cannot be read: {error}", retry_after_ms=1_000) from error
        finally:
            self._in_line -= 1


def kind_of(record: Stripped) -> bytes:
    """The tag of the record's kind, without decoding the record."""
    length = record.meta[_TAG_AT - 1] & 0x1F
    return bytes(record.meta[_TAG_AT : _TAG_AT + length])


def _rows(sized: _Sized, record: Stripped) -> int:
    if record.about:
        return int(layout.HEADER.unpack_from(record.about)[3])
    if sized.runs:
        return sum(sized.runs[1::3])
    return sum(sized.ranges[1::2]) - sum(sized.ranges[::2]) or 1
