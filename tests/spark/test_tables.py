"""Events, queues and dead letters as tables."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException


@pytest.fixture(scope="module")
def jobs(client):
    queue = client.create_queue("jobs", max_retries=0)
    queue.publish_many([{"n": number} for number in range(100)])
    queue.publish({"n": 100}, delay=3600)
    batches = iter(queue.consume_batches(max=60, wait=0.1, consumer="ada"))
    batch = next(batches)
    for message in list(batch)[:10]:
        message.nack(error=f"broken {message.value['n'] % 2}")
    batch.ack()
    batches.close()
    return queue


def test_every_transition_is_a_row(read, jobs):
    events = read(table="events").where("queue = 'default/default/jobs'")
    counts = {row.kind: row["count"] for row in events.groupBy("kind").count().collect()}
    assert counts["published"] == 101
    assert (counts["leased"], counts["acked"], counts["dead_lettered"]) == (60, 50, 10)
    dead = events.where("kind = 'dead_lettered'").orderBy("offset").collect()
    assert [(row.offset, row.error, row.group, row.reason) for row in dead] == [
        (offset, f"broken {offset % 2}", "default", "max_retries") for offset in range(10)
    ]
    leased = events.where("kind = 'leased'").first()
    assert (leased.consumer, leased.attempt) == ("ada", 1)
    assert (leased.deadline_at - leased.at).total_seconds() == 30
    delayed = events.where("kind = 'published' and due_at is not null").collect()
    assert [(row.offset, (row.due_at - row.at).total_seconds()) for row in delayed] == [(100, 3600)]


def test_ids_lead_from_messages_to_their_history(read, jobs):
    events = read(table="events").where("queue = 'default/default/jobs'")
    ids = {row.id for row in events.where("kind = 'published'").select("id").collect()}
    assert len(ids) == 101
    stored = {row.id for row in read(queue="jobs").select("id").collect()}
    assert stored <= ids


def test_events_are_cut_and_bounded(read, jobs):
    frame = read(table="events", maxRecordsPerPartition="50")
    assert frame.rdd.getNumPartitions() >= 3
    assert frame.count() == read(table="events").count()
    last = frame.selectExpr("max(frame)").first()[0]
    assert read(table="events", startingOffset=str(last)).count() == 0
    assert read(table="events", endingOffset="0").count() == 0


def test_events_stream_with_limits(stream, spark, jobs, tmp_path):
    query = (
        stream(table="events", maxRecordsPerTrigger="40")
        .writeStream.format("memory").queryName("happened").option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    assert query.exception() is None
    assert len(query.recentProgress) >= 3
    counts = {row.kind: row["count"] for row in spark.table("happened").groupBy("kind").count().collect()}
    assert (counts["published"], counts["leased"]) == (101, 60)


def test_queues_as_they_are(read, jobs):
    row = read(table="queues", queue="jobs").first()
    assert (row.queue, row.partitions, row.depth, row.dead, row.groups) == (
        "default/default/jobs", 1, 41, 10, ["default"],
    )  # fmt: skip
    assert (row.published, row.acked) == (101, 50)


def test_dead_letters_with_their_reasons(read, jobs):
    frame = read(table="dead_letters", queue="jobs", payloadSchema="n int")
    assert {(row.offset, row.value.n, row.error, row.attempt) for row in frame.collect()} == {
        (offset, offset, f"broken {offset % 2}", 1) for offset in range(10)
    }
    assert frame.first().dead_at >= frame.first().published_at


def test_what_is_only_now_cannot_be_streamed(stream, jobs, tmp_path):
    for table in ("queues", "dead_letters"):
        with pytest.raises(StreamingQueryException, match="cannot be streamed"):
            stream(table=table, queue="jobs").writeStream.format("noop").option(
                "checkpointLocation", str(tmp_path / table)
            ).start().processAllAvailable()
