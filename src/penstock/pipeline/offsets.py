"""Ranges of offsets, their split into tasks, and offsets in checkpoints. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

VERSION = 2
"""The version of offsets in checkpoints. Version 1 had neither uuid nor broker, and can still be read."""


class Range(NamedTuple):
    """Offsets `first` to `stop` (exclusive) of a partition."""

    partition: int
    first: int
    stop: int

    def __len__(self) -> int:
        return max(0, self.stop - self.first)


def between(start: Mapping[int, int], end: Mapping[int, int]) -> list[Range]:
    """The ranges between two positions. A partition that is only in `end` begins at 0."""
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
    """The end of a batch of at most `most` messages: every partition gets a share in proportion to its messages.

    At least one message is admitted, or a small limit would stop the stream.
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
        # The remainder of the rounding.
        room = each.stop - admitted[each.partition]
        admitted[each.partition] += min(room, left)
        left -= min(room, left)
    return admitted


class QueueOffset(NamedTuple):
    """The position of a stream in a queue, as Spark's checkpoint has it."""

    queue: str
    offsets: dict[int, int]
    """Partition -> the first offset that is not read yet."""
    uuid: str = ""
    """The incarnation of the queue. Empty in version 1, and with brokers that have no uuids."""
    broker: str = ""

    def to_json(self) -> dict[str, Any]:
        """The keys are in a fixed order: Spark compares the text."""
        offsets = {str(partition): offset for partition, offset in sorted(self.offsets.items())}
        if not self.uuid:
            return {"v": 1, "queue": self.queue, "offsets": offsets}
        return {"v": VERSION, "queue": self.queue, "uuid": self.uuid, "broker": self.broker, "offsets": offsets}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> QueueOffset:
        """Raises ValueError for an unknown version, and for offsets of another table."""
        _check_version(value)
        if "offsets" not in value:
            raise ValueError("the checkpoint is not one of the table `messages`: use another checkpointLocation")
        offsets = {int(partition): int(offset) for partition, offset in value["offsets"].items()}
        return cls(value["queue"], offsets, value.get("uuid", ""), value.get("broker", ""))


class JournalOffset(NamedTuple):
    """The position of a stream in the journal of a broker."""

    frame: int
    """The last frame that is read."""
    broker: str = ""

    def to_json(self) -> dict[str, Any]:
        if not self.broker:
            return {"v": 1, "shards": {"0": self.frame}}
        return {"v": VERSION, "broker": self.broker, "shards": {"0": self.frame}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> JournalOffset:
        """Raises ValueError like `QueueOffset.from_json`."""
        _check_version(value)
        if "shards" not in value:
            raise ValueError("the checkpoint is not one of the table `events`: use another checkpointLocation")
        return cls(int(value["shards"]["0"]), value.get("broker", ""))


def _check_version(value: Mapping[str, Any]) -> None:
    if value.get("v") not in (1, VERSION):
        raise ValueError(f"the checkpoint has offsets of version {value.get('v')}, which is not known here")
