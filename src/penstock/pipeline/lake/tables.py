"""A lake and its two Delta tables: their files, and the position of each subject.

The positions are part of the same commit as the files, as transaction identifiers of Delta (`txn`; `subject.py` has
their names). A batch that is committed again is recognised by its places, also if the checkpoint that numbered it was
lost, and no file has to be listed to go on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction, Transaction

from penstock.analytics.directory import lake_directory
from penstock.errors import InvalidRequest
from penstock.pipeline.lake.layout import LAYOUTS, Layout
from penstock.pipeline.lake.lock import locked
from penstock.pipeline.lake.log import LogContent, read_log
from penstock.pipeline.lake.parquet_files import DataFile, sync
from penstock.pipeline.lake.spans import SpanMismatch, frame_of, next_positions, parse_name
from penstock.pipeline.lake.subject import EVENTS, Committed, Subject, committed
from penstock.pipeline.options import PipelineError

FORMAT = 2
"""Format 1 had neither the broker nor the uuids of queues. It is read, and becomes format 2 with the next archive."""
_ATTEMPTS = 10


class ListedFile(NamedTuple):
    """A file as Delta's log lists it."""

    path: str
    size: int
    rows: int | None
    values: dict[str, str]

    @property
    def queue(self) -> str:
        return self.values.get("queue", EVENTS.queue)

    @property
    def uuid(self) -> str | None:
        named = parse_name(Path(self.path).name)
        return None if named is None else named.uuid


class Lake:
    """A directory with the tables `messages` and `events`."""

    def __init__(self, directory: Path | str):
        """Raises PipelineError if there is no lake."""
        self.directory = _directory(directory)
        try:
            described: Any = json.loads((self.directory / "penstock.json").read_bytes())
            self.format = int(described["format"])
            if self.format not in (1, FORMAT):
                raise PipelineError(
                    f"the lake in {directory} has format {self.format}, and this version reads 1 to {FORMAT}"
                )
            self.id = str(described["lake"])
            self.broker: str | None = described.get("broker")
            """The id of the broker that the lake is filled from; None before the first archive."""
            self.adopted: dict[str, str | None] = described.get("adopted", {})
            """Path -> uuid of the queues that the lake had when it became format 2; None if a queue was gone."""
        except FileNotFoundError:
            raise PipelineError(
                f"there is no lake in {directory}; `penstock pipeline archive --lake {directory}` makes one"
            ) from None
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise PipelineError(f"{directory}/penstock.json cannot be read: {error}") from None

    @classmethod
    def open_or_create(cls, directory: Path | str) -> Lake:
        """The lake in the directory, created if there is none. Raises PipelineError if other files are in it."""
        where = _directory(directory)
        if not (where / "penstock.json").exists():
            if where.is_dir() and any(where.iterdir()):
                raise PipelineError(f"{directory} has other files in it: choose a directory for the lake alone")
            where.mkdir(parents=True, exist_ok=True)
            _describe(where, {"format": FORMAT, "lake": uuid4().hex})
        lake = cls(where)
        for layout in LAYOUTS.values():
            lake.table(layout.table).create()
        sync(where)
        return lake

    def table(self, name: str) -> LakeTable:
        return LakeTable(self.directory / name, LAYOUTS[name], self.subject)

    @property
    def checkpoints(self) -> Path:
        return self.directory / "checkpoints"

    def locked(self, command: str) -> AbstractContextManager[None]:
        """Entering it raises PipelineError if another process runs this command on the lake."""
        refusal = f"another `penstock pipeline {command}` writes to the lake in {self.directory}: stop it first"
        return locked(self.directory / f"{command}.lock", refusal)

    def subject(self, queue: str, uuid: str | None) -> Subject:
        """An incarnation of a queue, as this lake knows it."""
        if queue == EVENTS.queue:
            return EVENTS
        if self.format == 1:
            return Subject(queue, uuid, is_legacy=True)
        if queue in self.adopted and uuid in (None, self.adopted[queue]):
            return Subject(queue, self.adopted[queue], is_legacy=True)
        return Subject(queue, uuid)

    def check_broker(self, broker: str) -> None:
        """Raises PipelineError if the lake is filled from another broker."""
        if self.broker is not None and self.broker != broker:
            raise PipelineError(
                f"the lake in {self.directory} is filled from another broker, {self.broker}, and this is broker "
                f"{broker}. Use another lake, or look at the url"
            )

    def bind(self, broker: str, uuids: Mapping[str, str]) -> list[Subject]:
        """From now on the lake is filled from this broker alone. `uuids` are those of its queues, by path.

        A lake of format 1 becomes format 2: the queues that it has are taken for the present ones, once. Returns them.
        """
        if not broker:
            raise PipelineError("the broker has no id, as it is older than this pipeline: update the broker first")
        self.check_broker(broker)
        if self.broker == broker and self.format == FORMAT:
            return []
        if self.format == 1:
            known = [subject.queue for subject in self.table("messages").subjects()]
            self.adopted = {queue: uuids.get(queue) for queue in known}
        self.broker, self.format = broker, FORMAT
        description = {"format": FORMAT, "lake": self.id, "broker": broker}
        _describe(self.directory, {**description, "adopted": self.adopted} if self.adopted else description)
        return [self.subject(queue, uuid) for queue, uuid in self.adopted.items() if uuid is not None]


def _directory(given: Path | str) -> Path:
    try:
        return lake_directory(given)
    except InvalidRequest as error:
        raise PipelineError(error.message) from None


def _describe(lake: Path, description: dict[str, Any]) -> None:
    """Write `penstock.json`, whole or not at all."""
    marker, hidden = lake / "penstock.json", lake / f".{uuid4().hex}"
    hidden.write_text(json.dumps(description) + "\n")
    sync(hidden)
    hidden.replace(marker)
    sync(lake)


OVERTAKEN = "does not go on where the table ends"


class LakeTable:
    """One version of a table: the newest at the first access."""

    def __init__(self, directory: Path, layout: Layout, subject_of: Callable[[str, str | None], Subject]):
        self.directory = directory
        self.layout = layout
        self._subject_of = subject_of

    def create(self) -> None:
        """Create the table if it does not exist, and add columns of later versions."""
        schema = Schema.from_arrow(self.layout.table_schema)
        made = DeltaTable.create(
            self.directory, schema, mode="ignore", partition_by=list(self.layout.partition_by),
            configuration={"delta.appendOnly": "false", "delta.checkpointInterval": "100"},
        )  # fmt: skip
        known = {field.name for field in made.schema().fields}
        new = [field for field in schema.fields if field.name not in known]
        if new:
            made.alter.add_columns(new)

    def newest(self) -> LakeTable:
        return LakeTable(self.directory, self.layout, self._subject_of)

    @cached_property
    def delta(self) -> DeltaTable:
        return DeltaTable(self.directory)

    @property
    def version(self) -> int:
        return self.delta.version()

    def positions(self, subject: Subject) -> dict[int, int]:
        """Lane -> the first place of it that was not copied yet."""
        lanes = self.delta.transaction_version(subject.lanes_mark) or 0
        found = {lane: self.delta.transaction_version(subject.lane_mark(lane)) for lane in range(lanes)}
        return {lane: position for lane, position in found.items() if position is not None}

    def rows_committed(self, subject: Subject) -> int:
        return self.delta.transaction_version(subject.rows_mark) or 0

    @cached_property
    def log(self) -> LogContent:
        return read_log(self.directory / "_delta_log", self.version)

    def committed(self) -> dict[Subject, Committed]:
        """Rows and positions of every subject, whether or not its files are still listed."""
        found = committed(self.log.transactions.items())
        return {self._subject_of(queue, uuid): each for (queue, uuid), each in found.items()}

    def subjects(self, queue: str | None = None) -> list[Subject]:
        """All subjects with a commit, or those with this path."""
        return sorted((each for each in self.committed() if queue in (None, each.queue)), key=str)

    def subject_of(self, file: ListedFile) -> Subject:
        return self._subject_of(file.queue, file.uuid)

    def files(self, subject: Subject | None = None) -> Iterator[ListedFile]:
        listed = pa.table(self.delta.get_add_actions())
        for each in listed.select(["path", "size_bytes", "num_records", "partition"]).to_pylist():
            values = {name: str(value) for name, value in each["partition"].items()}
            # The log has paths as URLs have them.
            file = ListedFile(unquote(each["path"]), each["size_bytes"], each["num_records"], values)
            if subject is None or subject.key == self.subject_of(file).key:
                yield file

    def removed(self) -> Iterator[ListedFile]:
        """Files that were listed once and are no longer, as far as the log has them."""
        for path, values in self.log.removed.items():
            yield ListedFile(path, 0, None, values)

    def commit(self, subject: Subject, written: Sequence[DataFile]) -> bool:
        """Make these files part of the table. False if they are already. Raises PipelineError if they do not fit."""
        for attempt in range(_ATTEMPTS):
            newest = self.newest()
            before = newest.positions(subject)
            try:
                after = next_positions(before, [each.span for each in written], dense=self.layout.dense)
            except SpanMismatch as error:
                raise PipelineError(
                    f"{self.directory}: {subject.queue} {OVERTAKEN} ({error}). Does another archive "
                    "write to this lake? `penstock pipeline verify` says whether all is well"
                ) from None
            if after is None:
                return False
            rows = newest.rows_committed(subject) + sum(each.rows for each in written)
            try:
                newest.apply(
                    [_added(each, self.layout) for each in written], _marks(subject, before, after, written, rows)
                )
            except CommitFailedError:
                # Another commit was first, perhaps with these very files.
                if attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(0.05 * attempt)
                continue
            return True
        raise AssertionError("unreachable")

    def replace(self, old: Sequence[ListedFile], new: DataFile) -> None:
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


def _marks(
    subject: Subject, before: dict[int, int], after: dict[int, int], written: Sequence[DataFile], rows: int
) -> list[Transaction]:
    marks = [Transaction(subject.rows_mark, rows), Transaction(subject.lanes_mark, max(after, default=-1) + 1)]
    for lane, position in after.items():
        if before.get(lane) != position:
            marks.append(Transaction(subject.lane_mark(lane), position))
        if lane not in before:
            first = min(each.span.first for each in written if each.span.lane == lane)
            marks.append(Transaction(subject.start_mark(lane), first))
    return marks


def _added(file: DataFile, layout: Layout, *, data_change: bool = True) -> AddAction:
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
