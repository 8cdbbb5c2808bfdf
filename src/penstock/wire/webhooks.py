"""Requests and replies about webhooks."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock import limits
from penstock.errors import InvalidRequest
from penstock.wire.messages import GroupName, Page, PageLimit, QueueName, Request

RETRY_DELAYS_MS = (
    5_000, 300_000, 1_800_000, 7_200_000, 18_000_000, 36_000_000, 50_400_000, 72_000_000, 86_400_000,
)  # fmt: skip
"""Ten attempts within three days and a half, as the Standard Webhooks specification suggests."""

Format: TypeAlias = Literal["plain", "cloudevents-structured", "cloudevents-binary"]

WebhookId: TypeAlias = Annotated[str, Meta(max_length=64, description="Id from the reply to the registration.")]
Url: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=limits.WEBHOOK_URL_CHARS_MAX,
        description="The URL of the endpoint: https, port 443 or 8443, at a public address.",
        examples=["https://example.com/hooks"],
    ),
]
FormatField: TypeAlias = Annotated[
    Format, Meta(description="plain: the payload is the body; or a CloudEvent, in the body or in headers.")
]
RetryDelays: TypeAlias = Annotated[
    list[Annotated[int, Meta(ge=0, le=limits.WEBHOOK_DELAY_MS_MAX)]],
    Meta(
        max_length=limits.WEBHOOK_RETRIES_MAX,
        description="Delays after the first, second, … failed attempt, each with a jitter of 20 %. After the last one "
        "the message becomes a dead letter.",
    ),
]
TimeoutMs: TypeAlias = Annotated[
    int,
    Meta(
        ge=limits.WEBHOOK_TIMEOUT_MS_MIN,
        le=limits.WEBHOOK_TIMEOUT_MS_MAX,
        description="Time from the connect to the end of the response.",
    ),
]
Concurrency: TypeAlias = Annotated[
    int, Meta(ge=1, le=limits.WEBHOOK_CONCURRENCY_MAX, description="Concurrent requests to the endpoint.")
]
Description: TypeAlias = Annotated[str, Meta(max_length=limits.WEBHOOK_DESCRIPTION_CHARS_MAX)]


class WebhookRequest(Request):
    queue: QueueName
    url: Url
    group: Annotated[
        GroupName | None, Meta(description="Null: a group of its own, named `webhook-` and the id of the webhook.")
    ] = None
    format: FormatField = "plain"
    retry_delays_ms: RetryDelays = msgspec.field(default_factory=lambda: list(RETRY_DELAYS_MS))
    timeout_ms: TimeoutMs = 15_000
    concurrency: Concurrency = 4
    description: Description = ""
    paused: Annotated[bool, Meta(description="Register the webhook paused.")] = False


class WebhookChanges(Request):
    """Changes the given settings. The queue and the group of a webhook cannot change."""

    url: Url | UnsetType = UNSET
    format: FormatField | UnsetType = UNSET
    retry_delays_ms: RetryDelays | UnsetType = UNSET
    timeout_ms: TimeoutMs | UnsetType = UNSET
    concurrency: Concurrency | UnsetType = UNSET
    description: Description | UnsetType = UNSET

    def __post_init__(self) -> None:
        if all(getattr(self, name) is UNSET for name in self.__struct_fields__):
            raise InvalidRequest(f"nothing to change; there are {', '.join(self.__struct_fields__)}")


class WebhookNamed(Request):
    id: WebhookId


class ResendRequest(Request):
    id: WebhookId
    message_id: Annotated[str, Meta(min_length=1, max_length=limits.CLIENT_ID_BYTES_MAX)]


class RotateRequest(Request):
    id: WebhookId
    overlap_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=limits.WEBHOOK_OVERLAP_MS_MAX,
            description="Time during which the previous secret signs as well; 0 if it was disclosed.",
        ),
    ] = limits.WEBHOOK_OVERLAP_MS


class WebhooksQuery(Request):
    queue: QueueName | None = None
    page: Page = 1
    limit: PageLimit = 50


class AttemptsQuery(Request):
    id: WebhookId
    limit: Annotated[int, Meta(ge=1, le=limits.WEBHOOK_ATTEMPTS_KEPT)] = 20


# -- replies ------------------------------------------------------------------------------------------------------

Outcome: TypeAlias = Literal["delivered", "failed", "throttled", "gone", "timeout", "unreachable", "refused"]


class Attempt(msgspec.Struct, frozen=True):
    """One request to an endpoint, or the reason why none was sent."""

    at_ms: int
    message_id: str
    attempt: Annotated[int, Meta(description="0: the message was sent again by a call.")]
    outcome: Annotated[
        Outcome,
        Meta(
            description="delivered: 2xx; throttled: 429, 502, 503 or 504; gone: 410; failed: any other answer; "
            "refused: the URL resolves to a forbidden address"
        ),
    ]
    status: Annotated[int | None, Meta(description="Status of the response, if there was one.")]
    error: str | None
    duration_ms: int
    retry_at_ms: int | None = None
    """Time of the next attempt; None if there is none."""


class AttemptsReply(msgspec.Struct):
    """The attempts since the server started, newest first, at most a hundred."""

    id: str
    attempts: list[Attempt]


class DeliveryStatus(msgspec.Struct):
    """Delivery counters since the server started."""

    in_flight: int
    delivered: int
    failed: int
    circuit: Annotated[
        Literal["closed", "open", "probing"],
        Meta(description="open: too many consecutive failures, no request until next_at_ms, then one probe"),
    ]
    next_at_ms: Annotated[
        int | None,
        Meta(description="No request is sent before this time: the circuit is open, or Retry-After applies."),
    ]
    last: Attempt | None
    trouble: Annotated[str | None, Meta(description="The reason why no messages can be leased now.")]


class WebhookReply(msgspec.Struct):
    id: str
    queue: str
    group: str
    url: str
    format: Format
    retry_delays_ms: list[int]
    timeout_ms: int
    concurrency: int
    description: str
    state: Annotated[
        Literal["active", "paused", "disabled"],
        Meta(description="disabled: the endpoint answered 410 Gone; resume the webhook when the endpoint is back"),
    ]
    reason: Annotated[str | None, Meta(description="The reason why the webhook is disabled.")]
    secrets: Annotated[int, Meta(description="Number of secrets that sign; more than one during a rotation.")]
    created_at_ms: int
    changed_at_ms: int
    delivery: DeliveryStatus | None = None
    secret: Annotated[
        str | UnsetType,
        Meta(description="Only in the replies to a registration and a rotation. It is not shown again; store it."),
    ] = UNSET


class WebhooksReply(msgspec.Struct):
    webhooks: list[WebhookReply]
    total: int
    page: int
    limit: int


class WebhookRemovedReply(msgspec.Struct):
    id: str
    deleted: bool


class TestReply(msgspec.Struct):
    """The result of a test delivery, or of a message that was sent again."""

    id: str
    message_id: str
    outcome: Outcome
    status: int | None
    error: str | None
    duration_ms: int
