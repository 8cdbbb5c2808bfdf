"""The settings of a queue, as `GET /v1/queues/{path}` returns them. `PUT` and `PATCH` take any part of them.

The broker checks settings (`core/config.py`) and reports the reason of a refusal; the bounds here are for the schema
and for clients.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from penstock import limits
from penstock.placement import PLACEMENT_PATTERN
from penstock.wire.messages import DelayMs, LeaseMs

Weight: TypeAlias = Annotated[int, Meta(ge=1, le=limits.WEIGHT_MAX)]
TtlMs: TypeAlias = Annotated[int, Meta(ge=1, le=limits.TTL_MS_MAX)]
Count: TypeAlias = Annotated[int, Meta(ge=1, le=2**53)]


class _Settings(msgspec.Struct, frozen=True):
    """Base of all settings. A client reads those of a later version too, which may have more."""


class BackoffSettings(_Settings, frozen=True):
    """The wait before a retry."""

    kind: Literal["none", "fixed", "exponential", "steps"] = "exponential"
    base_ms: DelayMs = 1_000
    factor: Annotated[float, Meta(ge=1, le=100)] = 2.0
    cap_ms: DelayMs = 60_000
    jitter: Annotated[float, Meta(ge=0, le=1, description="Fraction of the wait that is random.")] = 0.1
    steps_ms: Annotated[
        list[DelayMs],
        Meta(
            max_length=limits.BACKOFF_STEPS_MAX,
            description="With `steps`: the waits after the first failure, the second, …; the last one from there on.",
        ),
    ] = []


class RetentionSettings(_Settings, frozen=True):
    """`keep` keeps messages after their ack, within the bounds `ms` and `bytes`."""

    mode: Literal["until_acked", "keep"] = "until_acked"
    ms: Count | None = None
    bytes: Count | None = None


class FairShareSettings(_Settings, frozen=True):
    """Tenants are served in turns."""

    enabled: bool = False
    weights: Annotated[
        dict[str, Weight],
        Meta(max_length=limits.TENANT_WEIGHTS_MAX, description="Tenant -> messages per turn; 1 for the others."),
    ] = {}
    max_in_flight: Annotated[Count, Meta(description="Leased messages per tenant and group.")] | None = None


class AlarmSettings(_Settings, frozen=True):
    """The number of dead letters, or of new ones within a minute, that turns the alarm on."""

    count: Count | None = None
    per_minute: Count | None = None


class QueueSettings(_Settings, frozen=True):
    partitions: Annotated[int, Meta(ge=1, le=limits.PARTITIONS_MAX, description="Can grow, not shrink.")] = 1
    order: Literal["fifo", "lanes", "heap"] = "fifo"
    lane_weights: Annotated[
        list[Weight], Meta(min_length=5, max_length=5, description="Messages per round of each lane, critical first.")
    ] = msgspec.field(default_factory=lambda: [50, 25, 15, 7, 3])
    heap_mode: Annotated[Literal["min", "max"], Meta(description="The priority that a heap delivers first.")] = "min"
    top_k: Annotated[
        int, Meta(ge=1, le=limits.TOP_K_MAX, description="A heap delivers any of its first k messages.")
    ] = 1
    ordered_keys: Annotated[bool, Meta(description="One message of a key at a time, in order.")] = False
    park_dead_keys: Annotated[
        bool, Meta(description="A key with a dead letter is blocked until that is redriven or deleted.")
    ] = False
    fair_share: FairShareSettings = FairShareSettings()
    queue_priority: Annotated[
        int, Meta(ge=-(2**31), le=2**31 - 1, description="Order of the queues in a lease of a scope, higher first.")
    ] = 0
    exclusive: Annotated[bool, Meta(description="One lease at a time in each group.")] = False
    strict_leases: Annotated[bool, Meta(description="Settling by message id needs the consumer of the lease.")] = False
    lease_ms: LeaseMs = 30_000
    max_retries: Annotated[int, Meta(ge=0, le=limits.RETRIES_MAX)] = 3
    backoff: BackoffSettings = BackoffSettings()
    dead_letter: Annotated[bool, Meta(description="False: a message without retries left is dropped.")] = True
    dead_letter_ttl_ms: TtlMs | None = None
    dead_letter_max: Count | None = None
    dead_letter_alarm: AlarmSettings | None = None
    delay_ms: DelayMs = 0
    window_ms: Annotated[int, Meta(ge=0, le=limits.WINDOW_MS_MAX)] = 0
    window_max_wait_ms: DelayMs | None = None
    ttl_ms: TtlMs | None = None
    max_messages: Annotated[Count, Meta(description="A publish beyond it is refused with `queue_full`.")] | None = None
    max_payload_bytes: Annotated[int, Meta(ge=1, le=limits.PAYLOAD_BYTES_MAX)] = limits.PAYLOAD_BYTES_MAX
    delivery: Literal["at_least_once", "at_most_once"] = "at_least_once"
    retention: RetentionSettings = RetentionSettings()
    durability: Literal["default"] = "default"
    compression: Literal["none"] = "none"
    encryption: bool = False
    placement: Annotated[
        str,
        Meta(
            pattern=PLACEMENT_PATTERN,
            description="Chooses the shard: by the path of the queue, by its namespace, which keeps all such queues of "
            "a namespace together, or by number. Fixed once the queue exists.",
            examples=["queue", "namespace", "shard:3"],
        ),
    ] = "queue"
    spread: Annotated[int, Meta(extra_json_schema={"const": 1})] = 1
