"""Archive and live tail as one table.

Where the archive ends is part of what Delta commits, so one version of the table says both which files there are and at
which offset of each partition the broker takes over. Whatever is archived meanwhile belongs to a later version.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.ids import parse_queue
from penstock.pipeline.options import URL_DEFAULT, PipelineError
from penstock.pipeline.schema import MESSAGES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.pipeline.lake.tables import Table


def union(
    spark: SparkSession, *, lake: Path | str, queue: str, url: str = URL_DEFAULT, token: str | None = None
) -> DataFrame:
    """All messages of a queue, from the first that was archived to the last that was published: each once.

    The columns are those of the table `messages`. The archive ends where it did when this was called; the live part
    ends where the broker did when the DataFrame is first used. Call it again to see more. Raises PipelineError.
    """
    from penstock.pipeline.lake.tables import Lake

    try:
        path = parse_queue(queue)
    except PenstockError as error:
        raise PipelineError(error.message) from None
    table = Lake(lake).table("messages")
    done = table.positions(path)
    begin = json.dumps({str(partition): offset for partition, offset in done.items()}) if done else "earliest"
    options = {"url": url, "queue": path, "startingOffset": begin}
    if token is not None:
        options["token"] = token
    live = spark.read.format("penstock").options(**options).load()
    archived = archived_messages(spark, table, path)
    return live if archived is None else archived.unionAll(live)


def archived_messages(spark: SparkSession, table: Table, queue: str) -> DataFrame | None:
    """The messages of a queue in this version of the table `messages` of a lake; None if there are none."""
    from pyspark.sql import functions as F

    files = [str(table.directory / each.path) for each in table.files(queue)]
    if not files:
        return None
    # `queue` is a directory of the table and not in the files.
    columns = ", ".join(f"`{name}` {kind}" for name, kind in MESSAGES.items() if name != "queue")
    reader = spark.read.schema(columns).option("recursiveFileLookup", "true")
    return reader.parquet(*files).withColumn("queue", F.lit(queue)).select(*MESSAGES)
