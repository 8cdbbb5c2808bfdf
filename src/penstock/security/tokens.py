"""JWTs: verified, never issued.

PyJWT verifies signature and times. This module decides which key and algorithm may verify a token, before PyJWT sees
it, and what a verified token means. Header fields that name a key (`jku`, `x5u`, `jwk`, `x5c`) are ignored, a token
with `crit` is refused, and a repeated member makes a token ambiguous.
"""

from __future__ import annotations

import binascii
import hashlib
import json
from base64 import urlsafe_b64decode
from collections import OrderedDict
from typing import Any

import jwt

from penstock import limits
from penstock.errors import InvalidRequest, Unauthenticated
from penstock.security.key_set import KeySet
from penstock.security.principal import Principal
from penstock.security.scopes import Scope, parse_scope_text

_TYPES = ("jwt", "at+jwt", "application/at+jwt")
_REQUIRED = ["iss", "aud", "exp", "iat", "sub"]
_SUBJECT_CHARS_MAX = 256


class TokenVerifier:
    """Turns a token of one issuer, for one audience, into a principal."""

    def __init__(self, issuer: str, audience: str, keys: KeySet, lifetime_s_max: int = limits.JWT_LIFETIME_S_MAX):
        assert issuer and audience
        self._issuer = issuer
        self._audience = audience
        self._lifetime_s_max = lifetime_s_max
        self.keys = keys
        self._verified: OrderedDict[bytes, Principal] = OrderedDict()
        """Principals by the hash of their token: to verify a signature again costs a hundred times as much."""

    def known(self, token: str, now_ms: int) -> Principal | None:
        """The principal of a token that was verified before."""
        known = self._verified.get(_name(token)) if len(token) <= limits.JWT_BYTES_MAX else None
        return known if known is not None and known.expires_at_ms > now_ms else None

    def verify(self, token: str, now_ms: int) -> Principal:
        """Raises Unauthenticated. The reason names the rule, never the content of the token."""
        if len(token) > limits.JWT_BYTES_MAX or not token.isascii():
            raise _refused(
                f"the token has more than {limits.JWT_BYTES_MAX} bytes, or other characters than a token has"
            )
        known = self.known(token, now_ms)
        if known is not None:
            return known
        principal = self._verified[_name(token)] = self._principal(self._claims(token))
        if len(self._verified) > limits.JWT_CACHED_MAX:
            self._verified.popitem(last=False)
        return principal

    def _claims(self, token: str) -> dict[str, Any]:
        parts = token.split(".")
        if len(parts) != 3:
            raise _refused("the token does not have the three parts of a JWT")
        header, claims = _json_object(parts[0]), _json_object(parts[1])
        if "crit" in header or header.get("b64", True) is not True:
            raise _refused("the token has critical header fields")
        kind, kid = header.get("typ", "JWT"), header.get("kid")
        if not isinstance(kind, str) or kind.lower() not in _TYPES or not isinstance(kid, str | None):
            raise _refused("the header of the token has a typ or a kid of another kind")
        key = self.keys.find(kid)
        if key is None:
            raise _refused("the token is signed with a key that is not in the key set")
        if header.get("alg") != key.algorithm:
            raise _refused(f"the token must be signed with {key.algorithm}, the algorithm of its key")
        try:
            jwt.decode(
                token, key.key, algorithms=[key.algorithm], audience=self._audience, issuer=self._issuer,
                leeway=limits.JWT_LEEWAY_S, options={"require": _REQUIRED},
            )  # fmt: skip
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise _refused(_reason(error)) from None
        return claims

    def _principal(self, claims: dict[str, Any]) -> Principal:
        subject, issued, expires = claims["sub"], claims["iat"], claims["exp"]
        if not isinstance(subject, str) or not 0 < len(subject) <= _SUBJECT_CHARS_MAX:
            raise _refused("the subject of the token is not a text of 1 to 256 characters")
        if not isinstance(issued, int | float) or not isinstance(expires, int | float):
            raise _refused("iat and exp of the token are not numbers")
        if not 0 < expires - issued <= self._lifetime_s_max:
            raise _refused(f"the token is valid for more than {self._lifetime_s_max} s, from iat to exp")
        return Principal("jwt", subject, subject, _scopes(claims), int(expires * 1000))


def _name(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def _scopes(claims: dict[str, Any]) -> list[Scope]:
    """From `scope` (RFC 9068: a text with spaces) or `scp` (a list or a text). Entries of other systems are ignored."""
    given = claims.get("scope", claims.get("scp", ""))
    texts = given.split() if isinstance(given, str) else given if isinstance(given, list) else []
    found: dict[Scope, None] = {}
    for text in texts[: limits.KEY_SCOPES_MAX]:
        try:
            found[parse_scope_text(str(text))] = None
        except InvalidRequest:
            continue
    return list(found)


def _json_object(part: str) -> dict[str, Any]:
    try:
        found = json.loads(
            urlsafe_b64decode(part + "=" * (-len(part) % 4)),
            object_pairs_hook=_without_repetition,
            parse_constant=_no_constant,
        )
    except (ValueError, binascii.Error, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _refused("a part of the token is not a JSON object without repeated members")
    return found


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("repeated member")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _reason(error: Exception) -> str:
    if isinstance(error, jwt.ExpiredSignatureError):
        return "the token has expired"
    if isinstance(error, jwt.InvalidAudienceError | jwt.InvalidIssuerError):
        return "the token is for another audience, or of another issuer"
    if isinstance(error, jwt.MissingRequiredClaimError):
        return f"the token has not all of {', '.join(_REQUIRED)}"
    return "the token is not valid now, or its signature is wrong"


def _refused(reason: str) -> Unauthenticated:
    return Unauthenticated(reason)
