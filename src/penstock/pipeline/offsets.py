"""Which offsets a read is about, and how they are cut into tasks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

VERSION = 1


class Range(NamedTuple):
    """Offsets `first` to `stop` (exclusive) of a partition."""

    partition: int
    first: int
    stop: int

    def __len__(self) -> int:
        return max(0, self.stop - self.first)


def between(start: Mapping[int, int], end: Mapping[int, int]) -> list[Range]:
    """What lies between two positions. Partitions that came later begin at their beginning."""
    ranges = [Range(partition, start.get(partition, 0), stop) for partition, stop in sorted(end.items())]
    return [each for each in ranges if len(each)]


def split(ranges: Sequence[Range], *, at_most: int, at_least: int | None = None) -> list[Range]:
    """Cut into ranges of `at_most` messages each, and into `at_least` ranges if there are that many messages."""
    total = sum(map(len, ranges))
    size = at_most
    if at_least is not None and total:
        size = max(1, min(size, total // at_least or 1))
    cut = []
    for partition, first, stop in ranges:
        parts = -(-(stop - first) // size)
        for part in range(parts):
            begin = first + (stop - first) * part // parts
            cut.append(Range(partition, begin, first + (stop - first) * (part + 1) // parts))
    return cut


def admit(start: Mapping[int, int], end: Mapping[int, int], most: int | None) -> dict[int, int]:
    """How far a batch of at most this many messages may go: every partition by its share of what there is.

    At least one message is let through, or a small limit would stop the stream.
    """
    ranges = between(start, end)
    total = sum(map(len, ranges))
    if most is None or total <= most:
        return dict(end)
    admitted = {partition: min(start.get(partition, 0), stop) for partition, stop in end.items()}
    left = max(1, most)
    for each in ranges:
        share = max(1, most * len(each) // total)
        taken = min(share, left, len(each))
        admitted[each.partition] = each.first + taken
        left -= taken
    for each in ranges:
        # What rounding has left over.
        room = each.stop - admitted[each.partition]
        admitted[each.partition] += min(room, left)
        left -= min(room, left)
    return admitted


def to_json(queue: str, offsets: Mapping[int, int]) -> dict[str, Any]:
    """As Spark's checkpoint keeps it: small, and in one order."""
    return {"v": VERSION, "queue": queue, "offsets": {str(p): offset for p, offset in sorted(offsets.items())}}


def from_json(value: Mapping[str, Any]) -> dict[int, int]:
    if value.get("v") != VERSION:
        raise ValueError(f"the checkpoint has offsets of version {value.get('v')}, which is not known here")
    return {int(partition): int(offset) for partition, offset in value["offsets"].items()}
