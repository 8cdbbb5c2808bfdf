"""`archive --follow` copies messages as they are published; after a stop or a kill the next run resumes."""

from __future__ import annotations

import os
import signal

import pytest

pytest.importorskip("deltalake", reason="the extra `spark` is not installed: pip install 'penstock[spark]'")

from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.java import find_java
from penstock.pipeline.lake.archive import Archive
from penstock.pipeline.lake.tables import Lake
from penstock.pipeline.lake.verify import verify
from tests.spark.following import PATIENCE_S, Following, is_held

pytestmark = pytest.mark.skipif(find_java() is None, reason="Spark needs Java 17 or newer, and there is none here")


def offsets(lake, queue):
    """Of all rows, in order, as any reader of Delta sees them; none where there is no lake yet."""
    if not (lake / "messages/_delta_log").exists():
        return []
    rows = Lake(lake).table("messages").delta.to_pyarrow_table(columns=["queue", "partition", "offset"]).to_pylist()
    return sorted((row["partition"], row["offset"]) for row in rows if row["queue"] == f"default/default/{queue}")


def first(count):
    return [(0, offset) for offset in range(count)]


def held(server, lake):
    return server.ask("GET", f"/v1/holds/lake-{Lake(lake).id[:16]}").json


def confirmed_delete(server, queue):
    confirm = server.ask("DELETE", f"/v1/queues/{queue}").json["error"]["details"]["confirm"]
    assert server.ask("DELETE", f"/v1/queues/{queue}?confirm={confirm}").status == 200


def test_follow_copies_new_messages_and_stops_on_sigterm(client, server, tmp_path):
    lake = tmp_path / "lake"
    orders = client.create_queue("orders", retention={"mode": "keep"})
    orders.publish_many(list(range(10)))
    with Following(lake, server.url) as archive:
        archive.until(lambda: offsets(lake, "orders") == first(10))
        frame = held(server, lake)["events"]
        orders.publish_many(list(range(5)))
        archive.until(lambda: offsets(lake, "orders") == first(15))
        # Also if its query was idle for a while.
        archive.until(lambda: held(server, lake)["queues"]["default/default/orders"] == {"0": 15})
        archive.until(lambda: held(server, lake)["events"] > frame)

        client.create_queue("later", retention={"mode": "keep"}).publish_many([1, 2, 3])
        archive.until(lambda: offsets(lake, "later") == first(3))
        archive.until(lambda: held(server, lake)["queues"].get("default/default/later") == {"0": 3})

        # A queue that is deleted is no reason to stop for the others.
        confirmed_delete(server, "later")
        orders.publish_many(list(range(5)))
        archive.until(lambda: offsets(lake, "orders") == first(20))
        archive.until(lambda: list(held(server, lake)["queues"]) == ["default/default/orders"])
        assert archive.stop() == 0, archive.said()
        assert archive.said().splitlines()[-1] == "stopped; the next run resumes here"

    orders.publish_many(list(range(5)))
    with Following(lake, server.url) as archive:
        archive.until(lambda: offsets(lake, "orders") == first(25))
        # As Ctrl-C does it: all processes of the group get the signal.
        os.killpg(archive.process.pid, signal.SIGINT)
        assert archive.process.wait(timeout=PATIENCE_S) == 0, archive.said()
        assert archive.said().count("stopped; the next run resumes here") == 2
    report = verify(Lake(lake), BrokerCalls(server.url, None, 5.0))
    assert report.sound, report.faults


def test_killed_follow_has_every_row_once(spark, client, server, tmp_path):
    lake = tmp_path / "lake"
    busy = client.create_queue("busy")
    with Following(lake, server.url, "--queue", "busy", "--batch-rows", "20") as archive:
        archive.until(lambda: is_held(server, lake, "busy"))
        busy.publish_many(list(range(500)))
        _ack_all(busy)
        archive.until(lambda: len(offsets(lake, "busy")) >= 60)
        archive.kill()
    busy.publish_many(list(range(40)))
    _ack_all(busy)
    count = 540
    assert 60 <= len(offsets(lake, "busy")) < 500
    broker = BrokerCalls(server.url, None, 5.0)
    Archive(spark, Lake(lake), broker, queues=["busy"]).once()
    assert held(server, lake)["queues"] == {"default/default/busy": {"0": count}}
    assert offsets(lake, "busy") == first(count)
    assert server.ask("GET", "/v1/extent?queue=busy").json["partitions"][0]["start_offset"] == count
    report = verify(Lake(lake), broker)
    assert report.sound, report.faults


def _ack_all(queue):
    batches = queue.consume_batches(max=100, wait=0.1)
    for batch in batches:
        batch.ack()
        if len(batch) < 100:
            break
    batches.close()
