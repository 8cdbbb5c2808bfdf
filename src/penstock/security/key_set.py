"""The public keys of a token issuer (JWKS), from a file or from an https URL.

Each key is bound to one algorithm by its own parameters, never by a token: EdDSA for Ed25519, ES256 for P-256, RS256
for RSA. Other keys of the set are ignored. A fetch that fails leaves the known keys as they are.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from penstock import limits
from penstock.errors import InvalidRequest

_FETCH_TIMEOUT_S = 10
_RSA_BITS_MIN = 2048
_ALGORITHMS = {("OKP", "Ed25519"): "EdDSA", ("EC", "P-256"): "ES256", ("RSA", None): "RS256"}


class VerifyingKey(NamedTuple):
    algorithm: str
    key: jwt.PyJWK


def parse_key_set(data: bytes) -> dict[str, VerifyingKey]:
    """The usable keys by `kid`. Raises InvalidRequest if the data is no key set or has no usable key."""
    if len(data) > limits.JWKS_BYTES_MAX:
        raise InvalidRequest(f"the key set has more than {limits.JWKS_BYTES_MAX} bytes")
    try:
        listed = json.loads(data)["keys"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InvalidRequest('the key set is not a JSON object {"keys": […]}') from None
    if not isinstance(listed, list) or len(listed) > limits.JWKS_KEYS_MAX:
        raise InvalidRequest(f"the key set is not a list of at most {limits.JWKS_KEYS_MAX} keys")
    found: dict[str, VerifyingKey] = {}
    for each in listed:
        key = _usable(each)
        if key is not None:
            kid = each.get("kid", "")
            if not isinstance(kid, str) or kid in found:
                raise InvalidRequest("two keys of the key set have the same kid, or one has a kid that is no text")
            found[kid] = key
    if not found:
        raise InvalidRequest(
            "the key set has no key for EdDSA (Ed25519), ES256 (P-256) or RS256 (RSA, 2048 bits or more)"
        )
    return found


def _usable(listed: Any) -> VerifyingKey | None:
    if (
        not isinstance(listed, dict)
        or listed.get("use", "sig") != "sig"
        or "verify" not in listed.get("key_ops", ["verify"])
    ):
        return None
    kind = listed.get("kty")
    algorithm = _ALGORITHMS.get((kind, None if kind == "RSA" else listed.get("crv"))) if isinstance(kind, str) else None
    if algorithm is None or listed.get("alg", algorithm) != algorithm:
        return None
    try:
        key = jwt.PyJWK({name: value for name, value in listed.items() if name != "d"}, algorithm)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if isinstance(key.key, RSAPublicKey) and key.key.key_size < _RSA_BITS_MIN:
        return None
    return VerifyingKey(algorithm, key)


class KeySet:
    """The keys that are known now. `refresh` reads them again; it blocks, and the caller decides when, by `is_due`."""

    def __init__(self, fetch: Callable[[], bytes]):
        self._fetch = fetch
        self._keys: dict[str, VerifyingKey] = {}
        self._fetched_at_s: float | None = None
        self._missed = False
        self.version = 0
        """Counts the times that the set was read."""

    def find(self, kid: str | None) -> VerifyingKey | None:
        """The key of this name. A token without `kid` means the only key of the set."""
        if kid is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        key = self._keys.get(kid)
        if key is None:
            self._missed = True
        return key

    def is_due(self, now_s: float) -> bool:
        """True if the set should be read: it is old, or a token named a key that is not in it."""
        if self._fetched_at_s is None:
            return True
        age_s = now_s - self._fetched_at_s
        return age_s >= limits.JWKS_REFRESH_S or (self._missed and age_s >= limits.JWKS_REFRESH_S_MIN)

    def refresh(self, now_s: float) -> None:
        """Read the set. Raises InvalidRequest or OSError, and keeps the known keys then."""
        self._fetched_at_s, self._missed = now_s, False
        self._keys = parse_key_set(self._fetch())
        self.version += 1


def key_source(location: str) -> Callable[[], bytes]:
    """Reads a file or fetches an https URL. Raises InvalidRequest for another location."""
    if "://" not in location:
        return Path(location).read_bytes
    parts = urlsplit(location)
    if parts.scheme != "https" or not parts.hostname or parts.username or parts.fragment:
        raise InvalidRequest(f"{location!r} is not an https URL or a file")

    def fetch() -> bytes:
        context = ssl.create_default_context()
        host, port = parts.hostname or "", parts.port or 443
        connection = http.client.HTTPSConnection(host, port, timeout=_FETCH_TIMEOUT_S, context=context)
        try:
            target = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
            connection.request("GET", target, headers={"accept": "application/json"})
            response = connection.getresponse()
            data = response.read(limits.JWKS_BYTES_MAX + 1)
        except http.client.HTTPException as error:
            raise OSError(f"{location} answered with no HTTP: {error!r}") from None
        finally:
            connection.close()
        if response.status != 200:  # a redirect is not followed: the location is fixed
            raise OSError(f"{location} answered {response.status}")
        return data

    return fetch
