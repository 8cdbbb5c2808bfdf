"""Source, sink and lake through Spark Connect, in a process of its own: a process has one kind of session."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.pipeline.java import find_java

PROGRAM = """
import sys
from penstock.pipeline.session import prepare
prepare()
from pyspark.sql import SparkSession
url, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote("local[1]").getOrCreate()
assert "connect" in type(spark).__module__, type(spark)
rows = spark.range(50).selectExpr("cast(id as string) as payload")
rows.write.format("penstock").options(url=url, queue="connected").mode("append").save()
query = (
    spark.readStream.format("penstock").options(url=url, queue="connected").load().select("payload")
    .writeStream.format("penstock").options(url=url, queue="copied").option("checkpointLocation", checkpoint)
    .trigger(availableNow=True).start()
)
query.awaitTermination()
copied = spark.read.format("penstock").options(url=url, queue="copied").load()
print("sum", copied.selectExpr("sum(cast(cast(payload as string) as bigint))").first()[0])
spark.stop()
"""

LAKE_PROGRAM = """
import sys
from penstock.pipeline.session import prepare
prepare()
url, lake = sys.argv[1:]
from penstock.pipeline.analytics import Analysis
from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.lake.archive import Archive
from penstock.pipeline.lake.redrive import ArchiveRedrive, redrive_spec
from penstock.pipeline.lake.tables import Lake
from penstock.pipeline.session import spark_session
from penstock.server.cli import app
spark = spark_session(remote="local[1]")
broker, reported = BrokerCalls(url, None, 20.0), []
Archive(spark, Lake.open_or_create(lake), broker, queues=["archived"], report=reported.append).once()
print("archived", sum(each.rows for each in reported if each.source != "events"))
spec = redrive_spec("archived", "offset < 7", group=None, target=None, delay_ms=0, priority=None)
print("chosen", ArchiveRedrive(spark, Lake(lake), broker, spec).preview().messages)
print("counted", Analysis(spark, lake, url).step().events > 0)
app(["pipeline", "archive", "--lake", lake, "--url", url, "--queue", "archived", "--remote", "local[1]"])
"""


@pytest.mark.slow
@pytest.mark.skipif(find_java() is None, reason="Spark needs Java 17 or newer, and there is none here")
def test_lake_through_spark_connect(server, client, tmp_path):
    pytest.importorskip("grpc", reason="Spark Connect needs grpcio")
    client.create_queue("archived", retention={"mode": "keep"}).publish_many(list(range(50)))
    done = subprocess.run(
        [sys.executable, "-c", LAKE_PROGRAM, server.url, str(tmp_path / "lake")],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[:3] == ["archived 50", "chosen 7", "counted True"]


@pytest.mark.slow
@pytest.mark.skipif(find_java() is None, reason="Spark needs Java 17 or newer, and there is none here")
def test_reading_and_writing_through_spark_connect(server, tmp_path):
    pytest.importorskip("grpc", reason="Spark Connect needs grpcio")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, server.url, str(tmp_path / "checkpoint")],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert f"sum {sum(range(50))}" in done.stdout, done.stderr[-3000:]
