"""The audit trail in replies. The order of the fields is part of the hash of an entry."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.wire.messages import Request


class AuditQuery(Request):
    after: Annotated[int, Meta(ge=0)] | None = None
    """The sequence number of the last entry that is known. None: the newest entries."""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class AuditEntry(msgspec.Struct):
    at_ms: int
    actor_kind: str
    """key, jwt, certificate or user; empty if there was no valid credential."""
    actor: str
    """The id of the key, or the subject."""
    actor_name: str
    address: str
    request: str
    """The `X-Request-Id` of the request."""
    operation: str
    object: str
    result: str
    """`ok`, or the code of the error."""
    sequence: int = 0
    previous: str = ""
    hash: str = ""


class AuditReply(msgspec.Struct):
    entries: list[AuditEntry]


class AuditStateReply(msgspec.Struct):
    """The outcome of following the chain from its first entry."""

    entries: int
    newest: str
    """The hash of the last entry that follows from all before it."""
    problem: str
    """Empty if the chain holds."""
