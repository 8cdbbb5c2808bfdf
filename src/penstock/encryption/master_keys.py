"""Master keys: the keys that wrap keyrings. They are kept outside of the store, by its operator.

A key file has one key a line, 32 bytes as base64 or as hexadecimal digits. The first one wraps; the others only open
keyrings that were wrapped before. A keyring is rewrapped under the first key when it is opened, and on demand.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Sequence
from hashlib import blake2b

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from penstock.encryption.key_tree import KEY_BYTES
from penstock.errors import Unavailable

NONCE_BYTES = 12
KEYS_MAX = 16


class EncryptionKeyError(Unavailable):
    """The master key is missing, malformed, or not the one that is needed. The text says what to do."""


class MasterKey:
    """One key. `id` is public and tells keys apart."""

    def __init__(self, key: bytes):
        self._cipher = AESGCM(key)
        self.id = blake2b(key, digest_size=4, person=b"penstock kek").hexdigest()

    def wrap(self, nonce: bytes, data: bytes, context: bytes) -> bytes:
        """A nonce is used once. Keyrings are wrapped rarely, so a random one never repeats."""
        return nonce + self._cipher.encrypt(nonce, data, context)

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """Raises InvalidTag."""
        if len(wrapped) < NONCE_BYTES:
            raise InvalidTag
        return self._cipher.decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], context)

    def __repr__(self) -> str:
        return f"<MasterKey {self.id}>"


class MasterKeys:
    """The first key wraps, all of them unwrap."""

    def __init__(self, keys: Sequence[bytes]):
        self._keys = {key.id: key for key in map(MasterKey, keys)}
        self.first = next(iter(self._keys.values()))

    @classmethod
    def parse(cls, text: str, source: str) -> MasterKeys:
        """The keys of a key file. Raises EncryptionKeyError, which never shows a key."""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if not 1 <= len(lines) <= KEYS_MAX:
            raise EncryptionKeyError(
                f"{source} has {len(lines)} keys; it must have 1 to {KEYS_MAX}, one a line. Make one with "
                "`penstock encryption new-key FILE`"
            )
        return cls([_parse_key(line, f"{source}, line {number}") for number, line in enumerate(lines, 1)])

    def with_id(self, id: str) -> MasterKey:
        """Raises EncryptionKeyError."""
        found = self._keys.get(id)
        if found is None:
            raise EncryptionKeyError(
                f"the keyring of the store is wrapped by key {id}, and the key file has {', '.join(self._keys)}; add "
                "the line of that key to the file, behind the key that wraps from now on"
            )
        return found


def _parse_key(line: str, where: str) -> bytes:
    try:
        key = bytes.fromhex(line) if len(line) == 2 * KEY_BYTES else b64decode(line, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise EncryptionKeyError(
            f"{where} is not a key: {KEY_BYTES} bytes as base64 or as {2 * KEY_BYTES} hexadecimal digits"
        )
    return key


def key_line(key: bytes) -> str:
    """A line of a key file."""
    return b64encode(key).decode() + "\n"
