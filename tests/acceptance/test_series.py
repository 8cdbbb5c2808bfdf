"""`/v1/series` of a real server: its history survives a restart, and bad questions are refused."""

from __future__ import annotations

import gzip
import json

import pytest
from http_server import Server, running


def total(server: Server, query: str, column: str) -> int:
    answer = server.ask("GET", f"/v1/series{query}")
    assert answer.status == 200, answer.body
    return sum(value or 0 for value in answer.json["series"][column])


def test_history_survives_a_restart(tmp_path):
    first = Server(tmp_path / "data")
    first.publish("orders", *range(7))
    receipts = [message["receipt"] for message in first.lease("orders", max=3)]
    first.ask("POST", "/v1/ack", {"receipts": receipts})
    assert first.terminate() == 0
    with running(tmp_path / "data") as second:
        assert total(second, "?queue=orders", "published") == 7
        assert total(second, "?queue=orders", "acked") == 3
        assert total(second, "", "published") == 7
        assert total(second, "?queue=orders&group=default", "acked") == 3
        assert total(second, "?queue=unknown", "published") == 0


def test_some_series_are_read_compressed(tmp_path):
    with running(tmp_path / "data", "--store", "memory:") as server:
        plain = server.ask("GET", "/v1/series?columns=depth,acked")
        assert list(plain.json["series"]) == ["depth", "acked"]
        packed = server.ask("GET", "/v1/series?columns=depth,acked", accept_encoding="gzip")
        assert packed.headers["content-encoding"] == "gzip" and len(packed.body) < len(plain.body) / 5
        assert list(json.loads(gzip.decompress(packed.body))["series"]) == ["depth", "acked"]


def test_damaged_history_does_not_keep_the_server_from_starting(tmp_path):
    first = Server(tmp_path / "data")
    first.publish("orders", 1)
    first.terminate()
    for file in (tmp_path / "data" / "series").iterdir():
        file.write_bytes(b"PSR1 but then nothing")
    with running(tmp_path / "data") as second:
        assert total(second, "?queue=orders", "published") == 0
        assert "series_damaged" in second.log()


@pytest.mark.parametrize(
    "query",
    [
        "?group=default",
        "?from_ms=2&until_ms=1",
        "?from_ms=-1",
        "?queue=/",
        "?step=1",
        "?columns=depth,nothing",
        "?columns=",
    ],
)
def test_invalid_query_is_refused(tmp_path_factory, query):
    with running(tmp_path_factory.mktemp("series") / "data", "--store", "memory:") as server:
        answer = server.ask("GET", f"/v1/series{query}")
        assert answer.status == 400 and answer.json["error"]["code"] == "invalid_request"


def test_long_ranges_have_a_bounded_number_of_points(tmp_path):
    with running(tmp_path / "data", "--store", "memory:") as server:
        reply = server.ask("GET", "/v1/series?from_ms=0").json
        assert len(reply["at_ms"]) == len(reply["series"]["depth"]) <= 1_502
