"""The query and the reply of `/v1/series`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.errors import InvalidRequest
from penstock.wire.messages import AtMs, GroupName, QueueName, Request

DAY_MS = 86_400_000
COLUMNS = (
    "published", "delivered", "acked", "dead_lettered", "depth", "ready", "leased", "scheduled", "dead",
    "delivery_p50_ms", "delivery_p95_ms", "delivery_p99_ms", "ack_p50_ms", "ack_p95_ms", "ack_p99_ms",
)  # fmt: skip


class SeriesQuery(Request):
    queue: Annotated[QueueName | None, Meta(description="Left out: the sum of all queues.")] = None
    group: GroupName | None = None
    from_ms: Annotated[AtMs | None, Meta(description="Left out: a day before `until_ms`.")] = None
    until_ms: Annotated[AtMs | None, Meta(description="Left out: now.")] = None

    columns: Annotated[
        Annotated[str, Meta(max_length=400)] | None,
        Meta(description="Names of series, separated by commas. Left out: all."),
    ] = None

    def __post_init__(self) -> None:
        if self.columns is not None and (unknown := sorted(set(self.columns.split(",")) - set(COLUMNS))):
            raise InvalidRequest(
                f"columns: there is no series {unknown[0][:80]!r}; there are {', '.join(COLUMNS)}",
                details={"field": "columns"},
            )
        if self.group is not None and self.queue is None:
            raise InvalidRequest("a group needs its queue", details={"field": "group"})
        if self.from_ms is not None and self.until_ms is not None and self.from_ms > self.until_ms:
            raise InvalidRequest("until_ms is before from_ms", details={"field": "until_ms"})


class SeriesReply(msgspec.Struct):
    """One value per step and column; null where nothing was recorded. `published`, `delivered`, `acked` and
    `dead_lettered` count messages within the step; latencies are percentiles of the messages that were delivered or
    ended within it; the others are the state at its end, or the largest within it."""

    step_ms: int
    at_ms: list[int]
    series: dict[str, list[int | None]]
