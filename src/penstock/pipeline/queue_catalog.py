"""Queues and their groups, built from the events that concern a queue and not a single message. Pure.

Timelines of messages need the groups of each queue, the first offset of each group, and the ranges that were purged,
trimmed or deleted. The catalog is small, and is stored between batches.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from penstock.pipeline.lake.spans import place_of

KINDS = ("queue_configured", "group_created", "purged", "trimmed", "queue_deleted")
"""Events that concern a queue."""


class RangeEnd(NamedTuple):
    """Messages `first` to `until` (exclusive) of a partition, or all of a queue, were ended by one event."""

    queue_id: int
    partition: int | None
    first: int
    until: int
    place: int
    at_ms: int
    kind: Literal["trimmed", "purged", "deleted"]


class GroupFacts(msgspec.Struct):
    since: int
    """The place of the `group_created` event."""
    since_ms: int
    starts: dict[int, int]
    """Partition -> the first offset it reads; 0 for a partition that was added later."""
    left_out: int | None = None
    """The group does not read messages that all other groups had finished at this place."""


class QueueFacts(msgspec.Struct):
    path: str
    groups: dict[str, GroupFacts] = {}
    keeps: bool = False
    """Retention `keep`: messages stay when all groups have acked them, and a new group reads them."""
    kept_since: int | None = None
    """The place of the event that set retention `keep`; None if it was set from the start."""
    delays: list[tuple[int, int]] = []
    """(place, delay_ms) of the configurations since the first one with a delay."""
    floors: dict[int, int] = {}
    """Partition -> offsets below were trimmed or purged."""
    deleted: bool = False


class QueueCatalog:
    """Queues by number. The fields of `QueueFacts` and `GroupFacts` are stored as JSON in the table `ground`."""

    def __init__(self, queues: dict[int, QueueFacts] | None = None):
        self.queues = queues if queues is not None else {}

    def apply(self, events: Iterable[Mapping[str, Any]]) -> list[RangeEnd]:
        """Apply events about queues, in the order of the journal; returns the ranges of messages that they end."""
        ends: list[RangeEnd] = []
        for event in events:
            kind, number = event["kind"], event["queue_id"]
            if kind not in KINDS or number is None:
                continue
            place = place_of(event["frame"], event["record"])
            queue = self.ensure(number, event["queue"])
            if kind == "queue_configured":
                _configure(queue, place, event)
            elif kind == "group_created":
                _create_group(queue, place, event)
            elif kind == "queue_deleted":
                queue.deleted = True
                ends.append(RangeEnd(number, None, 0, 0, place, event["at_ms"], "deleted"))
            else:
                partition, until = event["partition"] or 0, event["until_offset"] or 0
                # A purge also ends messages below the floor that a trim left because they were leased.
                first = 0 if kind == "purged" else queue.floors.get(partition, 0)
                queue.floors[partition] = max(until, queue.floors.get(partition, 0))
                if first < until:
                    ends.append(RangeEnd(number, partition, first, until, place, event["at_ms"], kind))
        return ends

    def ensure(self, number: int, path: str | None, group: str | None = None) -> QueueFacts:
        """The queue, with the group; both are added if no event about them was seen."""
        queue = self.queues.get(number)
        if queue is None:
            queue = self.queues[number] = QueueFacts(path or f"#{number}")
        if group is not None and group not in queue.groups:
            queue.groups[group] = GroupFacts(0, 0, {})
        return queue


def _configure(queue: QueueFacts, place: int, event: Mapping[str, Any]) -> None:
    queue.path = event["queue"] or queue.path
    config = json.loads(event["config"] or "{}")
    keeps = config.get("retention", {}).get("mode") == "keep"
    if keeps and not queue.keeps:
        queue.kept_since = place
    queue.keeps = keeps
    delay_ms = config.get("delay_ms", 0)
    if delay_ms or queue.delays:
        queue.delays.append((place, delay_ms))


def _create_group(queue: QueueFacts, place: int, event: Mapping[str, Any]) -> None:
    group = queue.groups.get(event["group"])
    if group is None or group.since != place:
        group = queue.groups[event["group"]] = GroupFacts(place, event["at_ms"], {})
        group.left_out = queue.kept_since if queue.keeps else place
    if event["partition"] is not None:
        group.starts[event["partition"]] = event["until_offset"] or 0
