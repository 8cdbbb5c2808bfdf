"""Webhooks of a running server: HTTP, both SDK clients, the CLI, the standardwebhooks verifier, a killed broker."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from http_server import running
from receiver import LOOPBACK, receiving
from standardwebhooks import Webhook, WebhookVerificationError

import penstock
import penstock.sync

ALLOW = ("--webhook-allow", LOOPBACK)
DOCS = Path(__file__).parents[2] / "docs/webhooks.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("webhooks") / "data", *ALLOW) as running_server:
        yield running_server


@contextmanager
def registered(server, queue: str, receiver, **options):
    made = server.ask("POST", "/v1/webhooks", {"queue": queue, "url": receiver.url, **options})
    assert made.status == 201, made.body
    try:
        yield made.json
    finally:
        server.ask("DELETE", f"/v1/webhooks/{made.json['id']}")


def depth(server, queue: str) -> int:
    return server.ask("GET", f"/v1/stats?queue={queue}").json["depth"]


def test_standardwebhooks_library_accepts_every_delivery(server):
    with receiving() as receiver, registered(server, "verified", receiver) as hook:
        payloads = [{"n": number, "text": "größe 😀"} for number in range(200)]
        server.publish("verified", *payloads)
        deliveries = receiver.wait_for(200)
        verifier = Webhook(hook["secret"])
        assert sorted(verifier.verify(each.body, each.headers)["n"] for each in deliveries) == list(range(200))
        assert len({each.id for each in deliveries}) == 200
        with pytest.raises(WebhookVerificationError):
            verifier.verify(deliveries[0].body + b" ", deliveries[0].headers)
        server.wait_until(lambda: depth(server, "verified") == 0)
        assert receiver.connections <= 8, "connections are reused"


def test_both_secrets_verify_during_a_rotation(server):
    with receiving() as receiver, registered(server, "rotated", receiver) as hook:
        rotated = server.ask("POST", "/v1/webhooks/rotate", {"id": hook["id"]}).json
        assert rotated["secrets"] == 2
        server.publish("rotated", 1)
        (delivery,) = receiver.wait_for(1)
        for secret in (hook["secret"], rotated["secret"]):
            assert Webhook(secret).verify(delivery.body, delivery.headers) == 1
        again = server.ask("POST", "/v1/webhooks/rotate", {"id": hook["id"], "overlap_ms": 0}).json
        server.publish("rotated", 2)
        delivery = receiver.wait_for(2)[1]
        assert Webhook(again["secret"]).verify(delivery.body, delivery.headers) == 2
        with pytest.raises(WebhookVerificationError):
            Webhook(rotated["secret"]).verify(delivery.body, delivery.headers)


@pytest.mark.slow
def test_killed_broker_resends_undelivered_messages(tmp_path):
    with receiving() as receiver:
        receiver.answer = lambda _delivery: 500
        with running(tmp_path / "data", *ALLOW) as server:
            body = {"queue": "orders", "url": receiver.url, "retry_delays_ms": [300] * 20, "timeout_ms": 2_000}
            hook = server.ask("POST", "/v1/webhooks", body).json
            ids = [message["id"] for message in server.publish("orders", 1, 2, 3)]
            receiver.wait_for(4)
            server.kill()
        seen = len(receiver.deliveries)
        receiver.answer = lambda _delivery: 204
        with running(tmp_path / "data", *ALLOW) as server:
            server.wait_until(lambda: depth(server, "orders") == 0, timeout=60)
            taken = receiver.deliveries[seen:]
            assert {delivery.id for delivery in taken} == set(ids)
            assert all(int(delivery.headers["penstock-attempt"]) >= 2 for delivery in taken)
            for delivery in taken:
                assert Webhook(hook["secret"]).verify(delivery.body, delivery.headers) in (1, 2, 3)
            assert server.ask("GET", f"/v1/webhooks/{hook['id']}").json["state"] == "active"
            assert server.terminate() == 0


def test_stop_waits_for_attempts_in_flight_and_releases_the_rest(tmp_path):
    release = threading.Event()
    with receiving() as receiver:

        def slow(delivery):
            if delivery.body == b'"slow"':
                release.wait(30)
            return 200

        receiver.answer = slow
        with running(tmp_path / "data", *ALLOW, "--shutdown-grace-s", "2") as server:
            server.ask("POST", "/v1/webhooks", {"queue": "orders", "url": receiver.url})
            server.publish("orders", "slow", "quick")
            receiver.wait_for(2)
            server.wait_until(lambda: depth(server, "orders") == 1)
            assert server.terminate() == 0
        release.set()
        with running(tmp_path / "data", *ALLOW) as server:
            receiver.wait_for(3)
            assert receiver.deliveries[-1].headers["penstock-attempt"] == "1"
            server.wait_until(lambda: depth(server, "orders") == 0)


def test_secrets_do_not_leak(tmp_path):
    """A secret is only in the reply that created it: not on disk, in logs, in other replies or in `inspect`."""
    with receiving() as receiver, running(tmp_path / "data", *ALLOW, "--log-level", "debug") as server:
        receiver.answer = lambda _delivery: 500
        hook = server.ask("POST", "/v1/webhooks", {"queue": "orders", "url": receiver.url, "retry_delays_ms": []}).json
        more = server.ask("POST", "/v1/webhooks/rotate", {"id": hook["id"]}).json
        message = server.publish("orders", 1)[0]["id"]
        receiver.wait_for(1)
        server.wait_until(lambda: server.ask("GET", "/v1/dlq?queue=orders").json["total"] == 1)
        looks = [
            server.ask("GET", path).body
            for path in (
                "/v1/webhooks", f"/v1/webhooks/{hook['id']}", f"/v1/webhooks/attempts?id={hook['id']}", "/metrics",
                "/v1/dlq?queue=orders", f"/v1/history?queue=orders&id={message}", "/v1/stats?queue=orders",
            )
        ]  # fmt: skip
        looks.append(server.ask("POST", "/v1/webhooks/test", {"id": hook["id"]}).body)
        key = tmp_path / "data" / "webhook.key"
        assert stat.S_IMODE(key.stat().st_mode) == 0o600 and key.stat().st_size == 32
        assert server.terminate() == 0
        inspect = subprocess.run(
            [sys.executable, "-m", "penstock", "inspect", str(tmp_path / "data")], capture_output=True, check=True
        )
        looks += [inspect.stdout, inspect.stderr, server.log().encode()]
        looks += [path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()]
    for secret in (hook["secret"], more["secret"]):
        raw = base64.b64decode(secret.removeprefix("whsec_"))
        for form in (secret.encode(), secret.removeprefix("whsec_").encode(), raw, raw.hex().encode()):
            assert not any(form in look for look in looks)


def test_key_file_readable_by_others_is_refused(tmp_path):
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "webhook.key").write_bytes(bytes(32))
    (data / "webhook.key").chmod(0o644)
    with running(data, *ALLOW) as server:
        refused = server.ask("POST", "/v1/webhooks", {"queue": "orders", "url": "https://example.com/"})
        assert refused.status == 503 and "chmod 600" in refused.json["error"]["message"]
        assert server.ask("GET", "/v1/queues").json["total"] == 0


def test_private_addresses_are_refused_by_default(tmp_path):
    with receiving() as receiver, running(tmp_path / "data") as server:
        for url in (receiver.url, f"https://127.0.0.1:{receiver.port}/", f"https://localhost:{receiver.port}/"):
            refused = server.ask("POST", "/v1/webhooks", {"queue": "orders", "url": url})
            assert (refused.status, refused.json["error"]["details"]) == (400, {"field": "url"})
        assert receiver.connections == 0


def test_own_address_is_refused_over_http(server):
    refused = server.ask("POST", "/v1/webhooks", {"queue": "orders", "url": f"{server.url}/v1/publish"})
    assert refused.status == 400 and "own address" in refused.json["error"]["message"]
    # A name is refused when it resolves to the own address.
    made = server.ask(
        "POST", "/v1/webhooks", {"queue": "self", "url": f"http://localhost:{server.port}/v1/publish", "paused": True}
    )
    test = server.ask("POST", "/v1/webhooks/test", {"id": made.json["id"]}).json
    assert (test["outcome"], test["error"]) == ("refused", "this is the server's own address")
    server.ask("DELETE", f"/v1/webhooks/{made.json['id']}")


@pytest.mark.parametrize(
    ("method", "target", "body", "status"),
    [
        ("POST", "/v1/webhooks", {}, 400),
        ("POST", "/v1/webhooks", {"queue": "x"}, 400),
        ("POST", "/v1/webhooks", {"queue": "x", "url": "https://example.com", "unknown": 1}, 400),
        ("POST", "/v1/webhooks", {"queue": "X!", "url": "https://example.com"}, 400),
        ("POST", "/v1/webhooks", {"queue": "x", "url": "https://example.com", "format": "xml"}, 400),
        ("POST", "/v1/webhooks", {"queue": "x", "url": "https://example.com", "timeout_ms": 1}, 400),
        ("POST", "/v1/webhooks", {"queue": "x", "url": "https://example.com", "concurrency": 0}, 400),
        ("POST", "/v1/webhooks", {"queue": "x", "url": "https://example.com", "retry_delays_ms": [-1]}, 400),
        ("POST", "/v1/webhooks", {"queue": "x", "url": "https://example.com", "retry_delays_ms": [0] * 101}, 400),
        ("POST", "/v1/webhooks", {"queue": "x", "url": f"https://example.com/{'a' * 3000}"}, 400),
        ("POST", "/v1/webhooks", b" " * 20_000, 413),
        ("POST", "/v1/webhooks?x=1", {"queue": "x", "url": "https://example.com"}, 400),
        ("GET", "/v1/webhooks/nothing", None, 404),
        ("PATCH", "/v1/webhooks/nothing", {"concurrency": 1}, 404),
        ("PATCH", "/v1/webhooks/nothing", {}, 400),
        ("PATCH", "/v1/webhooks/nothing", {"queue": "other"}, 400),
        ("DELETE", "/v1/webhooks/nothing", None, 404),
        ("POST", "/v1/webhooks/pause", {"id": "nothing"}, 404),
        ("POST", "/v1/webhooks/pause", {}, 400),
        ("POST", "/v1/webhooks/rotate", {"id": "nothing", "overlap_ms": -1}, 400),
        ("POST", "/v1/webhooks/test", {"id": "nothing"}, 404),
        ("GET", "/v1/webhooks/attempts", None, 400),
        ("GET", "/v1/webhooks/attempts?id=nothing", None, 404),
        ("PUT", "/v1/webhooks", {}, 405),
        ("PUT", "/v1/webhooks/nothing", {}, 405),
    ],
)
def test_invalid_request_is_refused_and_changes_nothing(server, method, target, body, status):
    before = server.ask("GET", "/v1/webhooks").json
    assert server.ask(method, target, body).status == status
    assert server.ask("GET", "/v1/webhooks").json == before
    assert server.ask("GET", "/v1/stats?queue=x").status == 404


def test_webhook_is_changed_in_place(server):
    with receiving() as old, receiving() as new, registered(server, "changed", old) as hook:
        changes = {"url": new.url, "concurrency": 1, "retry_delays_ms": [1], "description": "moved"}
        shown = server.ask("PATCH", f"/v1/webhooks/{hook['id']}", changes).json
        assert {name: shown[name] for name in changes} == changes and "secret" not in shown
        server.publish("changed", 1)
        new.wait_for(1)
        assert old.deliveries == []
        listed = server.ask("GET", "/v1/webhooks?queue=changed").json
        assert (listed["total"], listed["webhooks"][0]["url"]) == (1, new.url)


def test_message_is_sent_again_without_a_change_of_the_queue(server):
    server.ask("PUT", "/v1/queues/again", {"retention": {"mode": "keep"}})
    with receiving() as receiver, registered(server, "again", receiver) as hook:
        (stored,) = server.publish(
            "again", {"n": 1}, headers={"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}
        )
        receiver.wait_for(1)
        server.wait_until(lambda: server.ask("GET", f"/v1/webhooks/{hook['id']}").json["delivery"]["in_flight"] == 0)
        before = server.ask("GET", "/v1/stats?queue=again").json["totals"]
        asked = {"id": hook["id"], "message_id": stored["id"]}
        sent = server.ask("POST", "/v1/webhooks/resend", asked)
        assert sent.status == 200 and sent.json["outcome"] == "delivered" and sent.json["message_id"] == stored["id"]
        first, again = receiver.deliveries
        assert (again.id, again.body) == (first.id, first.body)
        assert again.headers["traceparent"] == first.headers["traceparent"]
        assert Webhook(hook["secret"]).verify(again.body, again.headers) == {"n": 1}
        assert server.ask("GET", "/v1/stats?queue=again").json["totals"] == before
        attempts = server.ask("GET", f"/v1/webhooks/attempts?id={hook['id']}").json["attempts"]
        assert [attempt["attempt"] for attempt in attempts] == [0, 1]
        receiver.answer = lambda _delivery: 500
        assert server.ask("POST", "/v1/webhooks/resend", asked).json["outcome"] == "failed"
        missing = server.ask("POST", "/v1/webhooks/resend", {**asked, "message_id": "01JPAAAAAAAAAAAAAAAAAAAAAA"})
        assert missing.status == 404 and "not stored any more" in missing.json["error"]["message"]


def test_attempts_are_counted_by_outcome(server):
    with receiving() as receiver, registered(server, "counted", receiver, retry_delays_ms=[0]) as hook:
        statuses = iter((500, 200))
        receiver.answer = lambda _delivery: next(statuses)
        server.publish("counted", 1)
        receiver.wait_for(2)
        server.wait_until(lambda: depth(server, "counted") == 0)
        attempts = server.ask("GET", f"/v1/webhooks/attempts?id={hook['id']}").json["attempts"]
        assert [(each["attempt"], each["outcome"], each["status"]) for each in attempts] == [
            (2, "delivered", 200), (1, "failed", 500),
        ]  # fmt: skip
        metrics = server.ask("GET", "/metrics").body.decode()
        assert re.search(r'^penstock_webhook_attempts_total\{outcome="failed"\} [1-9]', metrics, re.MULTILINE)
        assert re.search(r'^penstock_webhook_attempts_total\{outcome="delivered"\} [1-9]', metrics, re.MULTILINE)


# -- the command line and the SDK -----------------------------------------------------------------------------------


def penstock_cli(server, *words: str, ok: bool = True) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "webhooks", *words],
        capture_output=True, text=True, timeout=60,
        env={**os.environ, "PENSTOCK_URL": server.url, "COLUMNS": "400"},
    )  # fmt: skip
    assert (done.returncode == 0) == ok, done.stderr
    return done.stdout


def test_cli_manages_a_webhook_from_create_to_delete(server):
    with receiving() as receiver:
        words = (
            "add",
            "cli",
            receiver.url,
            "--retry-delay",
            "0.5",
            "--retry-delay",
            "2",
            "--timeout",
            "3",
            "-o",
            "json",
        )
        made = json.loads(penstock_cli(server, *words))
        assert (made["retry_delays_ms"], made["timeout_ms"]) == ([500, 2000], 3000)
        id = made["id"]
        assert id in penstock_cli(server, "list") and made["secret"] not in penstock_cli(server, "show", id)
        assert json.loads(penstock_cli(server, "test", id, "-o", "json"))["outcome"] == "delivered"
        words = ("--timeout", "4", "--description", "for ada", "--endpoint", f"{receiver.url}/new")
        changed = json.loads(penstock_cli(server, "change", id, *words, "-o", "json"))
        assert (changed["retry_delays_ms"], changed["timeout_ms"], changed["description"], changed["url"]) == (
            [500, 2000], 4000, "for ada", f"{receiver.url}/new",
        )  # fmt: skip
        penstock_cli(server, "change", id, ok=False)  # nothing to change
        assert json.loads(penstock_cli(server, "pause", id, "-o", "json"))["state"] == "paused"
        assert "active" in penstock_cli(server, "resume", id)
        assert json.loads(penstock_cli(server, "rotate", id, "--overlap", "60", "-o", "json"))["secrets"] == 2
        server.publish("cli", 1)
        receiver.wait_for(2)
        server.wait_until(lambda: depth(server, "cli") == 0)
        assert "delivered" in penstock_cli(server, "attempts", id)
        receiver.answer = lambda _delivery: 500
        assert "answered 500" in penstock_cli(server, "test", id, ok=False)
        assert json.loads(penstock_cli(server, "remove", id, "-o", "json")) == {"id": id, "deleted": True}
        assert id not in penstock_cli(server, "list")
        penstock_cli(server, "show", id, ok=False)
        penstock_cli(server, "add", "cli", "ftp://example.com", ok=False)


def test_both_sdk_clients_manage_webhooks(server):
    async def story(receiver):
        async with penstock.Client(server.url) as client:
            made = await client.webhooks.add("sdk", receiver.url, retry_delays=[0.5], attempt_timeout=2, concurrency=2)
            assert made.secret.startswith("whsec_") and made.retry_delays_ms == [500]
            assert (await client.webhooks.test(made.id)).outcome == "delivered"
            assert (await client.webhooks.change(made.id, retry_delays=[1], description="x")).description == "x"
            assert (await client.webhooks.rotate(made.id, overlap=5)).secrets == 2
            with pytest.raises(penstock.Conflict):
                await client.webhooks.add("sdk", receiver.url)
            return made.id

    with receiving() as receiver:
        id = asyncio.run(story(receiver))
        with penstock.sync.Client(server.url) as client:
            assert client.webhooks.get(id).retry_delays_ms == [1000]
            assert client.webhooks.list("sdk").total == 1
            assert client.webhooks.pause(id).state == "paused"
            assert client.webhooks.resume(id).state == "active"
            assert client.webhooks.attempts(id, limit=5).attempts == []
            assert client.webhooks.delete(id).deleted
            with pytest.raises(penstock.NotFound):
                client.webhooks.get(id)
            with pytest.raises(penstock.InvalidRequest):
                client.webhooks.add("sdk", "https://10.0.0.1/")


def test_receiver_of_the_documentation_verifies(server, tmp_path):
    found = re.search(r"^```python\n(import os\n.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    program = (
        found[1]
        .replace('int(os.environ.get("PORT", "8000"))', "0")
        .replace(").serve_forever()", ")\nprint(server.server_port, flush=True)\nserver.serve_forever()")
    )
    program = program.replace("HTTPServer((", "server = HTTPServer((")
    made = server.ask(
        "POST", "/v1/webhooks", {"queue": "documented", "url": "http://127.0.0.1:9/", "paused": True}
    ).json
    receiver = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "WEBHOOK_SECRET": made["secret"]},
    )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{receiver.stdout.readline().strip()}/"
        server.ask("PATCH", f"/v1/webhooks/{made['id']}", {"url": url})
        server.ask("POST", "/v1/webhooks/resume", {"id": made["id"]})
        (message,) = server.publish("documented", {"order": 1})
        assert receiver.stdout.readline() == f"order {{'order': 1}} as {message['id']}\n"
        server.wait_until(lambda: depth(server, "documented") == 0)
        forged = subprocess.run(
            [sys.executable, "-c", "import sys, urllib.request as u\n"
             "try: u.urlopen(u.Request(sys.argv[1], b'{}', {'webhook-id': 'x', 'webhook-timestamp': '1', "
             "'webhook-signature': 'v1,x'}))\nexcept u.HTTPError as e: print(e.code)", url],
            capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        assert forged.stdout == "401\n"
    finally:
        receiver.kill()
        receiver.wait()
        receiver.stdout.close()
