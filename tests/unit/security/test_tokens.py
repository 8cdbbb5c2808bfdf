from __future__ import annotations

import json
import time

import hostile_tokens as tokens
import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.errors import InvalidRequest, Unauthenticated
from penstock.security.key_set import KeySet, key_source, parse_key_set
from penstock.security.tokens import TokenVerifier

HOSTILE = tokens.hostile_tokens()


def key_set(data: object = tokens.KEY_SET) -> KeySet:
    keys = KeySet(lambda: json.dumps(data).encode())
    keys.refresh(0.0)
    return keys


def verifier(data: object = tokens.KEY_SET) -> TokenVerifier:
    return TokenVerifier(tokens.ISSUER, tokens.AUDIENCE, key_set(data))


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.mark.parametrize(
    ("key", "alg", "kid"), [(tokens.ED, "EdDSA", "ed"), (tokens.RSA, "RS256", "rsa"), (tokens.EC, "ES256", "ec")]
)
def test_valid_token_becomes_a_principal(key, alg, kid):
    token = tokens.signed(key, alg, {"kid": kid})
    principal = verifier().verify(token, now_ms())
    assert (principal.kind, principal.id) == ("jwt", "worker-7")
    assert [str(scope) for scope in principal.scopes] == ["publish:shop/*", "consume:shop/default/orders"]
    assert principal.expires_at_ms == jwt.decode(token, options={"verify_signature": False})["exp"] * 1000


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_token_is_refused(name):
    with pytest.raises(Unauthenticated) as refused:
        verifier().verify(HOSTILE[name], now_ms())
    assert len(refused.value.message) < 200


def test_there_are_many_hostile_tokens():
    assert len(HOSTILE) >= 60


@given(
    st.text(alphabet=st.characters(max_codepoint=127), max_size=200)
    | st.binary(max_size=90).map(lambda data: data.hex())
)
def test_any_text_is_refused(text):
    with pytest.raises(Unauthenticated):
        verifier().verify(text, now_ms())


@given(st.data())
def test_any_change_of_a_valid_token_is_refused(data):
    token = tokens.signed()
    position = data.draw(st.integers(0, len(token) - 2))  # the last character has two bits that carry nothing
    letter = data.draw(st.sampled_from("AZaz09-_."))
    changed = token[:position] + letter + token[position + 1 :]
    if changed != token:
        with pytest.raises(Unauthenticated):
            verifier().verify(changed, now_ms())


@pytest.mark.parametrize(
    ("claim", "value", "scopes"),
    [
        ("scope", "publish:a consume:b", ["publish:default/default/a", "consume:default/default/b"]),
        ("scp", ["publish:a"], ["publish:default/default/a"]),
        ("scp", "publish:a", ["publish:default/default/a"]),
        ("scope", "openid profile *:*", []),
        ("scope", 7, []),
        ("scope", [["publish:a"]], []),
        ("roles", ["admin"], []),
    ],
)
def test_claims_become_scopes(claim, value, scopes):
    token = tokens.signed(**{"scope": ..., claim: value})
    assert [str(scope) for scope in verifier().verify(token, now_ms()).scopes] == scopes


def test_verified_token_is_remembered_until_it_expires():
    checked = verifier()
    token = tokens.signed(iat=int(time.time()) - 100, exp=int(time.time()) + 100)
    first = checked.verify(token, now_ms())
    checked.keys._keys.clear()
    assert checked.verify(token, now_ms()) is first
    with pytest.raises(Unauthenticated):
        checked.verify(token, now_ms() + 100_000)


def test_remembered_tokens_are_bounded(monkeypatch):
    monkeypatch.setattr(limits, "JWT_CACHED_MAX", 3)
    checked = verifier()
    for number in range(5):
        checked.verify(tokens.signed(sub=f"s{number}"), now_ms())
    assert len(checked._verified) == 3


def test_token_without_kid_uses_the_only_key():
    alone = verifier({"keys": [tokens.public_jwk(tokens.ED, "ed")]})
    assert alone.verify(tokens.raw({"alg": "EdDSA"}, tokens.claims()), now_ms()).id == "worker-7"


# -- the key set --------------------------------------------------------------------------------------------------


def test_random_kids_cause_one_fetch_per_minute():
    fetches = []
    keys = KeySet(lambda: fetches.append(1) or json.dumps(tokens.KEY_SET).encode())
    now = 0.0
    for number in range(10_000):
        now += 0.012  # two minutes in all
        keys.find(f"kid-{number}")
        if keys.is_due(now):
            keys.refresh(now)
        assert keys.find("ed") is not None
    assert len(fetches) <= 3


def test_key_set_is_read_again_after_ten_minutes():
    keys = key_set()
    assert not keys.is_due(limits.JWKS_REFRESH_S - 1) and keys.is_due(limits.JWKS_REFRESH_S)


@pytest.mark.parametrize(
    "outcome", [OSError("down"), b"", b"{}", b'{"keys": []}', b"[]", b"x" * (limits.JWKS_BYTES_MAX + 1)]
)
def test_failed_fetch_keeps_the_known_keys(outcome):
    answers = [json.dumps(tokens.KEY_SET).encode(), outcome]

    def fetch() -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    keys = KeySet(fetch)
    keys.refresh(0.0)
    with pytest.raises((OSError, InvalidRequest)):
        keys.refresh(600.0)
    assert keys.find("ed") is not None and not keys.is_due(601.0)


@pytest.mark.parametrize(
    "listed",
    [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "x"},
        tokens.public_jwk(tokens.ED, "x", alg="HS256"),
        tokens.public_jwk(tokens.RSA, "x", alg="PS256"),
        tokens.public_jwk(tokens.ED, "x", use="enc"),
        tokens.public_jwk(tokens.ED, "x", key_ops=["encrypt"]),
        tokens.public_jwk(tokens.ED, "x", x="AAAA"),
        tokens.public_jwk(tokens.new_rsa_key(65537, 1024), "x"),
        {"kty": "EC", "crv": "secp256k1", "kid": "x"},
        {"kty": ["RSA"]},
        "text",
        None,
    ],
)
def test_unusable_keys_are_ignored(listed):
    with pytest.raises(InvalidRequest, match="no key for"):
        parse_key_set(json.dumps({"keys": [listed]}).encode())
    assert list(parse_key_set(json.dumps({"keys": [listed, tokens.public_jwk(tokens.ED, "ed")]}).encode())) == ["ed"]


def test_private_part_of_a_key_is_dropped():
    listed = jwt.get_algorithm_by_name("EdDSA").to_jwk(tokens.ED, as_dict=True)
    key = parse_key_set(json.dumps({"keys": [{**listed, "kid": "ed"}]}).encode())["ed"].key
    assert not hasattr(key.key, "sign")


def test_equal_kids_are_refused():
    data = {"keys": [tokens.public_jwk(tokens.ED, "x"), tokens.public_jwk(tokens.EC, "x")]}
    with pytest.raises(InvalidRequest, match="same kid"):
        parse_key_set(json.dumps(data).encode())


def test_number_of_keys_is_bounded():
    many = [tokens.public_jwk(tokens.ED, str(number)) for number in range(limits.JWKS_KEYS_MAX + 1)]
    assert len(parse_key_set(json.dumps({"keys": many[1:]}).encode())) == limits.JWKS_KEYS_MAX
    with pytest.raises(InvalidRequest, match="at most"):
        parse_key_set(json.dumps({"keys": many}).encode())


def test_key_set_comes_from_a_file(tmp_path):
    (tmp_path / "keys.json").write_text(json.dumps(tokens.KEY_SET))
    assert len(parse_key_set(key_source(str(tmp_path / "keys.json"))())) == 3


@pytest.mark.parametrize(
    "location", ["http://issuer.example/keys", "https://", "https://a:b@issuer.example/", "ftp://x/y"]
)
def test_other_locations_are_refused(location):
    with pytest.raises(InvalidRequest, match="https"):
        key_source(location)


def test_tokens_of_a_key_that_was_removed_are_refused():
    data = [tokens.KEY_SET, {"keys": [key for key in tokens.KEY_SET["keys"] if key.get("kid") != "ed"]}]
    keys = KeySet(lambda: json.dumps(data.pop(0)).encode())
    keys.refresh(0.0)
    found, token = TokenVerifier(tokens.ISSUER, tokens.AUDIENCE, keys), tokens.signed()
    principal = found.verify(token, now_ms())
    assert found.verify(token, now_ms()) is principal
    keys.refresh(1.0)
    with pytest.raises(Unauthenticated):
        found.verify(token, now_ms())
