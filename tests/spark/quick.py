"""Spark for tests and campaigns, whose JVMs live for a minute: most of it they would spend on compiling and loading.

The first to ask writes down what a loaded Spark looks like (class data sharing): every later one starts in half the
time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from penstock.pipeline.java import find_java

CLASSES = Path(sys.prefix) / "spark-classes.jsa"
"""Beside the jars that they are of. A JVM that does not fit ignores it."""
_ROOT = Path(__file__).parents[2]
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"
_ENVIRONMENT = {
    "SPARK_SUBMIT_OPTS": _JAVA if " " in str(CLASSES) else f"{_JAVA} -XX:SharedArchiveFile={CLASSES}",
    "SPARK_LAUNCHER_OPTS": _JAVA,
    # Other tests never rest: work that gives way to them waits for ever.
    "PENSTOCK_SPARK_NICE": "0",
}


def be_quick() -> None:
    """For every session that this process, or what it starts, will make."""
    if _is_missing() and _can_be_written():
        # In a process of its own: a JVM writes them when it ends.
        subprocess.run([sys.executable, "-m", "tests.spark.quick"], cwd=_ROOT, check=True, timeout=300)
    os.environ.update(_ENVIRONMENT)


def _is_missing() -> bool:
    """Or older than the Spark that is installed."""
    spark = find_spec("pyspark")
    if spark is None or spark.origin is None:
        return False
    jars = Path(spark.origin).parent / "jars"
    return not CLASSES.exists() or CLASSES.stat().st_mtime < jars.stat().st_ctime


def _can_be_written() -> bool:
    # Spark takes options apart at spaces, also those of paths.
    return os.access(CLASSES.parent, os.W_OK) and " " not in str(CLASSES) and find_java() is not None


def write_classes() -> None:
    """Do a little of everything, and write at the end which classes that took."""
    from penstock.pipeline.session import spark_session

    unfinished = CLASSES.with_suffix(f".{os.getpid()}")
    os.environ.update(_ENVIRONMENT)
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
    if not unfinished.exists():  # not every JVM can do it; an empty one is ignored, and is not tried again
        unfinished.touch()
    unfinished.replace(CLASSES)


if __name__ == "__main__":
    write_classes()
