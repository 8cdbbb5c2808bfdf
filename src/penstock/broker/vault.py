"""Secrets as they are kept: sealed before they reach the journal, opened only where something is signed.

A secret is 32 random bytes; people see it as `whsec_` and base64, once. Sealed it is AES-256-GCM under the server's
key, bound to the webhook it belongs to, so that a secret sealed for one webhook cannot be used for another. The journal
without the key does not reveal it.
"""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from penstock.errors import Unavailable

KEY_BYTES = 32
SECRET_BYTES = 32
_NONCE_BYTES = 12
_FORMAT = b"\1"
"""First byte of what is sealed; another way to seal gets another one."""


class WebhookSecret:
    """Bytes that `repr` and `str` do not show."""

    __slots__ = ("value",)

    def __init__(self, value: bytes):
        self.value = value

    @classmethod
    def new(cls) -> WebhookSecret:
        return cls(secrets.token_bytes(SECRET_BYTES))

    @property
    def text(self) -> str:
        """As the Standard Webhooks libraries take it."""
        return f"whsec_{b64encode(self.value).decode()}"

    def __repr__(self) -> str:
        return "***"


class Vault:
    """Seals and opens with one key, which is asked for when it is first needed."""

    def __init__(self, key: Callable[[], bytes]):
        self._key = key
        self._known: AESGCM | None = None

    def seal(self, secret: WebhookSecret, owner: str) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return _FORMAT + nonce + self._cipher.encrypt(nonce, secret.value, owner.encode())

    @property
    def _cipher(self) -> AESGCM:
        if self._known is None:
            key = self._key()
            assert len(key) == KEY_BYTES
            self._known = AESGCM(key)
        return self._known

    def open(self, sealed: bytes, owner: str) -> WebhookSecret:
        """Raises Unavailable if it was sealed under another key, or for another owner."""
        nonce, rest = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        try:
            if sealed[:1] != _FORMAT:
                raise InvalidTag
            return WebhookSecret(self._cipher.decrypt(nonce, rest, owner.encode()))
        except (InvalidTag, ValueError):
            raise Unavailable(
                f"the secret of webhook {owner} cannot be opened with this server's key; restore webhook.key in the "
                "data directory, or rotate the secret with overlap_ms 0"
            ) from None
