"""A checkpoint is about one incarnation of a queue, or about one broker's journal. Another one is never read silently.

Most tests drive the stream reader as Spark does, without a JVM.
"""

from __future__ import annotations

import logging

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed: pip install 'penstock[spark]'")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.pipeline.options import Options, PipelineError
from penstock.pipeline.stream import EventsStreamReader, MessagesStreamReader
from tests.acceptance.http_server import running
from tests.spark.recreate import create, delete, recreate

MESSAGES = StructType([StructField("offset", LongType()), StructField("queue_uuid", StringType())])
EVENTS = StructType([StructField("frame", LongType()), StructField("kind", StringType())])
ALL = ReadAllAvailable()


def messages_of(server, queue, **options):
    return MessagesStreamReader(Options({"url": server.url, "queue": queue, **options}), MESSAGES)


def events_of(server, **options):
    return EventsStreamReader(Options({"url": server.url, "table": "events", **options}), EVENTS)


def rows(reader, start, end):
    """The rows between two offsets, as dictionaries."""
    parts = reader.partitions(start, end)
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def caught_up(server, queue, **options):
    """The offset of a stream that has read everything."""
    reader = messages_of(server, queue, **options)
    return reader.latestOffset(reader.initialOffset(), ALL)


def test_offsets_carry_queue_uuid_and_broker_id(server):
    uuid = create(server, "plain", 1, 2, 3)
    broker = server.ask("GET", "/v1/stats/summary").json["broker"]
    assert caught_up(server, "plain") == {
        "v": 2, "queue": "default/default/plain", "uuid": uuid, "broker": broker, "offsets": {"0": 3},
    }  # fmt: skip


def test_rows_carry_queue_uuid(server):
    uuid = create(server, "told", 1)
    reader = messages_of(server, "told")
    start = reader.initialOffset()
    assert rows(reader, start, reader.latestOffset(start, ALL)) == [{"offset": 0, "queue_uuid": uuid}]


@pytest.mark.parametrize("more", [2, 30], ids=["shorter", "longer"])
def test_recreated_queue_fails_a_stream(server, more):
    queue = f"recreated-{more}"
    former = create(server, queue, *range(10))
    checkpoint = caught_up(server, queue)
    present = recreate(server, queue, *range(more))
    reader = messages_of(server, queue)
    with pytest.raises(PipelineError, match="was deleted and created again") as failed:
        reader.latestOffset(checkpoint, ALL)
    assert former in str(failed.value) and present in str(failed.value) and "failOnDataLoss" in str(failed.value)
    with pytest.raises(PipelineError, match="was deleted and created again"):
        reader.partitions({**checkpoint, "offsets": {"0": 5}}, checkpoint)


@pytest.mark.parametrize("more", [2, 30], ids=["shorter", "longer"])
def test_recreated_queue_is_read_from_its_start_without_fail_on_data_loss(server, more, caplog):
    queue = f"forgiven-{more}"
    create(server, queue, *range(10))
    checkpoint = caught_up(server, queue)
    present = recreate(server, queue, *range(more))
    reader = messages_of(server, queue, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "penstock.pipeline"):
        end = reader.latestOffset(checkpoint, ALL)
    assert "was deleted and created again" in caplog.text
    assert (end["uuid"], end["offsets"]) == (present, {"0": more})
    assert [row["offset"] for row in rows(reader, checkpoint, end)] == list(range(more))
    # A batch of the former incarnation that Spark asks for again has no rows left.
    assert rows(reader, {**checkpoint, "offsets": {"0": 5}}, checkpoint) == []


def test_limit_counts_from_the_start_of_the_recreated_queue(server):
    create(server, "limited", *range(10))
    checkpoint = caught_up(server, "limited")
    recreate(server, "limited", *range(30))
    reader = messages_of(server, "limited", failOnDataLoss="false")
    assert reader.latestOffset(checkpoint, ReadMaxRows(7))["offsets"] == {"0": 7}


def test_queue_recreated_during_available_now_fails_or_is_read(server):
    create(server, "turned", *range(10))
    readers = messages_of(server, "turned"), messages_of(server, "turned", failOnDataLoss="false")
    start = readers[0].initialOffset()
    for reader in readers:
        reader.prepareForTriggerAvailableNow()
    recreate(server, "turned", *range(3))
    with pytest.raises(PipelineError, match="was deleted and created again"):
        readers[0].latestOffset(start, ALL)
    assert readers[1].latestOffset(start, ALL)["offsets"] == {"0": 3}


def test_queue_recreated_between_plan_and_read_is_not_read(server):
    create(server, "raced", *range(10))
    strict, lenient = messages_of(server, "raced"), messages_of(server, "raced", failOnDataLoss="false")
    start = strict.initialOffset()
    (part,) = strict.partitions(start, strict.latestOffset(start, ALL))
    recreate(server, "raced", *range(20))
    with pytest.raises(PipelineError, match="was deleted and created again"):
        list(strict.read(part))
    assert list(lenient.read(part)) == []


def test_checkpoint_without_uuid_adopts_the_present_queue(server, caplog):
    """As written before offsets had a uuid."""
    uuid = create(server, "old", *range(10))
    old = {"v": 1, "queue": "default/default/old", "offsets": {"0": 4}}
    reader = messages_of(server, "old")
    with caplog.at_level(logging.WARNING, "penstock.pipeline"):
        end = reader.latestOffset(old, ALL)
        reader.latestOffset(old, ALL)
    assert caplog.text.count("takes the present incarnation") == 1
    assert end["uuid"] == uuid
    assert [row["offset"] for row in rows(reader, old, end)] == [4, 5, 6, 7, 8, 9]


def test_checkpoint_beyond_the_end_of_its_queue_is_data_loss(server):
    """No queue shrinks: this one was created again, or the broker was restored from an older copy."""
    create(server, "shrunk", *range(10))
    old = {"v": 1, "queue": "default/default/shrunk", "offsets": {"0": 40}}
    with pytest.raises(PipelineError, match="partition 0: the checkpoint is at offset 40, and the queue ends at 10"):
        messages_of(server, "shrunk").latestOffset(old, ALL)
    lenient = messages_of(server, "shrunk", failOnDataLoss="false")
    assert lenient.latestOffset(old, ALL)["offsets"] == {"0": 10}


def test_events_of_another_broker_fail_a_stream(server, tmp_path):
    create(server, "eventful", *range(10))
    reader = events_of(server)
    checkpoint = reader.latestOffset(reader.initialOffset(), ALL)
    assert checkpoint["broker"] == server.ask("GET", "/v1/stats/summary").json["broker"]
    with running(tmp_path / "other") as other:
        other.publish("orders", *range(3))
        with pytest.raises(PipelineError, match="journal of another broker"):
            events_of(other).latestOffset(checkpoint, ALL)
        lenient = events_of(other, failOnDataLoss="false")
        end = lenient.latestOffset(checkpoint, ALL)
        assert "published" in {row["kind"] for row in rows(lenient, checkpoint, end)}


def test_deleted_queue_fails_a_stream_clearly(server):
    create(server, "away", 1)
    checkpoint = caught_up(server, "away")
    delete(server, "away")
    with pytest.raises(PipelineError, match="there is no queue"):
        messages_of(server, "away").latestOffset(checkpoint, ALL)


def test_stream_of_a_recreated_queue_fails_in_spark(spark, server, stream, tmp_path):
    from pyspark.errors import StreamingQueryException

    create(server, "whole", *range(10))

    def run(**options):
        frame = stream(queue="whole", **options)
        query = (
            frame.writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    present = recreate(server, "whole", *range(4))
    with pytest.raises(StreamingQueryException, match="was deleted and created again"):
        run()
    run(failOnDataLoss="false")
    assert spark.read.parquet(str(tmp_path / "out")).count() == 14
    assert spark.read.parquet(str(tmp_path / "out")).where(f"queue_uuid = '{present}'").count() == 4
