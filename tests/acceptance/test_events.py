"""Events and holds, spoken to like a user does; a crash loses neither."""

from __future__ import annotations

from http_server import Server, running

from penstock.wire.delivery import ReadMeta, decode_delivery
from penstock.wire.events import EVENTS_TYPE, decode_events

BATCH_TYPE = "application/vnd.penstock.batch"


def events(server: Server, **query):
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    answer = server.ask("GET", f"/v1/events?{asked}")
    assert answer.status == 200, answer.body
    return answer.json


def test_events_and_holds_outlive_a_crash(tmp_path):
    with running(tmp_path / "data") as server:
        server.publish("orders", 1, 2, 3)
        held = server.ask("PUT", "/v1/holds/lake", {"events": 0, "queues": {"orders": {"0": 0}}})
        assert (held.status, held.json["lost_at_ms"]) == (200, None)
        leased = server.lease("orders", consumer="ada")
        server.ask("POST", "/v1/ack", {"receipts": [message["receipt"] for message in leased]})
        before = events(server)
        server.kill()
    with running(tmp_path / "data") as server:
        after = events(server)
        assert after["events"][: len(before["events"])] == before["events"]
        assert [event["kind"] for event in after["events"]] == [
            "queue_configured", "published", "group_created", "leased", "acked",
        ]  # fmt: skip
        assert server.ask("GET", "/v1/holds").json["holds"][0]["queues"] == {"default/default/orders": {"0": 0}}
        # Acked by all groups, and still stored for the archive.
        read = server.ask("GET", "/v1/read?queue=orders&offset=0&until=2", accept=BATCH_TYPE)
        meta, batches = decode_delivery(read.body, ReadMeta)
        assert (meta.next_offset, meta.end_offset, batches[0].payloads()) == (2, 3, [b"1", b"2"])
        assert server.ask("DELETE", "/v1/holds/lake").json == {"name": "lake", "removed": True}
        assert server.ask("GET", "/v1/read?queue=orders&offset=0").json["skipped"] == 3


def test_bulk_form_has_the_same_events(tmp_path):
    with running(tmp_path / "data") as server:
        server.publish("orders", 1, 2, delay_ms=60_000)
        answer = server.ask("GET", "/v1/events", accept=EVENTS_TYPE)
        assert answer.headers["content-type"] == EVENTS_TYPE
        meta, records = decode_events(answer.body)
        found = list(records)
        assert [f"{each.frame}.{each.number}" for each in found] == [e["position"] for e in events(server)["events"]]
        assert meta.names["1"].queue == "default/default/orders"
        assert len(found[-1].about) == 16 + 2 * 8


def test_bad_questions_are_refused(tmp_path):
    with running(tmp_path / "data") as server:
        server.publish("orders", 1)
        for target in (
            "/v1/events?after=999999",
            "/v1/events?after=soon",
            "/v1/events?shard=1",
            "/v1/events?max=0",
            "/v1/events?after=5.x",
            "/v1/events/ranges?each=0",
            "/v1/extent?queue=orders&at=then",
        ):
            assert server.ask("GET", target).status == 400, target
        assert server.ask("GET", "/v1/events?queue=nobody").status == 404
        assert server.ask("GET", "/v1/holds/nobody").status == 404
        assert server.ask("PUT", "/v1/holds/lake", {"events": 10**6}).status == 400
        assert server.ask("PUT", "/v1/holds/lake", {"queues": {"nobody": {}}}).status == 404
        assert server.ask("PUT", "/v1/holds/no%20spaces", {"events": 0}).status == 400
        assert server.ask("GET", "/v1/holds").json == {"holds": []}
