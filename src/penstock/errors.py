"""The errors of the interface, with the party that must act.

    PenstockError
    ├── InvalidRequest      400  caller: the request is wrong, sending it again will not help
    │   └── CrossShard           what must happen together is on several shards
    ├── Unauthenticated     401  caller: no valid credential
    ├── Forbidden           403  caller: the credential does not allow this
    ├── NotFound            404  caller: there is no such path
    ├── QueueNotFound       404  caller: there is no such queue
    ├── MethodNotAllowed    405  caller: the path exists, the method does not
    ├── Conflict            409  caller: the current state refuses the request; read it, then decide
    │   ├── StaleReceipt         the lease behind the receipt has ended
    │   ├── FencedProducer       a newer epoch of the same producer exists
    │   ├── StaleGeneration      the group has a newer generation than the member
    │   └── UnknownMember        the group does not have this member
    ├── TooLarge            413  caller: send less at once
    ├── UnsupportedMediaType 415 caller: send it in another form
    ├── UpgradeRequired     426  caller: open the WebSocket in the version that the reply names
    ├── RateLimited         429  caller: slow down, then retry
    │   └── QueueFull            the queue is at its limit; retry later
    ├── HeadersTooLarge     431  caller: send fewer or shorter headers
    ├── Internal            500  server: a bug; the log of the server has the details
    ├── Unimplemented       501  caller: HTTP knows it, this server does not
    ├── Unavailable         503  operator: retry later
    └── DiskFull            507  operator: free disk space; consumers keep working

Codes are API and never change; texts may. The table of HTTP statuses is `wire/status.py`.
"""

from __future__ import annotations

from typing import Any, ClassVar


class PenstockError(Exception):
    """Base of all errors of Penstock."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, details: dict[str, Any] | None = None, retry_after_ms: int | None = None):
        super().__init__(message)
        self.message = message
        self.details = details or {}
        self.retry_after_ms = retry_after_ms


class InvalidRequest(PenstockError):
    code = "invalid_request"


class CrossShard(InvalidRequest):
    code = "cross_shard"


class Unauthenticated(PenstockError):
    code = "unauthenticated"


class Forbidden(PenstockError):
    code = "forbidden"


class NotFound(PenstockError):
    code = "not_found"


class QueueNotFound(PenstockError):
    code = "queue_not_found"


class MethodNotAllowed(PenstockError):
    code = "method_not_allowed"


class Conflict(PenstockError):
    code = "conflict"


class StaleReceipt(Conflict):
    code = "stale_receipt"


class FencedProducer(Conflict):
    code = "fenced_producer"


class StaleGeneration(Conflict):
    code = "stale_generation"


class UnknownMember(Conflict):
    code = "unknown_member"


class TooLarge(PenstockError):
    code = "too_large"


class UnsupportedMediaType(PenstockError):
    code = "unsupported_media_type"


class UpgradeRequired(PenstockError):
    code = "upgrade_required"


class RateLimited(PenstockError):
    code = "rate_limited"
    retryable = True


class QueueFull(RateLimited):
    code = "queue_full"


class HeadersTooLarge(PenstockError):
    code = "headers_too_large"


class Internal(PenstockError):
    code = "internal"


class Unimplemented(PenstockError):
    code = "unimplemented"


class Unavailable(PenstockError):
    code = "unavailable"
    retryable = True


class DiskFull(PenstockError):
    code = "disk_full"
    retryable = True


BY_CODE: dict[str, type[PenstockError]] = {
    kind.code: kind
    for kind in (
        InvalidRequest, CrossShard, Unauthenticated, Forbidden, NotFound, QueueNotFound, MethodNotAllowed, Conflict,
        StaleReceipt, FencedProducer, StaleGeneration, UnknownMember, TooLarge, UnsupportedMediaType, UpgradeRequired,
        RateLimited, QueueFull, HeadersTooLarge, Internal, Unimplemented, Unavailable, DiskFull,
    )
}  # fmt: skip
