"""`union` reads archive and live tail as one table while an archive runs and messages are published.

`python -m tests.spark.union --reads 50` does it as often as it takes to believe it.
"""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the extra `spark` is not installed: pip install 'penstock[spark]'")

import penstock.pipeline
from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.lake.archive import Archive
from penstock.pipeline.lake.tables import Lake
from penstock.pipeline.options import PipelineError
from tests.acceptance.http_server import running
from tests.spark.union import watch


@pytest.fixture
def lake(tmp_path):
    return Lake.open_or_create(tmp_path / "lake")


def archive(spark, server, lake, queue):
    Archive(spark, lake, BrokerCalls(server.url, None, 20.0), queues=[queue]).once()


def ack_all(queue):
    batches = queue.consume_batches(max=1_000, wait=0.2)
    next(iter(batches)).ack()
    batches.close()


def test_union_has_every_offset_once_while_archive_and_queue_grow(spark, server, tmp_path):
    seen = list(watch(spark, server, tmp_path / "lake", reads=4))
    assert len(seen) == 8 and any(read.late for read in seen)
    assert [str(read) for read in seen if read.faults] == []


def test_union_reads_removed_messages_from_the_lake(spark, client, server, lake):
    queue = client.create_queue("moving")
    queue.publish_many(list(range(10)))
    archive(spark, server, lake, "moving")
    queue.publish_many(list(range(10)), keys=[str(number) for number in range(10)], headers={"from": "ada"})
    rows = penstock.pipeline.union(spark, lake=lake.directory, url=server.url, queue="moving")
    live = sorted(map(tuple, rows.where("offset >= 10").collect()))
    ack_all(queue)
    archive(spark, server, lake, "moving")
    assert server.ask("GET", "/v1/extent?queue=moving").json["partitions"][0]["start_offset"] == 20
    queue.publish(1)
    assert sorted(map(tuple, rows.where("offset >= 10").collect())) == live
    assert sorted(row.offset for row in rows.collect()) == list(range(20)), "it ends where it did"
    again = penstock.pipeline.union(spark, lake=lake.directory, url=server.url, queue="moving")
    assert again.count() == 21


def test_union_names_offsets_that_neither_broker_nor_lake_has(spark, client, server, lake):
    queue = client.create_queue("fleeting")
    queue.publish_many(list(range(5)))
    rows = penstock.pipeline.union(spark, lake=lake.directory, url=server.url, queue="fleeting")
    ack_all(queue)
    with pytest.raises(Exception, match="offsets 0 to 4 are in neither broker nor lake"):
        rows.collect()


def test_union_with_a_lake_of_another_broker_is_refused(spark, client, server, lake, tmp_path):
    client.create_queue("mine", retention={"mode": "keep"}).publish_many([1, 2, 3])
    archive(spark, server, lake, "mine")
    with running(tmp_path / "other") as stranger:
        stranger.ask("PUT", "/v1/queues/mine", {})
        with pytest.raises(PipelineError, match="another broker"):
            penstock.pipeline.union(spark, lake=lake.directory, url=stranger.url, queue="mine")
