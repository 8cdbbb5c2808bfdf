"""The data source with credentials: each table needs its scope, and the audit trail is a table."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import AnalysisException, PySparkException

from penstock.pipeline.options import PipelineError
from tests.acceptance.http_server import running

OWN, OTHER = "shop/orders", "bank/orders"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    data = tmp_path_factory.mktemp("guarded") / "data"
    with running(data, "--auth", "keys") as server:
        server.key = (data / "bootstrap.key").read_text().strip()
        for queue in (OWN, OTHER):
            for payload in range(3):
                body = {"queue": queue, "messages": [{"payload": payload}]}
                assert server.ask("POST", "/v1/publish", body, x_api_key=server.key).status == 201
            leased = server.ask("POST", "/v1/lease", {"queue": queue}, x_api_key=server.key).json["messages"]
            server.ask("POST", "/v1/reject", {"receipts": [leased[0]["receipt"]]}, x_api_key=server.key)
        yield server


def key(server, *scopes):
    answer = server.ask("POST", "/v1/keys", {"name": "spark", "scopes": list(scopes)}, x_api_key=server.key)
    assert answer.status == 201, answer.body
    return answer.json["key"]


@pytest.fixture
def load(spark, guarded):
    def load(token, **options):
        return spark.read.format("penstock").options(url=guarded.url, token=token, **options).load()

    return load


@pytest.mark.parametrize(
    ("scope", "options", "rows"),
    [
        ("peek:shop/*", {"queue": OWN}, 2),
        ("dlq:shop/*", {"queue": OWN, "table": "dead_letters"}, 1),
        ("peek:shop/*", {"table": "queues"}, 1),
        ("publish:shop/*", {"table": "queues"}, 1),
    ],
)
def test_tables_with_a_scope_of_one_namespace(guarded, load, scope, options, rows):
    assert len(load(key(guarded, scope), **options).collect()) == rows


@pytest.mark.parametrize(
    ("scope", "options", "reason"),
    [
        ("consume:shop/*", {"queue": OWN}, "peek:shop"),
        ("peek:shop/*", {"queue": OTHER}, "there is no queue"),
        ("peek:shop/*", {"queue": OWN, "table": "dead_letters"}, "dlq:shop"),
        ("peek:shop/*", {"table": "events"}, "peek"),
        ("peek:*", {"table": "audit"}, "audit.read"),
    ],
)
def test_tables_without_their_scope(guarded, load, scope, options, reason):
    token = key(guarded, scope)
    with pytest.raises(PySparkException, match=reason) as refused:
        load(token, **options).collect()
    assert token not in str(refused.value)


def test_audit_trail_is_a_table(guarded, load, monkeypatch):
    monkeypatch.setattr("penstock.pipeline.rows.AUDIT_PAGE", 2)
    made = key(guarded, "publish:shop/*")
    for number in range(5):
        guarded.ask("PUT", f"/v1/queues/shop/q{number}", {}, x_api_key=guarded.key, x_request_id=f"r-{number}")
    assert guarded.ask("PUT", "/v1/queues/bank/q", {}, x_api_key=made).status == 404
    rows = load(key(guarded, "audit.read"), table="audit").orderBy("sequence").collect()
    listed = guarded.ask("GET", "/v1/audit?after=0&limit=1000", x_api_key=guarded.key).json["entries"]
    assert [(row.sequence, row.previous, row.hash) for row in rows] == [
        (entry["sequence"], entry["previous"], entry["hash"]) for entry in listed
    ]
    assert [row.sequence for row in rows] == [*range(1, len(rows) + 1)]
    found = {(row.operation, row.object, row.result, row.request, row.actor_kind, row.address) for row in rows}
    assert ("queues.put", "shop/default/q3", "ok", "r-3", "key", "127.0.0.1") in found
    refused = [row for row in rows if row.result != "ok" and row.object == "bank/default/q"]
    assert [(row.operation, row.actor_name) for row in refused] == [("queues.put", "spark")]
    assert {round(row.at.timestamp() * 1000) for row in rows} == {entry["at_ms"] for entry in listed}
    assert made not in json.dumps([row.asDict() for row in rows], default=str)


def test_audit_trail_has_no_queue_and_is_no_stream(guarded, spark, load):
    with pytest.raises((PipelineError, PySparkException), match="whole server"):
        load(guarded.key, table="audit", queue=OWN).collect()
    with pytest.raises((AnalysisException, PySparkException), match="cannot be streamed"):
        options = {"url": guarded.url, "token": guarded.key, "table": "audit"}
        stream = spark.readStream.format("penstock").options(**options).load()
        stream.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()


STAGING = [f"{verb}:spark-sink/*" for verb in ("publish", "peek", "queue.admin")]


def test_writing_needs_publish_and_the_queues_of_the_sink(guarded, spark):
    writer = spark.createDataFrame([("1",)], "payload string").write.format("penstock").mode("append")
    writer = writer.options(url=guarded.url, queue=OWN)
    depth = f"/v1/stats?queue={OWN}"
    before = guarded.ask("GET", depth, x_api_key=guarded.key).json["depth"]
    writer.option("token", key(guarded, "publish:shop/*", *STAGING)).save()
    assert guarded.ask("GET", depth, x_api_key=guarded.key).json["depth"] == before + 1
    with pytest.raises(PySparkException, match="publish:shop"):
        writer.option("token", key(guarded, "peek:shop/*", *STAGING)).save()
    assert guarded.ask("GET", depth, x_api_key=guarded.key).json["depth"] == before + 1
