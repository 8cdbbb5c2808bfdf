"""Secrets and payloads sent in every field that takes one, and searched for in everything that the server writes.

A credential must be nowhere: in no log, metric, span, answer with an error, audit trail or file of the data directory.
A payload is in answers and, where the queue is encrypted, nowhere else; the data directory has its ciphertext.
"""

from __future__ import annotations

import base64
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlencode

import grpc
import hostile_tokens as tokens
import pytest
from receiver import LOOPBACK, receiving
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.sync.client import connect

from penstock.server.master_key_file import add_master_key
from penstock.v1 import broker_pb2 as pb
from penstock.v1 import broker_pb2_grpc as stubs
from tests.acceptance.http_server import Answer, Server, running

pytest.importorskip("opentelemetry.sdk")
ANSWERED = {"confirmation", "first csrf", "second csrf"}
"""These are given out in answers that are errors, and in forms that were refused."""
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Canaries:
    """Texts that occur nowhere else, by the field that each was sent in."""

    def __init__(self) -> None:
        self.credentials: dict[str, str] = {}
        self.payloads: dict[str, str] = {}

    def credential(self, field: str, known: str = "") -> str:
        """A new text, or one that the server made."""
        return self.credentials.setdefault(field, known or f"CANARY{len(self.credentials):03}{secrets.token_hex(8)}")

    def payload(self, field: str) -> str:
        return self.payloads.setdefault(field, f"PAYLOAD{len(self.payloads):03}{secrets.token_hex(8)}")

    def found(self, text: bytes, *, payloads: bool = True) -> list[str]:
        """The fields whose texts are in these bytes, as they are or in base64."""
        searched = {**self.credentials, **(self.payloads if payloads else {})}
        return [
            field
            for field, canary in searched.items()
            if canary.encode() in text or base64.b64encode(canary.encode()).rstrip(b"=")[:-1] in text
        ]


class Told:
    """A server, and every answer of it that is an error."""

    def __init__(self, server: Server, key: str):
        self.server = server
        self.own = {"x_api_key": key}
        self.errors: list[tuple[str, bytes]] = []

    def ask(self, method: str, target: str, body: object = None, **headers: str) -> Answer:
        answer = self.server.ask(method, target, body, **headers)
        if answer.status >= 400:
            self.errors.append((f"{method} {target.partition('?')[0]}", answer.body))
        return answer

    def form(self, target: str, own: dict[str, str], **fields: str) -> Answer:
        head = {"cookie": own["cookie"], "content_type": "application/x-www-form-urlencoded", "origin": self.server.url}
        body = urlencode({"csrf": own["x_csrf_token"], **fields}).encode()
        return self.ask("POST", target, body, **head)

    def refuse_websocket(self, target: str, **options: object) -> None:
        with suppress(WebSocketException):
            try:
                connect(f"ws://127.0.0.1:{self.server.port}{target}", proxy=None, **options).close()
            except InvalidStatus as refused:
                self.errors.append((target.partition("?")[0], refused.response.body or b""))


@contextmanager
def collecting() -> Iterator[tuple[str, list[bytes]]]:
    """A collector of spans: its URL, and the bodies that were sent to it."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as collector:
        serving = threading.Thread(target=collector.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{collector.server_port}", bodies
        finally:
            collector.shutdown()
            serving.join()


# -- where credentials are sent -----------------------------------------------------------------------------------


def send_wrong_credentials(told: Told, canaries: Canaries) -> None:
    for header in ("authorization", "cookie", "x_api_key", "proxy_authorization", "x_csrf_token"):
        for form in ("{}", "Bearer {}", "Basic {}", "penstock_session={}", "psk_0123456789Ab_{}_000000"):
            text = form.format(canaries.credential(f"{header} {form}"))
            told.ask("GET", "/v1/queues", **{header: text})
            told.ask("POST", "/v1/publish", {"queue": "q", "messages": []}, **{**told.own, header: text})
    for name in ("token", "access_token", "key", "api_key", "authorization", "ticket", "password"):
        canary = canaries.credential(f"query {name}")
        for path in ("/v1/queues", "/v1/ws", "/ws", "/nowhere", "/healthz"):
            told.ask("GET", f"{path}?{name}={canary}")
            told.ask("GET", f"{path}?{name}={canary}", **told.own)
        told.refuse_websocket(f"/v1/ws?{name}={canary}")
        told.refuse_websocket(f"/ws?{name}={canary}")
    offered = canaries.credential("subprotocol")
    told.refuse_websocket("/v1/ws", subprotocols=["penstock.v1+json", f"bearer.{offered}"])
    signed = tokens.signed(tokens.STRANGER, email=canaries.credential("claim of a token"))
    told.ask("GET", "/v1/queues", authorization=f"Bearer {signed}")
    canaries.credential("signature of a token", signed.rpartition(".")[2])
    with grpc.insecure_channel(told.server.grpc) as channel:
        for name in ("authorization", "x-api-key", "cookie"):
            canary = canaries.credential(f"metadata {name}")
            for text in (canary, f"Bearer {canary}"):
                try:
                    stubs.BrokerStub(channel).ListQueues(pb.ListQueuesRequest(), metadata=((name, text),), timeout=30)
                except grpc.RpcError as error:
                    told.errors.append(("ListQueues", str(error.details()).encode()))


def send_headers_of_proxies_and_traces(told: Told, canaries: Canaries) -> None:
    """They may be credentials of systems in front of the server."""
    publish = {"queue": "traced", "messages": [{"payload": 1}]}
    for header in (
        "forwarded", "x_forwarded_for", "x_forwarded_host", "x_real_ip", "via", "tracestate", "baggage", "user_agent",
        "referer", "x_amz_security_token", "traceparent",
    ):  # fmt: skip
        head = {header: canaries.credential(header)}
        told.ask("GET", "/v1/queues", **told.own, **head)
        told.ask("POST", "/v1/publish", publish, **{"traceparent": TRACE, **told.own, **head})
        told.ask("GET", "/metrics", **head)


def make_credentials(told: Told, canaries: Canaries) -> None:
    made = told.ask("POST", "/v1/keys", {"name": "made", "scopes": ["publish:*"]}, **told.own).json
    rotated = told.ask("POST", "/v1/keys/rotate", {"id": made["id"]}, **told.own).json
    for field, key in (("a key", made["key"]), ("a rotated key", rotated["key"]), ("bootstrap", told.own["x_api_key"])):
        canaries.credential(f"secret of {field}", key.split("_")[2])
        told.ask("POST", "/v1/publish", {"queue": "q", "messages": [{"payload": 1}]}, authorization=f"Bearer {key}")
        told.ask("GET", "/v1/keys", x_api_key=f"{key}x")
    for refused in ("name", "scopes", "rate"):
        told.ask("POST", "/v1/keys", {"name": "x", "scopes": ["metrics"], refused: 7}, **told.own)
    ticket = told.ask("POST", "/v1/tickets", **told.own).json["ticket"]
    canaries.credential("ticket", ticket)
    with connect(f"ws://127.0.0.1:{told.server.port}/v1/ws?ticket={ticket}", proxy=None) as opened:
        opened.recv()
        opened.send(json.dumps({"type": "renew", "id": 1, "credential": canaries.credential("renew")}))
        told.errors.append(("renew", opened.recv().encode()))
    told.refuse_websocket(f"/v1/ws?ticket={ticket}")
    token = told.ask("DELETE", "/v1/queues/q", **told.own).json["error"]["details"]["confirm"]
    canaries.credential("confirmation", token)


def send_passwords(told: Told, canaries: Canaries) -> dict[str, str]:
    """Returns the headers of a session."""
    password, later = canaries.credential("password"), canaries.credential("new password")
    user = {"email": "ada@example.com", "role": "admin", "password": password}
    told.ask("POST", "/v1/users", user, **told.own)
    told.ask("POST", "/v1/users", user, **told.own)
    for wrong in (
        {**user, "email": "eve@example.com", "role": canaries.payload("a role that there is not")},
        {"email": canaries.credential("password as an email"), "role": "viewer", "password": "x"},
        {"email": "eve@example.com", "role": "viewer", "password": 7, "other": canaries.credential("unknown field")},
        {"email": "eve@example.com", "role": "viewer", "password": canaries.credential("long password") * 99},
    ):
        told.ask("POST", "/v1/users", wrong, **told.own)
    for refused in ("wrong password", "password of nobody"):
        email = "ada@example.com" if refused == "wrong password" else "eve@example.com"
        told.ask("POST", "/v1/session", {"email": email, "password": canaries.credential(refused)})
    answer = told.ask("POST", "/v1/session", {"email": "ada@example.com", "password": password})
    own = session_of(answer, canaries, "first")
    told.ask("POST", "/v1/session/password", {"password": canaries.credential("former"), "new_password": later}, **own)
    answer = told.ask("POST", "/v1/session/password", {"password": password, "new_password": later}, **own)
    own = session_of(answer, canaries, "second")
    told.ask("PATCH", "/v1/users/eve@example.com", {"password": canaries.credential("password of another")}, **own)
    return own


def session_of(answer: Answer, canaries: Canaries, name: str) -> dict[str, str]:
    (morsel,) = SimpleCookie(answer.headers["set-cookie"]).values()
    canaries.credential(f"{name} session", morsel.value)
    canaries.credential(f"{name} csrf", answer.json["csrf"])
    return {"cookie": f"{morsel.key}={morsel.value}", "x_csrf_token": answer.json["csrf"]}


def send_forms(told: Told, canaries: Canaries, own: dict[str, str]) -> None:
    told.form("/ui/login", own, email="ada@example.com", password=canaries.credential("form login"))
    told.form("/ui/users/new", own, email="no", role="viewer", password=canaries.credential("form user"))
    told.form("/ui/users/ada@example.com/change", own, role="no", password=canaries.credential("form change"))
    told.form("/ui/password", own, password=canaries.credential("form former"), new_password="x")
    told.form("/ui/password", own, password="x", new_password=canaries.credential("form new"))
    told.form("/ui/keys/new", {**own, "x_csrf_token": canaries.credential("form csrf")}, name="x", scopes="metrics")
    told.form("/ui/keys/new", own, name="x", scopes="no", other=canaries.credential("form other"))
    told.ask("GET", f"/ui/login?next=/{canaries.credential('form next')}")


def send_webhooks(told: Told, canaries: Canaries) -> None:
    """The URL of a webhook is a setting, which may have a token of the other system in its query."""
    with receiving() as receiver:
        receiver.answer = lambda _: 500
        receiver.body = canaries.credential("answer of an endpoint").encode()
        url = f"{receiver.url}?token={canaries.payload('url of a webhook')}"
        made = told.ask("POST", "/v1/webhooks", {"queue": "hooked", "url": url}, **told.own).json
        canaries.credential("secret of a webhook", made["secret"].removeprefix("whsec_"))
        message = {"payload": canaries.payload("payload of a webhook"), "headers": {"h": canaries.payload("header")}}
        told.ask("POST", "/v1/publish", {"queue": "hooked", "messages": [message]}, **told.own)
        receiver.wait_for(1)
        rotated = told.ask("POST", "/v1/webhooks/rotate", {"id": made["id"]}, **told.own).json
        canaries.credential("rotated secret of a webhook", rotated["secret"].removeprefix("whsec_"))
        told.ask("POST", "/v1/webhooks/test", {"id": made["id"]}, **told.own)
        told.ask("PATCH", f"/v1/webhooks/{made['id']}", {"url": 7, "secret": canaries.credential("set")}, **told.own)
        told.ask("DELETE", f"/v1/webhooks/{made['id']}", **told.own)


def send_payloads(told: Told, canaries: Canaries) -> None:
    own, queue = told.own, "data"
    message = {"payload": canaries.payload("payload"), "headers": {"h": canaries.payload("header of a message")}}
    told.ask("POST", "/v1/publish", {"queue": queue, "messages": [message] * 3}, **own)
    as_bytes = base64.b64encode(canaries.payload("payload_b64").encode()).decode()
    told.ask("POST", "/v1/publish", {"queue": queue, "messages": [{"payload_b64": as_bytes}]}, **own)
    told.ask("POST", "/v1/publish", {"queue": queue, "messages": [{"payload": 1, "headers": 7}]}, **own)
    for body in (b"{%b", b'{"queue": "q", "messages": "%b"}', b'{"queue": "q", "messages": [{"payload": "%b"}]', b"%b"):
        told.ask("POST", "/v1/publish", body % canaries.payload(f"body {body!r}").encode(), **own)
    leased = told.ask("POST", "/v1/lease", {"queue": queue, "max": 2}, **own).json["messages"]
    receipts = [each["receipt"] for each in leased]
    told.ask("POST", "/v1/reject", {"receipts": receipts[:1]}, **own)
    told.ask("POST", "/v1/transact", {"ack": receipts[1:], "publish": [{"queue": queue, **message}]}, **own)
    told.ask("POST", "/api/v1/messages", {"topic": queue, "payload": {"a": canaries.payload("dialect")}}, **own)
    with grpc.insecure_channel(told.server.grpc) as channel:
        new = pb.NewMessage(payload=canaries.payload("grpc").encode())
        head = (("x-api-key", own["x_api_key"]),)
        stubs.BrokerStub(channel).Publish(pb.PublishRequest(queue=queue, messages=[new]), metadata=head, timeout=30)
    head = {"x-api-key": own["x_api_key"]}
    with connect(f"ws://127.0.0.1:{told.server.port}/v1/ws", additional_headers=head, proxy=None) as opened:
        opened.recv()
        for frame in ({"payload": canaries.payload("frame")}, {"payload": 1, "nothing": 1}):
            opened.send(json.dumps({"type": "publish", "id": 1, "queue": queue, "messages": [frame]}))
            opened.recv()


# -- where they are searched --------------------------------------------------------------------------------------


def files_of(directory: Path) -> dict[str, bytes]:
    """By name; `bootstrap.key` is how the first key is given out."""
    found = {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    return {name: data for name, data in found.items() if not name.endswith("bootstrap.key")}


def test_secrets_and_payloads_are_in_nothing_that_the_server_writes(tmp_path):
    canaries = Canaries()
    data, key_file, jwks = tmp_path / "data", tmp_path / "encryption.key", tmp_path / "jwks.json"
    add_master_key(key_file)
    canaries.credential("encryption key", key_file.read_text().strip())
    jwks.write_text(json.dumps(tokens.KEY_SET))
    with collecting() as (collector, spans), running(
        data, "--auth", "keys", "--log-level", "debug", "--encryption-key", str(key_file), "--encrypt-all",
        "--trace", collector, "--trace-sample", "1", "--webhook-allow", LOOPBACK, "--dialect", "pulsar-proxy",
        "--jwks", str(jwks), "--jwt-issuer", tokens.ISSUER, "--jwt-audience", tokens.AUDIENCE,
        "--limit-address-failures", "100000",
    ) as server:  # fmt: skip
        told = Told(server, (data / "bootstrap.key").read_text().strip())
        lines = {"levels": {"requests": "info", "connections": "info"}, "requests_per_s": 100_000}
        assert told.ask("PUT", "/v1/logs", lines, **told.own).status == 200
        make_credentials(told, canaries)
        send_wrong_credentials(told, canaries)
        send_headers_of_proxies_and_traces(told, canaries)
        send_forms(told, canaries, send_passwords(told, canaries))
        send_webhooks(told, canaries)
        send_payloads(told, canaries)
        exposed = {
            target: told.ask("GET", target, accept=accept, **told.own).body
            for accept in ("text/plain", "application/openmetrics-text")
            for target in ("/metrics", "/metrics?aliases=true", "/v1/connections", "/v1/audit?limit=1000")
        }
        assert server.terminate() == 0
    assert len(canaries.credentials) >= 50 and len(canaries.payloads) >= 10
    assert spans and b"publish" in server.log().encode() and told.errors
    written = {"log": server.log().encode(), **exposed, **{f"span {row}": body for row, body in enumerate(spans)}}
    assert {where: found for where, body in written.items() if (found := canaries.found(body))} == {}
    refused = {where: found for where, body in told.errors if (found := canaries.found(body, payloads=False))}
    assert {where: found for where, found in refused.items() if not {*found} <= ANSWERED} == {}
    stored = {name: found for name, body in files_of(data).items() if (found := canaries.found(body))}
    assert {name: found for name, found in stored.items() if found != ["url of a webhook"]} == {}
