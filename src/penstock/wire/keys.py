"""API keys in requests and replies."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock import limits
from penstock.wire.messages import Request


class KeyRequest(Request):
    """A new key. `rate` is a number of requests per s, m or h, like `1000/m`."""

    name: str
    scopes: Annotated[list[str], Meta(min_length=1, max_length=limits.KEY_SCOPES_MAX)]
    expires_at_ms: Annotated[int, Meta(ge=1, le=limits.TIME_MS_MAX)] | None = None
    rate: str | None = None


class RotateKeyRequest(Request):
    id: str
    overlap_ms: Annotated[int, Meta(ge=0, le=limits.KEY_OVERLAP_MS_MAX)] = limits.KEY_OVERLAP_MS
    """The former secret is accepted for this time."""


class KeyNamed(Request):
    id: str


class KeyReply(msgspec.Struct, omit_defaults=True):
    id: str
    name: str
    scopes: list[str]
    created_at_ms: int
    expires_at_ms: int | None
    rate: str | None
    creator: str | None
    """The id of the key, or the subject of the token, that created this key."""
    rotated_at_ms: int | None
    former_until_ms: int | None
    """Until then the secret before the last rotation is accepted."""
    last_used_at_ms: int | None
    """Since the start of the server."""
    key: str | None = None
    """The key itself, when it is created or rotated, and never again."""


class KeysReply(msgspec.Struct):
    keys: list[KeyReply]


class KeyRevokedReply(msgspec.Struct):
    id: str
    revoked: bool
