"""The log of a queue as a table."""

from __future__ import annotations

import json
import time

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql.types import LongType, StringType, StructField, StructType


@pytest.fixture(scope="module")
def orders(client):
    queue = client.create_queue("orders", partitions=3, retention={"mode": "keep"})
    keys = [f"user-{number % 7}" for number in range(500)]
    queue.publish_many([{"n": number} for number in range(500)], keys=keys, priorities=[n % 3 for n in range(500)])
    queue.publish_many([b"\0raw"] * 20, headers={"trace": "abc", "b": "ü"})
    for number in range(500, 530):
        queue.publish({"n": number})
    return queue


def test_every_message_with_all_it_has(read, orders):
    rows = {(row.partition, row.offset): row for row in read(queue="orders").collect()}
    expected = {}
    for partition in range(3):
        for batch in orders.follow(partition=partition, wait=0):
            expected |= {(message.partition, message.offset): message for message in batch}
    assert set(rows) == set(expected) and len(rows) == 550
    for place, message in expected.items():
        row = rows[place]
        assert (row.id, row.key, row.priority, bytes(row.payload), row.headers, row.queue) == (
            message.id, message.key, message.priority, message.payload, message.headers, "default/default/orders",
        )  # fmt: skip
        assert row.published_at.timestamp() == pytest.approx(message.published_at_ms / 1000)


def test_tasks_are_cut_as_asked(read, orders):
    assert read(queue="orders", minPartitions="7").rdd.getNumPartitions() >= 7
    assert read(queue="orders", maxRecordsPerPartition="100").rdd.getNumPartitions() >= 6
    assert read(queue="orders", maxRecordsPerPartition="100").count() == 550


def test_a_users_schema_is_all_that_is_read(spark, server, orders):
    schema = StructType([StructField("offset", LongType()), StructField("key", StringType())])
    frame = spark.read.format("penstock").schema(schema).options(url=server.url, queue="orders").load()
    assert frame.columns == ["offset", "key"]
    assert frame.where("key is not null").count() == 500


def test_payloads_are_parsed_by_a_schema(read, orders):
    frame = read(queue="orders", payloadSchema="n bigint, missing string")
    assert frame.selectExpr("sum(value.n)", "count(value)", "count(*)").first()[:] == (sum(range(530)), 530, 550)


def test_positions_by_offset_and_time(read, client, orders):
    ends = {str(each.partition): each.end_offset for each in orders.stats().partitions}
    starting = json.dumps({partition: end - 5 for partition, end in ends.items()})
    assert read(queue="orders", startingOffset=starting).count() == 15
    assert read(queue="orders", endingOffset='{"0": 4, "1": 0, "2": 1}').count() == 5
    assert read(queue="orders", startingOffset="latest").count() == 0
    before = client.create_queue("timed", retention={"mode": "keep"})
    before.publish_many([1, 2, 3])
    time.sleep(0.005)
    middle = before.publish(4)
    moment = next(message for message in before.read(offset=f"id:{middle.id}")).published_at_ms
    assert read(queue="timed", startingOffset=f"at:{moment}").count() == 1
    assert read(queue="timed", endingOffset=f"at:{moment}").count() == 3


def test_kafka_names_of_options_work(read, orders):
    ends = {str(each.partition): each.end_offset for each in orders.stats().partitions}
    offsets = json.dumps({"orders": {"0": ends["0"] - 5, "1": -1, "2": -2}})
    assert read(queue="orders", startingOffsets=offsets).count() == 5 + ends["2"]
    assert read(queue="orders", endingOffsets='{"0": 4, "1": 0, "2": -1}').count() == 4 + ends["2"]
    assert read(queue="orders", startingTimestamp="2100-01-01T00:00:00Z").count() == 0
    assert read(queue="orders", endingTimestamp="2100-01-01").count() == 550
    assert read(queue="orders", startingTimestamp="0", minPartitions="5").rdd.getNumPartitions() >= 5
    assert "headers" in read(queue="orders", includeHeaders="true").columns
    without = read(queue="orders", includeHeaders="false")
    assert "headers" not in without.columns and without.count() == 550
    assert read(table="events", startingOffset='{"0": -1}').count() == 0
    assert read(table="events", startingOffset='{"0": -2}').count() == read(table="events").count() > 0


def test_reused_dataframe_counts_every_message(spark, read, orders):
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = read(queue="orders")
        assert frame.where("partition = 1 and offset >= 3 and offset < 5").count() == 2
        assert frame.count() == 550
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_an_empty_queue_is_an_empty_table(read, client):
    client.create_queue("empty")
    assert read(queue="empty").collect() == []


def test_what_is_gone_is_accounted_for(read, client):
    queue = client.create_queue("short")
    queue.publish_many(list(range(10)))
    for batch in queue.consume_batches(max=6, wait=0.1):
        batch.ack()
        break
    assert read(queue="short").count() == 4
    with pytest.raises((AnalysisException, PythonException), match=r"partition 0: offsets 0 to 5 \(6 messages\)"):
        read(queue="short", startingOffset='{"0": 0}').count()
    assert read(queue="short", startingOffset='{"0": 0}', failOnDataLoss="false").count() == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue": "nobody"}, "there is no queue default/default/nobody"),
        ({"queue": "No Name"}, "is not a queue path"),
        ({}, "is about one queue"),
        ({"table": "mesages"}, "there is no table 'mesages'; choose one of messages, events, queues, dead_letters"),
        ({"queue": "orders", "url": "http://127.0.0.1:1"}, "is `penstock serve` running"),
        ({"queue": "orders", "startingOfset": "0"}, "did you mean 'startingOffset'"),
        ({"queue": "orders", "startingOffset": "soon"}, "'soon' is no position"),
        ({"queue": "orders", "pushdown": "true"}, "there is no option 'pushdown' any more"),
        ({"queue": "orders", "subscribe": "orders"}, "did you mean 'queue'"),
        ({"queue": "orders", "startingOffset": '{"9": 0}'}, "has partitions 0 to 2, not 9"),
        ({"queue": "orders", "minPartitions": "0"}, "not a number above 0"),
        ({"queue": "orders", "failOnDataLoss": "maybe"}, "neither true nor false"),
    ],
)
def test_mistakes_are_named_on_the_driver(spark, server, orders, options, words):
    with pytest.raises(AnalysisException) as refused:
        spark.read.format("penstock").options(**{"url": server.url, **options}).load().count()
    assert words in str(refused.value)


def test_a_schema_that_does_not_fit_is_refused(spark, server, orders):
    for schema, words in (("nope int", "has no column 'nope'"), ("offset string", "is bigint, not string")):
        with pytest.raises(AnalysisException) as refused:
            spark.read.format("penstock").schema(schema).options(url=server.url, queue="orders").load().count()
        assert words in str(refused.value)
