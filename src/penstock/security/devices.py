"""Device tokens: proof that an account has logged in with this browser before.

Wrong passwords make an account and an address wait. Without more, a stranger with the address of a person could keep
that person out. A browser with a device token is counted on its own: it does not wait for failures of others, and
others do not wait for its failures. A token allows to try, and nothing else; it is bound to one account.
"""

from __future__ import annotations

import hmac
import secrets

from penstock import limits

_PURPOSE = b"penstock device token"


class DeviceTokens:
    """`key` is that of the server, so that tokens survive a restart."""

    def __init__(self, key: bytes):
        self._key = hmac.digest(key, _PURPOSE, "sha256")

    def issue(self, account: str, now_ms: int) -> str:
        until_ms = now_ms + limits.DEVICE_TOKEN_S * 1000
        id = secrets.token_urlsafe(16)
        return f"{id}.{until_ms}.{self._code(id, until_ms, account)}"

    def device(self, token: str, account: str, now_ms: int) -> str | None:
        """The id of the device; None if the token is not of this account, or is over."""
        id, _, rest = token.partition(".")
        until, _, code = rest.partition(".")
        if not (until.isascii() and until.isdigit() and len(until) <= 16 and code.isascii()):
            return None
        if not hmac.compare_digest(code, self._code(id, int(until), account)) or int(until) <= now_ms:
            return None
        return id

    def _code(self, id: str, until_ms: int, account: str) -> str:
        text = f"{len(id)}.{id}.{until_ms}.{account}"
        return hmac.new(self._key, text.encode("utf-8", "surrogatepass"), "sha256").hexdigest()
