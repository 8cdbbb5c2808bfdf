"""Addresses, requests and connection errors of one server."""

from __future__ import annotations

import ssl

import pytest

from penstock.client.calls.call import Call
from penstock.client.transport.endpoint import ServerEndpoint
from penstock.client.transport.retry import Unreachable
from penstock.errors import InvalidRequest, PenstockError


@pytest.mark.parametrize(
    ("url", "expected", "host_header"),
    [
        ("http://127.0.0.1:7400", ("http://127.0.0.1:7400", "127.0.0.1", 7400, False, ""), "127.0.0.1:7400"),
        ("https://broker.example/", ("https://broker.example", "broker.example", 443, True, ""), "broker.example"),
        ("http://h/a/b/", ("http://h/a/b", "h", 80, False, "/a/b"), "h"),
        ("http://[::1]:7400", ("http://[::1]:7400", "::1", 7400, False, ""), "[::1]:7400"),
        ("wss://h", ("wss://h", "h", 443, True, ""), "h"),
        ("grpc://h", ("grpc://h", "h", 7401, False, ""), "h:7401"),
    ],
)
def test_address_is_taken_apart(url, expected, host_header):
    endpoint = ServerEndpoint(url)
    assert (endpoint.url, endpoint.host, endpoint.port, endpoint.is_tls, endpoint.prefix) == expected
    assert endpoint.host_header == host_header and endpoint.address == expected[1:3]


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:7400", "ftp://h", "http://", "http://h:99999", "http://u:p@h", "http://h/?q=1", "grpc://h/path"],
)
def test_bad_address_is_refused(url):
    with pytest.raises(InvalidRequest, match="not a server address"):
        ServerEndpoint(url)


def test_request_is_a_head_and_a_body_that_stay_apart():
    call = Call("ack", "POST", "/v1/ack", lambda response: response, b"xyz", "a/b", "c/d")
    head, body = ServerEndpoint("http://h:1/below", token="secret").encode(call)
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /below/v1/ack HTTP/1.1" and lines[-2:] == ["", ""] and body == b"xyz"
    assert {
        "Host: h:1",
        "Authorization: Bearer secret",
        "Content-Type: a/b",
        "Content-Length: 3",
        "Accept: c/d",
    } <= set(lines)


def test_get_has_no_body_headers():
    head, _ = ServerEndpoint("http://h").encode(Call("front_page", "GET", "/", lambda response: response))
    assert b"Content" not in head


@pytest.mark.parametrize("token", ["a\r\nX: y", "ä", "a\nb"])
def test_token_cannot_smuggle_headers(token):
    with pytest.raises(InvalidRequest):
        ServerEndpoint("http://h", token=token)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (TimeoutError(), Unreachable, "no connection within 5 s"),
        (ConnectionRefusedError(), Unreachable, "is `penstock serve` running"),
        (OSError(113, "No route to host"), Unreachable, "No route to host"),
        (ssl.SSLError("self-signed"), PenstockError, "cannot trust"),
    ],
)
def test_connection_errors_name_the_server_and_the_cause(error, kind, text):
    made = ServerEndpoint("http://h").not_connected(error)
    assert type(made) is kind and "http://h" in str(made) and text in str(made)
