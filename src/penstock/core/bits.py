"""Sets of offsets kept as bits: for members that come and go in no order, where ranges would crumble.

One page covers 1,024 offsets in one Python integer: a million members in a row take about 170 KB, and every operation
on a page is a few big-integer instructions.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

_SHIFT = 10
_SIZE = 1 << _SHIFT
_MASK = _SIZE - 1


class OffsetBits:
    __slots__ = ("_low", "_pages", "count")

    def __init__(self) -> None:
        self._pages: dict[int, int] = {}
        self._low = 0
        """If there is a page with this number, none is below it."""
        self.count = 0

    def add(self, first: int, stop: int) -> None:
        if stop - first == 1:
            page, bit = first >> _SHIFT, 1 << (first & _MASK)
            before = self._pages.get(page, 0)
            if not before & bit:
                self._pages[page] = before | bit
                self._low = min(self._low, page)
                self.count += 1
            return
        for page, mask in _masks(first, stop):
            before = self._pages.get(page, 0)
            after = before | mask
            self._low = min(self._low, page)
            self._pages[page] = after
            self.count += after.bit_count() - before.bit_count()

    def remove(self, first: int, stop: int) -> None:
        if not self._pages:
            return
        for page, mask in _masks(first, stop):
            before = self._pages.get(page, 0)
            if not before & mask:
                continue
            after = before & ~mask
            if after:
                self._pages[page] = after
            else:
                del self._pages[page]
            self.count += after.bit_count() - before.bit_count()

    def __contains__(self, offset: int) -> bool:
        return bool(self._pages.get(offset >> _SHIFT, 0) >> (offset & _MASK) & 1)

    def first(self) -> int | None:
        """The lowest member. Where pages empty from below, the others are looked through once a page."""
        if not self._pages:
            return None
        if self._low not in self._pages:
            self._low = min(self._pages)
        bits = self._pages[self._low]
        return (self._low << _SHIFT) + (bits & -bits).bit_length() - 1

    def within(self, first: int, stop: int) -> Iterator[int]:
        """The members in `[first, stop)`, ascending."""
        for page, mask in _masks(first, stop):
            bits = self._pages.get(page, 0) & mask
            base = page << _SHIFT
            while bits:
                low = bits & -bits
                yield base + low.bit_length() - 1
                bits ^= low

    def gaps(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """The stretches of `[first, stop)` without members, ascending. Pages without a gap cost nothing."""
        begin = first
        for page, mask in _masks(first, stop):
            bits = self._pages.get(page, 0) & mask
            page_first = max(first, page << _SHIFT)
            if bits == mask:
                members: Iterator[tuple[int, int]] = iter([(page_first, page_first + mask.bit_count())])
            else:
                members = ((offset, offset + 1) for offset in self.within(page_first, min(stop, (page + 1) << _SHIFT)))
            for member, after in members if bits else ():
                if begin < member:
                    yield begin, member
                begin = after
        if begin < stop:
            yield begin, stop

    def count_in(self, first: int, stop: int) -> int:
        """How many members lie in `[first, stop)`; costs a step per page that has any."""
        low, high = first >> _SHIFT, stop >> _SHIFT
        whole = sum([bits.bit_count() for page, bits in self._pages.items() if low <= page < high])
        before = self._pages.get(low, 0) & ((1 << (first & _MASK)) - 1)
        after = self._pages.get(high, 0) & ((1 << (stop & _MASK)) - 1)
        return whole - before.bit_count() + after.bit_count()

    def stretches(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """The stretches of `[first, stop)` that are members, ascending."""
        begin = first
        for gap_first, gap_stop in self.gaps(first, stop):
            if begin < gap_first:
                yield begin, gap_first
            begin = gap_stop
        if begin < stop:
            yield begin, stop

    def copy(self) -> OffsetBits:
        twin = OffsetBits()
        twin._pages, twin.count = self._pages.copy(), self.count
        return twin

    def dump(self) -> tuple[bytes, bytes]:
        """Page numbers as int64, and the bits of each page: little-endian both."""
        numbers = array("q", self._pages)
        return numbers.tobytes(), b"".join([bits.to_bytes(_SIZE // 8, "little") for bits in self._pages.values()])

    @classmethod
    def load(cls, numbers: bytes, pages: bytes) -> OffsetBits:
        bits = cls()
        keys = array("q")
        keys.frombytes(numbers)
        size = _SIZE // 8
        if len(pages) != size * len(keys):
            raise ValueError(f"{len(keys)} pages of bits take {size * len(keys)} bytes, not {len(pages)}")
        for at, page in enumerate(keys):
            value = int.from_bytes(pages[at * size : (at + 1) * size], "little")
            bits._pages[page] = value
            bits.count += value.bit_count()
        return bits

    def covers(self, first: int, stop: int) -> bool:
        return all(self._pages.get(page, 0) & mask == mask for page, mask in _masks(first, stop))


def _masks(first: int, stop: int) -> Iterable[tuple[int, int]]:
    """The pages that `[first, stop)` touches, each with the bits it touches there. Most ask about one page."""
    page = first >> _SHIFT
    if first < stop <= (page + 1) << _SHIFT:
        return ((page, ((1 << (stop - first)) - 1) << (first & _MASK)),)
    return _many_masks(first, stop)


def _many_masks(first: int, stop: int) -> Iterator[tuple[int, int]]:
    while first < stop:
        page = first >> _SHIFT
        page_stop = min(stop, (page + 1) << _SHIFT)
        yield page, ((1 << (page_stop - first)) - 1) << (first & _MASK)
        first = page_stop
