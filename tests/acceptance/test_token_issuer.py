"""A real server whose tokens come from an issuer with a key set on https: hostile tokens, and many unknown keys."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
import hostile_tokens as tokens
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from penstock.server.tls_dev import make_certificates
from penstock.v1 import broker_pb2 as pb
from penstock.v1 import broker_pb2_grpc as stubs
from tests.acceptance.http_server import Server, running

REFETCH_S = 60
TOGETHER = 200


class KeySetHandler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.fetches.append(self.path)  # type: ignore[attr-defined]
        body = json.dumps(tokens.KEY_SET).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class Issuer(ThreadingHTTPServer):
    fetches: list[str]

    @property
    def url(self) -> str:
        return f"https://localhost:{self.server_port}/keys"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory) -> Iterator[Issuer]:
    certificates = tmp_path_factory.mktemp("issuer")
    make_certificates(certificates, ["localhost"], "client")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    with Issuer(("127.0.0.1", 0), KeySetHandler) as server, pytest.MonkeyPatch.context() as patch:
        server.fetches = []
        server.socket = context.wrap_socket(server.socket, server_side=True)
        patch.setenv("SSL_CERT_FILE", str(certificates / "ca.pem"))
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield server
        server.shutdown()
        serving.join()


@pytest.fixture(scope="module")
def trusting(issuer, tmp_path_factory) -> Iterator[Server]:
    """Wrong credentials do not slow the address down: each is answered for itself."""
    with running(
        tmp_path_factory.mktemp("trusting") / "data", "--auth", "keys", "--jwt-issuer", tokens.ISSUER, "--jwt-audience",
        tokens.AUDIENCE, "--jwks", issuer.url, "--limit-address-failures", "100000",
    ) as server:  # fmt: skip
        yield server


# A header is trimmed, so a space behind a token is not sent; and gRPC sends ASCII only.
SENDABLE = {
    name: text
    for name, text in tokens.hostile_tokens().items()
    if len(text) < 8000 and text.strip() == text and text.isascii()
}


def http_refuses(server: Server, token: str) -> bool:
    return server.ask("GET", "/v1/queues", authorization=f"Bearer {token}").status == 401


def websocket_refuses(server: Server, token: str) -> bool:
    url = f"ws://127.0.0.1:{server.port}/v1/ws"
    with pytest.raises(InvalidStatus) as refused:
        connect(url, additional_headers={"authorization": f"Bearer {token}"}, proxy=None).close()
    return refused.value.response.status_code == 401


def test_hostile_tokens_are_refused_by_every_protocol(trusting):
    assert len(SENDABLE) >= 60
    assert not http_refuses(trusting, tokens.signed())
    with grpc.insecure_channel(trusting.grpc) as channel:
        broker = stubs.BrokerStub(channel)
        for name, token in SENDABLE.items():
            assert http_refuses(trusting, token), name
            assert websocket_refuses(trusting, token), name
            with pytest.raises(grpc.RpcError) as refused:
                broker.ListQueues(pb.ListQueuesRequest(), metadata=(("authorization", f"Bearer {token}"),), timeout=30)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED, name


def test_hostile_token_does_not_renew_a_stream(trusting):
    url = f"ws://127.0.0.1:{trusting.port}/v1/ws"
    head = {"authorization": f"Bearer {tokens.signed()}"}
    with connect(url, additional_headers=head, proxy=None) as opened:
        opened.recv()
        for name, token in SENDABLE.items():
            opened.send(json.dumps({"type": "renew", "id": name, "credential": token}))
            refused = json.loads(opened.recv())
            assert (refused["type"], refused["id"]) == ("error", name)
            assert refused["error"]["code"] in ("unauthenticated", "invalid_request")
        opened.send(json.dumps({"type": "renew", "id": 1, "credential": tokens.signed()}))
        assert json.loads(opened.recv())["type"] == "renewed"


def test_ten_thousand_unknown_keys_cause_at_most_one_fetch_a_minute(trusting, issuer):
    _, payload, signature = tokens.signed().split(".")
    began, before = time.monotonic(), len(issuer.fetches)
    with contextlib.closing(socket.create_connection(("127.0.0.1", trusting.port), timeout=60)) as connection:
        answers = connection.makefile("rb")
        for first in range(0, 10_000, TOGETHER):
            for number in range(first, first + TOGETHER):
                head = tokens.raw({"alg": "EdDSA", "kid": f"kid-{number}"}, {}, lambda _: b"").split(".")[0]
                token = f"{head}.{payload}.{signature}"
                request = f"GET /v1/queues HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
                connection.sendall(request.encode())
            for _ in range(TOGETHER):
                assert answers.readline().split()[1] == b"401"
                length = 0
                while (line := answers.readline().lower()) != b"\r\n":
                    if line.startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                answers.read(length)
    assert not http_refuses(trusting, tokens.signed())
    minutes = (time.monotonic() - began) / REFETCH_S
    assert len(issuer.fetches) - before <= 1 + minutes
