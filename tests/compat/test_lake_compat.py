"""Lakes and checkpoints of earlier versions are opened and continued; the present queues are adopted once."""

from __future__ import annotations

import json
import logging
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the extra `spark` is not installed: pip install 'penstock[spark]'")

import penstock.pipeline
from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.lake.archive import Archive
from penstock.pipeline.lake.compact import compact
from penstock.pipeline.lake.tables import Lake
from penstock.pipeline.lake.verify import verify
from penstock.pipeline.options import PipelineError
from tests.acceptance.http_server import running
from tests.compat.write_lake import read_stream
from tests.spark.conftest import quick, spark  # noqa: F401
from tests.spark.recreate import create, recreate

FIXTURE = Path(__file__).parent / "lake-v1.tar.gz"
ORDERS = "default/default/orders"
GONE = "default/default/gone"

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("default")]


@pytest.fixture
def root(tmp_path):
    with tarfile.open(FIXTURE) as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.fixture
def server(root):
    with running(root / "data") as started:
        yield started


def offsets(lake, queue):
    columns = ["queue", "partition", "offset"]
    rows = lake.table("messages").delta.to_pyarrow_table(columns=columns).to_pylist()
    return sorted((row["partition"], row["offset"]) for row in rows if row["queue"] == queue)


def test_lake_without_a_broker_is_sound(root):
    lake = Lake(root / "lake")
    report = verify(lake)
    assert report.sound and (lake.format, report.rows) == (1, 52), report.faults
    compact(lake)
    assert verify(Lake(root / "lake")).sound
    lake.table("messages").delta.delete(f"queue = '{GONE}'")
    assert [fault.what for fault in verify(Lake(root / "lake")).faults] == [
        "partition 0: offsets 0 to 4 were committed and are missing",
        "5 rows were committed, and the log lists 0",
    ]


def test_archive_adopts_the_present_queues_once(spark, server, root, caplog):  # noqa: F811
    broker, before = BrokerCalls(server.url, None, 20.0), offsets(Lake(root / "lake"), ORDERS)
    assert verify(Lake(root / "lake"), broker).sound
    uuid = server.ask("GET", "/v1/queues/orders").json["uuid"]
    with caplog.at_level(logging.WARNING, "penstock.pipeline"):
        Archive(spark, Lake.open_or_create(root / "lake"), broker).once()
        assert caplog.text.count("lake_queue_adopted") == 1 and uuid in caplog.text
        Archive(spark, Lake.open_or_create(root / "lake"), broker).once()
        assert caplog.text.count("lake_queue_adopted") == 1
    lake = Lake(root / "lake")
    described = json.loads((root / "lake/penstock.json").read_text())
    assert described["broker"] == server.ask("GET", "/v1/stats/summary").json["broker"]
    assert described["adopted"] == {GONE: None, ORDERS: uuid}
    assert len(before) == 20 and len(offsets(lake, ORDERS)) == len(set(offsets(lake, ORDERS))) == 25
    assert verify(lake, broker).faults == []
    rows = penstock.pipeline.union(spark, lake=lake.directory, url=server.url, queue="orders")
    assert rows.count() == 25 and {row.queue_uuid for row in rows.collect()} == {uuid}

    # From now on both queues are known: one that is created again is another subject.
    create(server, "gone", 1, 2)
    recreate(server, "orders", 1, 2, 3)
    Archive(spark, Lake.open_or_create(lake.directory), broker).once()
    assert [len(offsets(lake, queue)) for queue in (ORDERS, GONE)] == [28, 7]
    assert verify(Lake(lake.directory), broker).faults == []
    compact(Lake(lake.directory))
    assert verify(Lake(lake.directory), broker).faults == []


def test_lake_is_not_adopted_by_another_broker(spark, root, tmp_path):  # noqa: F811
    with running(tmp_path / "other") as other:
        create(other, "orders", *range(40), partitions=2)
        with pytest.raises(PipelineError, match="has no hold"):
            Archive(spark, Lake.open_or_create(root / "lake"), BrokerCalls(other.url, None, 5.0)).once()
    assert Lake(root / "lake").format == 1


def test_streams_go_on_from_old_checkpoints(spark, server, root):  # noqa: F811
    rows = read_stream(spark, server.url, root / "checkpoint-messages", queue="orders")
    assert len(rows) == 15 and {json.loads(row.payload)["n"] for row in rows} == set(range(10, 25))
    kinds = [row.kind for row in read_stream(spark, server.url, root / "checkpoint-events", table="events")]
    assert kinds.count("published") == 15 and "queue_deleted" in kinds
    recreate(server, "orders", *range(40))
    with pytest.raises(Exception, match="was deleted and created again"):
        read_stream(spark, server.url, root / "checkpoint-messages", queue="orders")
