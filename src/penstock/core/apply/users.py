"""Applying changes of people that log in."""

from __future__ import annotations

from penstock.core import records
from penstock.core.state import Shard
from penstock.core.state.users import StoredUser


def apply_set(shard: Shard, record: records.UserSet) -> None:
    known = shard.users.get(record.email)
    created_at = record.at if known is None else known.created_at
    shard.users[record.email] = StoredUser(
        record.email, record.role, record.hash, created_at, record.at, record.creator
    )


def apply_removed(shard: Shard, record: records.UserRemoved) -> None:
    del shard.users[record.email]
