"""Requests and replies about recurring schedules."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock import limits
from penstock.errors import InvalidRequest
from penstock.wire.messages import AtMs, Key, Page, PageLimit, Priority, PublishMessage, QueueName, Request

CatchUp: TypeAlias = Literal["latest", "all", "none"]

_ONE_PAYLOAD = Meta(extra_json_schema={"anyOf": [{"required": ["payload"]}, {"required": ["payload_b64"]}]})


class ScheduleMessage(Request):
    """The message that is published at each fire time. Exactly one of `payload` and `payload_b64`."""

    payload: msgspec.Raw | UnsetType = UNSET
    payload_b64: str | None = None
    key: Key | None = None
    priority: Priority | None = None
    ttl_ms: Annotated[int, Meta(ge=1, le=limits.TTL_MS_MAX)] | None = None
    headers: (
        Annotated[
            dict[str, str],
            # The scheduler adds two headers to each message.
            Meta(max_length=limits.HEADERS_COUNT_MAX - 2),
        ]
        | None
    ) = None
    max_retries: Annotated[int, Meta(ge=0, le=limits.RETRIES_MAX)] | None = None
    tenant: Annotated[str, Meta(min_length=1, max_length=limits.TENANT_BYTES_MAX)] | None = None

    def as_published(self) -> PublishMessage:
        """Convert to a message of a publish, to apply the same rules."""
        return PublishMessage(
            payload=self.payload or msgspec.Raw(), payload_b64=self.payload_b64, key=self.key, priority=self.priority,
            ttl_ms=self.ttl_ms, headers=self.headers, max_retries=self.max_retries,
        )  # fmt: skip


class ScheduleNamed(Request):
    name: Annotated[str, Meta(extra_json_schema={"pattern": f"^{limits.SCHEDULE_NAME_PATTERN}$"})]


class ScheduleRequest(Request):
    queue: QueueName
    cron: Annotated[
        str,
        Meta(
            max_length=limits.CRON_CHARS_MAX,
            description="Five fields (minute, hour, day of month, month, day of week), or six with seconds in front.",
            examples=["0 3 * * *", "*/5 * * * * *"],
        ),
    ]
    message: Annotated[ScheduleMessage, _ONE_PAYLOAD]
    timezone: Annotated[
        str, Meta(max_length=64, description="A name of the IANA database.", examples=["UTC", "Europe/Berlin"])
    ] = "UTC"
    catch_up: Annotated[
        CatchUp, Meta(description="Policy for fire times missed while the broker was down or the schedule was paused.")
    ] = "all"
    starts_at_ms: AtMs | None = None
    ends_at_ms: AtMs | None = None

    def __post_init__(self) -> None:
        if self.starts_at_ms is not None and self.ends_at_ms is not None and self.starts_at_ms > self.ends_at_ms:
            raise InvalidRequest("ends_at_ms is before starts_at_ms", details={"field": "ends_at_ms"})


class SchedulesQuery(Request):
    prefix: Annotated[str, Meta(max_length=200)] = ""
    page: Page = 1
    limit: PageLimit = 50


# -- replies ------------------------------------------------------------------------------------------------------


class ShownMessage(msgspec.Struct):
    key: str | None
    priority: int
    ttl_ms: int | None
    headers: dict[str, str]
    max_retries: int | None
    tenant: str | None
    payload: Any | UnsetType = UNSET
    payload_b64: str | UnsetType = UNSET


class SkippedFires(msgspec.Struct):
    """The range of missed fire times without a message."""

    from_ms: int
    until_ms: int


class ScheduleError(msgspec.Struct):
    """The reason why the message of the fire time in `next` could not be published yet."""

    code: str
    message: str
    since_at_ms: int
    retry_at_ms: int


class ScheduleReply(msgspec.Struct):
    name: str
    queue: str
    cron: str
    timezone: str
    catch_up: CatchUp
    starts_at_ms: int | None
    ends_at_ms: int | None
    message: ShownMessage
    state: Annotated[
        Literal["active", "paused", "failing", "ended"],
        Meta(description="failing: the due message cannot be published, see error; ended: no fire time is left"),
    ]
    next: Annotated[list[int], Meta(description="Next fire times; in a list of schedules only the first.")]
    last_fire_at_ms: int | None
    fired: Annotated[int, Meta(description="Messages published so far.")]
    skipped: SkippedFires | None
    error: ScheduleError | None
    created_at_ms: int
    changed_at_ms: int


class SchedulesReply(msgspec.Struct):
    schedules: list[ScheduleReply]
    total: int
    page: int
    limit: int


class ScheduleRemovedReply(msgspec.Struct):
    name: str
    deleted: bool
