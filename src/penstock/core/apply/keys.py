"""Applying changes of API keys."""

from __future__ import annotations

import msgspec

from penstock.core import records
from penstock.core.state import Shard
from penstock.core.state.keys import KeySecret, StoredKey


def apply_created(shard: Shard, record: records.KeyCreated) -> None:
    shard.keys[record.id] = StoredKey(
        record.id, record.name, record.scopes, record.at, [KeySecret(record.hash, 0)], record.expires_at, record.rate,
        record.creator,
    )  # fmt: skip


def apply_rotated(shard: Shard, record: records.KeyRotated) -> None:
    key = shard.keys[record.id]
    former = [KeySecret(key.secrets[0].hash, record.until)] if record.until > record.at else []
    secrets = [KeySecret(record.hash, 0), *former]
    shard.keys[record.id] = msgspec.structs.replace(key, secrets=secrets, rotated_at=record.at)


def apply_revoked(shard: Shard, record: records.KeyRevoked) -> None:
    del shard.keys[record.id]
