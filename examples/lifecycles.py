"""The lifecycle of every message as a table: cells to run one by one in an editor, or all at once.

penstock serve &                                     # and some traffic, see examples/demo.py
python examples/lifecycles.py http://127.0.0.1:7400
"""

# %% A session, and the events of the broker

import sys

from pyspark.sql import functions as F

from penstock.pipeline.lifecycle_table import lifecycles
from penstock.pipeline.session import spark_session

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:7400"
spark = spark_session("lifecycles", spark_sql_shuffle_partitions="4")
spark.sparkContext.setLogLevel("ERROR")
events = spark.read.format("penstock").options(url=url, table="events").load()
events.groupBy("queue", "kind").count().orderBy("queue", "kind").show(50, truncate=False)

# %% One row for every message in every group: its outcome, and its times

lives = lifecycles(events).persist()
lives.printSchema()
lives.groupBy("queue", "group", "fate").count().orderBy("queue", "group", "fate").show(50, truncate=False)

# %% Percentiles by queue

lives.where("fate = 'acked'").groupBy("queue", "group").agg(
    F.count("*").alias("acked"),
    *(
        F.percentile(name, fraction).alias(f"{name.removesuffix('_ms')} p{round(fraction * 100)}")
        for name in ("wait_ms", "processing_ms", "end_to_end_ms")
        for fraction in (0.5, 0.99)
    ),
).show(truncate=False)

# %% Slow and failing consumers

lives.where("deliveries > 0").groupBy("queue", "consumer").agg(
    F.count("*").alias("messages"),
    F.avg("deliveries").alias("deliveries each"),
    F.avg("processing_ms").alias("mean ms"),
    F.count_if(F.col("fate") == "dead").alias("dead"),
).orderBy(F.desc("messages")).show(truncate=False)

# %% The ten that waited longest

lives.orderBy(F.desc_nulls_last("wait_ms")).select(
    "queue", "offset", "id", "wait_ms", "deliveries", "fate", "error"
).show(10, truncate=False)

# %% All events of one of them

longest = lives.orderBy(F.desc_nulls_last("wait_ms")).first()
if longest is not None:
    one = (F.col("queue") == longest.queue) & (F.col("partition") == longest.partition)
    events.where(one & (F.col("offset") == longest.offset)).orderBy("frame", "record").select(
        "at", "kind", "group", "consumer", "attempt", "reason", "error", "due_at"
    ).show(truncate=False)

# %%

spark.stop()
