"""API keys as state. All of it is hard; the time of the last use is not a record and not here."""

from __future__ import annotations

import msgspec


class KeySecret(msgspec.Struct, frozen=True, array_like=True):
    """A secret of a key, as its keyed hash."""

    hash: bytes
    until: int
    """Not accepted from then on; 0 for the newest."""


class StoredKey(msgspec.Struct, frozen=True):
    """An API key. A change replaces the object: a snapshot that is being written may have the former one."""

    id: str
    name: str
    scopes: list[str]
    created_at: int
    secrets: list[KeySecret]
    """Newest first."""
    expires_at: int = 0
    rate: str = ""
    creator: str = ""
    rotated_at: int = 0
