"""People that log in, as state. Their sessions are not records and not here."""

from __future__ import annotations

import msgspec


class StoredUser(msgspec.Struct, frozen=True):
    """A change replaces the object: a snapshot that is being written may have the former one."""

    email: str
    role: str
    hash: str
    created_at: int
    changed_at: int
    creator: str = ""
