"""A real server process over HTTP."""

from __future__ import annotations

import base64
import concurrent.futures
import contextlib
import json
import resource
import signal
import socket
import subprocess
import sys
import time

import pytest
from http_server import Server, running

from penstock import limits
from penstock.batch import build
from penstock.wire.delivery import LeaseMeta, ReadMeta, decode_delivery

BATCH = "application/vnd.penstock.batch"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("server") / "data") as running_server:
        yield running_server


# -- messages -----------------------------------------------------------------------------------------------------


def test_publish_lease_ack(server):
    published = server.publish("first", {"order": 1}, [1, "zwei"], None)
    assert [message["offset"] for message in published] == [0, 1, 2]
    leased = server.lease("first")
    assert [message["payload"] for message in leased] == [{"order": 1}, [1, "zwei"], None]
    assert [message["id"] for message in leased] == [message["id"] for message in published]
    assert {message["attempt"] for message in leased} == {1}
    receipts = [message["receipt"] for message in leased]
    settled = server.ask("POST", "/v1/ack", {"receipts": receipts}).json["results"]
    assert settled == [{"receipt": receipt, "status": "acked"} for receipt in receipts]
    again = server.ask("POST", "/v1/ack", {"receipts": receipts[:1]}).json["results"]
    assert again == [{"receipt": receipts[0], "status": "stale"}]
    assert server.lease("first") == []


def test_a_payload_comes_back_byte_for_byte(server):
    text = b'{ "n" : 1.500, "e":"\\u00e9 \xc3\xa9", "big": 123456789012345678901234567890 }'
    body = b'{"queue": "bytes", "messages": [{"payload": %s}, {"payload_b64": "AP8="}]}' % text
    assert server.ask("POST", "/v1/publish", body).status == 201
    answer = server.ask("POST", "/v1/lease", {"queue": "bytes", "max": 2})
    assert b'"payload":' + text + b"," in answer.body
    assert answer.json["messages"][1]["payload_b64"] == "AP8="


def test_frames_in_and_deliveries_out(server):
    frame = build([b'{"a":1}', b"2"])
    answer = server.ask("POST", "/v1/publish?queue=frames&producer=p&epoch=1&seq=0", frame, content_type=BATCH)
    assert (answer.status, answer.json["runs"][0]["count"], answer.json["durable"]) == (201, 2, True)
    repeated = server.ask("POST", "/v1/publish?queue=frames&producer=p&epoch=1&seq=0", frame, content_type=BATCH)
    assert (repeated.json["runs"][0]["duplicate"], repeated.json["runs"][0]["id"]) == (
        True,
        answer.json["runs"][0]["id"],
    )
    delivery = server.ask("POST", "/v1/lease", {"queue": "frames", "max": 10}, accept=BATCH)
    meta, batches = decode_delivery(delivery.body, LeaseMeta)
    assert [payload for batch in batches for payload in batch.payloads()] == [b'{"a":1}', b"2"]
    run = meta.runs[0]
    receipt = f"{run.receipt}{run.offset}-{run.offset + 1}"
    assert server.ask("POST", "/v1/ack", {"receipts": [receipt]}).json["results"][0]["status"] == "acked"
    read = server.ask("GET", "/v1/read?queue=frames&offset=earliest", accept=BATCH)
    meta, _ = decode_delivery(read.body, ReadMeta)
    assert meta.end_offset == 2


def test_nack_reject_and_the_dead_letters(server):
    assert server.ask("PUT", "/v1/queues/failing", {"max_retries": 0}).status == 201
    server.publish("failing", {"n": 1}, {"n": 2})
    first, second = server.lease("failing")
    nacked = server.ask("POST", "/v1/nack", {"receipts": [first["receipt"]], "error": "broke"}).json["results"]
    assert nacked[0]["status"] == "dead_lettered"
    rejected = server.ask("POST", "/v1/reject", {"receipts": [second["receipt"]], "error": "poison"}).json["results"]
    assert rejected[0]["status"] == "dead_lettered"
    dead = server.ask("GET", "/v1/dlq?queue=failing").json
    assert dead["total"] == 2
    assert {(letter["payload"]["n"], letter["error"]) for letter in dead["messages"]} == {(1, "broke"), (2, "poison")}
    assert {letter["attempt"] for letter in dead["messages"]} == {1}


def test_nack_extend_cancel_reschedule(server):
    server.publish("waiting", 1)
    (message,) = server.lease("waiting", lease_ms=60_000)
    extended = server.ask("POST", "/v1/extend", {"receipts": [message["receipt"]], "lease_ms": 120_000}).json["results"]
    assert extended[0]["status"] == "extended" and extended[0]["deadline_at_ms"] > message["deadline_at_ms"]
    nacked = server.ask("POST", "/v1/nack", {"receipts": [message["receipt"]], "delay_ms": 0}).json["results"]
    assert nacked[0]["status"] == "retrying" and "due_at_ms" in nacked[0]
    later = server.publish("waiting", 2, 3, delay_ms=3_600_000)
    cancelled = server.ask("POST", "/v1/cancel", {"queue": "waiting", "ids": [later[0]["id"]]}).json
    assert cancelled == {"cancelled": 1, "results": [{"id": later[0]["id"], "status": "cancelled"}]}
    moved = server.ask("POST", "/v1/reschedule", {"queue": "waiting", "ids": [later[1]["id"]], "delay_ms": 0}).json
    assert moved == {"rescheduled": 1, "results": [{"id": later[1]["id"], "status": "rescheduled"}]}
    seen = []
    server.wait_until(lambda: seen.extend(m["payload"] for m in server.lease("waiting", wait_ms=100)) or len(seen) == 2)
    assert sorted(seen) == [1, 3]


def test_a_publish_that_is_not_atomic(server):
    messages = [
        {"payload": 1},
        {"payload": 2, "priority": "high"},
        {"payload": "x" * 100, "queue": "small"},
        {"payload": 4},
    ]
    server.ask("PUT", "/v1/queues/small", {"max_payload_bytes": 10})
    answer = server.ask("POST", "/v1/publish", {"queue": "each", "atomic": False, "messages": messages})
    assert answer.status == 207
    assert [result["status"] for result in answer.json["results"]] == [201, 400, 413, 201]
    whole = server.ask("POST", "/v1/publish", {"queue": "each", "messages": messages})
    assert whole.status == 400
    assert [message["payload"] for message in server.lease("each")] == [1, 4]


def test_long_poll_is_answered_on_publish(server):
    server.publish("polled", 0)
    (first,) = server.lease("polled")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = {"queue": "polled", "max": 5, "wait_ms": 60_000, "ack": [first["receipt"]]}
        waiting = pool.submit(server.ask, "POST", "/v1/lease", asked)
        server.wait_until(lambda: server.ask("GET", "/v1/stats/summary").json["waiting_consumers"] == 1)
        server.publish("polled", "now")
        answer = waiting.result(timeout=10).json
    assert [message["payload"] for message in answer["messages"]] == ["now"]
    assert answer["results"] == [{"receipt": first["receipt"], "status": "acked"}]


def test_disconnected_client_gets_no_lease(server):
    server.ask("PUT", "/v1/queues/abandoned", {})
    with contextlib.closing(server.connect()) as connection:
        connection.request("POST", "/v1/lease", json.dumps({"queue": "abandoned", "wait_ms": 60_000}))
        server.wait_until(lambda: server.ask("GET", "/v1/stats/summary").json["waiting_consumers"] == 1)
    server.wait_until(lambda: server.ask("GET", "/v1/stats/summary").json["waiting_consumers"] == 0)
    server.publish("abandoned", 1)
    assert [message["payload"] for message in server.lease("abandoned")] == [1]


def test_reading_and_peeking_take_nothing(server):
    server.publish("looked-at", *range(5))
    read = server.ask("GET", "/v1/read?queue=looked-at&offset=2&max=2").json
    assert [message["payload"] for message in read["messages"]] == [2, 3]
    assert (read["next_offset"], read["end_offset"], read["start_offset"]) == (4, 5, 0)
    peeked = server.ask("GET", "/v1/peek?queue=looked-at&max=3").json["messages"]
    assert [message["payload"] for message in peeked] == [0, 1, 2]
    assert len(server.lease("looked-at")) == 5


# -- queues -------------------------------------------------------------------------------------------------------


def test_queue_lifecycle_over_http(server):
    created = server.ask("PUT", "/v1/queues/life/of/queue", {"max_retries": 7})
    assert (created.status, created.json["config"]["max_retries"]) == (201, 7)
    again = server.ask("PUT", "/v1/queues/life/of/queue", {})
    assert (again.status, again.json["config"]["max_retries"]) == (200, 7), "settings that are not named stay"
    patched = server.ask("PATCH", "/v1/queues/life/of/queue", {"lease_ms": 5000}).json
    assert (patched["config"]["lease_ms"], patched["config"]["max_retries"]) == (5000, 7)
    assert server.ask("GET", "/v1/queues/life/of/queue").json == patched
    for bad in ({"nope": 1}, {"order": "stack"}, {"ordered_keys": 1}, {"lease_ms": -1}):
        refused = server.ask("PATCH", "/v1/queues/life/of/queue", bad)
        assert (refused.status, refused.json["error"]["details"]["field"]) == (400, next(iter(bad)))
    listed = server.ask("GET", "/v1/queues?prefix=life/").json
    assert [entry["queue"] for entry in listed["queues"]] == ["life/of/queue"]
    server.publish("life/of/queue", 1, 2)
    for method, path in (("POST", "/v1/queues/life/of/queue/purge"), ("DELETE", "/v1/queues/life/of/queue")):
        asked = server.ask(method, path)
        assert asked.status == 409
        details = asked.json["error"]["details"]
        assert "would_lose" in details
        assert server.ask(method, f"{path}?confirm=wrong").status == 409
        assert server.ask(method, f"{path}?confirm={details['confirm']}").status == 200
    assert server.ask("GET", "/v1/queues/life/of/queue").status == 404


def test_stats_groups_and_metrics_agree(server):
    server.publish("counted", 1, 2, 3)
    server.lease("counted", max=2, group="default")
    stats = server.ask("GET", "/v1/stats?queue=counted").json
    assert (stats["depth"], stats["ready"], stats["leased"]) == (3, 1, 2)
    groups = server.ask("GET", "/v1/groups?queue=counted").json["groups"]
    assert [(group["group"], group["lag"]) for group in groups] == [("default", 3)]
    metrics = server.ask("GET", "/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    lines = metrics.body.decode().splitlines()
    labels = 'namespace="default",queue="default/default/counted"'
    assert f"penstock_messages_published_total{{{labels}}} 3.0" in lines
    assert f'penstock_queue_messages{{{labels},state="inflight"}} 2.0' in lines
    assert f'penstock_consumer_lag_messages{{group="default",{labels}}} 3.0' in lines
    assert 'penstock_build_info{version="0.1.0"} 1.0' in lines


# -- bad manners --------------------------------------------------------------------------------------------------


def test_unknown_queues_are_404_everywhere(server):
    for method, target, body in (
        ("POST", "/v1/lease", {"queue": "nowhere"}), ("GET", "/v1/read?queue=nowhere", None),
        ("GET", "/v1/peek?queue=nowhere", None), ("GET", "/v1/stats?queue=nowhere", None),
        ("GET", "/v1/groups?queue=nowhere", None), ("GET", "/v1/dlq?queue=nowhere", None),
        ("GET", "/v1/queues/nowhere", None), ("PATCH", "/v1/queues/nowhere", {}),
        ("DELETE", "/v1/queues/nowhere", None), ("POST", "/v1/cancel", {"queue": "nowhere", "key": "k"}),
    ):  # fmt: skip
        answer = server.ask(method, target, body)
        assert (answer.status, answer.json["error"]["code"]) == (404, "queue_not_found"), target


def test_a_body_that_is_too_large_is_refused_so_that_the_sender_sees_it(server):
    answer = server.ask("POST", "/v1/publish", b" " * (limits.REQUEST_BYTES_MAX + 1))
    assert (answer.status, answer.json["error"]["code"]) == (413, "too_large")


def test_a_body_that_is_sent_in_chunks(server):
    def chunks(count):
        yield b'{"queue": "chunked", "messages": [{"payload": "'
        for _ in range(count):
            yield b"x" * 65_536
        yield b'"}]}'

    with contextlib.closing(server.connect()) as connection:
        for count, status in ((10, 201), (250, 413)):
            connection.request("POST", "/v1/publish", chunks(count), encode_chunked=True,
                               headers={"transfer-encoding": "chunked"})  # fmt: skip
            response = connection.getresponse()
            assert (response.status, len(response.read()) > 0) == (status, True)


@pytest.mark.parametrize(
    "text",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"POST /v1/ack HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/ack HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/ack HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * (limits.HEADER_BYTES_MAX + 200_000) + b"\r\n\r\n",
    ],
)
def test_broken_http_is_refused_and_affects_no_other_client(server, text):
    # A refusal may overtake the rest of what is sent, which then meets a closed door.
    door = ("127.0.0.1", server.port)
    with contextlib.suppress(ConnectionError), socket.create_connection(door, timeout=30) as raw:
        raw.sendall(text)
        answer = raw.recv(65_536)
        assert answer.startswith(b"HTTP/1.1 4") or answer == b""
    assert server.ask("GET", "/healthz").status == 200


def test_a_stranger_may_not_use_this_machine_through_a_browser(server):
    assert server.ask("GET", "/healthz", host="attacker.example").status == 403
    assert server.ask("GET", "/healthz", origin="https://attacker.example").status == 403


def test_page_on_another_port_of_this_machine_cannot_publish(server):
    body = {"queue": "foreign", "messages": [{"payload": 1}]}
    for origin in ("http://localhost:3000", f"http://localhost:{server.port}", "null"):
        assert server.ask("POST", "/v1/publish", body, origin=origin, content_type="text/plain").status == 403
        assert server.ask("POST", "/v1/publish", body, origin=origin).status == 403
    assert server.ask("POST", "/v1/publish", body, origin=f"http://127.0.0.1:{server.port}").status == 201
    assert len(server.lease("foreign")) == 1


def test_requests_in_one_packet_are_answered_in_order(server):
    one = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with contextlib.closing(socket.create_connection(("127.0.0.1", server.port), timeout=30)) as raw:
        raw.sendall(one * 5 + last)
        received = b""
        while piece := raw.recv(65_536):
            received += piece
    assert received.count(b'{"status":"ok"}') == 5 and received.endswith(b'{"status":"ready"}')


# -- life of the process ------------------------------------------------------------------------------------------


def test_sigterm_answers_waiting_requests_and_exits_with_zero(tmp_path):
    with running(tmp_path / "data") as server:
        server.publish("kept", 1, 2)
        server.ask("PUT", "/v1/queues/empty", {})
        with concurrent.futures.ThreadPoolExecutor() as pool:
            waiting = pool.submit(server.lease, "empty", wait_ms=60_000)
            server.wait_until(lambda: server.ask("GET", "/v1/stats/summary").json["waiting_consumers"] == 1)
            started = time.monotonic()
            assert server.terminate() == 0
            assert waiting.result(timeout=5) == []
            assert time.monotonic() - started < 10
        with pytest.raises(ConnectionError):
            server.ask("GET", "/healthz")
    with running(tmp_path / "data") as server:
        assert [message["payload"] for message in server.lease("kept")] == [1, 2]
        assert server.terminate(signal.SIGINT) == 0


def test_a_crash_loses_nothing_that_was_answered(tmp_path):
    with running(tmp_path / "data") as server:
        server.publish("kept", *range(100))
        leased = server.lease("kept", max=40)
        server.ask("POST", "/v1/ack", {"receipts": [message["receipt"] for message in leased]})
        server.kill()
    with running(tmp_path / "data") as server:
        assert [message["payload"] for message in server.lease("kept", max=100)] == list(range(40, 100))


def test_a_journal_that_fails_ends_the_process_and_the_next_start_has_what_was_answered(tmp_path):
    with running(tmp_path / "data") as server:
        server.publish("kept", 1, 2)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (65_536, 65_536))
        answer = server.ask("POST", "/v1/publish", {"queue": "kept", "messages": [{"payload": "x" * 100_000}]})
        assert (answer.status, answer.json["error"]["code"]) == (503, "unavailable")
        assert server.wait() == 74
        assert '"journal_failed"' in server.log()
    with running(tmp_path / "data") as server:
        assert [message["payload"] for message in server.lease("kept")] == [1, 2]


def refused_start(data_dir) -> subprocess.CompletedProcess[str]:
    options = ("--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--data-dir", str(data_dir))
    command = [sys.executable, "-m", "penstock", "serve", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


def test_two_servers_never_share_a_data_directory(tmp_path):
    with running(tmp_path / "data"):
        second = refused_start(tmp_path / "data")
    assert second.returncode == 78 and "in use" in second.stderr and second.stdout == ""


@pytest.mark.parametrize("name", ["node", "shard-0/term"])
def test_a_damaged_store_is_refused_with_78(tmp_path, name):
    with running(tmp_path / "data"):
        pass
    (tmp_path / "data" / name).write_bytes(b"something else, of twenty bytes")
    refused = refused_start(tmp_path / "data")
    assert refused.returncode == 78 and f"{name}, offset 0: " in refused.stderr


def test_a_data_directory_that_is_moved_away_is_noticed(tmp_path):
    with running(tmp_path / "data") as server:
        server.publish("orders", 1)
        (tmp_path / "data").rename(tmp_path / "elsewhere")
        server.wait_until(lambda: server.ask("GET", "/readyz").status == 503)
        assert '"data_directory_missing"' in server.log()
        assert server.ask("POST", "/v1/publish", {"queue": "orders", "messages": [{"payload": 2}]}).status == 503
        (tmp_path / "elsewhere").rename(tmp_path / "data")
        server.wait_until(lambda: server.ask("GET", "/readyz").status == 200)
        assert [message["payload"] for message in server.lease("orders")] == [1]


def test_the_log_is_json_and_silent_about_what_strangers_send(tmp_path):
    with running(tmp_path / "data") as server:
        marker = base64.b16encode(b"canary").decode()
        server.ask("GET", f"/{marker}%0d%0afake")
        server.publish("private", marker)
        with contextlib.closing(socket.create_connection(("127.0.0.1", server.port))) as raw:
            raw.sendall(f"{marker}\r\n\r\n".encode())
            raw.recv(1000)
        assert server.terminate() == 0
        lines = server.log().splitlines()
        events = [json.loads(line)["event"] for line in lines]
    assert events == ["store_opened", "drain_started", "server_stopped"]
    assert marker not in server.log()


def test_server_option_disables_queue_creation(tmp_path):
    with running(tmp_path / "data", "--no-auto-create", "--fsync", "never") as server:
        answer = server.ask("POST", "/v1/publish", {"queue": "new", "messages": [{"payload": 1}]})
        assert (answer.status, answer.json["error"]["code"]) == (404, "queue_not_found")
        server.ask("PUT", "/v1/queues/new", {})
        answer = server.ask("POST", "/v1/publish", {"queue": "new", "messages": [{"payload": 1}]})
        assert (answer.status, answer.json["durable"]) == (201, False)


def test_data_directory_is_private(tmp_path):
    with running(tmp_path / "data") as server:
        assert isinstance(server, Server)
        for path in (tmp_path / "data").rglob("*"):
            assert path.stat().st_mode & 0o077 == 0, path
