"""Tokens that must be refused, by name, with the keys that signed them. Shared by the tests of every protocol."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, SECP384R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as new_ec_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as new_rsa_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

ISSUER, AUDIENCE = "https://issuer.example", "penstock"
ED, RSA, EC = Ed25519PrivateKey.generate(), new_rsa_key(65537, 2048), new_ec_key(SECP256R1())
STRANGER = Ed25519PrivateKey.generate()


def public_jwk(key: Any, kid: str, **more: Any) -> dict[str, Any]:
    kind = {"Ed25519PrivateKey": "EdDSA", "RSAPrivateKey": "RS256"}.get(type(key).__name__, "ES256")
    shown = jwt.get_algorithm_by_name(kind).to_jwk(key.public_key(), as_dict=True)
    return {**shown, "kid": kid, **more}


KEY_SET = {"keys": [public_jwk(ED, "ed"), public_jwk(RSA, "rsa"), public_jwk(EC, "ec")]}


def claims(**changes: Any) -> dict[str, Any]:
    """Valid claims with these changes; a value of `...` leaves a claim out."""
    now = int(time.time())
    valid = {"iss": ISSUER, "aud": AUDIENCE, "sub": "worker-7", "iat": now, "exp": now + 300,
             "scope": "openid publish:shop/* consume:shop/orders"}  # fmt: skip
    return {name: value for name, value in {**valid, **changes}.items() if value is not ...}


def signed(key: Any = ED, alg: str = "EdDSA", headers: dict[str, Any] | None = None, **changes: Any) -> str:
    return jwt.encode(claims(**changes), key, alg, {"kid": "ed", **(headers or {})})


def raw(header: Any, payload: Any, sign: Callable[[bytes], bytes] = lambda data: ED.sign(data)) -> str:
    parts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, payload)]
    text = b".".join(_b64(part) for part in parts)
    return (text + b"." + _b64(sign(text))).decode()


def _b64(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


def _hs(key: bytes) -> Callable[[bytes], bytes]:
    return lambda text: hmac.digest(key, text, hashlib.sha256)


def hostile_tokens() -> dict[str, str]:
    now = int(time.time())
    good = signed()
    head, body, signature = good.split(".")
    ed_raw = ED.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    rsa_pem = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    ed_header = {"alg": "EdDSA", "kid": "ed", "typ": "JWT"}
    other_jwk = public_jwk(STRANGER, "ed")
    found = {
        "empty": "",
        "dots": "..",
        "one_part": head,
        "two_parts": f"{head}.{body}",
        "four_parts": f"{good}.x",
        "no_signature": f"{head}.{body}.",
        "space": f"{good} ",
        "newline": f"{good}\n",
        "not_ascii": good + "é",
        "not_base64": f"!!.{body}.{signature}",
        "swapped_parts": f"{body}.{head}.{signature}",
        "none": raw({"alg": "none", "kid": "ed"}, claims(), lambda _: b""),
        "None": raw({"alg": "None", "kid": "ed"}, claims(), lambda _: b""),
        "none_without_kid": raw({"alg": "none"}, claims(), lambda _: b""),
        "no_alg": raw({"kid": "ed"}, claims()),
        "alg_list": raw({**ed_header, "alg": ["EdDSA"]}, claims()),
        "alg_null": raw({**ed_header, "alg": None}, claims()),
        "alg_case": raw({**ed_header, "alg": "eddsa"}, claims()),
        "hs_with_ed_bytes": raw({"alg": "HS256", "kid": "ed"}, claims(), _hs(ed_raw)),
        "hs_with_rsa_pem": raw({"alg": "HS256", "kid": "rsa"}, claims(), _hs(rsa_pem)),
        "hs_with_nothing": raw({"alg": "HS256", "kid": "rsa"}, claims(), _hs(b"")),
        "rs384": jwt.encode(claims(), RSA, "RS384", {"kid": "rsa"}),
        "ps256": jwt.encode(claims(), RSA, "PS256", {"kid": "rsa"}),
        "rs512": jwt.encode(claims(), RSA, "RS512", {"kid": "rsa"}),
        "es384": jwt.encode(claims(), new_ec_key(SECP384R1()), "ES384", {"kid": "ec"}),
        "kid_of_another_algorithm": jwt.encode(claims(), RSA, "RS256", {"kid": "ed"}),
        "rs_as_es": jwt.encode(claims(), EC, "ES256", {"kid": "rsa"}),
        "es_zero_signature": f"{jwt.encode(claims(), EC, 'ES256', {'kid': 'ec'}).rpartition('.')[0]}.{'A' * 86}",
        "kid_unknown": signed(headers={"kid": "other"}),
        "kid_path": signed(headers={"kid": "../../dev/null"}),
        "kid_sql": signed(headers={"kid": "ed' OR '1'='1"}),
        "kid_empty": signed(headers={"kid": ""}),
        "kid_missing": raw({"alg": "EdDSA"}, claims()),
        "kid_number": raw({"alg": "EdDSA", "kid": 1}, claims()),
        "kid_list": raw({"alg": "EdDSA", "kid": ["ed"]}, claims()),
        "stranger": signed(STRANGER),
        "stranger_jwk": signed(STRANGER, headers={"jwk": other_jwk}),
        "stranger_jku": signed(STRANGER, headers={"jku": "https://evil.example/jwks"}),
        "stranger_x5u": signed(STRANGER, headers={"x5u": "https://evil.example/x5u"}),
        "stranger_x5c": signed(STRANGER, headers={"x5c": ["MIIB"]}),
        "crit_unknown": signed(headers={"crit": ["exp"]}),
        "crit_b64": raw({**ed_header, "crit": ["b64"], "b64": False}, claims()),
        "crit_empty": raw({**ed_header, "crit": []}, claims()),
        "b64_false": raw({**ed_header, "b64": False}, claims()),
        "typ_other": signed(headers={"typ": "dpop+jwt"}),
        "typ_number": raw({**ed_header, "typ": 1}, claims()),
        "nested": raw({**ed_header, "cty": "JWT", "typ": "JWE"}, good.encode()),
        "payload_is_token": raw(ed_header, good.encode()),
        "payload_list": raw(ed_header, []),
        "payload_text": raw(ed_header, "x"),
        "header_list": raw([], claims()),
        "payload_not_utf8": raw(ed_header, b'{"iss": "\xff"}'),
        "payload_nan": raw(ed_header, b'{"exp": NaN}'),
        "repeated_claim": raw(ed_header, json.dumps(claims()).encode()[:-1] + b', "sub": "admin"}'),
        "repeated_header": raw(b'{"alg": "EdDSA", "kid": "ed", "alg": "EdDSA"}', claims()),
        "deep": raw(ed_header, b'{"a":' * 1500 + b"1" + b"}" * 1500),
        "megabyte": signed(scope="x" * 2**20),
        "nine_kib": signed(scope="x" * 7000),
        "expired": signed(iat=now - 400, exp=now - 100),
        "expired_long_ago": signed(iat=0, exp=300),
        "exp_negative": signed(exp=-1),
        "exp_huge": signed(exp=10**300),
        "exp_bool": signed(exp=True),
        "exp_text": raw(ed_header, claims(exp="soon")),
        "exp_null": raw(ed_header, claims(exp=None)),
        "exp_list": raw(ed_header, claims(exp=[now + 300])),
        "lives_long": signed(exp=now + 86_400),
        "issued_later": signed(iat=now + 9_000, exp=now + 9_300),
        "not_yet": signed(nbf=now + 9_000),
        "iat_text": raw(ed_header, claims(iat="now")),
        "iat_after_exp": signed(iat=now + 20, exp=now + 10),
        "iss_other": signed(iss="https://evil.example"),
        "iss_prefix": signed(iss=ISSUER + "/"),
        "iss_list": raw(ed_header, claims(iss=[ISSUER])),
        "aud_other": signed(aud="another"),
        "aud_list_of_others": signed(aud=["a", "b"]),
        "aud_empty": signed(aud=[]),
        "aud_number": raw(ed_header, claims(aud=1)),
        "sub_number": raw(ed_header, claims(sub=1)),
        "sub_empty": signed(sub=""),
        "sub_long": signed(sub="x" * 257),
    }
    for name in ("iss", "aud", "exp", "iat", "sub"):
        found[f"without_{name}"] = signed(**{name: ...})
    flipped = "A" if signature[10] != "A" else "B"
    found["signature_changed"] = f"{head}.{body}.{signature[:10]}{flipped}{signature[11:]}"
    other_body = raw(ed_header, claims(scope="publish:*")).split(".")[1]
    found["payload_changed"] = f"{head}.{other_body}.{signature}"
    return found
