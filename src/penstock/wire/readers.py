"""Requests and replies about the offsets that readers of the log store in the broker."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from penstock import limits
from penstock.errors import InvalidRequest
from penstock.wire import patterns
from penstock.wire.messages import ClientId, QueueName, Request

Position: TypeAlias = Annotated[int, Meta(ge=0, le=2**53)]


class KeepOffsetsRequest(Request):
    queue: QueueName
    client_id: ClientId
    offsets: Annotated[
        dict[Annotated[str, Meta(pattern=patterns.PARTITION)], Position],
        Meta(
            min_length=1,
            max_length=limits.PARTITIONS_MAX,
            description="Partition -> the next offset to read. Partitions that are not named keep their offset.",
            examples=[{"0": 123}],
        ),
    ]

    def by_partition(self) -> dict[int, int]:
        named = {int(partition): offset for partition, offset in self.offsets.items()}
        if len(named) != len(self.offsets):
            raise InvalidRequest("offsets: a partition is named twice", details={"field": "offsets"})
        return named


class OffsetsQuery(Request):
    queue: QueueName
    client_id: ClientId


class OffsetsReply(msgspec.Struct):
    """The stored offsets; empty, with a null time, if there are none."""

    queue: str
    client_id: str
    offsets: dict[str, int]
    used_at_ms: int | None
