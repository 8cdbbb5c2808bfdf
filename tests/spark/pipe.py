"""A Spark driver in a process of its own, to be killed: `python -m tests.spark.pipe`.

It takes jobs from standard input and answers `done` or `failed`:

    pipe URL CHECKPOINT     a stream from queue `in` to queue `out`. Rows are dealt out anew between source and sink, so
                            that a batch that is done again need not come in the same order
    archive URL LAKE        queue `in` and all events into a lake
"""

from __future__ import annotations

import sys
from typing import Any

from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.lake.archive import Archive
from penstock.pipeline.lake.tables import Lake
from penstock.pipeline.options import PipelineError
from penstock.pipeline.session import spark_session
from tests.spark.quick import be_quick

BATCH = 2_000


def driver() -> Any:
    """With three more chances for a task: a worker that dies is no reason to stop."""
    be_quick()
    spark = spark_session("pipe", master="local[2,4]", spark_sql_shuffle_partitions="2")
    spark.sparkContext.setLogLevel("OFF")
    return spark


def pipe(spark: Any, url: str, checkpoint: str) -> None:
    source = spark.readStream.format("penstock").options(url=url, queue="in", maxRecordsPerTrigger=str(BATCH)).load()
    query = (
        source.select("payload", "key").repartition(3)
        .writeStream.format("penstock").options(url=url, queue="out").option("checkpointLocation", checkpoint)
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()


def archive(spark: Any, url: str, lake: str) -> None:
    Archive(spark, Lake.open_or_create(lake), BrokerCalls(url, None, 60.0), queues=["in"], rows_per_batch=BATCH).once()


def main() -> None:
    from pyspark.errors import StreamingQueryException

    spark = driver()
    jobs = {"pipe": pipe, "archive": archive}
    for line in sys.stdin:
        job, *arguments = line.split()
        try:
            jobs[job](spark, *arguments)
            print("done", flush=True)
        except (StreamingQueryException, PipelineError) as error:
            print(error, file=sys.stderr)
            print("failed", flush=True)


if __name__ == "__main__":
    main()
