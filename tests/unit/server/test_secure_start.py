"""No combination of settings listens beyond loopback without authentication, or without TLS unless told to."""

from __future__ import annotations

import itertools

import pytest

from penstock.server.config import ConfigError, Settings, load_settings

LOOPBACK = ["127.0.0.1", "localhost", "[::1]", "127.8.9.10"]
EXPOSED = [
    "0.0.0.0", "[::]", "192.168.1.5", "10.0.0.1", "broker.example", "localhost.example", "127.0.0.1.example", "127.1",
    "0", "2130706433", "[::ffff:10.0.0.1]", "[::ffff:0.0.0.0]", "[fe80::1]",
]  # fmt: skip
"""Also names and forms that look like loopback, and are not or need a resolver to say so."""
HOSTS = [*LOOPBACK, *EXPOSED]
GRPC = ["auto", "off", *(f"{host}:7401" for host in HOSTS)]
AUTH = ["off", "keys"]
TLS = [("", ""), ("c.pem", "k.pem"), ("c.pem", ""), ("", "k.pem")]
CLIENT_CA = ["", "ca.pem"]
JWT = [("", "", ""), ("https://i", "a", "keys.json"), ("https://i", "", "keys.json")]
INSECURE = [False, True]
COMBINATIONS = list(itertools.product(HOSTS, GRPC, AUTH, TLS, CLIENT_CA, JWT, INSECURE))


def settings_of(host, grpc, auth, tls, client_ca, jwt, insecure) -> dict[str, object]:
    return {
        "listen": f"{host}:7400", "grpc": grpc, "auth": auth, "tls_cert": tls[0], "tls_key": tls[1],
        "tls_client_ca": client_ca, "jwt_issuer": jwt[0], "jwt_audience": jwt[1], "jwks": jwt[2],
        "insecure_plaintext_listen": insecure,
    }  # fmt: skip


def is_exposed(settings: Settings) -> bool:
    listeners = [settings.listen, *([settings.grpc] if settings.grpc not in ("auto", "off") else [])]
    return any(str(address).rpartition(":")[0] not in LOOPBACK for address in listeners)


def as_variables(values: dict[str, object]) -> dict[str, str]:
    texts = {True: "true", False: "false"}
    return {f"PENSTOCK_{name.upper()}": texts.get(value, str(value)) for name, value in values.items()}


def test_there_are_many_combinations():
    assert len(COMBINATIONS) >= 5000


@pytest.mark.parametrize("source", ["flags", "environment"])
def test_no_combination_is_exposed_without_protection(source):
    started = 0
    for combination in COMBINATIONS:
        values = settings_of(*combination)
        try:
            settings = load_settings(values, {}) if source == "flags" else load_settings({}, as_variables(values))
        except ConfigError:
            continue
        started += 1
        if is_exposed(settings):
            assert settings.auth == "keys", values
            assert (settings.tls_cert and settings.tls_key) or settings.insecure_plaintext_listen, values
        assert settings.auth == "keys" or not (settings.jwks or settings.tls_client_ca), values
    assert started > 500, "not everything is refused"


def test_loopback_needs_nothing():
    assert load_settings({}, {}).auth == "off"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"listen": "0.0.0.0:7400"}, "--auth keys"),
        ({"listen": "0.0.0.0:7400", "insecure_plaintext_listen": True}, "--auth keys"),
        ({"listen": "0.0.0.0:7400", "auth": "keys"}, "penstock tls dev"),
        ({"grpc": "[::]:7401", "auth": "keys"}, "grpc: "),
        ({"tls_cert": "c"}, "belong together"),
        ({"auth": "keys", "jwks": "k"}, "jwt_issuer"),
        ({"auth": "keys", "tls_client_ca": "k"}, "tls_cert"),
    ],
)
def test_refusal_says_what_to_do(flags, words):
    with pytest.raises(ConfigError, match=words.replace("[", r"\[")):
        load_settings(flags, {})
