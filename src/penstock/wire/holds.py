"""Holds: what an archive has not copied yet, and retention waits for."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from penstock import limits
from penstock.wire import patterns
from penstock.wire.messages import QueueName, QueueUuid, Request
from penstock.wire.readers import Position

HoldOffsets: TypeAlias = Annotated[
    dict[Annotated[str, Meta(pattern=patterns.PARTITION)], Position],
    Meta(max_length=limits.PARTITIONS_MAX, description="Partition -> the first offset that is still needed."),
]


class HoldRequest(Request):
    """Sets the hold, or moves it. Places that are not named any more are let go."""

    events: (
        Annotated[int, Meta(ge=0, le=2**53, description="The last frame of the journal that is done with.")] | None
    ) = None
    queues: Annotated[dict[QueueName, HoldOffsets], Meta(max_length=limits.QUEUES_MAX)] = {}
    max_bytes: Annotated[
        int, Meta(ge=1, le=2**53, description="A hold that spans more than this is let go, and says so.")
    ] = limits.HOLD_BYTES_DEFAULT
    uuids: Annotated[
        dict[QueueName, QueueUuid],
        Meta(
            max_length=limits.QUEUES_MAX,
            description="The uuids that these queues should have. If one has another, the hold is refused (409).",
        ),
    ] = {}


class HoldReply(msgspec.Struct):
    name: str
    events: Annotated[int | None, Meta(description="The last frame that is done with.")]
    queues: dict[str, dict[str, int]]
    max_bytes: int
    spanned_bytes: Annotated[int, Meta(description="What it keeps from being let go, and still is to be copied.")]
    set_at_ms: int
    lost_at_ms: Annotated[int | None, Meta(description="When it was let go, because it spanned too much.")]
    uuids: Annotated[dict[str, str], Meta(description="Queue -> its uuid.")] = {}


class HoldsReply(msgspec.Struct):
    holds: list[HoldReply]


class HoldRemovedReply(msgspec.Struct):
    name: str
    removed: Annotated[bool, Meta(description="False if there was none.")]


class PartitionExtent(msgspec.Struct):
    partition: int
    start_offset: int
    end_offset: int
    offset: Annotated[int, Meta(description="What `at` means in this partition.")]
    bytes: Annotated[int, Meta(description="Stored from `offset` on, about.")]


class ExtentReply(msgspec.Struct):
    queue: str
    partitions: list[PartitionExtent]
    uuid: Annotated[str, Meta(description="Another one if the queue is deleted and created again.")] = ""
    broker: Annotated[str, Meta(description="The id of the broker's storage.")] = ""
