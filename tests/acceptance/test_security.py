"""A real server with keys, tokens and TLS: HTTP, WebSocket and gRPC."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import grpc
import hostile_tokens as tokens
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from penstock.errors import Forbidden, QueueNotFound, Unauthenticated
from penstock.sync import Client
from penstock.v1 import broker_pb2 as pb
from penstock.v1 import broker_pb2_grpc as stubs
from tests.acceptance.http_server import Server, running

CLIENT = "spiffe://example/billing"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("guarded")
    (root / "jwks.json").write_text(json.dumps(tokens.KEY_SET))
    with running(
        root / "data", "--auth", "keys", "--jwt-issuer", tokens.ISSUER, "--jwt-audience", tokens.AUDIENCE,
        "--jwks", str(root / "jwks.json"),
    ) as server:  # fmt: skip
        server.key = (root / "data" / "bootstrap.key").read_text().strip()
        yield server


def new_key(server: Server, *scopes: str, **more: object) -> dict[str, str]:
    asked = {"name": "test", "scopes": list(scopes), **more}
    answer = server.ask("POST", "/v1/keys", asked, authorization=f"Bearer {server.key}")
    assert answer.status == 201, answer.body
    return answer.json


def status(server: Server, key: str | None, method: str, target: str, body: object = None) -> int:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return server.ask(method, target, body, **headers).status


def message(queue: str) -> dict[str, object]:
    return {"queue": queue, "messages": [{"payload": 1}]}


# -- keys ---------------------------------------------------------------------------------------------------------


def test_bootstrap_key_is_private_and_not_logged(guarded):
    path = guarded.log_path.with_suffix("") / "bootstrap.key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert str(path) in guarded.log() and guarded.key not in guarded.log()


@pytest.mark.parametrize("target", ["/", "/readyz", "/metrics", "/openapi.json", "/v1/queues", "/nowhere", "/v1/keys"])
def test_without_a_credential_only_health_answers(guarded, target):
    assert status(guarded, None, "GET", target) == 401
    assert status(guarded, None, "GET", "/healthz") == 200
    assert status(guarded, guarded.key, "GET", target) in (200, 404)


def test_scopes_of_a_key(guarded):
    key = new_key(guarded, "publish:shop/*", "consume:shop/orders")["key"]
    assert status(guarded, key, "POST", "/v1/publish", message("shop/orders")) == 201
    assert status(guarded, key, "POST", "/v1/publish", message("bank/orders")) == 404
    assert status(guarded, key, "POST", "/v1/lease", {"queue": "shop/orders"}) == 200
    assert status(guarded, key, "POST", "/v1/lease", {"queue": "shop/others"}) == 403
    assert status(guarded, key, "GET", "/v1/peek?queue=shop/orders") == 403
    assert status(guarded, key, "GET", "/v1/stats?queue=shop/orders") == 200
    assert status(guarded, key, "GET", "/v1/keys") == 403
    assert status(guarded, key, "GET", "/metrics") == 403


def test_no_key_creates_more_than_it_has(guarded):
    admin = new_key(guarded, "key.admin:shop/*", "publish:shop/*")["key"]
    ask = {"name": "x", "scopes": ["publish:shop/orders"]}
    assert status(guarded, admin, "POST", "/v1/keys", ask) == 201
    for scope in ("publish:bank/*", "consume:shop/orders", "publish:*", "key.admin:*", "metrics"):
        assert status(guarded, admin, "POST", "/v1/keys", {"name": "x", "scopes": [scope]}) == 403
    wide = new_key(guarded, "publish:shop/*", "consume:shop/*")
    assert status(guarded, admin, "POST", "/v1/keys/rotate", {"id": wide["id"]}) == 403
    other = new_key(guarded, "publish:bank/*")
    assert status(guarded, admin, "DELETE", f"/v1/keys/{other['id']}") == 404
    listed = guarded.ask("GET", "/v1/keys", authorization=f"Bearer {admin}").json["keys"]
    assert other["id"] not in [key["id"] for key in listed] and wide["id"] in [key["id"] for key in listed]


def test_rotation_accepts_both_secrets_and_revocation_none(guarded):
    made = new_key(guarded, "publish:shop/*")
    again = guarded.ask(
        "POST", "/v1/keys/rotate", {"id": made["id"], "overlap_ms": 60_000}, authorization=f"Bearer {guarded.key}"
    ).json
    for key in (made["key"], again["key"]):
        assert status(guarded, key, "POST", "/v1/publish", message("shop/orders")) == 201
    assert status(guarded, guarded.key, "DELETE", f"/v1/keys/{made['id']}") == 200
    for key in (made["key"], again["key"]):
        assert status(guarded, key, "POST", "/v1/publish", message("shop/orders")) == 401


def test_rate_of_a_key(guarded):
    key = new_key(guarded, "publish:shop/*", rate="2/h")["key"]
    answers = [guarded.ask("POST", "/v1/publish", message("shop/orders"), x_api_key=key) for _ in range(3)]
    assert [answer.status for answer in answers] == [201, 201, 429]
    assert int(answers[2].headers["retry-after"]) > 0


def test_keys_survive_a_restart(tmp_path):
    with running(tmp_path / "data", "--auth", "keys") as server:
        server.key = (tmp_path / "data" / "bootstrap.key").read_text().strip()
        key = new_key(server, "publish:shop/*")["key"]
        server.kill()
    with running(tmp_path / "data", "--auth", "keys") as server:
        assert status(server, key, "POST", "/v1/publish", message("shop/orders")) == 201
        journals = b"".join(path.read_bytes() for path in (tmp_path / "data" / "shard-0").rglob("*") if path.is_file())
        assert key.split("_")[2].encode() not in journals


def test_wrong_keys_of_one_address_are_slowed_down_and_valid_ones_are_not(tmp_path):
    with running(tmp_path / "data", "--auth", "keys") as server:
        server.key = (tmp_path / "data" / "bootstrap.key").read_text().strip()
        answers = [server.ask("GET", "/v1/queues", x_api_key="psk_wrong") for _ in range(12)]
        assert [answer.status for answer in answers] == [401] * 10 + [429] * 2
        assert status(server, server.key, "GET", "/v1/queues") == 200


# -- tokens -------------------------------------------------------------------------------------------------------


def test_token_has_the_scopes_of_its_claims(guarded):
    token = tokens.signed()
    assert status(guarded, token, "POST", "/v1/publish", message("shop/orders")) == 201
    assert status(guarded, token, "POST", "/v1/publish", message("bank/orders")) == 404
    assert status(guarded, token, "GET", "/v1/keys") == 403


# -- WebSocket and gRPC -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def web_socket(server: Server, subprotocols=None, **headers: str):
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    url = f"ws://127.0.0.1:{server.port}/v1/ws"
    with connect(url, additional_headers=given, subprotocols=subprotocols, proxy=None) as opened:
        assert json.loads(opened.recv())["type"] == "hello"
        yield opened


def test_websocket_takes_a_header_or_a_subprotocol_and_no_query(guarded):
    key = new_key(guarded, "publish:shop/*", "consume:shop/*")["key"]
    with web_socket(guarded, authorization=f"Bearer {key}") as opened:
        opened.send(json.dumps({"type": "publish", "id": 1, "queue": "shop/ws", "messages": [{"payload": 1}]}))
        assert json.loads(opened.recv())["type"] != "error"
        opened.send(json.dumps({"type": "publish", "id": 2, "queue": "bank/ws", "messages": [{"payload": 1}]}))
        assert json.loads(opened.recv())["error"]["code"] == "queue_not_found"
        opened.send(json.dumps({"type": "subscribe", "id": 3, "sub": "a", "role": "reader", "queue": "shop/ws"}))
        assert json.loads(opened.recv())["error"]["code"] in ("forbidden", "invalid_request")
    with web_socket(guarded, subprotocols=["penstock.v1+json", f"bearer.{key}"]):
        pass
    with pytest.raises(InvalidStatus), connect(f"ws://127.0.0.1:{guarded.port}/v1/ws?token={key}", proxy=None):
        pass


def test_ticket_opens_one_websocket(guarded):
    made = guarded.ask("POST", "/v1/tickets", x_api_key=guarded.key)
    assert made.status == 201
    url = f"ws://127.0.0.1:{guarded.port}/v1/ws?ticket={made.json['ticket']}"
    with connect(url, proxy=None) as opened:
        assert json.loads(opened.recv())["type"] == "hello"
    with pytest.raises(InvalidStatus) as used, connect(url, proxy=None):
        pass
    assert used.value.response.status_code == 401
    for name in ("token", "access_token", "key", "ticket"):
        target = f"ws://127.0.0.1:{guarded.port}/v1/ws?{name}={guarded.key}"
        with pytest.raises(InvalidStatus) as refused, connect(target, proxy=None):
            pass
        assert refused.value.response.status_code == 401
        assert b"/v1/tickets" in refused.value.response.body


def test_websocket_is_renewed_with_a_newer_token_of_the_same_subject(guarded):
    now = int(time.time())
    scope = "consume:shop/renewed publish:shop/*"
    short = tokens.signed(iat=now - 60, exp=now + 4, scope=scope)
    with web_socket(guarded, authorization=f"Bearer {short}") as opened:
        others = (
            tokens.signed(sub="another", scope=scope),
            tokens.signed(scope="publish:shop/*"),
            tokens.signed(tokens.STRANGER),
        )
        for refused in (*others, guarded.key):
            opened.send(json.dumps({"type": "renew", "id": 1, "credential": refused}))
            assert json.loads(opened.recv())["error"]["code"] in ("forbidden", "unauthenticated", "rate_limited")
        opened.send(json.dumps({"type": "renew", "id": 2, "credential": tokens.signed(exp=now + 200, scope=scope)}))
        renewed = json.loads(opened.recv())
        assert renewed["type"] == "renewed" and renewed["expires_at_ms"] == (now + 200) * 1000
        # A call that waits goes on with the connection.
        assert status(guarded, guarded.key, "PUT", "/v1/queues/shop/renewed", {}) in (200, 201)
        body = {"queue": "shop/renewed", "wait_ms": 60_000}
        opened.send(json.dumps({"type": "call", "id": 3, "path": "/v1/lease", "body": body}))
        guarded.wait_until(lambda: time.time() > now + 6, timeout=20)
        opened.send(json.dumps({"type": "ping", "id": 4}))
        assert json.loads(opened.recv())["type"] == "pong"
        assert status(guarded, guarded.key, "POST", "/v1/publish", message("shop/renewed")) == 201
        leased = json.loads(opened.recv())
        assert (leased["id"], leased["status"]) == (3, 200), leased
    ending = tokens.signed(iat=now - 60, exp=int(time.time()) + 2)
    with web_socket(guarded, authorization=f"Bearer {ending}") as opened:
        with pytest.raises(ConnectionClosed) as closed:
            opened.recv(timeout=20)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 4001


def test_grpc_stream_is_renewed(guarded):
    now = int(time.time())
    metadata = (("authorization", f"Bearer {tokens.signed(iat=now - 60, exp=now + 200)}"),)
    with grpc.insecure_channel(guarded.grpc) as channel:
        credentials = (tokens.signed(exp=now + 250), tokens.signed(sub="another"))
        asked = iter([pb.PublishStreamRequest(credential=each) for each in credentials])
        renewed, refused = list(stubs.BrokerStub(channel).PublishStream(asked, metadata=metadata, timeout=30))
        assert renewed.renewed.expires_at_ms == (now + 250) * 1000 and refused.error.code == "forbidden"


def test_revocation_ends_open_streams(guarded):
    made = new_key(guarded, "consume:shop/*", "publish:shop/*")
    status(guarded, made["key"], "POST", "/v1/publish", message("shop/streams"))
    metadata = (("x-api-key", made["key"]),)
    channel = grpc.insecure_channel(guarded.grpc)
    poll = http.client.HTTPConnection("127.0.0.1", guarded.port, timeout=30)
    with web_socket(guarded, x_api_key=made["key"]) as opened:
        stream = stubs.BrokerStub(channel).Lease.future(
            pb.LeaseRequest(queue="shop/streams", group="other", wait_ms=60_000, max=1), metadata=metadata
        )
        stream.result()
        waiting = stubs.BrokerStub(channel).Lease.future(
            pb.LeaseRequest(queue="shop/streams", group="other", wait_ms=60_000, max=1), metadata=metadata
        )
        body = json.dumps({"queue": "shop/streams", "group": "third", "wait_ms": 60_000})
        poll.request("POST", "/v1/lease", body, {"x-api-key": made["key"]})
        assert len(json.loads(poll.getresponse().read())["messages"]) == 1
        poll.request("POST", "/v1/lease", body, {"x-api-key": made["key"]})
        assert status(guarded, guarded.key, "DELETE", f"/v1/keys/{made['id']}") == 200
        assert poll.getresponse().status == 401
        with pytest.raises(ConnectionClosed) as closed:
            opened.recv(timeout=20)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 4001
        with pytest.raises(grpc.RpcError) as ended:
            waiting.result(timeout=20)
        assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
    poll.close()
    channel.close()


def test_event_streams_need_peek_and_end_with_their_key(guarded):
    publisher, reader = new_key(guarded, "publish:shop/*"), new_key(guarded, "peek:shop/*")
    for key, target, expected in (
        (publisher, "/v1/events/stream?queue=shop/live", 403),
        (reader, "/v1/events/stream", 403),
        (reader, "/v1/events/stream?queue=bank/live", 404),
    ):
        assert status(guarded, key["key"], "GET", target) == expected
    stream = http.client.HTTPConnection("127.0.0.1", guarded.port, timeout=30)
    stream.request("GET", "/v1/events/stream?queue=shop/live", headers={"x-api-key": reader["key"]})
    opened = stream.getresponse()
    assert opened.status == 200 and opened.readline() == b": connected\n"
    assert status(guarded, guarded.key, "DELETE", f"/v1/keys/{reader['id']}") == 200
    with contextlib.suppress(ConnectionResetError):
        assert b"data" not in opened.read()
    stream.close()


def test_grpc_calls_have_the_same_scopes(guarded):
    key = new_key(guarded, "publish:shop/*")["key"]
    channel = grpc.insecure_channel(guarded.grpc)
    broker = stubs.BrokerStub(channel)
    for metadata, code in (
        ((), grpc.StatusCode.UNAUTHENTICATED),
        ((("x-api-key", key),), grpc.StatusCode.PERMISSION_DENIED),
        ((("authorization", f"Bearer {guarded.key}"),), None),
    ):
        try:
            broker.Peek(pb.PeekRequest(queue="shop/orders"), metadata=metadata)
            found = None
        except grpc.RpcError as error:
            found = error.code()
        assert found is code or (code is None and found is grpc.StatusCode.NOT_FOUND)
    channel.close()


def test_sdk_over_grpc_has_the_scopes_of_its_key(guarded):
    key = new_key(guarded, "publish:shop/*")["key"]
    with Client(f"grpc://{guarded.grpc}", key=key) as client:
        client.queue("shop/orders").publish(1)
        with pytest.raises(Forbidden):
            client.queue("shop/orders").peek()
    with Client(f"grpc://{guarded.grpc}", key="none") as client, pytest.raises(Unauthenticated):
        client.queue("shop/orders").publish(1)


# -- audit --------------------------------------------------------------------------------------------------------


def test_key_is_not_made_outside_the_queues_that_its_creator_administers(guarded):
    creator = new_key(guarded, "key.admin:shop/*", "consume:shop/*", "consume:pay/*")["key"]
    made = {"name": "made", "scopes": ["consume:pay/*"]}
    assert status(guarded, creator, "POST", "/v1/keys", made) == 403
    assert status(guarded, creator, "POST", "/v1/keys", {**made, "scopes": ["consume:shop/orders"]}) == 201


def test_administration_is_in_the_audit_trail(guarded):
    head = {"authorization": f"Bearer {guarded.key}", "x_request_id": "r-17"}
    before = guarded.ask("GET", "/v1/audit?after=0&limit=1000", **head).json["entries"]
    made = new_key(guarded, "publish:shop/*")
    assert guarded.ask("PUT", "/v1/queues/shop/gone", {}, **head).status == 201
    token = guarded.ask("DELETE", "/v1/queues/shop/gone", **head).json["error"]["details"]["confirm"]
    assert guarded.ask("DELETE", f"/v1/queues/shop/gone?confirm={token}", **head).status == 200
    status(guarded, made["key"], "GET", "/v1/peek?queue=shop/orders")
    target = f"/v1/audit?after={len(before)}&limit=1000"
    guarded.wait_until(lambda: "log.peek" in guarded.ask("GET", target, **head).body.decode())
    found = guarded.ask("GET", target, **head).json["entries"]
    assert {(entry["operation"], entry["object"], entry["result"]) for entry in found} >= {
        ("keys.create", "test", "ok"),
        ("queues.put", "shop/default/gone", "ok"),
        ("queues.delete", "shop/default/gone", "conflict"),
        ("queues.delete", "shop/default/gone", "ok"),
        ("log.peek", "shop/default/orders", "forbidden"),
    }
    (deleted,) = [entry for entry in found if (entry["operation"], entry["result"]) == ("queues.delete", "ok")]
    assert (deleted["address"], deleted["request"], deleted["actor_kind"]) == ("127.0.0.1", "r-17", "key")
    assert status(guarded, made["key"], "GET", "/v1/audit") == 403
    path = guarded.log_path.with_suffix("") / "audit.log"
    assert penstock(guarded, "audit", "verify", str(path)).returncode == 0
    assert "queues.delete" in penstock(guarded, "audit", "tail", "-o", "json").stdout
    assert made["key"] not in path.read_text()


# -- command line and SDK -----------------------------------------------------------------------------------------


def penstock(server: Server, *arguments: str, key: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PENSTOCK_URL": server.url, "PENSTOCK_KEY": key or server.key}
    command = [sys.executable, "-m", "penstock", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def test_command_line_administers_keys(guarded):
    create = ("keys", "create", "--name", "cli", "--scope", "publish:shop/*", "--expires", "90d", "-o", "json")
    made = json.loads(penstock(guarded, *create).stdout)
    assert made["name"] == "cli" and made["expires_at_ms"] > made["created_at_ms"]
    assert penstock(guarded, "publish", "shop/cli", "1", key=made["key"]).returncode == 0
    refused = penstock(guarded, "keys", "list", key=made["key"])
    assert refused.returncode == 1 and "key.admin" in refused.stderr and made["key"] not in refused.stderr
    listed = json.loads(penstock(guarded, "keys", "list", "-o", "json").stdout)["keys"]
    (shown,) = [key for key in listed if key["id"] == made["id"]]
    assert "key" not in shown and shown["last_used_at_ms"] > 0
    assert json.loads(penstock(guarded, "keys", "rotate", made["id"], "--now", "-o", "json").stdout)["key"]
    assert penstock(guarded, "publish", "shop/cli", "1", key=made["key"]).returncode != 0
    assert penstock(guarded, "keys", "revoke", made["id"]).returncode == 0


@pytest.mark.parametrize("scheme", ["http", "ws", "grpc"])
def test_sdk_sends_its_key(guarded, scheme):
    key = new_key(guarded, "publish:shop/*", "consume:shop/*")["key"]
    address = guarded.grpc if scheme == "grpc" else f"127.0.0.1:{guarded.port}"
    with Client(f"{scheme}://{address}", key=key, retry_for=0) as client:
        client.queue(f"shop/sdk-{scheme}").publish(1)
        with pytest.raises(QueueNotFound):
            client.queue("bank/sdk").publish(1)
    with Client(f"{scheme}://{key}@{address}", retry_for=0) as client:
        client.queue("shop/sdk").publish(1)
    with Client(f"{scheme}://{address}", retry_for=0) as client, pytest.raises(Unauthenticated):
        client.queue("shop/sdk").publish(1)


@pytest.mark.parametrize("scheme", ["http", "ws", "grpc"])
def test_ticket_of_the_sdk_has_the_scopes_of_its_key(guarded, scheme):
    key = new_key(guarded, "publish:shop/*")["key"]
    address = guarded.grpc if scheme == "grpc" else f"127.0.0.1:{guarded.port}"
    with Client(f"{scheme}://{address}", key=key) as client:
        made = client.ticket()
    assert made.expires_at_ms > time.time() * 1000
    with connect(f"ws://127.0.0.1:{guarded.port}/v1/ws?ticket={made.ticket}", proxy=None) as opened:
        assert json.loads(opened.recv())["type"] == "hello"
        for queue, answer in (("shop/tickets", "reply"), ("bank/tickets", "error")):
            opened.send(json.dumps({"type": "publish", "id": 1, "queue": queue, "messages": [{"payload": 1}]}))
            assert ("error" in json.loads(opened.recv())) == (answer == "error")


def test_command_line_shows_a_ticket(guarded):
    shown = json.loads(penstock(guarded, "keys", "ticket", "-o", "json").stdout)
    with connect(f"ws://127.0.0.1:{guarded.port}/v1/ws?ticket={shown['ticket']}", proxy=None) as opened:
        assert json.loads(opened.recv())["type"] == "hello"


# -- dialects ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "method", "target", "body"),
    [
        ("queen", "POST", "/api/v1/push", {"items": [{"queue": "orders", "ns": "shop", "task": "t", "payload": 1}]}),
        ("pulsar-proxy", "GET", "/poll?topic=orders&client=c", None),
        ("epochqueue", "GET", "/queues", None),
        ("disheap", "GET", "/v1/heaps", None),
    ],
)
def test_dialects_need_a_credential_too(tmp_path, dialect, method, target, body):
    with running(tmp_path / "data", "--auth", "keys", "--dialect", dialect) as server:
        key = (tmp_path / "data" / "bootstrap.key").read_text().strip()
        assert status(server, None, method, target, body) == 401
        assert status(server, key, method, target, body) != 401
