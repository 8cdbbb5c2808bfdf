"""Requests of this dialect. Where its documents have two names for a field, both are accepted."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from penstock import limits
from penstock.errors import InvalidRequest
from penstock.transports.dialects.disheap.proto_json import Duration, milliseconds
from penstock.wire.messages import Request

PEEK_LIMIT = 10

Uint: TypeAlias = Annotated[int, Meta(ge=0, le=2**53)]
Token: TypeAlias = Annotated[str, Meta(min_length=1, max_length=limits.RECEIPT_CHARS_MAX)]
MessageId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=64)]


class DlqPolicy(Request):
    enabled: bool = True
    retention_time: Duration | None = None


class HeapSettings(Request):
    """The settings of a heap, in create and update requests."""

    partitions: Uint | None = None
    K: Uint | None = None
    top_k_bound: Uint | None = None
    retention_time: Duration | None = None
    visibility_timeout_default: Duration | None = None
    max_retries_default: Uint | None = None
    max_payload_bytes: Uint | None = None
    dlq_policy: DlqPolicy | None = None
    compression: Literal[False] | None = None

    def settings(self) -> dict[str, Any]:
        """The queue settings of a heap. The broker checks their bounds."""
        found: dict[str, Any] = {
            "partitions": self.partitions or None,
            "top_k": one_of(self, "K", "top_k_bound") or None,
            "max_retries": self.max_retries_default,
            "max_payload_bytes": self.max_payload_bytes or None,
        }
        if self.visibility_timeout_default is not None:
            found["lease_ms"] = milliseconds(
                "visibility_timeout_default",
                self.visibility_timeout_default,
                least=limits.LEASE_MS_MIN,
                most=limits.LEASE_MS_MAX,
            )
        kept = self.retention_time
        if self.dlq_policy is not None:
            found["dead_letter"] = self.dlq_policy.enabled
            kept = self.dlq_policy.retention_time or kept
        if kept is not None:
            # Acked messages are removed at once, so the retention time applies to dead letters.
            found["dead_letter_ttl_ms"] = milliseconds("retention_time", kept, least=1)
        return {name: value for name, value in found.items() if value is not None}


class MakeHeapRequest(HeapSettings, kw_only=True):
    topic: str
    mode: Literal["MIN", "MAX", 0, 1] = "MIN"
    rf: Annotated[int, Meta(ge=0, le=3)] | None = None
    replication_factor: Annotated[int, Meta(ge=0, le=3)] | None = None


class UpdateQuery(Request):
    confirmation_token: Annotated[str, Meta(max_length=128)] | None = None


class DeleteQuery(UpdateQuery):
    force: bool = False


class TopicQuery(Request):
    topic: str | None = None


class EnqueueRequest(Request):
    topic: str
    payload: str = ""
    priority: Annotated[int, Meta(ge=-limits.PRIORITY_MAX - 1, le=limits.PRIORITY_MAX)] = 0
    partition_key: Annotated[str, Meta(max_length=limits.KEY_BYTES_MAX)] = ""
    producer_id: Annotated[str, Meta(max_length=limits.PRODUCER_ID_CHARS_MAX)] = ""
    epoch: Uint | None = None
    seq: Uint | None = None
    sequence: Uint | None = None
    max_retries: Annotated[int, Meta(ge=0, le=limits.RETRIES_MAX)] | None = None
    not_before: Duration | None = None
    """The delay before the first delivery."""
    json: bool = False
    """The payload must be JSON."""

    @property
    def number(self) -> int:
        return one_of(self, "seq", "sequence") or 0


class EnqueueBatchRequest(Request):
    requests: Annotated[list[EnqueueRequest], Meta(min_length=1, max_length=limits.BATCH_MESSAGES_MAX)]


class HeapAckRequest(Request):
    topic: str
    message_id: MessageId
    lease_token: Token


class HeapNackRequest(HeapAckRequest):
    backoff_override: Duration | None = None
    reason: str = ""


class HeapExtendRequest(Request):
    topic: str
    lease_token: Token
    extension: Duration


class HeapPeekQuery(Request):
    topic: str
    limit: Annotated[int, Meta(ge=1, lt=limits.PEEK_MESSAGES_MAX)] = PEEK_LIMIT


def one_of(request: Request, first: str, second: str) -> Any:
    """The value of a field that has two names. Raises InvalidRequest if both are set and differ."""
    values = {value for value in (getattr(request, first), getattr(request, second)) if value is not None}
    if len(values) > 1:
        raise InvalidRequest(f"{first} and {second} are two names of one field: give one", details={"field": first})
    return values.pop() if values else None
