"""Requests of the HTTP interface: one struct per call, with the bounds of each field.

Every bound comes from `limits.py`. Unknown fields are refused, so that a misspelled option is never ignored. Rules over
two fields are in `__post_init__`; they raise `InvalidRequest` with the field's name. Rules over many messages at once
(sizes in bytes, nesting) are in `publishing.py`, which checks them by column.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from penstock import limits
from penstock.errors import InvalidRequest
from penstock.wire import patterns

# `ids.py` checks names and reports the reason; the pattern is only for the schema.
QueueName: TypeAlias = Annotated[
    str,
    Meta(
        description="One to three segments: `name`, `namespace/name` or `namespace/task/name`.",
        examples=["orders", "email/high"],
        extra_json_schema={"pattern": f"^{limits.NAME_PATTERN}(/{limits.NAME_PATTERN}){{0,2}}$"},
    ),
]
ScopeName: TypeAlias = Annotated[
    str,
    Meta(
        description="`namespace` or `namespace/task`: all queues in it, higher `queue_priority` first, then older.",
        examples=["email", "email/notifications"],
        extra_json_schema={"pattern": f"^{limits.NAME_PATTERN}(/{limits.NAME_PATTERN})?$"},
    ),
]
GroupName: TypeAlias = Annotated[str, Meta(extra_json_schema={"pattern": f"^{limits.GROUP_PATTERN}$"})]
ClientId: TypeAlias = Annotated[
    str,
    Meta(
        description="The name that a reader of the log has chosen.",
        extra_json_schema={"pattern": f"^{limits.GROUP_PATTERN}$"},
    ),
]
MemberName: TypeAlias = Annotated[str, Meta(extra_json_schema={"pattern": f"^{limits.MEMBER_PATTERN}$"})]
Generation: TypeAlias = Annotated[
    int, Meta(ge=1, le=2**53, description="The generation of the group that the member knows.")
]
Priority: TypeAlias = Annotated[
    int,
    Meta(
        ge=-limits.PRIORITY_MAX - 1,
        le=limits.PRIORITY_MAX,
        description="The lane (0 to 4; without one 2, normal) or the position in a heap. No effect in a fifo queue.",
    ),
]
Key: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=limits.KEY_BYTES_MAX, description="Messages of one key share a partition.")
]
Receipt: TypeAlias = Annotated[str, Meta(max_length=limits.RECEIPT_CHARS_MAX)]
Receipts: TypeAlias = Annotated[list[Receipt], Meta(max_length=limits.RECEIPTS_MAX)]
MessageIds: TypeAlias = Annotated[
    list[Annotated[str, Meta(max_length=64)]], Meta(min_length=1, max_length=limits.RECEIPTS_MAX)
]
MessageHandle: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=limits.CLIENT_ID_BYTES_MAX,
        description="The id from the publish reply (a ULID), or the `id` that the client gave the message.",
    ),
]
MessageHandles: TypeAlias = Annotated[list[MessageHandle], Meta(min_length=1, max_length=limits.RECEIPTS_MAX)]
DelayMs: TypeAlias = Annotated[int, Meta(ge=0, le=limits.DELAY_MS_MAX)]
AtMs: TypeAlias = Annotated[int, Meta(ge=0, le=limits.TIME_MS_MAX, description="UTC epoch milliseconds.")]
LeaseMs: TypeAlias = Annotated[int, Meta(ge=limits.LEASE_MS_MIN, le=limits.LEASE_MS_MAX)]
WaitMs: TypeAlias = Annotated[
    int, Meta(ge=0, le=limits.WAIT_MS_MAX, description="How long to wait for a message when there is none.")
]


ReadOffset: TypeAlias = Annotated[
    str,
    Meta(
        pattern=patterns.READ_OFFSET,
        description="An offset, `earliest`, `latest`, `at:<epoch milliseconds>`, `id:<message id>` (from that "
        "message on), `after:<message id>`, or `kept` (the stored offset of `client_id`).",
        examples=["0", "earliest", "at:1760000000000"],
    ),
]


class Request(msgspec.Struct, forbid_unknown_fields=True):
    """Base of all requests."""


# -- publish ------------------------------------------------------------------------------------------------------


class PublishMessage(Request, gc=False):
    """One message. Exactly one of `payload` and `payload_b64`; a null `payload` beside a `payload_b64` is ignored."""

    payload: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    payload_b64: str | None = None
    key: Key | None = None
    priority: Priority | None = None
    delay_ms: DelayMs = 0
    deliver_at_ms: AtMs | None = None
    ttl_ms: Annotated[int, Meta(ge=1, le=limits.TTL_MS_MAX)] | None = None
    id: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=limits.CLIENT_ID_BYTES_MAX,
                description="Chosen by the client; a second message with it is a duplicate.",
            ),
        ]
        | None
    ) = None
    headers: Annotated[dict[str, str], Meta(max_length=limits.HEADERS_COUNT_MAX)] | None = None
    tenant: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=limits.TENANT_BYTES_MAX,
                description="Tenant of the message; a queue with `fair_share` serves tenants in turns.",
            ),
        ]
        | None
    ) = None
    max_retries: Annotated[int, Meta(ge=0, le=limits.RETRIES_MAX)] | None = None
    queue: QueueName | None = None


class Producer(Request):
    """Identity of an idempotent producer. `seq` belongs to the first message; the following ones count up."""

    id: Annotated[str, Meta(min_length=1, max_length=limits.PRODUCER_ID_CHARS_MAX)]
    epoch: Annotated[int, Meta(ge=0, le=2**53)]
    seq: Annotated[int, Meta(ge=0, le=2**53)]


_ONE_PAYLOAD = Meta(extra_json_schema={"anyOf": [{"required": ["payload"]}, {"required": ["payload_b64"]}]})


class PublishRequest(Request):
    messages: Annotated[
        list[Annotated[PublishMessage, _ONE_PAYLOAD]], Meta(min_length=1, max_length=limits.BATCH_MESSAGES_MAX)
    ]
    queue: QueueName | None = None
    atomic: bool = True
    producer: Producer | None = None


class PlainMessage(Request, gc=False):
    """A message with a payload and no other field."""

    payload: msgspec.Raw


class PlainPublishRequest(Request):
    """The most common publish. A request that does not match is decoded as a `PublishRequest`."""

    messages: Annotated[list[PlainMessage], Meta(min_length=1, max_length=limits.BATCH_MESSAGES_MAX)]
    queue: QueueName
    atomic: bool = True
    producer: Producer | None = None


class PublishEnvelope(Request):
    """A publish with undecoded messages, so that each can fail on its own."""

    messages: Annotated[list[msgspec.Raw], Meta(min_length=1, max_length=limits.BATCH_MESSAGES_MAX)]
    queue: QueueName | None = None
    atomic: bool = True
    producer: Producer | None = None


class PublishFrameQuery(Request):
    """Query of a publish whose body is a batch frame."""

    queue: QueueName
    producer: Annotated[str, Meta(min_length=1, max_length=limits.PRODUCER_ID_CHARS_MAX)] | None = None
    epoch: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    seq: Annotated[int, Meta(ge=0, le=2**53)] | None = None

    def __post_init__(self) -> None:
        for name in ("epoch", "seq"):
            if (getattr(self, name) is None) != (self.producer is None):
                raise InvalidRequest("give producer, epoch and seq together or none of them", details={"field": name})


class PublishEventQuery(Request):
    """Query of a publish whose body is a CloudEvent, or a batch of them."""

    queue: QueueName
    dedup: Annotated[
        bool,
        Meta(
            description="With a CloudEvent, and refused otherwise. True if left out: an event of the same source and "
            "id, within a day, is a duplicate and not stored again."
        ),
    ] = True


# -- lease and settle ---------------------------------------------------------------------------------------------


RetryLimit: TypeAlias = Annotated[
    int,
    Meta(
        ge=0,
        le=limits.RETRIES_MAX,
        description="Dead-letter a message after this number of retries, even if its queue allows more.",
    ),
]


class LeaseRequest(Request):
    queue: QueueName | None = None
    scope: ScopeName | None = None
    group: GroupName = "default"
    max: Annotated[int, Meta(ge=1, le=limits.LEASE_MESSAGES_MAX)] = 1
    wait_ms: WaitMs = 0
    lease_ms: LeaseMs | None = None
    consumer: Annotated[str, Meta(max_length=limits.CONSUMER_CHARS_MAX)] = ""
    ack: Receipts | None = None
    member: MemberName | None = None
    generation: Generation | None = None

    def __post_init__(self) -> None:
        _exactly_one(self, "queue", "scope")
        if (self.member is None) != (self.generation is None):
            raise InvalidRequest("give member and generation together or none of them", details={"field": "generation"})
        if self.member is not None and self.queue is None:
            raise InvalidRequest("members belong to a group of one queue: name the queue", details={"field": "member"})


class JoinRequest(Request):
    """Joins a group. Without a `member` the server chooses a name. A second join under one name replaces the first."""

    queue: QueueName
    group: GroupName = "default"
    member: MemberName | None = None
    session_ms: Annotated[
        int,
        Meta(
            ge=limits.SESSION_MS_MIN,
            le=limits.SESSION_MS_MAX,
            description="A member without a heartbeat for this long leaves the group.",
        ),
    ] = 30_000
    drain_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=limits.DRAIN_MS_MAX,
            description="Time that the member gets to settle messages of a partition that is reassigned.",
        ),
    ] = 30_000


class HeartbeatRequest(Request):
    queue: QueueName
    member: MemberName
    generation: Generation
    group: GroupName = "default"
    released: Annotated[
        list[Annotated[int, Meta(ge=0, lt=limits.PARTITIONS_MAX)]],
        Meta(
            max_length=limits.PARTITIONS_MAX,
            description="Partitions that the member gives up without settling the messages it holds.",
        ),
    ] = []


class LeaveRequest(Request):
    """Removes a member from its group. With a `generation` the request is ignored if the member has been replaced."""

    queue: QueueName
    member: MemberName
    group: GroupName = "default"
    generation: Generation | None = None


class AckRequest(Request):
    receipts: Receipts


class NackRequest(Request):
    receipts: Receipts
    delay_ms: DelayMs | None = None
    error: str | None = None
    max_retries: RetryLimit | None = None


class RejectRequest(Request):
    receipts: Receipts
    error: str | None = None


class ExtendRequest(Request):
    receipts: Receipts
    lease_ms: LeaseMs


class TransactRequest(Request):
    """Acks all receipts and publishes all messages, or does nothing. Each message names its queue."""

    ack: Receipts = []
    publish: Annotated[list[Annotated[PublishMessage, _ONE_PAYLOAD]], Meta(max_length=limits.BATCH_MESSAGES_MAX)] = []

    def __post_init__(self) -> None:
        if not self.ack and not self.publish:
            raise InvalidRequest("give at least one receipt or message", details={"field": "ack"})


class CancelRequest(Request):
    queue: QueueName
    ids: MessageHandles | None = None
    key: Key | None = None

    def __post_init__(self) -> None:
        _exactly_one(self, "ids", "key")


class RescheduleRequest(Request):
    queue: QueueName
    ids: MessageHandles | None = None
    key: Key | None = None
    deliver_at_ms: AtMs | None = None
    delay_ms: DelayMs | None = None

    def __post_init__(self) -> None:
        _exactly_one(self, "ids", "key")
        _exactly_one(self, "deliver_at_ms", "delay_ms")


# -- dead letters -------------------------------------------------------------------------------------------------

LetterFilter: TypeAlias = Annotated[
    str,
    Meta(
        max_length=limits.FILTER_CHARS_MAX,
        description="Selects dead letters, in the language of `docs/dead-letters.md`; empty means all.",
        examples=['reason = "max_retries" and error ~ "timeout" and age > 1h'],
    ),
]
RedriveId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=limits.REDRIVE_ID_CHARS_MAX)]


class RedriveRequest(Request):
    queue: QueueName
    group: GroupName | None = None
    filter: LetterFilter | None = None
    ids: MessageIds | None = None
    target: QueueName | None = None
    delay_ms: DelayMs | None = None
    priority: Priority | None = None
    rate_per_s: Annotated[int, Meta(ge=1, le=limits.REDRIVE_RATE_MAX)] = 100
    dry_run: bool = True
    redrive_id: RedriveId | None = None

    def __post_init__(self) -> None:
        _exactly_one(self, "filter", "ids")


class StopRedriveRequest(Request):
    queue: QueueName
    redrive_id: RedriveId


class DeleteDeadLettersRequest(Request):
    queue: QueueName
    group: GroupName | None = None
    filter: LetterFilter | None = None
    ids: MessageIds | None = None

    def __post_init__(self) -> None:
        _exactly_one(self, "filter", "ids")


# -- queries of GET, DELETE and purge -----------------------------------------------------------------------------

Page: TypeAlias = Annotated[int, Meta(ge=1, le=10**9)]
PageLimit: TypeAlias = Annotated[int, Meta(ge=1, le=limits.PAGE_LIMIT_MAX)]


READ_MAX_DEFAULT = 100


QueueUuid: TypeAlias = Annotated[str, Meta(pattern=patterns.UUID, examples=["5f3c1f0e-7a3b-5d0a-9d0e-3a1b2c4d5e6f"])]


class ReadQuery(Request):
    queue: QueueName
    partition: Annotated[int, Meta(ge=0, lt=limits.PARTITIONS_MAX)] = 0
    offset: ReadOffset = "earliest"
    max: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=limits.READ_MESSAGES_MAX,
                description="100 if left out; with `until` and a binary reply, as many as fit.",
            ),
        ]
        | None
    ) = None
    wait_ms: WaitMs = 0
    client_id: ClientId | None = None
    until: Annotated[int, Meta(ge=0, le=2**53, description="Stop before this offset.")] | None = None
    max_bytes: Annotated[
        int,
        Meta(
            ge=1,
            le=limits.LEASE_REPLY_BYTES_MAX,
            description="Approximate size of the reply; it has one message at least.",
        ),
    ] = limits.LEASE_REPLY_BYTES_MAX
    uuid: (
        Annotated[QueueUuid, Meta(description="Expected uuid of the queue; a different one is refused (409).")] | None
    ) = None

    def __post_init__(self) -> None:
        if self.offset == "kept" and self.client_id is None:
            raise InvalidRequest("offset=kept needs a client_id", details={"field": "client_id"})


class ExtentQuery(Request):
    queue: QueueName
    at: Annotated[
        str,
        Meta(
            pattern=patterns.PLACE,
            description="A position to look up in every partition, as `offset` of `/v1/read`.",
        ),
    ] = "earliest"


class PeekQuery(Request):
    queue: QueueName
    max: Annotated[int, Meta(ge=1, le=limits.PEEK_MESSAGES_MAX)] = 10
    group: GroupName = "default"


class ScheduledQuery(Request):
    queue: QueueName
    limit: PageLimit = 50
    after: (
        Annotated[str, Meta(pattern=patterns.POSITION, description="`next` of the page before: PARTITION:OFFSET.")]
        | None
    ) = None

    @property
    def position(self) -> tuple[int, int]:
        """The partition and the offset behind which the page begins."""
        partition, _, offset = (self.after or "0:-1").partition(":")
        return int(partition), int(offset)


class QueuesQuery(Request):
    prefix: Annotated[str, Meta(max_length=200)] = ""
    page: Page = 1
    limit: PageLimit = 50


class QueueQuery(Request):
    """Query of calls that read one queue: stats, groups."""

    queue: QueueName


class ExplainQuery(Request):
    queue: QueueName
    id: MessageHandle | None = None
    group: GroupName = "default"


class HistoryQuery(Request):
    queue: QueueName
    id: MessageHandle


class AutoscaleQuery(Request):
    queue: QueueName
    group: GroupName = "default"
    target_drain_s: Annotated[float, Meta(gt=0, le=86_400, description="Target time to work off the backlog.")] = 60.0
    min_workers: Annotated[int, Meta(ge=0, le=2**31)] = 0
    max_workers: Annotated[int, Meta(ge=0, le=2**31)] = limits.WORKERS_MAX

    def __post_init__(self) -> None:
        if self.min_workers > self.max_workers:
            raise InvalidRequest("min_workers is more than max_workers", details={"field": "min_workers"})


class DeadLettersQuery(Request):
    queue: QueueName
    group: GroupName | None = None
    filter: LetterFilter | None = None
    page: Page = 1
    limit: PageLimit = 50
    after: Annotated[str, Meta(max_length=80, description="`next` of an earlier page, instead of a page.")] | None = (
        None
    )


class RedrivesQuery(Request):
    queue: QueueName
    redrive_id: RedriveId | None = None


ConfirmToken: TypeAlias = Annotated[
    str,
    Meta(max_length=128, description="From `details.confirm` of the reply 409 to the same call without a token."),
]


class ConfirmQuery(Request):
    """Query of destructive calls. Without the token the reply is 409, with the token and a description of the loss."""

    confirm: ConfirmToken | None = None


class ConfirmedQueueQuery(Request):
    queue: QueueName
    confirm: ConfirmToken | None = None


class NoQuery(Request):
    """The empty query."""


def _exactly_one(request: Request, first: str, second: str) -> None:
    if (getattr(request, first) is None) == (getattr(request, second) is None):
        raise InvalidRequest(f"give exactly one of {first} and {second}", details={"field": first})
