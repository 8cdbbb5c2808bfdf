"""The HTTP transport: access checks, bodies, the form of answers."""

from __future__ import annotations

import asyncio

import pytest
from http_fake import Http, ask

from penstock import limits
from penstock.errors import Conflict
from penstock.transports.access import Access
from penstock.transports.http import routes

ORDERS = "default/default/orders"


def run(story):
    return asyncio.run(story(Http()))


# -- routing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/v2/publish", "/v1", "/v1/publish/", "//", "/v1/queue", "/v1/stats/other", "/%00", "*"]
)
def test_an_unknown_path_is_not_found(path):
    answer = ask("GET", path)
    assert (answer.status, answer.error["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/publish", "OPTIONS, POST"),
        ("POST", "/v1/read", "GET, HEAD, OPTIONS"),
        ("POST", "/v1/queues/orders", "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"),
        ("DELETE", "/metrics", "GET, HEAD, OPTIONS"),
        ("TRACE", "/metrics", "GET, HEAD, OPTIONS"),
    ],
)
def test_wrong_method_is_answered_with_the_allowed_ones(method, path, allow):
    answer = ask(method, path)
    assert (answer.status, answer.error["code"], answer.headers["allow"]) == (405, "method_not_allowed", allow)
    answer = ask("OPTIONS", path)
    assert (answer.status, answer.headers["allow"], answer.body) == (204, allow, b"")


def test_head_is_get():
    assert ask("HEAD", "/healthz").status == 200
    assert ask("HEAD", "/v1/publish").status == 405


def test_queues_are_addressed_by_paths_of_one_to_three_segments():
    async def story(http):
        for path, queue in {
            "orders": ORDERS, "email/high": "email/default/high", "a/b/c": "a/b/c", "Eu.1/A_b": "Eu.1/default/A_b",
            "purge": "default/default/purge",
        }.items():  # fmt: skip
            created = await http.ask("PUT", f"/v1/queues/{path}", {"max_retries": 5})
            assert (created.status, created.json["queue"]) == (201, queue)
            assert (await http.ask("PUT", f"/v1/queues/{path}", {})).status == 200
            assert (await http.ask("GET", f"/v1/queues/{path}")).json == {"queue": queue}
            assert (await http.ask("PATCH", f"/v1/queues/{path}", {"lease_ms": 1})).json["config"] == {"lease_ms": 1}
            assert (await http.ask("POST", f"/v1/queues/{path}/purge?confirm=t")).json == {"purged": 0}
            assert http.broker.calls[-1] == ("purge_queue", (queue, "t"))
            assert (await http.ask("DELETE", f"/v1/queues/{path}?confirm=t")).json == {"deleted": queue}
        for path in ("a/b/c/d", "", "a//b", "A!", "a/", "%2e%2e", "a b"):
            answer = await http.ask("GET", f"/v1/queues/{path}")
            assert (answer.status, answer.error["details"]) == (400, {"field": "queue"})

    run(story)


def test_what_destroys_first_answers_with_what_would_be_lost():
    answer = ask("DELETE", "/v1/queues/orders")
    assert (answer.status, answer.error["code"]) == (409, "conflict")
    assert answer.error["details"] == {"confirm": "t", "would_lose": {"messages": 0}}


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"1", b"null", b'{"a": NaN}', b'{"a": 1e999}', b"[" * 10_000, b'{"a": "\xff"}']
)
def test_settings_must_be_a_json_object(body):
    assert ask("PUT", "/v1/queues/orders", body).status == 400


def test_settings_are_small():
    assert ask("PUT", "/v1/queues/orders", {"a": "x" * limits.CONFIG_BYTES_MAX}).status == 413


def test_looking_at_things():
    async def story(http):
        http.broker.stored[ORDERS] = []
        assert (await http.ask("GET", "/v1/queues?prefix=de&page=2&limit=3")).json["total"] == 1
        assert (await http.ask("GET", "/v1/stats?queue=orders")).json["queue"] == ORDERS
        assert (await http.ask("GET", "/v1/stats/summary")).json["queues"] == 1
        assert (await http.ask("GET", "/v1/groups?queue=orders")).json == {"groups": []}
        assert (await http.ask("GET", "/v1/dlq?queue=orders&page=2")).json["page"] == 2
        assert http.broker.calls[0] == ("list_queues", ("de", 2, 3))

    run(story)


# -- hosts and origins ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:7400", "[::1]", "[::1]:80"])
def test_names_of_this_machine_are_fine(host):
    assert ask("GET", "/healthz", headers={"host": host}).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:7400", "127.0.0.1:80@evil", "[::1]x", "[::1",
     "localhost:", "localhost:x", "0.0.0.0", "127.0.0.1 ", "::1"],
)  # fmt: skip
def test_foreign_names_are_not(host):
    answer = ask("GET", "/healthz", headers={"host": host})
    assert (answer.status, answer.error["code"]) == (403, "forbidden")


def test_a_request_names_one_host():
    assert ask("GET", "/healthz", headers={"host": ""}).status == 400
    answer = ask("GET", "/healthz", headers={"Host": "localhost"})
    assert (answer.status, answer.error["details"]) == (400, {"field": "host"})


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:7400", 200),
        ("HTTP://127.0.0.1:7400", 200),
        ("http://tools.example", 200),
        ("http://localhost:7400", 403),
        ("http://127.0.0.1:3000", 403),
        ("http://127.0.0.1", 403),
        ("https://127.0.0.1:7400", 403),
        ("https://evil.example", 403),
        ("null", 403),
    ],
)
@pytest.mark.parametrize("kind", ["application/json", "text/plain", ""])
def test_pages_of_other_origins_are_refused(origin, status, kind):
    async def story(http):
        http.app.access = Access(origins=frozenset(["http://tools.example"]))
        headers = {"origin": origin, "content-type": kind}
        answer = await http.ask("POST", "/v1/ack", TEXT, headers=headers)
        assert answer.status == (415 if (status, kind) == (200, "text/plain") else status)
        assert bool(http.broker.calls) is (answer.status == 200)

    run(story)


@pytest.mark.parametrize("host", ["penstock", "PENSTOCK:7400", "localhost", "10.0.0.7:7400", "[fd00::7]:1"])
def test_hosts_that_were_allowed_by_name_are_fine(host):
    async def story(http):
        http.app.access = Access(hosts=frozenset([b"penstock", b"10.0.0.7", b"fd00::7"]))
        assert (await http.ask("GET", "/healthz", headers={"host": host})).status == 200
        assert (await http.ask("GET", "/healthz", headers={"host": "a" + host})).status == 403

    run(story)


# -- bodies -------------------------------------------------------------------------------------------------------

TEXT = b'{"receipts": ["a", "b"]}'


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x", "x"])
def test_other_content_types_are_refused(kind):
    for path in ("/v1/publish", "/v1/ack"):
        answer = ask("POST", path, TEXT, headers={"content-type": kind})
        assert (answer.status, answer.error["code"]) == (415, "unsupported_media_type")
        assert answer.error["details"] == {"field": "content-type"}


def test_what_curl_sends_is_taken_and_what_a_form_of_a_page_sends_is_not():
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert ask("POST", "/v1/ack", TEXT, headers=form).status == 200
    for origin in ("http://127.0.0.1:7400", "null"):
        assert ask("POST", "/v1/ack", TEXT, headers={**form, "origin": origin}).status in (403, 415)


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", ""])
def test_json_is_json_with_a_charset_or_without_a_word(kind):
    assert ask("POST", "/v1/ack", TEXT, headers={"content-type": kind}).status == 200


def test_encoded_bodies_are_refused():
    answer = ask("POST", "/v1/ack", TEXT, headers={"content-encoding": "gzip"})
    assert (answer.status, answer.error["details"]) == (415, {"field": "content-encoding"})


# -- answers ------------------------------------------------------------------------------------------------------


def test_internal_error_has_no_details():
    async def story(http):
        http.broker.fails = RuntimeError("secret")
        answer = await http.ask("POST", "/v1/ack", TEXT)
        assert (answer.status, answer.error["code"], answer.error["details"]) == (500, "internal", {})
        assert b"secret" not in answer.body and b"RuntimeError" not in answer.body

    run(story)


def test_an_error_of_the_broker_keeps_its_details():
    async def story(http):
        http.broker.fails = Conflict("no", details={"why": 1})
        answer = await http.ask("POST", "/v1/ack", TEXT)
        assert answer.json == {
            "error": {"code": "conflict", "message": "no", "retryable": False, "details": {"why": 1}}
        }

    run(story)


def test_health_and_readiness():
    async def story(http):
        assert (await http.ask("GET", "/readyz")).json == {"status": "ready"}
        http.broker.ready = False
        assert (await http.ask("GET", "/readyz")).status == 503
        http.broker.ready = True
        http.app.drain()
        answer = await http.ask("GET", "/readyz")
        assert (answer.status, answer.error["code"], "retry-after" in answer.headers) == (503, "unavailable", True)
        assert (await http.ask("GET", "/healthz")).json == {"status": "ok"}

    run(story)


def test_the_front_page_points_onwards():
    assert ask("GET", "/").json["openapi"] == "/openapi.json"


# -- the document -------------------------------------------------------------------------------------------------


def test_every_operation_is_described_and_nothing_else():
    document = ask("GET", "/openapi.json").json
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(operation.method, operation.path) for operation in routes.OPERATIONS}


def test_every_reference_in_the_document_leads_somewhere():
    document = ask("GET", "/openapi.json").json

    def follow(value):
        if isinstance(value, dict):
            if "$ref" in value:
                target = document
                for step in value["$ref"].removeprefix("#/").split("/"):
                    target = target[step]
            for each in value.values():
                follow(each)
        elif isinstance(value, list):
            for each in value:
                follow(each)

    follow(document)


def test_the_document_shows_the_bounds():
    schemas = ask("GET", "/openapi.json").json["components"]["schemas"]
    assert schemas["LeaseRequest"]["properties"]["max"]["maximum"] == limits.LEASE_MESSAGES_MAX
    assert schemas["LeaseRequest"]["additionalProperties"] is False
