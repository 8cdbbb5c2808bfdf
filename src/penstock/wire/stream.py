"""Frames of the WebSocket protocol: one struct per frame, tagged by `type`. Guide: docs/websocket.md.

Each frame of a client is a request with exactly one reply, which repeats its `id` if it had one. Frames that the server
pushes (`hello`, `messages`, `ended`, `bye`) have no `id`.

JSON and MessagePack have the same fields, except for bytes: MessagePack has a type for them, so payloads, bodies and
batches are not encoded as text (`BinaryPublish`, `BinaryCall`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from penstock import limits
from penstock.errors import InvalidRequest
from penstock.wire import patterns
from penstock.wire.delivery import Settled
from penstock.wire.messages import (
    ClientId,
    DelayMs,
    GroupName,
    LeaseMs,
    Producer,
    PublishMessage,
    QueueName,
    ReadOffset,
    Receipts,
    Request,
    RetryLimit,
    ScopeName,
)

JSON_PROTOCOL = "penstock.v1+json"
MSGPACK_PROTOCOL = "penstock.v1+msgpack"

FrameId: TypeAlias = (
    Annotated[str, Meta(max_length=64, description="Chosen by the client; the reply repeats it.")]
    | Annotated[int, Meta(ge=0, le=2**53)]
)
SubName: TypeAlias = Annotated[
    str,
    Meta(
        max_length=200,
        pattern=patterns.SUBSCRIPTION,
        description="The subscription's name on this connection. Left out, it is the queue or scope as it was given.",
    ),
]
CreditCount: TypeAlias = Annotated[int, Meta(ge=1, le=limits.LEASE_MESSAGES_MAX)]
Place: TypeAlias = Annotated[int, Meta(ge=0, le=10**18)]

# -- from the client ----------------------------------------------------------------------------------------------


class ClientFrame(Request, tag_field="type", kw_only=True):
    id: FrameId | None = None


class Subscribe(ClientFrame, tag="subscribe"):
    """Subscribes as a `reader`, which follows the log without leases, or as a `consumer`, which gets leases."""

    role: Literal["reader", "consumer"]
    queue: QueueName | None = None
    queues: Annotated[list[QueueName], Meta(min_length=1, max_length=limits.WEBSOCKET_SUBSCRIPTIONS_MAX)] | None = None
    scope: ScopeName | None = None
    sub: SubName | None = None
    format: Literal["messages", "batch"] = "messages"
    # Readers.
    offset: ReadOffset | Place | None = None
    offsets: (
        Annotated[
            dict[Annotated[str, Meta(pattern=patterns.PARTITION)], Place],
            Meta(
                description="Offset per partition, from `subscribed` or `next_offset`. Other partitions, including new "
                "ones, begin at `offset` if it is given, otherwise at the earliest message."
            ),
        ]
        | None
    ) = None
    partition: Annotated[int, Meta(ge=0, lt=limits.PARTITIONS_MAX)] | None = None
    client_id: ClientId | None = None
    # Consumers.
    group: GroupName | None = None
    credit: CreditCount | None = None
    refill: Annotated[bool, Meta(description="Settling a message on this connection returns its credit.")] | None = None
    lease_ms: LeaseMs | None = None
    consumer: Annotated[str, Meta(max_length=limits.CONSUMER_CHARS_MAX)] | None = None
    when_lost: Literal["retry", "keep"] | None = None

    def __post_init__(self) -> None:
        if sum(name is not None for name in (self.queue, self.queues, self.scope)) != 1:
            raise InvalidRequest("give exactly one of queue, queues and scope", details={"field": "queue"})
        others = _CONSUMERS_ONLY if self.role == "reader" else _READERS_ONLY
        for name in others:
            if getattr(self, name) is not None:
                raise InvalidRequest(f"{name} is not for a {self.role}", details={"field": name})
        if self.offset == "kept" and self.client_id is None:
            raise InvalidRequest("offset=kept needs a client_id", details={"field": "client_id"})
        if self.offsets is not None and self.queue is None:
            raise InvalidRequest("offsets belong to one queue: name the queue", details={"field": "offsets"})

    @property
    def name(self) -> str:
        return self.sub or self.queue or self.scope or ",".join(self.queues or ())


_READERS_ONLY = ("queues", "offset", "offsets", "partition", "client_id")
_CONSUMERS_ONLY = ("scope", "group", "credit", "refill", "lease_ms", "consumer", "when_lost")


class Unsubscribe(ClientFrame, tag="unsubscribe"):
    """Ends a subscription. Messages that the consumer holds are released: ready at once, without an attempt counted."""

    sub: SubName


class Credit(ClientFrame, tag="credit"):
    """Grants the server credit to send more messages."""

    sub: SubName
    credit: CreditCount


class AckFrame(ClientFrame, tag="ack"):
    receipts: Receipts


class NackFrame(ClientFrame, tag="nack"):
    receipts: Receipts
    delay_ms: DelayMs | None = None
    error: str | None = None
    max_retries: RetryLimit | None = None


class RejectFrame(ClientFrame, tag="reject"):
    receipts: Receipts
    error: str | None = None


class ReleaseFrame(ClientFrame, tag="release"):
    receipts: Receipts


class ExtendFrame(ClientFrame, tag="extend"):
    receipts: Receipts
    lease_ms: LeaseMs


class Ping(ClientFrame, tag="ping"):
    """A ping for clients that cannot send WebSocket ping frames, such as browsers."""


class Renew(ClientFrame, tag="renew"):
    """Goes on with another credential of the same identity, so that the connection does not end with the first one."""

    credential: Annotated[str, Meta(max_length=limits.JWT_BYTES_MAX)]


class Bye(ClientFrame, tag="bye"):
    """Ends the connection: held messages are released, and the server closes the connection as the reply."""


class PublishFrame(ClientFrame, tag="publish"):
    """The body of `POST /v1/publish`. Messages stay undecoded here; `wire.publishing` decodes them."""

    messages: msgspec.Raw
    queue: QueueName | None = None
    atomic: bool = True
    producer: Producer | None = None


Method: TypeAlias = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
CallPath: TypeAlias = Annotated[str, Meta(max_length=512, examples=["/v1/stats"])]
CallQuery: TypeAlias = Annotated[str, Meta(max_length=8192, examples=["queue=orders"])]


class CallFrame(ClientFrame, tag="call"):
    """Any call of the HTTP interface: same paths, same bodies, same statuses."""

    path: CallPath
    method: Method = "POST"
    query: CallQuery = ""
    body: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


class BinaryMessage(PublishMessage, kw_only=True):
    """In MessagePack a payload is bytes; `json` is true if they are the text of a JSON value."""

    payload: bytes  # type: ignore[assignment]
    json: bool = False
    payload_b64: None = None


class BinaryPublish(ClientFrame, tag="publish"):
    """Publishes messages, or one frame of docs/formats/batch.md."""

    messages: Annotated[list[BinaryMessage], Meta(min_length=1, max_length=limits.BATCH_MESSAGES_MAX)] | None = None
    batch: bytes | None = None
    queue: QueueName | None = None
    atomic: bool = True
    producer: Producer | None = None

    def __post_init__(self) -> None:
        if (self.messages is None) == (self.batch is None):
            raise InvalidRequest("give exactly one of messages and batch", details={"field": "messages"})


class BinaryCall(ClientFrame, tag="call"):
    path: CallPath
    method: Method = "POST"
    query: CallQuery = ""
    body: bytes = b""
    content_type: Annotated[str, Meta(max_length=100)] = "application/json"
    accept: Annotated[str, Meta(max_length=100)] = "application/json"


EITHER = (
    Subscribe | Unsubscribe | Credit | AckFrame | NackFrame | RejectFrame | ReleaseFrame | ExtendFrame | Ping | Bye
    | Renew
)  # fmt: skip
JSON_FRAMES = EITHER | PublishFrame | CallFrame
MSGPACK_FRAMES = EITHER | BinaryPublish | BinaryCall

# -- from the server ----------------------------------------------------------------------------------------------


class ServerFrame(msgspec.Struct, tag_field="type", omit_defaults=True, kw_only=True):
    id: str | int | None = None


class Hello(ServerFrame, tag="hello"):
    """The first frame of every connection."""

    protocol: str
    server: str
    ping_ms: int
    frame_bytes_max: int
    expires_at_ms: int | None = None
    """The connection ends with its credential, unless a `renew` frame brings another one."""


class Subscribed(ServerFrame, tag="subscribed"):
    sub: str
    offsets: dict[str, dict[str, int]] | None = None
    """The start offsets of a reader, by queue and partition."""
    credit: int | None = None


class Unsubscribed(ServerFrame, tag="unsubscribed"):
    sub: str
    released: int = 0


class Credited(ServerFrame, tag="credited"):
    sub: str
    credit: int


class Results(ServerFrame, tag="results"):
    results: list[Settled]


class Reply(ServerFrame, tag="reply"):
    """The reply to a `call`, and (as `published`) to a `publish`: the status and body of the HTTP reply."""

    status: int
    body: Any = None
    content_type: str | None = None
    retry_after_s: int | None = None


class PublishedFrame(Reply, tag="published"):
    pass


class FrameError(msgspec.Struct):
    code: str
    message: str
    retryable: bool
    details: dict[str, Any]


class Error(ServerFrame, tag="error"):
    """A refused request, which changed nothing."""

    status: int
    error: FrameError


class Pong(ServerFrame, tag="pong"):
    pass


class Renewed(ServerFrame, tag="renewed"):
    expires_at_ms: int | None = None
    """Of the new credential, if it expires."""


class Ended(ServerFrame, tag="ended"):
    """The server ended a subscription, for example because its queue was deleted."""

    sub: str
    error: FrameError


class ByeFrame(ServerFrame, tag="bye"):
    """The server will close the connection with this code. Held messages can be settled until then."""

    code: int
    reason: str
    grace_ms: int = 0


class BinaryDelivered(msgspec.Struct, omit_defaults=True, gc=False):
    """One message in MessagePack."""

    message_id: str = msgspec.field(name="id")
    queue: str
    partition: int
    offset: int
    payload: bytes
    published_at_ms: int
    json: bool = False
    receipt: str | None = None
    deadline_at_ms: int | None = None
    key: str | None = None
    priority: int = 0
    headers: dict[str, str] | None = None
    tenant: str | None = None
    attempt: int = 1


class Messages(ServerFrame, tag="messages"):
    """A batch of messages. For a reader: of one partition, with the next offset. For a consumer: with receipts."""

    sub: str
    queue: str | None = None
    partition: int | None = None
    messages: list[Any] | None = None
    batch: bytes | None = None
    """With the format `batch`: a delivery of docs/formats/batch.md."""
    next_offset: int | None = None
    end_offset: int | None = None
    skipped: int = 0
    credit: int | None = None
    """The remaining credit."""


SERVER_FRAMES = (
    Hello, Subscribed, Unsubscribed, Credited, Messages, Results, PublishedFrame, Reply, Error, Pong, Renewed, Ended,
    ByeFrame,
)  # fmt: skip

# -- closing ------------------------------------------------------------------------------------------------------


class Close(msgspec.Struct, frozen=True):
    code: int
    reason: str
    meaning: str


NORMAL = Close(1000, "bye", "The client or the server ended the connection with `bye`.")
PROTOCOL_BROKEN = Close(1002, "", "The bytes violate the WebSocket protocol.")
WRONG_KIND = Close(
    1003, "this subprotocol takes the other kind of message", "A text frame to MessagePack, or a binary frame to JSON."
)
NOT_TEXT = Close(1007, "the text is not UTF-8", "A text message that is not UTF-8.")
TOO_LARGE = Close(1009, "", "A message larger than `frame_bytes_max`.")
BROKEN = Close(1011, "an unexpected error; the server's log has it", "A bug of the server.")
RESTART = Close(1012, "the server is stopping; reconnect after a moment", "The server drains. Reconnect, with backoff.")
OVERLOADED = Close(
    1013, "the connections of this server hold too much memory", "A large message while the memory budget is used up. "
    "Reconnect after a second."
)  # fmt: skip
SLOW = Close(
    4008,
    "output was not read for too long",
    "The client did not read its output. Reconnect and resume at `next_offset`.",
)
SILENT = Close(4009, "no answer to the last ping", "The client sent no frame between two pings.")

CREDENTIAL_ENDED = Close(
    4001,
    "the credential has ended",
    "The key was revoked or rotated, or the token expired. Reconnect with another one.",
)

CLOSES = (NORMAL, PROTOCOL_BROKEN, WRONG_KIND, NOT_TEXT, TOO_LARGE, BROKEN, RESTART, OVERLOADED, SLOW, SILENT,
          CREDENTIAL_ENDED)  # fmt: skip
"""Every code that the server closes a connection with."""
