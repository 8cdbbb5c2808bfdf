"""API keys as a server checks them.

The server stores the keyed hash (HMAC-SHA-256) of each key, and the hash key is not in the journal. A check hashes the
text that the client sent and looks the hash up. An unknown id, a wrong secret and a text of another form take the same
path, and how far two hashes agree says nothing about the secrets, so time reveals nothing. Keys have 256 random bits; a
slow hash would protect nothing and cost a core at 50 requests per second.
"""

from __future__ import annotations

import hmac
from typing import NamedTuple

from penstock.security.buckets import Rate
from penstock.security.principal import Principal
from penstock.security.scopes import Scope
from penstock.security.secret import Secret

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

    def hash(self, text: str) -> bytes:
        """The form in which a key is stored."""
        return hmac.digest(self._hash_key, text.encode("utf-8", "replace"), "sha256")

    def find(self, text: str, now_ms: int) -> Principal | None:
        """The principal of this key; None if no key has this text, or if it has expired."""
        principal = self._by_hash.get(self.hash(text))
        if principal is None or (principal.expires_at_ms and principal.expires_at_ms <= now_ms):
            return None
        return principal

    def accept(self, entry: KeyEntry) -> list[Principal]:
        """Accept this key as it is now. Returns the principals that are accepted no longer; those of secrets that stay
        as they are are kept: their open streams go on."""
        kept = {hash: self._by_hash[hash] for hash in self._by_id.get(entry.id, ())}
        self.forget(entry.id)
        for hash, ends_at_ms in entry.hashes:
            known = kept.get(hash)
            same = known is not None and (known.name, known.scopes, known.expires_at_ms, known.rate) == (
                entry.name, entry.scopes, ends_at_ms, entry.rate,
            )  # fmt: skip
            self._by_hash[hash] = (
                known if known is not None and same
                else Principal("key", entry.id, entry.name, entry.scopes, ends_at_ms, entry.rate)
            )  # fmt: skip
        self._by_id[entry.id] = tuple(hash for hash, _ in entry.hashes)
        return [known for hash, known in kept.items() if self._by_hash.get(hash) is not known]

    def forget(self, id: str) -> list[Principal]:
        """Accept this key no longer. Returns its principals."""
        return [self._by_hash.pop(hash) for hash in self._by_id.pop(id, ())]
