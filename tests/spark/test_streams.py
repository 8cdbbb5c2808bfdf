"""A queue as a stream: limits, restarts, partitions that come later."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import StreamingQueryException


def run(frame, name, directory):
    """All that is there, into a table in memory; the query's progress."""
    query = (
        frame.writeStream.format("parquet").option("path", str(directory / name)).outputMode("append")
        .option("checkpointLocation", str(directory / f"{name}-checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    return [progress for progress in query.recentProgress if progress["numInputRows"]]


def offsets_in(spark, directory, name):
    rows = spark.read.parquet(str(directory / name)).select("partition", "offset").collect()
    return sorted((row.partition, row.offset) for row in rows)


def test_batches_are_no_larger_than_asked(stream, spark, client, tmp_path):
    client.create_queue("limited", partitions=2, retention={"mode": "keep"}).publish_many([b"x" * 100] * 250)
    progress = run(stream(queue="limited", maxRecordsPerTrigger="100"), "limited", tmp_path)
    assert [each["numInputRows"] for each in progress] == [100, 100, 50]
    told = json.loads(progress[0]["sources"][0]["latestOffset"])
    assert sum(told["offsets"].values()) == 250
    by_size = run(stream(queue="limited", maxBytesPerTrigger="9000"), "by-size", tmp_path)
    assert len(by_size) >= 3
    assert offsets_in(spark, tmp_path, "limited") == offsets_in(spark, tmp_path, "by-size")


def test_query_resumes_at_its_checkpoint_with_more_partitions(stream, spark, client, tmp_path):
    queue = client.create_queue("growing", retention={"mode": "keep"})
    queue.publish_many([1, 2, 3])
    run(stream(queue="growing"), "growing", tmp_path)
    queue.configure(partitions=3)
    queue.publish_many(list(range(30)), keys=[f"k{number}" for number in range(30)])
    run(stream(queue="growing"), "growing", tmp_path)
    run(stream(queue="growing"), "growing", tmp_path)
    found = offsets_in(spark, tmp_path, "growing")
    assert len(found) == len(set(found)) == 33
    assert {partition for partition, _ in found} == {0, 1, 2}


def test_a_stream_may_begin_later(stream, spark, client, tmp_path):
    queue = client.create_queue("later", retention={"mode": "keep"})
    queue.publish_many(list(range(10)))
    run(stream(queue="later", startingOffset='{"0": 7}'), "later", tmp_path)
    assert offsets_in(spark, tmp_path, "later") == [(0, 7), (0, 8), (0, 9)]


def test_what_a_stream_missed_is_accounted_for(stream, spark, client, tmp_path):
    queue = client.create_queue("missed")
    queue.publish_many([1, 2])
    run(stream(queue="missed"), "missed", tmp_path)
    queue.publish_many(list(range(8)))
    batches = iter(queue.consume_batches(max=5, wait=0.1))
    next(batches).ack()
    batches.close()
    with pytest.raises(StreamingQueryException, match=r"partition 0: offsets 2 to 4 \(3 messages\)"):
        run(stream(queue="missed"), "missed", tmp_path)
    run(stream(queue="missed", failOnDataLoss="false"), "missed", tmp_path)
    assert [offset for _, offset in offsets_in(spark, tmp_path, "missed")] == [0, 1, 5, 6, 7, 8, 9]


def test_a_checkpoint_belongs_to_its_queue(stream, client, tmp_path):
    client.create_queue("one", retention={"mode": "keep"}).publish(1)
    client.create_queue("two", retention={"mode": "keep"}).publish(2)
    run(stream(queue="one"), "table", tmp_path)
    with pytest.raises(StreamingQueryException, match="use another checkpointLocation"):
        run(stream(queue="two"), "table", tmp_path)
