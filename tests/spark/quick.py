"""Spark for tests and campaigns, whose JVMs live for a minute: most of it they would spend on compiling and loading.

`python -m tests.spark.quick` writes down what a loaded Spark looks like (class data sharing): every later one then
starts in half the time. `make test` does it once.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

CLASSES = Path(sys.prefix) / "spark-classes.jsa"
"""Beside the jars that they are of. A JVM that does not fit ignores it."""
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"
_ENVIRONMENT = {
    "SPARK_SUBMIT_OPTS": _JAVA if " " in str(CLASSES) else f"{_JAVA} -XX:SharedArchiveFile={CLASSES}",
    "SPARK_LAUNCHER_OPTS": _JAVA,
    # Other tests never rest: whoever stands back for them waits for ever.
    "PENSTOCK_SPARK_NICE": "0",
}


def be_quick() -> None:
    """For every session that this process, or what it starts, will make."""
    os.environ.update(_ENVIRONMENT)


def write_classes() -> None:
    """Do a little of everything, and write at the end which classes that took."""
    from penstock.pipeline.session import spark_session

    unfinished = CLASSES.with_suffix(".unfinished")
    be_quick()
    os.environ["SPARK_SUBMIT_OPTS"] = f"{_JAVA} -XX:ArchiveClassesAtExit={unfinished}"
    spark = spark_session("classes", master="local[2]", spark_sql_shuffle_partitions="2")
    spark.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory() as directory:
        frame = spark.range(1_000).selectExpr("id", "id % 7 AS key", "string(id) AS text")
        frame.write.partitionBy("key").parquet(f"{directory}/table")
        table = spark.read.parquet(f"{directory}/table")
        table.groupBy("key").count().join(table, "key").orderBy("id").select(*table.columns).mapInArrow(
            lambda batches: batches, table.schema
        ).collect()
        stream = spark.readStream.schema(table.schema).parquet(f"{directory}/table")
        query = stream.writeStream.format("noop").option("checkpointLocation", f"{directory}/checkpoint")
        query.trigger(availableNow=True).start().awaitTermination()
        jvm = spark.sparkContext._gateway.proc
        spark.stop()
        spark.sparkContext._gateway.shutdown()
        jvm.stdin.close()
        jvm.wait()
    if unfinished.exists():  # not every JVM can do it
        unfinished.replace(CLASSES)


if __name__ == "__main__":
    from penstock.pipeline.java import find_java

    # Spark takes options apart at spaces, also those of paths.
    if find_java() is not None and " " not in str(CLASSES):
        print("writing down the classes of Spark, once", flush=True)
        write_classes()
