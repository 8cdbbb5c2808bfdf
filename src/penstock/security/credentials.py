"""API keys as a server checks them.

The server stores the keyed hash (HMAC-SHA-256) of each key, and the hash key is not in the journal. A check hashes the
text that the client sent and looks the hash up. An unknown id, a wrong secret and a text of another form take the same
path, and how far two hashes agree says nothing about the secrets, so time reveals nothing. Keys have 256 random bits; a
slow hash would protect nothing and cost a core at 50 requests per second.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from typing import NamedTuple

from penstock.security.buckets import Rate, TokenBucket
from penstock.security.principal import Principal
from penstock.security.scopes import Scope
from penstock.security.secret import Secret

HASH_BYTES = 32
HASH_KEY_BYTES = 32


class KeyEntry(NamedTuple):
    """A key that is accepted."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    hashes: tuple[tuple[bytes, int], ...]
    """Each accepted secret, hashed, with the time in ms at which it ends; 0: it does not end."""
    rate: Rate | None


class KeyTable:
    """The accepted keys of a server, by hash."""

    def __init__(self, hash_key: Secret[bytes]):
        self._hash_key = hash_key.reveal()
        assert len(self._hash_key) == HASH_KEY_BYTES
        self._by_hash: dict[bytes, Principal] = {}
        self._by_id: dict[str, tuple[bytes, ...]] = {}
        self._buckets: dict[str, tuple[Rate, TokenBucket]] = {}
        """Of the keys that have a rate."""

    def hash(self, text: str) -> bytes:
        """The form in which a key is stored."""
        return hmac.digest(self._hash_key, text.encode("utf-8", "replace"), "sha256")

    def find(self, text: str, now_ms: int) -> Principal | None:
        """The principal of this key; None if no key has this text, or if it has expired."""
        principal = self._by_hash.get(self.hash(text))
        if principal is None or (principal.expires_at_ms and principal.expires_at_ms <= now_ms):
            return None
        return principal

    def wait_s(self, id: str, now_s: float) -> float:
        """Count a request of the key: 0 if its rate allows it, otherwise the seconds until it does."""
        bucket = self._buckets.get(id)
        return bucket[1].take(now_s) if bucket is not None else 0.0

    def replace(self, entries: Iterable[KeyEntry]) -> list[Principal]:
        """Accept exactly these keys from now on. Returns the principals that are accepted no longer."""
        before = set(self._by_hash.values())
        wanted = {entry.id: entry for entry in entries}
        for id in [id for id in self._by_id if id not in wanted]:
            self._forget(id)
            self._buckets.pop(id, None)
        for entry in wanted.values():
            self._accept(entry)
        return sorted(before - set(self._by_hash.values()), key=lambda principal: principal.id)

    def _accept(self, entry: KeyEntry) -> None:
        """Keep the principals of secrets that stay as they are: their open streams go on."""
        kept = {hash: self._by_hash[hash] for hash in self._by_id.get(entry.id, ())}
        self._forget(entry.id)
        for hash, ends_at_ms in entry.hashes:
            known = kept.get(hash)
            same = known is not None and (known.name, known.scopes, known.expires_at_ms) == (
                entry.name, entry.scopes, ends_at_ms,
            )  # fmt: skip
            self._by_hash[hash] = (
                known if known is not None and same
                else Principal("key", entry.id, entry.name, entry.scopes, ends_at_ms)
            )  # fmt: skip
        self._by_id[entry.id] = tuple(hash for hash, _ in entry.hashes)
        bucket = self._buckets.get(entry.id)
        if entry.rate is None:
            self._buckets.pop(entry.id, None)
        elif bucket is None or bucket[0] != entry.rate:
            self._buckets[entry.id] = (entry.rate, TokenBucket(entry.rate))

    def _forget(self, id: str) -> None:
        for hash in self._by_id.pop(id, ()):
            del self._by_hash[hash]
