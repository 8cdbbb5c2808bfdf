"""Writing to queues: every row once, whatever Spark repeats."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.errors import AnalysisException, PythonException

from penstock.batch import build, layout
from penstock.client import lowlevel as calls
from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.outgoing import Outgoing
from penstock.pipeline.staging import Commit, Stage, stage_of


def payloads(client, queue):
    found = []
    for partition in range(client.queue(queue).config().config.partitions):
        for batch in client.queue(queue).follow(partition=partition, wait=0):
            found += [message.payload for message in batch]
    return found


def test_columns_become_what_they_say(spark, client, write):
    rows = [
        ("text", "k1", 2, 0, {"h": "1"}, "sink/a"),
        ('{"a": 1}', None, None, None, None, "sink/b"),
        ("[1]", "k2", 1, 60_000, {}, "sink/a"),
    ]
    schema = "payload string, key string, priority long, delay_ms int, headers map<string,string>, queue string"
    write(spark.createDataFrame(rows, schema).coalesce(1))
    first, second = list(client.queue("sink/a").read())
    assert (first.payload, first.is_json, first.key, first.priority, first.headers) == (
        b"text", False, "k1", 2, {"h": "1"},
    )  # fmt: skip
    assert (second.value, second.key, second.headers) == ([1], "k2", {})
    assert client.queue("sink/a").stats().scheduled == 1
    (other,) = client.queue("sink/b").read()
    assert (other.value, other.key, other.priority) == ({"a": 1}, None, 0)


def test_many_rows_from_many_tasks(spark, client, write):
    client.create_queue("many", partitions=2, retention={"mode": "keep"})
    write(spark.range(0, 25_000, numPartitions=4).selectExpr("cast(id as string) as payload"), queue="many")
    assert sorted(map(int, payloads(client, "many"))) == list(range(25_000))
    assert [each.queue for each in client.queues("spark-sink").queues] == []


def test_a_job_under_a_name_happens_once(spark, client, write):
    frame = spark.range(0, 100, numPartitions=2).selectExpr("cast(id as string) as payload")
    for _ in range(2):
        write(frame, queue="named", jobId="nightly-2026-11-16")
    assert len(payloads(client, "named")) == 100


def test_large_payloads_are_staged_in_pieces(spark, client, write):
    frame = spark.range(0, 6, numPartitions=1).selectExpr("cast(repeat(string(id), 1048576) as binary) as payload")
    write(frame, queue="large")
    assert sorted(len(payload) for payload in payloads(client, "large")) == [1_048_576] * 6


def test_a_failed_job_leaves_nothing(spark, client, write):
    client.create_queue("failed")
    frame = spark.range(0, 100, numPartitions=2).selectExpr(
        "if(id = 99, cast(raise_error('no') as string), string(id)) as payload"
    )
    with pytest.raises(Exception, match="no"):
        write(frame, queue="failed")
    assert payloads(client, "failed") == []
    assert [each.queue for each in client.queues("spark-sink").queues if "commits" not in each.queue] == []


@pytest.mark.parametrize(
    ("rows", "options", "words"),
    [
        ("select 'a' as body", {"queue": "x"}, "the sink has no column 'body'"),
        ("select 1 as payload", {"queue": "x"}, "is binary or string, not int"),
        ("select 'k' as key", {"queue": "x"}, "needs a column `payload`"),
        ("select 'a' as payload", {}, "the sink needs a queue"),
        ("select 'a' as payload, 'Bad Name' as queue", {}, "is not a queue path"),
        ("select cast(null as string) as payload", {"queue": "x"}, "has no payload"),
        ("select 'a' as payload, repeat('k', 300) as key", {"queue": "x"}, "over the limit of 256"),
        ("select repeat('a', 1048577) as payload", {"queue": "x"}, "payload bytes"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(spark, client, write, rows, options, words):
    with pytest.raises((AnalysisException, PythonException)) as refused:
        write(spark.sql(rows), **options)
    assert words in str(refused.value)
    assert [each.queue for each in client.queues("default/default/x").queues] == []


def test_overwriting_is_refused_with_what_to_do(spark, server):
    writer = spark.sql("select 'a' as payload").write.format("penstock").options(url=server.url, queue="x")
    with pytest.raises(AnalysisException, match="only ever added"):
        writer.mode("overwrite").save()


def test_a_stream_writes_every_row_once_over_restarts(spark, stream, client, server, tmp_path):
    source = client.create_queue("in", retention={"mode": "keep"})
    client.create_queue("out", retention={"mode": "keep"})
    for round_ in range(3):
        source.publish_many([f"{round_}-{number}" for number in range(1_000)])
        query = (
            stream(queue="in", maxRecordsPerTrigger="400").select("payload", "key")
            .writeStream.format("penstock").options(url=server.url, queue="out")
            .option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
    found = payloads(client, "out")
    assert len(found) == len(set(found)) == 3_000
    left = [each.queue for each in client.queues("spark-sink").queues]
    assert [name for name in left if "batch" in name] == []


# -- what a commit does when it comes again, or another one has come before -----------------------------------------


@pytest.fixture
def broker(server):
    return BrokerCalls(server.url, None, 10.0)


def outgoing(queue, *rows):
    frame = build([row.encode() for row in rows], kind=layout.KIND_BYTES)
    return Outgoing(queue, len(rows), frame)


def test_the_first_manifest_counts(broker, client):
    client.create_queue("exact", retention={"mode": "keep"})
    path = client.queue("exact").path
    first = Stage(broker, "job-1", 0).put(outgoing(path, "a", "b"))
    # The same task once more, with its rows in another order; and the driver died after the manifest was written.
    Commit(broker, "job-1", 0)._decide(_manifest(0, first))
    again = Stage(broker, "job-1", 0).put(outgoing(path, "b", "a"))
    for _ in range(2):
        Commit(broker, "job-1", 0).publish([(0, [again])])
    assert payloads(client, "exact") == [b"a", b"b"]


def test_a_commit_that_stopped_half_way_is_finished(broker, client):
    client.create_queue("half", retention={"mode": "keep"})
    path = client.queue("half").path
    stage = Stage(broker, "job-2", 5)
    parts = [stage.put(outgoing(path, f"{number}-a", f"{number}-b")) for number in range(100)]
    commit = Commit(broker, "job-2", 5)
    manifest = commit._decide(_manifest(5, *parts))
    for number, part in enumerate(parts[:70]):
        commit._send(path, commit._frame(part), "spark:job-2:0", 2 * number)
    assert manifest.tasks
    Commit(broker, "job-2", 5).publish([])
    assert payloads(client, "half") == [f"{number}-{row}".encode() for number in range(100) for row in "ab"]
    # Done, also after its sequence numbers expired; and a stage that was created again is removed.
    broker.ask(calls.operation("put_queue", dict, queue=stage_of("job-2", 5), body={}))
    Commit(broker, "job-2", 5).publish([(0, parts)])
    assert len(payloads(client, "half")) == 200
    assert client.queues("spark-sink/job-2/batch").queues == []


def test_a_task_that_outlives_its_failed_job_leaves_nothing(broker, client, server):
    path = client.create_queue("outlived").path
    stage = Stage(broker, "job-3", 0)
    stage.put(outgoing(path, "a"))

    def outlive():
        server.wait_until(lambda: staged("job-3") == [])
        stage.put(outgoing(path, "b"))

    def staged(job):
        return client.queues(f"spark-sink/{job}").queues

    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(outlive)
        Commit(broker, "job-3", 0).give_up(late_tasks=True)
        late.result()
    assert staged("job-3") == []


def _manifest(batch, *parts):
    from penstock.pipeline.staging import Manifest

    return Manifest(batch, tasks=[(0, list(parts))])
