"""API keys: `psk_<id>_<secret>_<check>`.

The id (12 characters) names the key in lists, logs and audit entries. The secret has 256 random bits, as 43 characters
of base 62. The check part is the CRC-32 of everything before it: a program can tell a mistyped key, and a scanner of
leaked secrets a real one, without asking a server. All parts are letters and digits, so a double click selects a part,
and the prefix is rare in other text.
"""

from __future__ import annotations

import re
import secrets
import zlib
from collections.abc import Callable
from typing import NamedTuple

from penstock.errors import InvalidRequest
from penstock.security.secret import Secret

PREFIX = "psk_"
ID_CHARS = 12
SECRET_CHARS = 43
CHECK_CHARS = 6
ID_BITS = 71
SECRET_BITS = 256

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_FORM = re.compile(rf"psk_([0-9A-Za-z]{{{ID_CHARS}}})_([0-9A-Za-z]{{{SECRET_CHARS}}})_([0-9A-Za-z]{{{CHECK_CHARS}}})")
assert len(_ALPHABET) ** ID_CHARS > 2**ID_BITS
assert len(_ALPHABET) ** SECRET_CHARS > 2**SECRET_BITS
assert len(_ALPHABET) ** CHECK_CHARS > 2**32


class ApiKey(NamedTuple):
    """A key with its secret. It exists when it is created, and in the memory of its clients."""

    id: str
    text: Secret[str]
    """The whole key, as clients send it."""

    @classmethod
    def new(cls, id: str | None = None, randbits: Callable[[int], int] = secrets.randbits) -> ApiKey:
        """A key with a new secret; `id` is that of the key which this one replaces."""
        id = id or _base62(randbits(ID_BITS), ID_CHARS)
        body = f"{PREFIX}{id}_{_base62(randbits(SECRET_BITS), SECRET_CHARS)}"
        return cls(id, Secret(f"{body}_{_check(body)}"))


def parse_key(text: str) -> ApiKey:
    """Check the form and the check part. Raises InvalidRequest, which does not repeat the text."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise InvalidRequest(
            "this is not an API key: it has the form psk_<id>_<secret>_<check>, as `penstock keys create` prints it"
        )
    if _check(text[: -CHECK_CHARS - 1]) != found[3]:
        raise InvalidRequest("the check part of this API key does not fit: a character is missing or mistyped")
    return ApiKey(found[1], Secret(text))


def shown_id(text: str) -> str:
    """The id in a text that may be an API key, for logs; empty if it has another form."""
    found = _FORM.fullmatch(text)
    return found[1] if found else ""


def _check(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), CHECK_CHARS)


def _base62(value: int, chars: int) -> str:
    digits = []
    for _ in range(chars):
        value, digit = divmod(value, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))
