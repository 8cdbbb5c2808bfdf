"""Taking a snapshot while the shard goes on: queue by queue, each before its first change, and only what has changed.

A snapshot is the state after one exact frame. At that moment only the fields of the shard itself are copied; every
queue is *pending*. A pending queue is captured in the next free slice, or right before a record or the time changes it
(`Shard.changing`), whichever comes first. So no step is longer than the capture of one queue.

A queue that has not changed since the last snapshot of this process is not captured: its bytes are copied out of that
snapshot, with a checksum of their own, so that damage on the disk is not carried on.

The places of messages are taken after the frame is durable. Frames that follow only add pieces with higher locators,
which are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import google_crc32c

from penstock import limits
from penstock.core import snapshot
from penstock.core.slices import PART_BYTES, Rows, encoded, encoded_whole, list_head, map_head
from penstock.core.state import Shard
from penstock.core.state.leases import Lease
from penstock.journal.blobs import HEADER
from penstock.journal.port import EngineError
from penstock.runtime.loop import ShardLoop
from penstock.runtime.pace import Pace
from penstock.runtime.recovery import named_by

COPY_BYTES = 256 * limits.KIB
"""A queue that takes more than this is encoded anew: copying its bytes would take as long."""
SLICE_PIECES = 1_000
"""An index with more pieces than this is encoded in several steps."""

Describe = Callable[[int, int], dict[str, Any]]
"""(index, locator) of the frame -> further values of the snapshot."""


class ShardReloaded(Exception):
    """The shard was read again from its journal during a round: decisions of the round may rest on a commit that was
    never written."""


class QueueImage(NamedTuple):
    """The bytes of a queue in the last snapshot."""

    start: int
    length: int
    crc: int
    named: frozenset[int]
    """Blobs that these bytes name."""


class Captured(NamedTuple):
    """A queue as it was at the moment of the snapshot, to be encoded."""

    values: dict[str, Any]
    leases: list[dict[str, Any]]
    named: frozenset[int]


class Snapshots:
    """Makes the snapshots of one shard, one at a time."""

    def __init__(self, loop: ShardLoop, pace: Pace, slice_queues: int):
        self._loop = loop
        self._slice_queues = slice_queues
        """Queues that are captured and encoded between two turns of the event loop, if they are small."""
        self._pace = pace
        self._shard: Shard | None = None
        """The shard whose changes are watched."""
        self._last = ""
        """The name of the last snapshot."""
        self._images: dict[int, QueueImage] = {}
        """Of queues that have not changed since."""
        self._pending: dict[int, list[Lease]] = {}
        """Queues to be captured, with their leases."""
        self._captured: dict[int, Captured] = {}
        """Queues that were captured because they changed, and are to be encoded."""
        self._changed: set[int] = set()
        """Queues that have changed since the moment of the snapshot."""

    def forget(self, queue: int) -> None:
        """The queue is stored in another way: its bytes in the last snapshot are not to be used."""
        self._images.pop(queue, None)

    async def take(self, describe: Describe) -> tuple[int, list[bytes], dict[int, QueueImage]]:
        """The index of the frame, the body of the blob, and the images of the queues in it, for `written`."""
        shard = self._watch()
        leases: dict[int, list[Lease]] = {}
        for lease in shard.leases.values():
            leases.setdefault(lease.queue, []).append(lease)
        self._pending = {number: leases.get(number, []) for number in shard.queues}
        self._captured, self._changed = {}, set()
        numbers, state = list(self._pending), snapshot.capture_shard(shard)
        frame: dict[str, Any] = {}

        def complete(index: int, chain: bytes, locator: int) -> None:
            frame.update(index=index, chain=chain, locator=locator, more=describe(index, locator))

        try:
            await self._loop.cut(complete)
            self._pace.begin()
            body = _Body()
            body.put(map_head(8) + encoded_whole("state") + map_head(len(state) + 2))
            for item in state.items():
                await self._put(body, *item)
            images, held = await self._put_queues(body, numbers)
            await self._put(body, "leases", Rows(len(held), held))
            await self._put(body, "index", frame["index"], "chain", frame["chain"])
            await self._put_pieces(body, frame["locator"])
            for item in frame["more"].items():
                await self._put(body, *item)
            return frame["index"], body.parts, images
        finally:
            self._pending, self._captured = {}, {}

    def written(self, name: str, images: dict[int, QueueImage]) -> None:
        """The snapshot is durable under this name."""
        self._last = name
        self._images = {number: image for number, image in images.items() if number not in self._changed}

    # -- queues -------------------------------------------------------------------------------------------------------

    def _watch(self) -> Shard:
        if self._loop.shard is not self._shard:
            self._shard = self._loop.shard
            self._shard.changing = self._changing
            self._images = {}
        return self._loop.shard

    def _changing(self, number: int) -> None:
        """Called before a record or the time changes a queue."""
        self._images.pop(number, None)
        self._changed.add(number)
        if number in self._pending:
            self._captured[number] = self._capture(number)

    def _capture(self, number: int) -> Captured:
        queue, leases = self._loop.shard.queues[number], self._pending.pop(number)
        values = snapshot.capture_queue(queue)
        return Captured(values, [snapshot.dump_lease(lease) for lease in leases], named_by(queue))

    async def _put_queues(self, body: _Body, numbers: list[int]) -> tuple[dict[int, QueueImage], list[dict[str, Any]]]:
        """The images of the queues in this snapshot, and all leases."""
        body.put(encoded_whole("queues") + list_head(len(numbers)))
        images: dict[int, QueueImage] = {}
        held: list[dict[str, Any]] = []
        for count, number in enumerate(numbers, 1):
            begun = body.size
            image = self._images.get(number) if number in self._pending else None
            if image is not None and (data := self._read(image)) is not None:
                held += [snapshot.dump_lease(lease) for lease in self._pending.pop(number)]
                body.put(data)
                images[number] = image._replace(start=HEADER.size + begun)
            else:
                captured = self._captured.pop(number, None) or self._capture(number)
                held += captured.leases
                crc = await self._put(body, captured.values)
                images[number] = QueueImage(HEADER.size + begun, body.size - begun, crc, captured.named)
            if not count % self._slice_queues:
                await self._yield()
        return images, held

    def _read(self, image: QueueImage) -> bytes | None:
        """The bytes of a queue in the last snapshot; None if they are large, or not what they were."""
        if image.length > COPY_BYTES:
            return None
        try:
            data = self._loop.journal.peek(self._last, image.start, image.length)
        except (EngineError, OSError):
            return None
        return data if data is not None and google_crc32c.value(data) == image.crc else None

    # -- the rest -----------------------------------------------------------------------------------------------------

    async def _put_pieces(self, body: _Body, locator: int) -> None:
        """Where the messages are stored that were durable with the frame at this locator, or before."""
        places = list(self._loop.log.indexes.items())
        found = []
        for count, (place, index) in enumerate(places, 1):
            if pieces := index.until_locator(locator):
                found.append((place, index, pieces))
            if not count % self._slice_queues:
                await self._yield()
        body.put(encoded_whole("pieces") + list_head(len(found)))
        for count, (place, index, pieces) in enumerate(found, 1):
            await self._put(body, (*place, index.dump(pieces)), often=pieces > SLICE_PIECES)
            if not count % self._slice_queues:
                await self._yield()
        prints = [(place, index) for place, index, _ in found if index.prints]
        body.put(encoded_whole("keys") + list_head(len(prints)))
        for place, index in prints:
            await self._put(body, (*place, index.dump_prints(locator)))
            await self._yield()

    async def _put(self, body: _Body, *values: Any, often: bool = True) -> int:
        """Encode these values; the event loop runs between two large parts. Returns their checksum."""
        crc = 0
        for value in values:
            for part in encoded(value):
                crc = google_crc32c.extend(crc, part)
                body.put(part)
                if often and len(part) >= PART_BYTES:
                    await self._yield()
        return crc

    async def _yield(self) -> None:
        await self._pace.yield_to_loop()
        if self._loop.shard is not self._shard:
            raise ShardReloaded


class _Body:
    """Parts of the blob that is put together, and how long they are."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0

    def put(self, part: bytes) -> None:
        self.parts.append(part)
        self.size += len(part)
