"""Requests and replies about holds. A hold keeps messages and events that an archive has not copied yet."""

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


class HoldNamed(Request):
    name: Annotated[str, Meta(extra_json_schema={"pattern": f"^{limits.GROUP_PATTERN}$"})]


class HoldRequest(Request):
    """Sets or moves a hold. The request replaces all positions: partitions that it does not name are released."""

    events: (
        Annotated[int, Meta(ge=0, le=2**53, description="The last frame of the journal that the archive has copied.")]
        | None
    ) = None
    queues: Annotated[dict[QueueName, HoldOffsets], Meta(max_length=limits.QUEUES_MAX)] = {}
    max_bytes: Annotated[
        int, Meta(ge=1, le=2**53, description="A hold that keeps more than this is released by the broker.")
    ] = limits.HOLD_BYTES_DEFAULT
    uuids: Annotated[
        dict[QueueName, QueueUuid],
        Meta(
            max_length=limits.QUEUES_MAX,
            description="Expected uuids of the queues. A different uuid refuses the hold (409).",
        ),
    ] = {}

    shards: Annotated[
        dict[Annotated[str, Meta(pattern=patterns.PARTITION)], Annotated[int, Meta(ge=0, le=2**53)]],
        Meta(
            max_length=limits.SHARDS_MAX,
            description="Shard -> the last frame of its journal that the archive has copied. `events` is that of shard "
            "0. The bound `max_bytes` is one for each shard.",
        ),
    ] = {}


class HoldReply(msgspec.Struct):
    name: str
    events: Annotated[int | None, Meta(description="The last frame that the archive has copied.")]
    queues: dict[str, dict[str, int]]
    max_bytes: int
    spanned_bytes: Annotated[int, Meta(description="Bytes that the hold keeps for the archive.")]
    set_at_ms: int
    lost_at_ms: Annotated[
        int | None, Meta(description="Time at which the broker released the hold because it exceeded its limit.")
    ]
    uuids: Annotated[dict[str, str], Meta(description="Queue -> its uuid.")] = {}
    shards: Annotated[dict[str, int], Meta(description="Shard -> the last frame that the archive has copied.")] = {}


class HoldsReply(msgspec.Struct):
    holds: list[HoldReply]


class HoldRemovedReply(msgspec.Struct):
    name: str
    removed: Annotated[bool, Meta(description="False if there was no such hold.")]


class PartitionExtent(msgspec.Struct):
    partition: int
    start_offset: int
    end_offset: int
    offset: Annotated[int, Meta(description="The offset of `at` in this partition.")]
    bytes: Annotated[int, Meta(description="Approximate number of bytes from `offset` on.")]


class ExtentReply(msgspec.Struct):
    queue: str
    partitions: list[PartitionExtent]
    uuid: Annotated[str, Meta(description="Changes if the queue is deleted and created again.")] = ""
    broker: Annotated[str, Meta(description="The id of the broker's storage.")] = ""
