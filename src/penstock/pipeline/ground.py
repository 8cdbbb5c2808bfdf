"""What is known about queues as such, learned from the events that are about no single message. Pure.

A message's life can only be told if it is known which groups its queue has, from which offset on each of them reads,
and what was purged, trimmed or deleted as a whole. That is little, and it is carried from batch to batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

RECORD_BITS = 20
"""Records of one frame are told apart by so many bits of a place."""
KINDS = ("queue_configured", "group_created", "purged", "trimmed", "queue_deleted")
"""Of events that are about queues."""


def place_of(frame: int, record: int) -> int:
    """Where in the journal an event stands, as one number: later is greater."""
    return (frame << RECORD_BITS) | record


class End(NamedTuple):
    """Messages `first` to `until` (exclusive) of a partition, or all of a queue, were ended by one event."""

    queue_id: int
    partition: int | None
    first: int
    until: int
    place: int
    at_ms: int
    kind: Literal["trimmed", "purged", "deleted"]


class Group(msgspec.Struct):
    since: int
    """The place of its creation."""
    since_ms: int
    starts: dict[int, int]
    """Partition -> the first offset it reads; 0 where the partition came later."""
    left_out: int | None = None
    """What everybody else had finished at this place, it never gets to see."""


class Queue(msgspec.Struct):
    path: str
    groups: dict[str, Group] = {}
    keeps: bool = False
    """Messages stay when everybody has acked them; a new group reads them as well."""
    kept_since: int | None = None
    """The place where it began to keep them, if it did not from the start."""
    delays: list[tuple[int, int]] = []
    """(place, delay_ms) of its configurations, where a delay for all messages was ever set."""
    floors: dict[int, int] = {}
    """Partition -> what is below was trimmed or purged before."""
    deleted: bool = False


class Ground:
    """Queues by their number."""

    def __init__(self, queues: dict[int, Queue] | None = None):
        self.queues = queues if queues is not None else {}

    def learn(self, events: Iterable[Mapping[str, Any]]) -> list[End]:
        """Take in events about queues, in the order of the journal; what they end at once is returned."""
        ends: list[End] = []
        for event in events:
            kind, number = event["kind"], event["queue_id"]
            if kind not in KINDS or number is None:
                continue
            place = place_of(event["frame"], event["record"])
            queue = self.meet(number, event["queue"])
            if kind == "queue_configured":
                _configure(queue, place, event)
            elif kind == "group_created":
                _create_group(queue, place, event)
            elif kind == "queue_deleted":
                queue.deleted = True
                ends.append(End(number, None, 0, 0, place, event["at_ms"], "deleted"))
            else:
                partition, until = event["partition"] or 0, event["until_offset"] or 0
                # A purge also ends what a trim had to leave because somebody held it.
                first = 0 if kind == "purged" else queue.floors.get(partition, 0)
                queue.floors[partition] = max(until, queue.floors.get(partition, 0))
                if first < until:
                    ends.append(End(number, partition, first, until, place, event["at_ms"], kind))
        return ends

    def meet(self, number: int, path: str | None, group: str | None = None) -> Queue:
        """The queue, and the group, of which nothing may be known but that they are there."""
        queue = self.queues.get(number)
        if queue is None:
            queue = self.queues[number] = Queue(path or f"#{number}")
        if group is not None and group not in queue.groups:
            queue.groups[group] = Group(0, 0, {})
        return queue


def _configure(queue: Queue, place: int, event: Mapping[str, Any]) -> None:
    queue.path = event["queue"] or queue.path
    config = json.loads(event["config"] or "{}")
    keeps = config.get("retention", {}).get("mode") == "keep"
    if keeps and not queue.keeps:
        queue.kept_since = place
    queue.keeps = keeps
    delay_ms = config.get("delay_ms", 0)
    if delay_ms or queue.delays:
        queue.delays.append((place, delay_ms))


def _create_group(queue: Queue, place: int, event: Mapping[str, Any]) -> None:
    group = queue.groups.get(event["group"])
    if group is None or group.since != place:
        group = queue.groups[event["group"]] = Group(place, event["at_ms"], {})
        group.left_out = queue.kept_since if queue.keeps else place
    if event["partition"] is not None:
        group.starts[event["partition"]] = event["until_offset"] or 0
