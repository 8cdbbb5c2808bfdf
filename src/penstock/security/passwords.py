"""Passwords of people: Argon2id over a keyed hash.

The password is hashed under the hash key of the server first, which is not in the journal: a copy of the journal alone
cannot be used to guess passwords. Argon2id has the minimum cost that OWASP names (19 MiB, two passes, one lane).
"""

from __future__ import annotations

import hmac
import unicodedata

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from penstock.security.devices import DeviceTokens
from penstock.security.secret import Secret

MEMORY_KIB = 19 * 1024
PASSES = 2
LANES = 1


class PasswordHashes:
    """Each call takes about 20 ms of a core: not for the thread of the event loop."""

    def __init__(self, hash_key: Secret[bytes]):
        self._hash_key = hash_key
        self._argon2 = PasswordHasher(time_cost=PASSES, memory_cost=MEMORY_KIB, parallelism=LANES)
        self._unknown = ""
        self.devices = DeviceTokens(hash_key.reveal())

    def hash(self, password: str) -> str:
        return self._argon2.hash(self._keyed(password))

    def verify(self, hash: str | None, password: str) -> bool:
        """None: there is no such person, which takes as long as a wrong password."""
        if hash is None:
            self._unknown = self._unknown or self.hash("")
        try:
            return self._argon2.verify(hash or self._unknown, self._keyed(password)) and hash is not None
        except (VerificationError, InvalidHashError):
            return False

    def _keyed(self, password: str) -> bytes:
        """Composed characters and their parts are the same password, as people type them on different machines."""
        text = unicodedata.normalize("NFKC", password)
        return hmac.new(self._hash_key.reveal(), text.encode("utf-8", "surrogatepass"), "sha256").hexdigest().encode()
