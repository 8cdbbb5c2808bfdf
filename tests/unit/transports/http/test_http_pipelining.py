"""Requests that arrive whole, in pieces, behind each other, and not to the end: over real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from email.utils import parsedate_to_datetime

import pytest
from http_talk import request, talk
from patience import until

from penstock import limits
from penstock.batch import Batch, build
from penstock.transports.http.protocol import LATER_BYTES_MAX, LATER_MAX

PUBLISH = {"queue": "q", "messages": [{"payload": "x" * 1000}] * 300}


def test_one_request_after_another_without_a_task():
    async def story(it):
        for _ in range(3):
            it.send("POST", "/v1/ack", {"receipts": ["a"]})
            status, headers, body = await it.answer()
            assert (status, headers["content-type"]) == (200, "application/json")
            assert json.loads(body) == {"results": [{"receipt": "a", "status": "acked"}]}
        assert it.state.total_requests == 3
        assert not it.state.tasks

    talk(story)


@pytest.mark.parametrize("size", [1, 7, 1000, 65_536])
def test_a_request_in_pieces_is_the_same_request(size):
    async def story(it):
        for method, path, body, status in (
            ("POST", "/v1/publish", PUBLISH, 201),
            ("POST", "/v1/lease", {"queue": "q", "max": 10}, 200),
        ):
            data = request(method, path, body)
            step = max(size, len(data) // 500)
            for at in range(0, len(data), step):
                it.writer.write(data[at : at + step])
                await it.writer.drain()
                await asyncio.sleep(0)
            assert (await it.answer())[0] == status

    talk(story)


def test_large_answers_arrive_whole():
    async def story(it):
        it.send("POST", "/v1/publish", PUBLISH)
        await it.answer()
        it.send("POST", "/v1/lease", {"queue": "q", "max": 300})
        _, _, body = await it.answer()
        assert [m["payload"] for m in json.loads(body)["messages"]] == ["x" * 1000] * 300

    talk(story)


def test_requests_behind_one_that_waits_are_answered_in_order():
    async def story(it):
        it.broker.stored["default/default/q"] = []
        it.writer.write(
            request("POST", "/v1/lease", {"queue": "q", "wait_ms": 60_000})
            + request("GET", "/healthz")
            + request("POST", "/v1/ack", {"receipts": ["a"]})
            + request("GET", "/readyz")
        )
        await it.broker.parked.wait()
        it.broker.arrived.set()
        assert json.loads((await it.answer())[2]) == {"messages": []}
        assert json.loads((await it.answer())[2]) == {"status": "ok"}
        assert json.loads((await it.answer())[2])["results"][0]["receipt"] == "a"
        assert json.loads((await it.answer())[2]) == {"status": "ready"}
        it.send("GET", "/healthz")
        assert (await it.answer())[0] == 200

    talk(story)


def chunked(path: str, body) -> bytes:
    body = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def ack(receipt: str) -> bytes:
    return request("POST", "/v1/ack", {"receipts": [receipt]})


async def acked(it) -> str:
    return json.loads((await it.answer())[2])["results"][0]["receipt"]


def test_ordinary_and_special_requests_keep_their_order_behind_each_other():
    async def story(it):
        it.broker.stored["default/default/q"] = []
        it.writer.write(
            request("POST", "/v1/lease", {"queue": "q", "wait_ms": 60_000})
            + ack("a")
            + ack("b")
            + chunked("/v1/ack", {"receipts": ["c"]})
            + ack("d")
        )
        await it.broker.parked.wait()
        it.broker.arrived.set()
        assert json.loads((await it.answer())[2]) == {"messages": []}
        assert [await acked(it) for _ in range(4)] == ["a", "b", "c", "d"]
        it.writer.write(ack("e"))
        assert await acked(it) == "e"

    talk(story)


def test_one_that_waits_may_follow_one_that_waits():
    async def story(it):
        it.broker.stored["default/default/q"] = []
        wait = request("POST", "/v1/lease", {"queue": "q", "wait_ms": 60_000})
        it.writer.write(wait + ack("a") + wait + ack("b"))
        for receipt in "ab":
            await until(lambda: it.broker.arrived._waiters)
            it.broker.arrived.set()
            it.broker.arrived.clear()  # for the one that waits now, not for the next
            assert json.loads((await it.answer())[2]) == {"messages": []}
            assert await acked(it) == receipt
        await until(lambda: not it.state.tasks)

    talk(story)


def test_what_waits_for_its_turn_is_bounded():
    async def story(it):
        it.broker.stored["default/default/q"] = []
        it.writer.write(request("POST", "/v1/lease", {"queue": "q", "wait_ms": 60_000}))
        await it.broker.parked.wait()
        (connection,) = it.state.connections
        piece = b"".join(ack(f"r{number}") for number in range(LATER_MAX))
        for _ in range(50):
            it.writer.write(piece)
        await until(lambda: connection._read_paused)
        it.broker.arrived.set()
        await it.answer()
        assert [await acked(it) for _ in range(50 * LATER_MAX)] == [f"r{n}" for n in range(LATER_MAX)] * 50

    talk(story)


def test_a_large_request_that_waits_for_its_turn_is_the_last_that_is_read():
    async def story(it):
        it.broker.stored["default/default/q"] = []
        it.writer.write(request("POST", "/v1/lease", {"queue": "q", "wait_ms": 60_000}))
        await it.broker.parked.wait()
        (connection,) = it.state.connections
        large = {"queue": "q", "messages": [{"payload": "x" * 1000}] * (LATER_BYTES_MAX // 1000)}
        it.send("POST", "/v1/publish", large)
        await until(lambda: connection._read_paused)
        assert len(connection._waiting) == 1
        it.broker.arrived.set()
        await it.answer()
        assert (await it.answer())[0] == 201
        it.writer.write(ack("a"))
        assert await acked(it) == "a"

    talk(story)


def test_order_is_kept_for_clients_that_do_not_read():
    async def story(it):
        it.broker.stored["default/default/q"] = []
        await until(lambda: it.state.connections)
        (connection,) = it.state.connections
        it.reader._transport.pause_reading()
        it.writer.write(request("POST", "/v1/lease", {"queue": "q", "wait_ms": 60_000, "max": 9_000}) + ack("a"))
        await until(lambda: len(connection._waiting) == 1)
        it.broker.stored["default/default/q"] = [Batch.open(build([b"x" * 1_000] * 8_000))]
        it.broker.arrived.set()
        await until(lambda: connection._write_paused)
        it.writer.write(ack("b") + ack("c"))
        await until(lambda: len(connection._waiting) == 3)
        assert "ack" not in dict(it.broker.calls), "nothing overtakes what waits for its turn"
        it.reader._transport.resume_reading()
        assert len(json.loads((await it.answer())[2])["messages"]) == 8_000
        assert [await acked(it) for _ in range(3)] == ["a", "b", "c"]

    talk(story)


def test_stalled_body_is_refused_behind_the_answer_to_the_request_before_it(monkeypatch):
    monkeypatch.setattr(limits, "BODY_STALL_MS", 50)

    async def story(it):
        it.broker.stored["default/default/q"] = []
        it.writer.write(request("POST", "/v1/lease", {"queue": "q", "wait_ms": 60_000}) + ack("a")[:-5])
        await it.broker.parked.wait()
        (connection,) = it.state.connections
        await until(lambda: connection._waiting)
        it.broker.arrived.set()
        assert [(await it.answer())[0] for _ in range(2)] == [200, 400]
        assert await it.reader.read() == b"", "the connection ends"

    talk(story)


def test_half_closed_client_gets_all_answers():
    async def story(it):
        it.broker.stored["default/default/q"] = []
        it.writer.write(request("POST", "/v1/lease", {"queue": "q", "wait_ms": 60_000}) + ack("a") + ack("b"))
        await it.broker.parked.wait()
        it.writer.write_eof()
        assert (await it.answer())[0] == 200
        assert [await acked(it), await acked(it)] == ["a", "b"]
        assert await it.reader.read() == b""

    talk(story)


def test_disconnect_drops_waiting_requests():
    async def story(it):
        it.broker.stored["default/default/q"] = []
        it.writer.write(request("POST", "/v1/lease", {"queue": "q", "wait_ms": 60_000}) + ack("a"))
        await it.broker.parked.wait()
        no_goodbye = struct.pack("ii", 1, 0)
        it.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_goodbye)
        it.writer.transport.abort()
        await until(lambda: it.broker.cancelled and not it.state.tasks and not it.state.connections)
        assert it.state.total_requests == 0

    talk(story)


def test_disconnect_during_a_long_poll_is_noticed():
    async def story(it):
        it.broker.stored["default/default/q"] = []
        it.send("POST", "/v1/lease", {"queue": "q", "wait_ms": 60_000})
        await it.broker.parked.wait()
        it.writer.close()
        await until(lambda: it.broker.cancelled)

    talk(story)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("POST", "/v1/lease", {"queue": "q", "wait_ms": 60_000}), ("GET", "/v1/read?queue=q&wait_ms=60000", b"")],
)
def test_half_close_ends_a_long_poll_at_once(method, path, body):
    async def story(it):
        it.broker.stored["default/default/q"] = []
        it.send(method, path, body)
        await it.broker.parked.wait()
        it.writer.write_eof()
        status, headers, content = await it.answer()
        assert (status, headers["connection"], json.loads(content)["messages"]) == (200, "close", [])
        assert await it.reader.read() == b""

    talk(story)


def test_half_closed_client_that_disconnects_is_removed():
    async def story(it):
        it.broker.stored["default/default/q"] = []
        it.send("POST", "/v1/lease", {"queue": "q", "wait_ms": 60_000})
        await it.broker.parked.wait()
        it.writer.write_eof()
        it.writer.transport.abort()
        await until(lambda: not it.state.tasks and not it.state.connections)

    talk(story)


def test_an_inline_commit_is_tried_behind_each_request_that_waits():
    async def story(it):
        it.send("GET", "/healthz")
        await it.answer()
        assert it.broker.inline_commits == 0
        it.broker.stored["default/default/q"] = []
        it.send("POST", "/v1/lease", {"queue": "q", "wait_ms": 60_000})
        await it.broker.parked.wait()
        assert it.broker.inline_commits == 1

    talk(story)


def test_what_a_get_would_say_without_saying_it():
    async def story(it):
        it.send("HEAD", "/healthz")
        status, headers, _ = await it.answer(body=False)
        assert (status, headers["content-length"]) == (200, str(len('{"status":"ok"}')))
        it.send("OPTIONS", "/healthz")
        status, headers, body = await it.answer()
        assert (status, headers.pop("date")[-3:], headers, body) == (204, "gmt", {"allow": "get, head, options"}, b"")

    talk(story)


def test_every_answer_has_a_date():
    async def story(it):
        it.send("GET", "/healthz")
        it.send("POST", "/nowhere")
        it.writer.write(b"\0")
        for _ in range(3):
            _, headers, _ = await it.answer()
            assert abs(parsedate_to_datetime(headers["date"].upper()).timestamp() - time.time()) < 60

    talk(story)


def test_errors_have_the_documented_form():
    async def story(it):
        it.send("GET", "/nowhere%20here")
        status, _, body = await it.answer()
        assert (status, json.loads(body)["error"]["code"]) == (404, "not_found")
        assert "nowhere here" in json.loads(body)["error"]["message"]
        it.broker.fails = RuntimeError("a bug")
        it.send("POST", "/v1/ack", {"receipts": ["a"]})
        status, _, body = await it.answer()
        assert (status, json.loads(body)["error"]["code"]) == (500, "internal")
        it.send("PUT", "/v1/queues/q", b" " * (limits.CONFIG_BYTES_MAX + 1))
        assert (await it.answer())[0] == 413

    talk(story)


def test_connection_ends_behind_the_answer_to_a_request_that_closes_it():
    async def story(it):
        it.send("GET", "/healthz", b"", "Connection: close")
        assert (await it.answer())[1]["connection"] == "close"
        assert await it.reader.read() == b""

    talk(story)


def test_connection_above_the_limit_is_refused_and_none_of_its_requests_is_run():
    async def story(it):
        it.writer.write(ack("a") + ack("b"))
        status, headers, _ = await it.answer()
        assert (status, headers["connection"], headers["retry-after"]) == (503, "close", "1")
        assert await it.reader.read() == b"" and not it.broker.calls

    talk(story, connections=limits.CONNECTIONS_MAX + 1)


def test_connections_at_the_limit_are_served():
    async def story(it):
        it.writer.write(ack("a"))
        assert await acked(it) == "a"

    talk(story, connections=limits.CONNECTIONS_MAX)


def test_answer_that_ends_the_connection_reaches_a_client_that_sends_on():
    async def story(it):
        it.send("GET", "/healthz", b"", "Connection: close")
        it.writer.write(b"x" * 1_000_000)
        assert (await it.answer())[0] == 200
        assert await it.reader.read() == b""

    talk(story)


def test_a_body_that_stops_coming_is_given_up(monkeypatch):
    monkeypatch.setattr(limits, "BODY_STALL_MS", 50)

    async def story(it):
        it.writer.write(b"POST /v1/ack HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        status, headers, body = await it.answer()
        assert (status, headers["connection"]) == (400, "close")
        assert json.loads(body)["error"]["details"] == {"field": "body"}
        assert await it.reader.read() == b""

    talk(story)


def test_idle_connection_is_closed():
    async def story(it):
        it.send("GET", "/healthz")
        await it.answer()
        assert await it.reader.read() == b""

    talk(story, keep_alive_s=0)


def test_a_server_that_shuts_down_ends_connections_with_their_answer():
    async def story(it):
        it.broker.stored["default/default/q"] = []
        it.send("POST", "/v1/lease", {"queue": "q", "wait_ms": 60_000})
        await it.broker.parked.wait()
        for connection in list(it.state.connections):
            connection.shutdown()
        it.broker.arrived.set()
        status, headers, _ = await it.answer()
        assert (status, headers["connection"]) == (200, "close")
        assert await it.reader.read() == b""

    talk(story)
