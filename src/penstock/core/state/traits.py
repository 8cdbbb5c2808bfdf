"""The traits of a message that a queue's order depends on: its priority, its key, its tenant. Never its bytes.

A fifo queue knows nothing about its messages but their offsets. Where the order depends on more, that much is kept for
every message that is still wanted: eight bytes per column, and only the columns that the queue's settings ask for.
Keys and tenants are kept as 64-bit hashes. Two keys with one hash would take turns as if they were one, and two
tenants would share one share; neither loses, repeats or reorders anything.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

from penstock.batch import Batch, layout
from penstock.core.config import QueueConfig
from penstock.core.offsets.ranges import RangeSet

_SHIFT = 8
_SIZE = 1 << _SHIFT
_MASK = _SIZE - 1


class Column:
    """Integers by offset, in pages: what is far apart costs nothing in between."""

    __slots__ = ("_captured", "_low", "_pages")

    def __init__(self) -> None:
        self._pages: dict[int, array[int]] = {}
        self._low = 0
        """No page is below this one."""
        self._captured = -1
        """Pages up to this one may be in a capture, and are replaced instead of changed."""

    def __getitem__(self, offset: int) -> int:
        """0 also for messages whose traits were dropped."""
        cells = self._pages.get(offset >> _SHIFT)
        return cells[offset & _MASK] if cells is not None else 0

    def get_all(self, offsets: Sequence[int]) -> Sequence[int]:
        """The values at these offsets, which ascend strictly; at the price of copying where they are neighbours."""
        first, stop = offsets[0], offsets[-1] + 1
        return self.stretch(first, stop) if stop - first == len(offsets) else [self[offset] for offset in offsets]

    def stretch(self, first: int, stop: int) -> array[int]:
        """The values of `[first, stop)`."""
        page = first >> _SHIFT
        if first < stop <= (page + 1) << _SHIFT and (cells := self._pages.get(page)) is not None:
            return cells[first & _MASK : stop - (page << _SHIFT)]
        values = array("q")
        while first < stop:
            count = min(stop - first, _SIZE - (first & _MASK))
            cells = self._pages.get(first >> _SHIFT)
            values += (
                cells[first & _MASK : (first & _MASK) + count] if cells is not None else array("q", bytes(8 * count))
            )
            first += count
        return values

    def put(self, first: int, values: array[int]) -> None:
        at = 0
        while at < len(values):
            page, begin = (first + at) >> _SHIFT, (first + at) & _MASK
            count = min(_SIZE - begin, len(values) - at)
            cells = self._pages.get(page)
            if cells is None:
                if not self._pages:
                    self._low = page
                cells = self._pages[page] = array("q", bytes(8 * _SIZE))
            elif page <= self._captured:
                cells = self._pages[page] = cells[:]
                self._captured -= page == self._captured
            cells[begin : begin + count] = values[at : at + count]
            at += count

    def drop_below(self, offset: int) -> None:
        bound = offset >> _SHIFT
        if bound > self._low:
            near = bound - self._low <= len(self._pages)
            for page in range(self._low, bound) if near else [page for page in self._pages if page < bound]:
                self._pages.pop(page, None)
            self._low = bound

    def pages(self) -> Iterable[int]:
        return self._pages

    def keep(self, first: int, stop: int, wanted: RangeSet) -> None:
        """Drop the pages of `[first, stop)`, whole pages, in which nothing is wanted."""
        for page in range(first >> _SHIFT, stop >> _SHIFT):
            if page in self._pages and not wanted.overlaps(page << _SHIFT, (page + 1) << _SHIFT):
                del self._pages[page]

    def capture(self) -> dict[int, array[int]]:
        """The pages as they are now. They do not change any more."""
        pages = self._pages.copy()
        self._captured = max(pages, default=-1)
        return pages


class Traits:
    """The columns of one partition. Hard: they come with the messages and outlive restarts."""

    __slots__ = ("key", "priority", "tenant")

    priority: Column | None
    key: Column | None
    tenant: Column | None

    def __init__(self, config: QueueConfig):
        self.priority = self.key = self.tenant = None
        self.follow(config)

    def follow(self, config: QueueConfig) -> None:
        """Keep the traits that this configuration needs. Traits kept before stay: dead letters may be redriven."""
        self.priority = (self.priority or Column()) if config.order != "fifo" else None
        self.key = (self.key or Column()) if config.ordered_keys else None
        self.tenant = (self.tenant or Column()) if config.fair_share.enabled else None

    @property
    def present(self) -> bool:
        """True if any trait is kept: not in a fifo queue without keys and tenants."""
        return self.priority is not None or self.key is not None or self.tenant is not None

    def note(self, first: int, batch: Batch) -> None:
        if self.priority is not None:
            self.priority.put(first, _integers(batch, layout.PRIORITY))
        if self.key is not None:
            self.key.put(first, _hashes(batch, layout.KEY))
        if self.tenant is not None:
            self.tenant.put(first, _hashes(batch, layout.TENANT))

    def drop_below(self, offset: int) -> None:
        for _, column in self.columns():
            column.drop_below(offset)

    def stretches(self, size: int) -> list[tuple[int, int]]:
        """Where there are any: stretches of so many offsets, a multiple of a page's."""
        pages = {page << _SHIFT for _, column in self.columns() for page in column.pages()}
        return [(begin * size, (begin + 1) * size) for begin in sorted({first // size for first in pages})]

    def keep(self, first: int, stop: int, wanted: RangeSet) -> None:
        """Drop what is not wanted of such a stretch, as far as whole pages can be dropped."""
        for _, column in self.columns():
            column.keep(first, stop, wanted)

    def columns(self) -> Iterator[tuple[str, Column]]:
        for name in self.__slots__:
            column = getattr(self, name)
            if column is not None:
                yield name, column

    def values(self, wanted: RangeSet) -> dict[str, list[tuple[int, list[int]]]]:
        """Range by range, only what is wanted: equal for equal states, whatever else a page still holds."""
        return {
            name: [(first, [column[offset] for offset in range(first, stop)]) for first, stop in wanted]
            for name, column in self.columns()
        }

    def load(self, values: dict[str, list[tuple[int, bytes | list[int]]]]) -> None:
        """Load pages, or the result of `values`."""
        for name, pieces in values.items():
            column = Column()
            for at, piece in pieces:
                first = at << _SHIFT if isinstance(piece, bytes) else at
                column.put(first, array("q", piece))
            setattr(self, name, column)


def hash_of(text: bytes) -> int:
    """64 bits that stand for a key or a tenant, the same forever and everywhere; 0 for none."""
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little", signed=True) if text else 0


def _integers(batch: Batch, column: int) -> array[int]:
    return array("q", batch.integers(column)) if batch.has(column) else array("q", bytes(8 * batch.count))


def _hashes(batch: Batch, column: int) -> array[int]:
    if not batch.has(column):
        return array("q", bytes(8 * batch.count))
    texts = batch.strings(column)
    known = {text: hash_of(text) for text in set(texts)}
    return array("q", [known[text] for text in texts])
