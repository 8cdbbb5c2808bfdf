"""The tables of a lake as Delta keeps them: files that count, and how far each queue was copied.

How far is part of the same commit as the files, as Delta's transaction identifiers (`txn`): next to (query, batch), by
which Spark's own sinks know a batch again, there is one for every lane whose version is the next place. So a batch that
comes again is known by either, also if the checkpoint that numbered it was lost, and nobody lists files to go on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction, Transaction

from penstock.pipeline.lake.layout import LAYOUTS, Layout
from penstock.pipeline.lake.shelf import Written, sync
from penstock.pipeline.lake.spans import Mismatch, frame_of, next_positions
from penstock.pipeline.options import PipelineError

FORMAT = 1
EVENTS = "events"
"""Stands for the name of a queue where the journal is meant."""
_ATTEMPTS = 10


class Listed(NamedTuple):
    """A file as Delta's log lists it."""

    path: str
    size: int
    rows: int | None
    values: dict[str, str]

    @property
    def source(self) -> str:
        return self.values.get("queue", EVENTS)


class Lake:
    """A directory with the tables `messages` and `events`."""

    def __init__(self, directory: Path | str):
        """Raises PipelineError if there is no lake."""
        self.directory = Path(directory).absolute()
        try:
            told: Any = json.loads((self.directory / "penstock.json").read_bytes())
            if told["format"] != FORMAT:
                raise PipelineError(
                    f"the lake in {directory} has format {told['format']}, and this version knows {FORMAT}"
                )
            self.id = str(told["lake"])
        except FileNotFoundError:
            raise PipelineError(
                f"there is no lake in {directory}; `penstock pipeline archive --lake {directory}` makes one"
            ) from None
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise PipelineError(f"{directory}/penstock.json cannot be read: {error}") from None

    @classmethod
    def made(cls, directory: Path | str) -> Lake:
        """The lake that is there, or a new one."""
        where = Path(directory).absolute()
        marker = where / "penstock.json"
        if not marker.exists():
            if where.is_dir() and any(where.iterdir()):
                raise PipelineError(f"{directory} has other files in it: choose a directory for the lake alone")
            where.mkdir(parents=True, exist_ok=True)
            hidden = where / f".{uuid4().hex}"
            hidden.write_text(json.dumps({"format": FORMAT, "lake": uuid4().hex}) + "\n")
            hidden.replace(marker)
            sync(marker)
        lake = cls(where)
        for layout in LAYOUTS.values():
            lake.table(layout.table).create()
        sync(where)
        return lake

    def table(self, name: str) -> Table:
        return Table(self.directory / name, LAYOUTS[name])

    @property
    def checkpoints(self) -> Path:
        return self.directory / "checkpoints"


OVERTAKEN = "does not go on where the table ends"


class Table:
    """One version of a table: the one that is the newest when it is first looked at."""

    def __init__(self, directory: Path, layout: Layout):
        self.directory = directory
        self.layout = layout

    def create(self) -> None:
        """Also adds columns that have come since it was made."""
        schema = Schema.from_arrow(self.layout.table_schema)
        made = DeltaTable.create(
            self.directory, schema, mode="ignore", partition_by=list(self.layout.partition_by),
            configuration={"delta.appendOnly": "false", "delta.checkpointInterval": "100"},
        )  # fmt: skip
        known = {field.name for field in made.schema().fields}
        new = [field for field in schema.fields if field.name not in known]
        if new:
            made.alter.add_columns(new)

    @cached_property
    def delta(self) -> DeltaTable:
        return DeltaTable(self.directory)

    @property
    def version(self) -> int:
        return self.delta.version()

    def positions(self, source: str) -> dict[int, int]:
        """Lane -> the first place of it that was not copied yet, of a queue or of `EVENTS`."""
        lanes = self.delta.transaction_version(_lanes_id(source)) or 0
        found = {lane: self.delta.transaction_version(_lane_id(source, lane)) for lane in range(lanes)}
        return {lane: position for lane, position in found.items() if position is not None}

    def rows_committed(self, source: str) -> int:
        return self.delta.transaction_version(_rows_id(source)) or 0

    def sources(self) -> list[str]:
        return sorted({each.source for each in self.files()})

    def files(self, source: str | None = None) -> Iterator[Listed]:
        listed = pa.table(self.delta.get_add_actions())
        for each in listed.select(["path", "size_bytes", "num_records", "partition"]).to_pylist():
            values = {name: str(value) for name, value in each["partition"].items()}
            # The log has paths as URLs have them.
            file = Listed(unquote(each["path"]), each["size_bytes"], each["num_records"], values)
            if source in (None, file.source):
                yield file

    def commit(self, query: str, batch: int, source: str, written: Sequence[Written]) -> bool:
        """Make these files part of the table. False if they are already. Raises PipelineError if they do not fit."""
        for attempt in range(_ATTEMPTS):
            fresh = Table(self.directory, self.layout)
            known = fresh.delta.transaction_version(query)
            if known is not None and known >= batch:
                return False
            before = fresh.positions(source)
            try:
                after = next_positions(before, [each.span for each in written], dense=self.layout.dense)
            except Mismatch as error:
                raise PipelineError(
                    f"{self.directory}: {source} {OVERTAKEN} ({error}). Does another archive "
                    "write to this lake? `penstock pipeline verify` says whether all is well"
                ) from None
            if after is None:
                return False
            rows = fresh.rows_committed(source) + sum(each.rows for each in written)
            marks = [Transaction(query, batch), Transaction(_rows_id(source), rows)]
            marks += [Transaction(_lane_id(source, lane), at) for lane, at in after.items() if before.get(lane) != at]
            marks.append(Transaction(_lanes_id(source), max(after, default=-1) + 1))
            try:
                fresh.apply([_added(each, self.layout) for each in written], marks)
            except CommitFailedError:
                # Somebody else was first; perhaps with these very files.
                if attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(0.05 * attempt)
                continue
            return True
        raise AssertionError("unreachable")

    def replace(self, old: Sequence[Listed], new: Written) -> None:
        """The same rows in another file."""
        now = int(time.time() * 1000)
        gone = [RemoveAction(each.path, False, now, each.size, dict(each.values)) for each in old]
        self.apply([*gone, _added(new, self.layout, data_change=False)], [])

    def apply(self, actions: list[Any], marks: list[Transaction]) -> None:
        properties = CommitProperties(app_transactions=marks, max_commit_retries=20)
        self.delta.create_write_transaction(
            actions, "append", self.delta.schema(), list(self.layout.partition_by), commit_properties=properties
        )  # fmt: skip

    def make_durable(self, since: int) -> int:
        """The commits behind version `since` survive a loss of power. Returns the version that does now."""
        log = self.directory / "_delta_log"
        for version in range(since + 1, self.version + 1):
            entry = log / f"{version:020}.json"
            if entry.exists():
                sync(entry)
        sync(log)
        return self.version


def _added(file: Written, layout: Layout, *, data_change: bool = True) -> AddAction:
    name = "offset" if layout.dense else "frame"
    stats: dict[str, Any] = {"numRecords": file.rows, "nullCount": {layout.lane: 0, name: 0}}
    if file.held is not None:
        low, high = file.held.first, file.held.last
        if not layout.dense:
            low, high = frame_of(low), frame_of(high)
        stats["minValues"] = {layout.lane: file.span.lane, name: low}
        stats["maxValues"] = {layout.lane: file.span.lane, name: high}
    now = int(time.time() * 1000)
    return AddAction(file.path, file.size, dict(file.values), now, data_change, json.dumps(stats))


def _lane_id(source: str, lane: int) -> str:
    return f"penstock:{source}:{lane}"


def _lanes_id(source: str) -> str:
    return f"penstock:{source}:lanes"


def _rows_id(source: str) -> str:
    return f"penstock:{source}:rows"
