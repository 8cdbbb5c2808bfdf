"""Messages by key: the offsets of a partition whose message has a key, without reading the other messages.

Four bytes of each key are known by piece (`PartitionIndex.prints`), in the order of offsets. The first lookup sorts
them in blocks of 8,192 offsets, and merges sixteen full blocks into one, and sixteen of those again; from then on a
lookup costs a bisection for each block, and a look at the pieces that came since. Blocks are not stored: the first
lookup after a restart makes them again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from penstock.batch import layout
from penstock.core.records import Published
from penstock.runtime.index import PartitionIndex, key_prints, rows_with_print
from penstock.runtime.stored import DamagedMessages

if TYPE_CHECKING:
    from penstock.runtime.log import MessageLog
    from penstock.runtime.node_memory import NodeMemory

SHIFT = 13
BLOCK = 1 << SHIFT
"""Offsets of a block: few enough to be sorted in one step, enough for blocks to be few."""
MERGED_BITS = 4
"""Sixteen neighbours of one size become one block."""
RESORT = 512
"""Offsets behind a block that is not full yet, from which on it is sorted again with them."""
STEPS = 200
"""Pieces looked through, or blocks passed over, between two turns of the event loop."""


class Block(NamedTuple):
    """The prints of `[first, stop)`, ascending, and where each is."""

    first: int
    stop: int
    prints: array[int]
    rows: array[int]
    """Offsets from the first one on."""

    @property
    def full(self) -> bool:
        return self.stop - self.first >= BLOCK

    def rows_of(self, wanted: int) -> Sequence[int]:
        at = bisect_left(self.prints, wanted)
        if at == len(self.prints) or self.prints[at] != wanted:
            return ()
        return self.rows[at : bisect_right(self.prints, wanted, at)]


class KeyLookup:
    def __init__(self, log: MessageLog, memory: NodeMemory):
        self._log = log
        self._memory = memory
        self._blocks: dict[tuple[int, int], dict[int, Block]] = {}
        """Partition -> offset >> SHIFT -> the block it is in. Only those whose prints are all known. A merged block
        has many of these numbers."""
        self._lowest: dict[tuple[int, int], int] = {}
        """Partition -> the number below which its blocks were forgotten."""
        self._sorted = 0
        """Prints in all blocks."""

    def find(self, queue: int, partition: int, key: bytes, first: int) -> Iterator[tuple[Published, int] | None]:
        """(record, offset) of the stored messages with this key from `first` on, and None now and then, to yield to
        other work. Damaged messages are passed over: they are not delivered, and what they say of their key is not
        known."""
        place, wanted = (queue, partition), crc32(key)
        self._forget(place, first >> SHIFT)
        offset, steps = first, 0
        # The index may change whenever something was yielded.
        while (index := self._log.indexes.get(place)) and offset < index.ends[-1]:
            offset = max(offset, self._first_with(place, wanted, offset >> SHIFT) << SHIFT)
            if offset >= index.ends[-1]:
                break
            block, known = self._block(place, index, offset >> SHIFT)
            if not known:
                yield from self._merge(place, offset >> SHIFT)
            if block is not None and offset < block.stop:
                begin, offset = offset, block.stop
                for row in block.rows_of(wanted):
                    if block.first + row >= begin:
                        yield from self._check(place, block.first + row, key)
            else:
                piece = index.at(offset)
                begin = max(offset, index.firsts[piece])
                offset = min(index.ends[piece], ((begin >> SHIFT) + 1) << SHIFT)
                yield from self._find_in_piece(place, index, piece, key, begin, offset)
            steps += 1
            if steps % STEPS == 0:
                yield None

    def _first_with(self, place: tuple[int, int], wanted: int, number: int) -> int:
        """The first block from this one on that has the print, or is not full."""
        blocks = self._blocks.get(place, {})
        while (block := blocks.get(number)) is not None and block.full:
            prints = block.prints
            at = bisect_left(prints, wanted)
            if at < len(prints) and prints[at] == wanted:
                break
            number = block.stop >> SHIFT
        return number

    def _check(self, place: tuple[int, int], offset: int, key: bytes) -> Iterator[tuple[Published, int]]:
        """The message at this offset, if it is still stored and has this key."""
        try:
            runs = list(self._log.runs(*place, offset, offset + 1))
        except DamagedMessages:
            return
        for run in runs:
            if run.record.batch.string(layout.KEY, offset - run.record.offset) == key:
                yield run.record, offset

    def _find_in_piece(
        self, place: tuple[int, int], index: PartitionIndex, piece: int, key: bytes, begin: int, end: int
    ) -> Iterator[tuple[Published, int] | None]:
        """The matches of `[begin, end)`, which is part of this piece."""
        prints = _aligned_prints(index, piece)
        if prints is not None:
            first = index.firsts[piece]
            for row in rows_with_print(prints[4 * (begin - first) : 4 * (end - first)], key):
                yield from self._check(place, begin + row, key)
            return
        stored = index.stored(piece)
        records, problem, _ = self._log.pieces.read(place, stored.locator, stored.skip, stored.length)
        if not problem and (stored.locator, stored.skip) not in index.prints:
            prints = b"".join([key_prints(record.batch) for record in records])
            if self._held_bytes() + len(prints) <= self._memory.print_bytes_each:
                index.prints[stored.locator, stored.skip] = prints
        for record in records:
            keys = record.batch.strings(layout.KEY) if record.batch.has(layout.KEY) else []
            for offset, each in enumerate(keys, record.offset):
                if each == key and begin <= offset < end:
                    yield record, offset
        yield None

    def _held_bytes(self) -> int:
        return sum(len(prints) for index in self._log.indexes.values() for prints in index.prints.values())

    def _block(self, place: tuple[int, int], index: PartitionIndex, number: int) -> tuple[Block | None, bool]:
        """The block with this number, as far as it is filled, and whether it was there: it is sorted again if many
        messages came since."""
        block = self._blocks.get(place, {}).get(number)
        if block is not None and block.full:
            return block, True
        stop = min(index.ends[-1], (number + 1) << SHIFT)
        if block is not None and stop - block.stop < RESORT:
            return block, True
        sorted_anew = _sorted_block(index, number, stop)
        if sorted_anew is None:
            return block, True
        count = self._sorted + len(sorted_anew.rows) - (len(block.rows) if block is not None else 0)
        if count > self._memory.print_bytes_each // 4:
            return block, True
        self._sorted = count
        self._blocks.setdefault(place, {})[number] = sorted_anew
        return sorted_anew, False

    def _merge(self, place: tuple[int, int], number: int) -> Iterator[None]:
        """Merge the block with this number, which was just sorted, and its neighbours, if all of them are full: a part
        of the range of prints at a time, as large as a block."""
        yield
        for level in range(1, 32 // MERGED_BITS):
            numbers = 1 << MERGED_BITS * level
            first = number // numbers * numbers
            blocks = self._blocks.get(place, {})
            size = BLOCK * numbers >> MERGED_BITS
            parts = [blocks.get(first + at) for at in range(0, numbers, numbers >> MERGED_BITS)]
            neighbours = [part for part in parts if part is not None and part.stop - part.first == size]
            if len(neighbours) < len(parts):
                return
            merged = Block(first << SHIFT, neighbours[-1].stop, array("I"), array("I"))
            for low in range(0, 1 << 32, (1 << 32) // numbers):
                _merge_prints(neighbours, low, low + (1 << 32) // numbers, merged)
                yield
            # Other lookups took their turns meanwhile.
            if [self._blocks.get(place, {}).get(part.first >> SHIFT) for part in neighbours] != neighbours:
                return
            self._blocks[place] |= dict.fromkeys(range(first, first + numbers), merged)

    def _forget(self, place: tuple[int, int], below: int) -> None:
        """Blocks whose numbers are all below this one are not asked for any more."""
        if below == self._lowest.get(place, 0):
            return
        self._lowest[place] = below
        blocks = self._blocks.get(place, {})
        for number in [number for number, block in blocks.items() if block.stop <= below << SHIFT]:
            block = blocks.pop(number)
            if number == block.first >> SHIFT:
                self._sorted -= len(block.rows)

    def drop(self, place: tuple[int, int]) -> None:
        """This partition is gone."""
        self._lowest.pop(place, None)
        for number, block in self._blocks.pop(place, {}).items():
            if number == block.first >> SHIFT:
                self._sorted -= len(block.rows)


def _aligned_prints(index: PartitionIndex, piece: int) -> bytes | None:
    """The prints of a piece, if they are known and every message has one; messages without keys may have none."""
    prints = index.prints.get((index.locators[piece], index.skips[piece]))
    return prints if prints is not None and len(prints) == 4 * (index.ends[piece] - index.firsts[piece]) else None


def _sorted_block(index: PartitionIndex, number: int, stop: int) -> Block | None:
    """The prints of `[number * BLOCK, stop)`; None if some are not known."""
    base = number << SHIFT
    keyed: list[int] = []
    piece = index.at(base)
    while piece < len(index) and index.firsts[piece] < stop:
        prints = _aligned_prints(index, piece)
        if prints is None:
            return None
        first = index.firsts[piece]
        begin, end = max(base, first), min(stop, index.ends[piece])
        values = array("I", prints[4 * (begin - first) : 4 * (end - first)])
        keyed += [print_ << SHIFT | row for row, print_ in enumerate(values, begin - base)]
        piece += 1
    keyed.sort()
    return Block(
        base,
        stop,
        prints=array("I", [each >> SHIFT for each in keyed]),
        rows=array("H", [each & BLOCK - 1 for each in keyed]),
    )


def _merge_prints(blocks: Sequence[Block], low: int, high: int, merged: Block) -> None:
    """Append the prints of `[low, high)` of these blocks, and where each is."""
    keyed: list[int] = []
    for block in blocks:
        begin, end = bisect_left(block.prints, low), bisect_left(block.prints, high)
        shift = block.first - merged.first
        keyed += [
            print_ << 32 | row + shift
            for print_, row in zip(block.prints[begin:end], block.rows[begin:end], strict=True)
        ]
    keyed.sort()
    merged.prints.extend([each >> 32 for each in keyed])
    merged.rows.extend([each & 2**32 - 1 for each in keyed])
