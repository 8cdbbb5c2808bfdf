"""The table of error code, HTTP status, gRPC status and retryability. All transports use it."""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import BY_CODE, PenstockError


class Status(NamedTuple):
    http: int
    grpc: str


STATUS: dict[str, Status] = {
    "invalid_request": Status(400, "INVALID_ARGUMENT"),
    "cross_shard": Status(400, "INVALID_ARGUMENT"),
    "unauthenticated": Status(401, "UNAUTHENTICATED"),
    "forbidden": Status(403, "PERMISSION_DENIED"),
    "not_found": Status(404, "NOT_FOUND"),
    "queue_not_found": Status(404, "NOT_FOUND"),
    "method_not_allowed": Status(405, "UNIMPLEMENTED"),
    "conflict": Status(409, "ABORTED"),
    "stale_receipt": Status(409, "FAILED_PRECONDITION"),
    "fenced_producer": Status(409, "FAILED_PRECONDITION"),
    "stale_generation": Status(409, "FAILED_PRECONDITION"),
    "unknown_member": Status(409, "FAILED_PRECONDITION"),
    "too_large": Status(413, "INVALID_ARGUMENT"),
    "unsupported_media_type": Status(415, "INVALID_ARGUMENT"),
    "upgrade_required": Status(426, "FAILED_PRECONDITION"),
    "rate_limited": Status(429, "RESOURCE_EXHAUSTED"),
    "queue_full": Status(429, "RESOURCE_EXHAUSTED"),
    "headers_too_large": Status(431, "INVALID_ARGUMENT"),
    "internal": Status(500, "INTERNAL"),
    "unimplemented": Status(501, "UNIMPLEMENTED"),
    "unavailable": Status(503, "UNAVAILABLE"),
    "disk_full": Status(507, "RESOURCE_EXHAUSTED"),
}


def error_from_code(code: str, message: str, **extra: object) -> PenstockError:
    """The error that a client raises for a reply; an unknown code becomes a plain PenstockError."""
    kind = BY_CODE.get(code, PenstockError)
    return kind(message, **extra)  # type: ignore[arg-type]
