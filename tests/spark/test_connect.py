"""The same through Spark Connect: a session in a process of its own, because one process has one kind of session."""

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


@pytest.mark.slow
@pytest.mark.skipif(find_java() is None, reason="Spark needs Java 17 or newer, and there is none here")
def test_reading_and_writing_through_spark_connect(server, tmp_path):
    pytest.importorskip("grpc", reason="Spark Connect needs grpcio")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, server.url, str(tmp_path / "checkpoint")],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert f"sum {sum(range(50))}" in done.stdout, done.stderr[-3000:]
