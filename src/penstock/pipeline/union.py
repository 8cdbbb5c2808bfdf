"""Archive and live tail as one table.

Delta commits the end of the archive with its files, so one version of the table has both the files and the offset of
each partition at which the broker takes over. Messages that are archived later belong to a later version.

The extent of the queue is read from the broker before the lake is opened. So the broker had all messages, from its
start offset, of a partition that is not in this version of the lake; in the other order, its first messages could be
archived and removed between the two reads. A task reads messages that the broker removes after that from the lake
(`lake/archived_rows.py`). This needs no clock, no lock and no cleanup.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.ids import QueuePath, parse_queue
from penstock.pipeline import bulk
from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.options import URL_DEFAULT, PipelineError
from penstock.pipeline.schema import MESSAGES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.pipeline.lake.subject import Subject
    from penstock.pipeline.lake.tables import LakeTable
    from penstock.wire.holds import ExtentReply

RETRY_FOR_S = 60.0


def union(
    spark: SparkSession, *, lake: Path | str, queue: str, url: str = URL_DEFAULT, token: str | None = None
) -> DataFrame:
    """All messages of a queue, from the first that was archived to the last that was published: each once.

    The columns are those of the table `messages`. The DataFrame is a snapshot of the queue at the time of this call.
    Raises PipelineError.
    """
    from penstock.pipeline.lake.tables import Lake

    try:
        path = parse_queue(queue)
    except PenstockError as error:
        raise PipelineError(error.message) from None
    opened = Lake(lake)
    broker = BrokerCalls(url, token, RETRY_FOR_S)
    extent = broker.ask(bulk.extent(path))
    opened.check_broker(extent.broker)
    table, subject = opened.table("messages"), opened.subject(path, extent.uuid)
    done = table.positions(subject)
    _check(broker, path, extent, done, opened.directory)
    start = {each.partition: done.get(each.partition, each.start_offset) for each in extent.partitions}
    end = {each.partition: each.end_offset for each in extent.partitions}
    options = {
        "url": url, "queue": path, "queueUuid": extent.uuid, "startingOffset": _json(start), "endingOffset": _json(end),
        "lake": str(opened.directory),
    }  # fmt: skip
    if token is not None:
        options["token"] = token
    live = spark.read.format("penstock").options(**options).load()
    archived = archived_messages(spark, table, subject)
    return live if archived is None else archived.unionAll(live)


def _check(broker: BrokerCalls, queue: QueuePath, extent: ExtentReply, done: dict[int, int], lake: Path) -> None:
    """Raises PipelineError if the lake has offsets that the queue does not have."""

    def beyond(extent: ExtentReply) -> bool:
        ends = {each.partition: each.end_offset for each in extent.partitions}
        return any(at > ends.get(partition, 0) for partition, at in done.items())

    # A running archive may have copied messages that are newer than the first extent.
    if beyond(extent) and beyond(broker.ask(bulk.extent(queue))):
        raise PipelineError(
            f"the lake in {lake} has more of queue {queue} than the broker at {broker.url} has: it is another "
            "broker, or the broker was restored from an older copy"
        )


def _json(offsets: dict[int, int]) -> str:
    return json.dumps({str(partition): offset for partition, offset in offsets.items()})


def archived_messages(spark: SparkSession, table: LakeTable, subject: Subject) -> DataFrame | None:
    """The messages of a queue in this version of the table `messages` of a lake; None if there are none."""
    from pyspark.sql import functions as F

    files = [str(table.directory / each.path) for each in table.files(subject)]
    if not files:
        return None
    # `queue` is a directory of the table and not in the files; files of format 1 have no `queue_uuid`.
    own = {"queue": F.lit(subject.queue), "queue_uuid": F.lit(subject.uuid).cast("string")}
    columns = ", ".join(f"`{name}` {kind}" for name, kind in MESSAGES.items() if name not in own)
    reader = spark.read.schema(columns).option("recursiveFileLookup", "true")
    return reader.parquet(*files).withColumns(own).select(*MESSAGES)
