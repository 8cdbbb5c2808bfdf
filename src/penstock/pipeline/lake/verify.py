"""Recount a lake: files against Delta's log, spans against their neighbours, both against what was committed.

The recount begins with the committed positions, so it finds missing rows and files, even if all files of a queue are
missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import PenstockError, QueueNotFound
from penstock.ids import parse_queue
from penstock.pipeline import bulk
from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.lake.layout import LAYOUTS, Layout
from penstock.pipeline.lake.parquet_files import digest_of
from penstock.pipeline.lake.spans import LaneSpan, ParsedName, frame_of, gaps, overlaps, parse_name, uncovered
from penstock.pipeline.lake.subject import Committed, Subject
from penstock.pipeline.lake.tables import Lake, LakeTable, ListedFile
from penstock.pipeline.options import PipelineError


class Fault(NamedTuple):
    table: str
    where: str
    """A file below the table, or a subject."""
    what: str


@dataclass
class VerifyReport:
    files: int = 0
    rows: int = 0
    size: int = 0
    versions: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    strays: int = 0
    """Files that no version lists: left by attempts that failed, or by compaction. Readers skip them."""

    @property
    def sound(self) -> bool:
        return not self.faults


def verify(
    lake: Lake, broker: BrokerCalls | None = None, *, seen: Callable[[int], None] = lambda _: None
) -> VerifyReport:
    """Recount both tables. `seen` is called with the number of files that have been looked at."""
    report = VerifyReport()
    for layout in LAYOUTS.values():
        _verify_table(lake.table(layout.table), report, seen)
    if broker is not None:
        table = lake.table("messages")
        for subject in table.subjects():
            faults = _broker_gaps(lake, broker, table, subject)
            report.faults += [Fault("messages", str(subject), what) for what in faults]
    return report


def _verify_table(table: LakeTable, report: VerifyReport, seen: Callable[[int], None]) -> None:
    name = table.layout.table
    report.versions[name] = table.version
    held: dict[Subject, list[LaneSpan]] = defaultdict(list)
    rows: dict[Subject, int] = defaultdict(int)
    listed = list(table.files())
    for file in listed:
        report.files += 1
        report.size += file.size
        seen(report.files)
        named = parse_name(Path(file.path).name)
        faults = ["not a file of an archive: its name has no span"] if named is None else _wrong(table, file, named)
        report.faults += [Fault(name, file.path, what) for what in faults]
        rows[table.subject_of(file)] += file.rows or 0
        if named is not None:
            held[table.subject_of(file)].append(named.span)
    report.rows += sum(rows.values())
    report.faults += [Fault(name, path, "rows of it were deleted by a deletion vector") for path in _masked(table)]
    # Subjects come from the commits, not from the files, to find missing files.
    committed = table.committed()
    removed: dict[Subject, list[LaneSpan]] = defaultdict(list)
    for file in table.removed():
        named = parse_name(Path(file.path).name)
        if named is not None:
            removed[table.subject_of(file)].append(named.span)
    for subject in sorted({*committed, *held}, key=str):
        expected = committed.get(subject, Committed(0, {}, {}))
        faults = _misfits(table.layout, expected, held[subject], removed[subject], rows[subject])
        report.faults += [Fault(name, str(subject), what) for what in faults]
    names = {file.path for file in listed}
    on_disk = (each.relative_to(table.directory) for each in table.directory.glob("*=*/**/*.parquet"))
    report.strays += sum(each.as_posix() not in names for each in on_disk)


def _masked(table: LakeTable) -> Iterator[str]:
    for batch in table.delta.deletion_vectors():
        yield from pa.record_batch(batch)["filepath"].to_pylist()


def _wrong(table: LakeTable, file: ListedFile, named: ParsedName) -> Iterator[str]:
    """The faults of one file; the first one that makes the others meaningless ends the list."""
    path = table.directory / file.path
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        yield "missing: the log lists it, and it is not there"
        return
    if size != file.size:
        yield f"has {size} bytes, and the log says {file.size}"
        return
    if digest_of(path) != named.digest:
        yield f"its bytes have changed: they do not give the checksum {named.digest}"
        return
    try:
        rows = pq.read_table(path, columns=_columns(table.layout, named), partitioning=None)
    except (OSError, pa.ArrowException) as error:
        yield f"cannot be read as Parquet: {error}"
        return
    yield from _recount(table.layout, file, named.span, rows)
    if named.uuid is not None and any(uuid != named.uuid for uuid in rows.column("queue_uuid").unique().to_pylist()):
        yield f"has rows of another queue than the one with uuid {named.uuid}"


def _columns(layout: Layout, named: ParsedName) -> list[str]:
    if not layout.dense:
        return ["shard", "frame", "record"]
    return ["partition", "offset", *(["queue_uuid"] if named.uuid is not None else [])]


def _recount(layout: Layout, file: ListedFile, span: LaneSpan, rows: pa.Table) -> Iterator[str]:
    if rows.num_rows != file.rows:
        yield f"has {rows.num_rows} rows, and the log says {file.rows}"
    if not rows.num_rows:
        return
    places = layout.places(rows)
    # The name also covers messages that had expired or were cancelled before they could be copied.
    inside = span.first <= places[0] and places[-1] <= span.last
    if not inside or (not layout.dense and (places[0], places[-1]) != (span.first, span.last)):
        yield f"holds {places[0]} to {places[-1]}, and its name says {span.first} to {span.last}"
    if np.any(np.diff(places) < (1 if layout.dense else 0)):
        yield "its rows are not in order, or some are there twice"


def _misfits(
    layout: Layout, expected: Committed, held: list[LaneSpan], removed: list[LaneSpan], rows: int
) -> Iterator[str]:
    """Where the files of a subject do not add up to what was committed."""
    for one, other in overlaps(held):
        twice = LaneSpan(one.lane, max(one.first, other.first), min(one.last, other.last))
        yield f"{_places(layout, twice)} are there twice"
    gone = list(gaps(_expected(expected, held), held, dense=layout.dense))
    if not layout.dense:
        # Events have gaps between places: only files that the log lists as removed can be reported.
        gone += uncovered(removed, [*held, *gone])
    for span in gone:
        yield f"{_places(layout, span)} were committed and are missing"
    if expected.rows != rows:
        yield f"{expected.rows} rows were committed, and the log lists {rows}"


def _expected(committed: Committed, held: list[LaneSpan]) -> Iterator[LaneSpan]:
    """All places of each lane. A lake of format 1 did not note the first one."""
    for lane, position in sorted(committed.positions.items()):
        first = min((span.first for span in held if span.lane == lane), default=0)
        first = committed.starts.get(lane, first)
        if first < position:
            yield LaneSpan(lane, first, position - 1)


def _places(layout: Layout, span: LaneSpan) -> str:
    if layout.dense:
        return f"{layout.lane} {span.lane}: offsets {span.first} to {span.last}"
    return f"{layout.lane} {span.lane}: events of frames {frame_of(span.first)} to {frame_of(span.last)}"


def _broker_gaps(lake: Lake, broker: BrokerCalls, table: LakeTable, subject: Subject) -> Iterator[str]:
    """Offsets between the end of the lake and the start of the broker. A deleted queue has none."""
    done = table.positions(subject)
    try:
        extent = broker.ask_raw(bulk.extent(parse_queue(subject.queue)), patient=False)
    except QueueNotFound:
        return
    except PenstockError as error:
        raise PipelineError(f"{error.message} (--url)") from None
    lake.check_broker(extent.broker)
    if subject.uuid not in (None, extent.uuid) or (subject.uuid is None and lake.format != 1):
        return
    for each in extent.partitions:
        at = done.get(each.partition, 0)
        if each.end_offset < at:
            yield f"partition {each.partition}: the broker ends at {each.end_offset}, before what the lake has ({at})"
        elif each.start_offset > at:
            yield f"partition {each.partition}: offsets {at} to {each.start_offset - 1} are in neither lake nor broker"
