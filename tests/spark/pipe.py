"""A stream from one queue to another, in a process of its own, to be killed.

`python -m tests.spark.pipe URL CHECKPOINT`

Rows are dealt out anew between source and sink, so that a batch that is done again need not come in the same order.
"""

from __future__ import annotations

import sys

from penstock.pipeline.session import spark_session


def main(url: str, checkpoint: str) -> None:
    # Three more chances for a task: a worker that dies is no reason to stop.
    spark = spark_session("pipe", master="local[2,4]", spark_sql_shuffle_partitions="2")
    spark.sparkContext.setLogLevel("OFF")
    source = spark.readStream.format("penstock").options(url=url, queue="in", maxRecordsPerTrigger="4000").load()
    query = (
        source.select("payload", "key").repartition(3)
        .writeStream.format("penstock").options(url=url, queue="out").option("checkpointLocation", checkpoint)
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
