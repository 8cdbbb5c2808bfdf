"""Sets of offsets kept as bits: for members that come and go in no order, where ranges would crumble.

One page covers 1,024 offsets in one Python integer: a million members in a row take about 170 KB, and every operation
on a page is a few big-integer instructions.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

_SHIFT = 10
_SIZE = 1 << _SHIFT
_MASK = _SIZE - 1
_FULL = (1 << _SIZE) - 1
_BITS = [1 << bit for bit in range(_SIZE)]
HOLES_MIN = 16
"""Members for each hole, from which on holes are looked for instead of members."""


class OffsetBits:
    __slots__ = ("_high", "_low", "_pages", "count")

    def __init__(self) -> None:
        self._pages: dict[int, int] = {}
        self._low = 0
        """If there is a page with this number, none is below it."""
        self._high = 0
        """No page is above this one."""
        self.count = 0

    def add(self, first: int, stop: int) -> None:
        if stop - first == 1:
            page, bit = first >> _SHIFT, 1 << (first & _MASK)
            before = self._pages.get(page, 0)
            if not before & bit:
                self._put(page, before | bit)
                self.count += 1
            return
        for page, mask in _masks(first, stop):
            self._add_mask(page, mask)

    def add_all(self, offsets: Sequence[int]) -> None:
        """These: at least one, strictly ascending."""
        first, stop = offsets[0], offsets[-1] + 1
        if stop - first == len(offsets):
            self.add(first, stop)
            return
        if first >> _SHIFT == (stop - 1) >> _SHIFT:
            self._add_mask(first >> _SHIFT, _mask_of(offsets))
            return
        at = 0
        while at < len(offsets):
            page = offsets[at] >> _SHIFT
            end = bisect_left(offsets, (page + 1) << _SHIFT, at)
            self._add_mask(page, _mask_of(offsets[at:end]))
            at = end

    def _add_mask(self, page: int, mask: int) -> None:
        before = self._pages.get(page, 0)
        after = before | mask
        self._put(page, after)
        self.count += after.bit_count() - before.bit_count()

    def _put(self, page: int, bits: int) -> None:
        # All full pages are one and the same number.
        self._pages[page] = bits if bits != _FULL else _FULL
        self._low = min(self._low, page)
        self._high = max(self._high, page)

    def remove(self, first: int, stop: int) -> None:
        if self._pages:
            for page, mask in _masks(first, stop):
                self._clear(page, mask)

    def remove_all(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Many ranges; neighbours cost one look at their page."""
        page, mask = 0, 0
        for first, stop in ranges:
            if first >> _SHIFT != page and mask:
                self._clear(page, mask)
                mask = 0
            page = first >> _SHIFT
            if first < stop <= (page + 1) << _SHIFT:
                mask |= ((1 << (stop - first)) - 1) << (first & _MASK)
            else:
                self.remove(first, stop)
        if mask:
            self._clear(page, mask)

    def _clear(self, page: int, mask: int) -> None:
        before = self._pages.get(page, 0)
        gone = before & mask
        if not gone:
            return
        if before != gone:
            self._pages[page] = before ^ gone
        else:
            del self._pages[page]
        self.count -= gone.bit_count()

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

    @property
    def end(self) -> int:
        """No member is at or above this offset."""
        return (self._high + 1) << _SHIFT

    def stretches(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """The stretches of `[first, stop)` that are members, ascending. A full page costs as much as one member."""
        return self._stretches(_masks(first, min(stop, self.end)))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """All stretches of members, ascending."""
        return self._stretches((page, _FULL) for page in sorted(self._pages))

    def _stretches(self, windows: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        pages = self._pages
        begin = end = -1
        for page, mask in windows:
            bits = pages.get(page, 0) & mask
            at = page << _SHIFT
            while bits:
                zeros = (bits & -bits).bit_length() - 1
                bits >>= zeros
                at += zeros
                ones = (~bits & bits + 1).bit_length() - 1
                if at != end:
                    if begin < end:
                        yield begin, end
                    begin = at
                at += ones
                end = at
                bits >>= ones
        if begin < end:
            yield begin, end

    def stretch_count(self) -> int:
        """How many stretches there are, without a walk along them: a member begins one if none is right before it."""
        pages = self._pages
        begun = sum([(bits & ~(bits << 1)).bit_count() for bits in pages.values()])
        return begun - sum([bits & pages.get(page - 1, 0) >> _MASK & 1 for page, bits in pages.items()])

    def gaps(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """The stretches of `[first, stop)` without members, ascending."""
        return between(self.stretches(first, stop), first, stop)

    def past(self, offset: int) -> int:
        """The first offset at or after this one that is not a member."""
        page, row = offset >> _SHIFT, offset & _MASK
        while True:
            bits = self._pages.get(page, 0) >> row
            ones = (~bits & bits + 1).bit_length() - 1
            if row + ones < _SIZE:
                return (page << _SHIFT) + row + ones
            page, row = page + 1, 0

    def remove_below(self, bound: int) -> None:
        page = bound >> _SHIFT
        if page > self._low:
            pages = self._pages
            few = page - self._low < len(pages)
            for each in range(self._low, page) if few else [each for each in pages if each < page]:
                self.count -= pages.pop(each, 0).bit_count()
            self._low = page
        self.remove(page << _SHIFT, bound)

    def count_in(self, first: int, stop: int) -> int:
        """How many members lie in `[first, stop)`; costs a step per page there, or per page that has any."""
        pages = self._pages
        low, high = first >> _SHIFT, stop >> _SHIFT
        if high - low < len(pages):
            whole = sum([pages[page].bit_count() for page in range(low, high) if page in pages])
        else:
            whole = sum([bits.bit_count() for page, bits in pages.items() if low <= page < high])
        before = pages.get(low, 0) & ((1 << (first & _MASK)) - 1)
        after = pages.get(high, 0) & ((1 << (stop & _MASK)) - 1)
        return whole - before.bit_count() + after.bit_count()

    def copy(self) -> OffsetBits:
        twin = OffsetBits()
        twin._pages, twin.count = self._pages.copy(), self.count
        twin._low, twin._high = self._low, self._high
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
            bits._put(page, value)
            bits.count += value.bit_count()
        return bits

    def covers(self, first: int, stop: int) -> bool:
        return all(self._pages.get(page, 0) & mask == mask for page, mask in _masks(first, stop))


def between(stretches: Iterable[tuple[int, int]], first: int, stop: int) -> Iterator[tuple[int, int]]:
    """The gaps that these ascending stretches leave in `[first, stop)`."""
    for begin, end in stretches:
        if first < begin:
            yield first, begin
        first = end
    if first < stop:
        yield first, stop


def _mask_of(offsets: Sequence[int]) -> int:
    """Of one page, strictly ascending. Most sets are a stretch with a few holes in it, and are made like that."""
    first, count = offsets[0], len(offsets)
    missing = offsets[-1] + 1 - first - count
    if missing * HOLES_MIN > count:
        return sum([_BITS[offset & _MASK] for offset in offsets])
    holes = found = at = 0
    while found < missing:
        # The first one that lies further from the beginning than those before it, and the holes found, account for.
        low, high = at, count
        while low < high:
            middle = (low + high) >> 1
            if offsets[middle] - middle > first + found:
                high = middle
            else:
                low = middle + 1
        wide = offsets[low] - low - first - found
        holes |= ((1 << wide) - 1) << (low + found)
        found, at = found + wide, low
    return (((1 << (count + missing)) - 1) ^ holes) << (first & _MASK)


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
