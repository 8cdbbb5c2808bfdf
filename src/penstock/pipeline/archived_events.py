"""The events of a lake and the later events of the broker, in one DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipeline.lake.spans import frame_of, parse_name
from penstock.pipeline.lake.subject import EVENTS
from penstock.pipeline.lake.tables import Lake, ListedFile
from penstock.pipeline.schema import EVENTS as COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class LiveEvents:
    """The events of a broker's journal."""

    def __init__(self, spark: SparkSession, url: str, token: str | None, *, fail_on_data_loss: bool = True):
        self.spark = spark
        self._options = {"url": url, "table": "events", "failOnDataLoss": str(fail_on_data_loss).lower()}
        if token is not None:
            self._options["token"] = token

    def between(self, after: int | None, until: int) -> DataFrame:
        """Events after frame `after`, or from the first one, up to the end of frame `until`."""
        begin = "earliest" if after is None else str(after)
        reader = self.spark.read.format("penstock").options(**self._options)
        return reader.options(startingOffset=begin, endingOffset=str(until)).load()


class ArchivedEvents:
    """The table `events` of a lake; every call reads its newest version."""

    def __init__(self, lake: Lake):
        self._lake = lake

    def last_frame(self) -> int:
        """The last frame in the lake; 0 if the lake has no events."""
        place = self._lake.table("events").positions(EVENTS).get(0, 0)
        return frame_of(place - 1) if place else 0

    def reaches(self, frame: int) -> bool:
        return self.last_frame() >= frame

    def events(self, live: LiveEvents, after: int, until: int) -> DataFrame:
        """Events after frame `after` up to `until`: from the lake as far as it has them, the rest from the broker."""
        seam = min(self.last_frame(), until)
        if seam <= after:
            return live.between(after, until)
        archived = self._read(live.spark, after, seam)
        return archived.unionByName(live.between(seam, until)) if seam < until else archived

    def _read(self, spark: SparkSession, after: int, until: int) -> DataFrame:
        table = self._lake.table("events")
        files = [str(table.directory / file.path) for file in table.files() if _overlaps(file, after, until)]
        columns = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())
        reader = spark.read.schema(columns).option("recursiveFileLookup", "true")
        return reader.parquet(*files).where(f"frame > {after} and frame <= {until}")

    def next_frame(self, after: int, most: int) -> int:
        """The last frame of a batch of about `most` events, at the end of a file: each file is read once."""
        rows, until = 0, after
        files = [(span, file) for file in self._lake.table("events").files() if (span := _frames(file)) is not None]
        for (_, last), file in sorted(files, key=lambda each: each[0]):
            if last <= after:
                continue
            if rows and rows + (file.rows or 0) > most:
                break
            rows, until = rows + (file.rows or 0), last
        return until


def _frames(file: ListedFile) -> tuple[int, int] | None:
    named = parse_name(file.path.rpartition("/")[2])
    return None if named is None else (frame_of(named.span.first), frame_of(named.span.last))


def _overlaps(file: ListedFile, after: int, until: int) -> bool:
    frames = _frames(file)
    return frames is None or (frames[1] > after and frames[0] <= until)
