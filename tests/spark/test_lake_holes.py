"""The archive copies queues with cancelled messages at any position."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the extra `spark` is not installed: pip install 'penstock[spark]'")

import penstock.pipeline
from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.lake.archive import Archive
from penstock.pipeline.lake.tables import Lake
from penstock.pipeline.lake.verify import verify


def test_cancelled_messages_are_no_gap(spark, server, tmp_path):
    server.ask("PUT", "/v1/queues/orders", {"retention": {"mode": "keep"}})
    ids = [message["id"] for message in server.publish("orders", *range(20), delay_ms=3_600_000)]
    gone = [0, 1, 5, *range(8, 13), 19]
    server.ask("POST", "/v1/cancel", {"queue": "orders", "ids": [ids[number] for number in gone]})
    lake, broker = Lake.open_or_create(tmp_path / "lake"), BrokerCalls(server.url, None, 20.0)
    # One of these batches finds nothing.
    Archive(spark, lake, broker, queues=["orders"], rows_per_batch=4).once()
    left = [number for number in range(20) if number not in gone]
    rows = lake.table("messages").delta.to_pyarrow_table(columns=["offset", "id"]).sort_by("offset").to_pylist()
    assert rows == [{"offset": number, "id": ids[number]} for number in left]
    report = verify(lake, broker)
    assert report.sound, report.faults
    server.publish("orders", 20)
    read = penstock.pipeline.union(spark, lake=lake.directory, url=server.url, queue="orders")
    assert sorted(row.offset for row in read.collect()) == [*left, 20]
