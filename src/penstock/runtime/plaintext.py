"""Plaintext of encrypted queues in the store: messages that were published before their queue was encrypted.

A journal file has the messages of all queues, also finished ones, and a segment those of many queues. Every record says
whether it is encrypted, so the store itself is the evidence, and nothing about it is kept in the state.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import NamedTuple

from penstock import limits
from penstock.journal.blobs import decode_segment
from penstock.journal.codec import PublishedHead, UnknownRecord, decode_heads, may_have_plaintext
from penstock.journal.port import Damaged, Place
from penstock.runtime.loop import ShardLoop

STEP_BYTES = 1 * limits.MIB
"""Bytes of the journal that are searched in one step."""


class Plaintext(NamedTuple):
    """Where plaintext was found."""

    frame: int
    """The last frame of the journal that has some; 0: none."""
    segments: list[int]

    def __bool__(self) -> bool:
        return bool(self.frame or self.segments)

    @property
    def where(self) -> str:
        """For errors; empty if there is none."""
        places = [f"frame {self.frame} of the journal"] if self.frame else []
        return ", ".join([*places, *(f"segment {number}" for number in self.segments)])


async def find_plaintext(loop: ShardLoop, is_asked: Callable[[str], bool]) -> Plaintext:
    """Search for messages of queues whose path is asked for, and that are encrypted or were deleted.

    Raises EngineError if the store cannot be read.
    """
    return Plaintext(await _in_journal(loop, is_asked), [number async for number in _in_segments(loop, is_asked)])


async def _in_journal(loop: ShardLoop, is_asked: Callable[[str], bool]) -> int:
    journal, found = loop.journal, 0
    at, end = await journal.first_kept() - 1, journal.tail.index
    while at < end and (frames := await journal.read_frames(at, STEP_BYTES)):
        for frame in frames:
            if any(_is_wanted(loop, queue, is_asked) for queue in _in_plaintext(frame.body)):
                found = frame.index
        at = frames[-1].index
    return found


async def _in_segments(loop: ShardLoop, is_asked: Callable[[str], bool]) -> AsyncIterator[int]:
    for name, size in await loop.journal.list_blobs("segment-"):
        (data,) = await loop.journal.fetch([Place(name, 0, size)])
        try:
            description, body = decode_segment(name, data)
            asked = any(is_asked(part.queue) for part in description.parts)
            found = asked and any(_is_wanted(loop, queue, is_asked) for queue in _in_plaintext(body))
        except (Damaged, UnknownRecord):
            found = may_have_plaintext(data)
        if found:
            yield int(name.removeprefix("segment-"))


def _in_plaintext(body: memoryview) -> Iterator[int]:
    """The numbers of the queues of records that are not encrypted."""
    for record in decode_heads(body):
        if isinstance(record, PublishedHead) and not record.encrypted:
            yield record.queue


def _is_wanted(loop: ShardLoop, number: int, is_asked: Callable[[str], bool]) -> bool:
    queue, former = loop.shard.queues.get(number), loop.shard.former_queues.get(number)
    if queue is not None:
        return queue.config.encryption and is_asked(queue.path)
    return former is None or is_asked(former.path)  # the names of queues that were deleted long ago are not known
