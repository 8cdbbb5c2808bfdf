"""Destructive calls are asked twice: the first answer says what would be lost and how to mean it."""

from __future__ import annotations

import hmac
from hashlib import blake2b
from typing import Any

from penstock.errors import Conflict

VALID_MS = 60_000


class Confirmations:
    """Tokens bound to an action on an object, valid for a minute or two. Nothing is stored."""

    def __init__(self, secret: bytes):
        self._secret = secret

    def demand(
        self, action: str, target: str, token: str | None, now_ms: int, would_lose: dict[str, Any], shown: str = ""
    ) -> None:
        """Return if the token confirms this; otherwise refuse, with the token that would."""
        if not self.confirms(action, target, token, now_ms):
            raise self.refusal(action, target, now_ms, would_lose, shown)

    def confirms(self, action: str, target: str, token: str | None, now_ms: int) -> bool:
        window = now_ms // VALID_MS
        return token is not None and any(
            hmac.compare_digest(token.encode(), self._token(action, target, window - age).encode()) for age in (0, 1)
        )

    def refusal(self, action: str, target: str, now_ms: int, would_lose: dict[str, Any], shown: str = "") -> Conflict:
        """The error to raise. `shown` is the name for the message, where `target` holds more than the caller named."""
        return Conflict(
            f"{action} {shown or target} cannot be undone; repeat the call with confirm=<token> if you mean it",
            details={"confirm": self._token(action, target, now_ms // VALID_MS), "would_lose": would_lose},
        )

    def _token(self, action: str, target: str, window: int) -> str:
        return blake2b(f"{action}\0{target}\0{window}".encode(), key=self._secret, digest_size=8).hexdigest()
