"""A JSON array of objects with the same keys, written by column.

The pieces of all objects are put into one list, a slice per column, and joined once. This takes less than half of the
time of formatting object by object.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

_encode = msgspec.json.Encoder().encode


class ColumnarJsonWriter:
    """An object as constant texts and columns of values, in turn; begins and ends with a text."""

    __slots__ = ("_columns", "_texts")

    def __init__(self, text: str):
        self._texts = [text]
        self._columns: list[Sequence[bytes]] = []

    def text(self, text: str) -> None:
        """Text that is the same in every object: ASCII, and escaped."""
        self._texts[-1] += text

    def column(self, values: Sequence[bytes]) -> None:
        """One value for each object."""
        self._columns.append(values)
        self._texts.append("")

    def objects(self) -> bytes:
        """All objects, separated by commas."""
        count = len(self._columns[0])
        head, *middle, tail = (text.encode("ascii") for text in self._texts)
        step = 2 * len(self._columns)
        parts: list[bytes] = [b"%b,%b" % (tail, head)] * (step * count)
        parts[0] = head
        parts[1::step] = self._columns[0]
        for at, text in enumerate(middle, 1):
            parts[2 * at :: step] = [text] * count
            parts[2 * at + 1 :: step] = self._columns[at]
        parts.append(tail)
        return b"".join(parts)


def numbers(values: Iterable[int]) -> list[bytes]:
    """The text of each number. Encoding an array and splitting it takes half of the time of formatting each."""
    texts = _encode(list(values))[1:-1]
    return texts.split(b",") if texts else []
