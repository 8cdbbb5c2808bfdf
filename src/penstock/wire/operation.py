"""The description of one operation of the broker; `operations.py` has all of them."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from penstock import limits
from penstock.wire.messages import NoQuery, Request
from penstock.wire.status import STATUS

Method: TypeAlias = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

JSON = "application/json"
BATCH = "application/vnd.penstock.batch"
TEXT = "text/plain"
OPENMETRICS = "application/openmetrics-text"
EVENT_STREAM = "text/event-stream"


class Verb(StrEnum):
    """The verb of `<verb>:<queue pattern>` that a credential needs for an operation."""

    NONE = ""
    """No scope: every credential is enough, and for `/healthz` none."""
    ANY = "any"
    """Any verb on the queue: settings, counts and explanations."""
    PUBLISH = "publish"
    CONSUME = "consume"
    PEEK = "peek"
    DLQ = "dlq"
    QUEUE_ADMIN = "queue.admin"
    WEBHOOK_ADMIN = "webhook.admin"
    KEY_ADMIN = "key.admin"
    CLUSTER_ADMIN = "cluster.admin"
    AUDIT_READ = "audit.read"
    METRICS = "metrics"


_ALWAYS = ("invalid_request", "unauthenticated", "forbidden", "method_not_allowed", "internal", "unavailable")
_BODY = ("too_large", "unsupported_media_type")
READS = ("queue_not_found",)
WRITES = ("not_found", "queue_not_found", "conflict", "rate_limited", "queue_full", "too_large", "disk_full")


class Operation(NamedTuple):
    """One operation. A path parameter spans the rest of the path before its suffix; `{path}` is the queue."""

    name: str
    scope: Verb
    """A credential needs it for the queues of the request."""
    method: Method
    path: str
    summary: str
    reply: Any
    """The struct of the JSON reply; None: it has no schema."""
    query: type[Request] = NoQuery
    """The struct of the path and query parameters."""
    body: type[Struct] | None = None
    """The struct of the JSON body; None: the operation has none."""
    queues: tuple[str, ...] = ("queue",)
    """Fields that name the queues of a request: dots and `[]` as in `messages[].queue`. A receipt, an id of a webhook
    and a name of a schedule stand for the queue that they belong to. Empty: all queues, or none."""
    errors: tuple[str, ...] = ()
    """Codes of errors besides those of every operation (`codes`)."""
    created: Any = None
    """The struct of the reply with status 201; None: the operation creates nothing."""
    partial: Any = None
    """The struct of the reply with status 207; None: the operation succeeds or fails as a whole."""
    idempotent: bool = True
    """Repeating a request that succeeded changes nothing more."""
    large: bool = False
    """The reply may have many messages: it is refused while the memory for replies is used up."""
    takes: tuple[str, ...] = (JSON,)
    """Media types of the body."""
    gives: tuple[str, ...] = (JSON,)
    """Media types of the reply."""
    body_max: int = limits.REQUEST_BYTES_MAX
    """Bytes of the body."""
    grpc: bool = True
    """gRPC has the operation as a method."""
    streams: bool = False
    """gRPC has it as a stream too: `LeaseStream` of `Lease`."""

    @property
    def codes(self) -> list[str]:
        """All codes of errors, in the order of the table of statuses."""
        codes = {*_ALWAYS, *self.errors, *(_BODY if self.body is not None else ())}
        return [code for code in STATUS if code in codes]

    @property
    def destructive(self) -> bool:
        """A request that lets go of stored messages needs the token of a first call, which is refused with 409."""
        return "confirm" in self.query.__struct_fields__

    @property
    def grpc_method(self) -> str:
        """The operation in CamelCase."""
        return "".join(word.capitalize() for word in self.name.split("_"))
