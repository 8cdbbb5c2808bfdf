"""`/v1/events/stream`: events arrive when they are durable, filtered."""

from __future__ import annotations

import contextlib
import json

import pytest
from http_server import Server, running


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("stream") / "data") as server:
        yield server


@contextlib.contextmanager
def stream(server: Server, query: str = ""):
    with contextlib.closing(server.connect()) as connection:
        connection.request("GET", f"/v1/events/stream{query}")
        response = connection.getresponse()
        assert response.status == 200, response.read()
        assert response.headers["content-type"] == "text/event-stream"
        assert response.readline() == b": connected\n"
        yield response


def events(response, count: int) -> list[dict]:
    """The next events; comments and other kinds of events are skipped."""
    found = []
    while len(found) < count:
        line = response.readline()
        assert line, "the stream has ended"
        if line.startswith(b"data: "):
            found.append(json.loads(line.removeprefix(b"data: ")))
    return found


def test_life_of_a_message_is_streamed(server):
    with stream(server) as response:
        (stored,) = server.publish("life", {"n": 1})
        (leased,) = server.lease("life", consumer="w1")
        server.ask("POST", "/v1/reject", {"receipts": [leased["receipt"]], "error": "bad\nline"})
        told = events(response, 4)
    assert [each["kind"] for each in told] == ["queue_created", "published", "leased", "dead_lettered"]
    assert {each["queue"] for each in told} == {"default/default/life"}
    assert told[1]["messages"] == [stored["id"]] and told[1]["count"] == 1
    assert told[2]["consumer"] == "w1" and told[3]["error"] == "bad\nline"


def test_stream_is_filtered_by_queue_and_kind(server):
    with stream(server, "?queue=wanted&kind=published") as response:
        server.publish("other", 1)
        server.publish("wanted", 2)
        server.lease("wanted")
        server.publish("wanted", 3, 4)
        told = events(response, 2)
    assert [(each["kind"], each["queue"], each["count"]) for each in told] == [
        ("published", "default/default/wanted", 1),
        ("published", "default/default/wanted", 2),
    ]


@pytest.mark.parametrize("query", ["?kind=nonsense", "?queue=/x", "?more=1"])
def test_invalid_query_is_refused(server, query):
    answer = server.ask("GET", f"/v1/events/stream{query}")
    assert answer.status == 400 and answer.json["error"]["code"] == "invalid_request"


def test_stream_is_in_the_list_of_connections_and_gone_after_its_end(server):
    def streams() -> list[dict]:
        listed = server.ask("GET", "/v1/connections").json
        assert listed["total"] >= len(listed["connections"]) > 0
        return [each for each in listed["connections"] if each["transport"] == "event stream"]

    server.wait_until(lambda: not streams())
    with stream(server, "?queue=life"):
        (found,) = streams()
        assert found["peer"].startswith("127.0.0.1:") and found["holds"] == "events of default/default/life"
    server.wait_until(lambda: not streams())


def test_server_stops_while_a_stream_is_open(tmp_path):
    server = Server(tmp_path / "data")
    with stream(server) as response:
        assert server.terminate() == 0
        assert not [line for line in response if line.startswith(b"data")]
