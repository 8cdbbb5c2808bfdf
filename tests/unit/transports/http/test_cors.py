"""Answers to pages of other origins: none by default, and exactly the allowed ones by option."""

from __future__ import annotations

import pytest
from boxed import boxed
from tenants import HASH_KEY

from penstock.clock import SystemClock
from penstock.security.credentials import KeyTable
from penstock.transports.access import Access
from penstock.transports.auth import Authenticator
from penstock.transports.http import HttpApp
from penstock.transports.http.fields import Fields
from penstock.transports.http.request import Request

PAGE = b"https://page.example"


def asked(method: str, *headers: tuple[bytes, bytes]) -> Request:
    return Request(method, "/v1/queues", b"", Fields([(b"host", b"localhost"), *headers]), b"")


PREFLIGHT = ((b"origin", PAGE), (b"access-control-request-method", b"GET"))


@boxed
async def test_by_default_no_origin_is_shared_with(box):
    app = HttpApp(box.broker, SystemClock())
    for method in ("GET", "OPTIONS"):
        answer = await app.ask(asked(method, *PREFLIGHT))
        assert answer.status == 403
        assert not [name for name, _ in answer.headers if name.startswith(b"access-control")]


@pytest.mark.parametrize(("scheme", "origin", "status"), [
    ("http", b"https://localhost", 401),
    ("http", b"http://localhost", 401),
    ("https", b"https://localhost", 401),
    ("https", b"http://localhost", 403),
    ("http", b"https://other.example", 403),
])  # fmt: skip
@boxed
async def test_own_pages_behind_a_proxy_that_has_tls(box, scheme, origin, status):
    app = HttpApp(box.broker, SystemClock(), access=Access(any_host=True, scheme=scheme))
    app.auth = Authenticator(box.broker, KeyTable(HASH_KEY), None, SystemClock())
    assert (await app.ask(asked("GET", (b"origin", origin)))).status == status


@pytest.mark.parametrize("with_keys", [False, True])
@boxed
async def test_allowed_origin_gets_a_preflight_without_a_credential(box, with_keys):
    app = HttpApp(box.broker, SystemClock(), access=Access(origins=frozenset({PAGE.decode()})))
    if with_keys:
        app.auth = Authenticator(box.broker, KeyTable(HASH_KEY), None, SystemClock())
    answer = await app.ask(asked("OPTIONS", *PREFLIGHT))
    headers = dict(answer.headers)
    assert answer.status == 204 and headers[b"access-control-allow-origin"] == PAGE
    assert (
        b"GET" in headers[b"access-control-allow-methods"] and b"x-api-key" in headers[b"access-control-allow-headers"]
    )
    assert headers[b"vary"] == b"origin" and b"access-control-allow-credentials" not in headers
    answer = await app.ask(asked("GET", (b"origin", PAGE)))
    assert answer.status == (401 if with_keys else 200)
    assert dict(answer.headers)[b"access-control-allow-origin"] == PAGE, "the page may read the refusal"
    assert (await app.ask(asked("GET", (b"origin", b"https://other.example")))).status == 403
    own = await app.ask(asked("GET", (b"origin", b"http://localhost")))
    assert b"access-control-allow-origin" not in dict(own.headers)
