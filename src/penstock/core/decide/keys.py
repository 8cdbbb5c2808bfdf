"""API keys: created, rotated, revoked.

The machine checks identity and number. Scopes, rates and names were checked by the facade, which knows the creator;
secrets arrive hashed. A revoked key leaves the state, and its id is random, so it does not come back.
"""

from __future__ import annotations

from penstock import limits
from penstock.core import commands, records
from penstock.core.decision import Decision
from penstock.core.state import Shard
from penstock.core.state.keys import StoredKey
from penstock.errors import Conflict, NotFound


def create(shard: Shard, command: commands.CreateKey, now_ms: int) -> Decision:
    if command.id in shard.keys:
        raise Conflict(f"there is a key {command.id} already")
    if len(shard.keys) >= limits.KEYS_MAX:
        raise Conflict(f"there are {limits.KEYS_MAX} keys already, which is the limit; revoke those that expired")
    return Decision([records.KeyCreated(now_ms, *command)], None)


def rotate(shard: Shard, command: commands.RotateKey, now_ms: int) -> Decision:
    key = key_of(shard, command.id)
    accepted = [secret for secret in key.secrets if not secret.until or now_ms < secret.until]
    if command.overlap_ms and len(accepted) >= limits.KEY_SECRETS_MAX:
        raise Conflict(
            f"key {command.id} is being rotated: its former secret is accepted until {accepted[-1].until} (epoch "
            "milliseconds); wait until then, or rotate with overlap_ms 0, which ends both secrets now",
            details={"until_ms": accepted[-1].until},
        )
    return Decision([records.KeyRotated(now_ms, command.id, command.hash, now_ms + command.overlap_ms)], None)


def revoke(shard: Shard, command: commands.RevokeKey, now_ms: int) -> Decision:
    key_of(shard, command.id)
    return Decision([records.KeyRevoked(now_ms, command.id)], None)


def key_of(shard: Shard, id: str) -> StoredKey:
    key = shard.keys.get(id)
    if key is None:
        raise key_not_found(id)
    return key


def key_not_found(id: str) -> NotFound:
    return NotFound(f"there is no key {id[:64]!r}", details={"key": id[:64]})
