"""Groups: created, moved, deleted; and how far each of them is."""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock import limits
from penstock.errors import InvalidRequest
from penstock.wire import patterns
from penstock.wire.messages import ConfirmToken, GroupName, QueueName, Request
from penstock.wire.readers import Position

OffsetsByPartition: TypeAlias = Annotated[
    dict[Annotated[str, Meta(pattern=patterns.PARTITION)], Position],
    Meta(min_length=1, max_length=limits.PARTITIONS_MAX, description="Partition -> offset.", examples=[{"0": 120}]),
]
GroupPlace: TypeAlias = (
    Annotated[
        str,
        # Without its pattern, which `place_of` checks: with msgspec 0.22 a constrained str in a union with a dict makes
        # the interpreter crash at exit now and then.
        Meta(
            description="`earliest`, `latest` or `at:<epoch milliseconds>`.",
            examples=["earliest", "at:1760000000000"],
        ),
    ]
    | OffsetsByPartition
)


class PutGroupRequest(Request):
    """Partitions that `start` does not name begin at the oldest message that is kept."""

    queue: QueueName
    group: GroupName = "default"
    start: GroupPlace = "earliest"


class SeekGroupRequest(Request):
    """In partitions that `to` does not name the group stays where it is."""

    queue: QueueName
    to: GroupPlace
    group: GroupName = "default"
    dry_run: bool = False


class DeleteGroupQuery(Request):
    queue: QueueName
    group: GroupName = "default"
    confirm: ConfirmToken | None = None


def place_of(place: str | dict[str, int], field: str) -> str | dict[int, int]:
    """As the broker takes it; raises InvalidRequest for a partition that is named twice (`0` and `00`)."""
    if isinstance(place, str):
        if re.search(patterns.GROUP_PLACE, place) is None:
            raise InvalidRequest(
                f"{field}: {place[:100]!r} is not {patterns.WORDS[patterns.GROUP_PLACE]}", details={"field": field}
            )
        return place
    named = {int(partition): offset for partition, offset in place.items()}
    if len(named) != len(place):
        raise InvalidRequest(f"{field}: a partition is named twice", details={"field": field})
    return named


class PutGroupReply(msgspec.Struct):
    queue: str
    group: str
    created: Annotated[bool, Meta(description="False if it was there already: then it stays where it is.")]
    offsets: Annotated[dict[str, int], Meta(description="Partition -> the first offset that is not finished.")]


class PartitionSeek(msgspec.Struct):
    partition: int
    to_offset: Annotated[int, Meta(description="Where the group begins; within what is stored.")]
    again: Annotated[int, Meta(description="Messages that it had finished, and is given again.")]
    skipped: Annotated[int, Meta(description="Messages that it had not finished, and is not given any more.")]
    leased: Annotated[int, Meta(description="Messages whose lease ends.")]


class SeekGroupReply(msgspec.Struct):
    """The effect of a seek, done or planned."""

    queue: str
    group: str
    dry_run: bool
    again: int
    skipped: int
    leased: int
    partitions: list[PartitionSeek]


class DeleteGroupReply(msgspec.Struct):
    queue: str
    group: str
    deleted: bool
    lost: dict[str, int]


class MemberEntry(msgspec.Struct):
    member: str
    generation: Annotated[int, Meta(description="The last change of its partitions that it has confirmed.")]
    partitions: list[int]
    awaited: list[int]
    giving_up: list[int]
    session_ms: int
    drain_ms: int
    heard_at_ms: int


class GroupPartition(msgspec.Struct):
    """How far a group is: everything below `floor` is done, and of what is above it the first `acked_ranges`."""

    partition: int
    owner: str | None
    lag: int
    next_offset: int
    floor: int
    acked_ranges: list[Annotated[list[int], Meta(min_length=2, max_length=2, description="First, and after the last.")]]


class GroupEntry(msgspec.Struct):
    group: str
    kind: Annotated[
        str,
        Meta(
            description="`plain`, or `assigned` as long as it has members.",
            extra_json_schema={"enum": ["plain", "assigned"]},
        ),
    ]
    generation: int
    members: list[MemberEntry]
    lag: Annotated[int, Meta(description="Messages that it has not finished.")]
    held: Annotated[
        int,
        Meta(
            description="Messages at the beginning of the log that are stored for this group alone, where messages are "
            "kept until they are acked."
        ),
    ]
    oldest_unacked_at_ms: Annotated[
        int | None, Meta(description="When its oldest unfinished message was published, about; null: there is none.")
    ]
    last_asked_at_ms: Annotated[
        int | None,
        Meta(description="When a consumer of it last asked for messages; null: not since the server started."),
    ]
    waiting_consumers: int
    ready: int
    scheduled: int
    leased: int
    waiting_for_retry: int
    busy_workers: int
    finished: int
    service_s: float
    partitions: list[GroupPartition]
    blocked_keys: int | UnsetType = UNSET
    """Of queues with ordered keys."""
    tenants_waiting: int | UnsetType = UNSET
    """Of queues with a fair share."""


class GroupsReply(msgspec.Struct):
    queue: str
    groups: list[GroupEntry]
