"""Recount a lake: files against Delta's log, spans against their neighbours, both against what was committed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.client.lowlevel import bulk
from penstock.errors import PenstockError, QueueNotFound
from penstock.ids import parse_queue
from penstock.pipeline.connect import Broker
from penstock.pipeline.lake.layout import LAYOUTS, Layout
from penstock.pipeline.lake.shelf import digest_of
from penstock.pipeline.lake.spans import Named, Span, gaps, overlaps, parse_name
from penstock.pipeline.lake.tables import EVENTS, Lake, Listed, Table
from penstock.pipeline.options import PipelineError


class Fault(NamedTuple):
    table: str
    where: str
    """A file below the table, or a queue."""
    what: str


@dataclass
class Report:
    files: int = 0
    rows: int = 0
    size: int = 0
    versions: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    strays: int = 0
    """Files that no version lists: left by attempts that failed, or by compaction. Nobody reads them."""

    @property
    def sound(self) -> bool:
        return not self.faults


def verify(lake: Lake, broker: Broker | None = None, *, seen: Callable[[int], None] = lambda _: None) -> Report:
    """`seen` is told how many files have been looked at."""
    report = Report()
    for layout in LAYOUTS.values():
        table = lake.table(layout.table)
        report.versions[layout.table] = table.version
        spans: dict[str, list[Span]] = defaultdict(list)
        rows: dict[str, int] = defaultdict(int)
        listed = list(table.files())
        for file in listed:
            report.files += 1
            report.size += file.size
            seen(report.files)
            named = parse_name(Path(file.path).name)
            faults = (
                ["not a file of an archive: its name says nothing"]
                if named is None
                else list(_wrong(table, file, named))
            )
            report.faults += [Fault(layout.table, file.path, what) for what in faults]
            rows[file.source] += file.rows or 0
            if named is not None:
                spans[file.source].append(named.span)
        for source, held in sorted(spans.items()):
            report.faults += [Fault(layout.table, source, what) for what in _misfits(table, source, held, rows[source])]
            if broker is not None and source != EVENTS:
                report.faults += [Fault(layout.table, source, what) for what in _seam(broker, table, source)]
        report.rows += sum(rows.values())
        names = {file.path for file in listed}
        on_disk = (each.relative_to(table.directory) for each in table.directory.glob("*=*/**/*.parquet"))
        report.strays += sum(each.as_posix() not in names for each in on_disk)
    return report


def _wrong(table: Table, file: Listed, named: Named) -> Iterator[str]:
    """What is wrong with one file, the most telling thing first."""
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
        rows = pq.read_table(path, columns=_columns(table.layout), partitioning=None)
    except (OSError, pa.ArrowException) as error:
        yield f"cannot be read as Parquet: {error}"
        return
    yield from _recount(table.layout, file, named.span, rows)


def _columns(layout: Layout) -> list[str]:
    return ["partition", "offset"] if layout.dense else ["shard", "frame", "record"]


def _recount(layout: Layout, file: Listed, span: Span, rows: pa.Table) -> Iterator[str]:
    if rows.num_rows != file.rows:
        yield f"has {rows.num_rows} rows, and the log says {file.rows}"
    if not rows.num_rows:
        return
    places = layout.places(rows)
    # Messages that had expired or were cancelled are covered by the name and not there.
    inside = span.first <= places[0] and places[-1] <= span.last
    if not inside or (not layout.dense and (places[0], places[-1]) != (span.first, span.last)):
        yield f"holds {places[0]} to {places[-1]}, and its name says {span.first} to {span.last}"
    if np.any(np.diff(places) < (1 if layout.dense else 0)):
        yield "its rows are not in order, or some are there twice"


def _misfits(table: Table, source: str, held: list[Span], rows: int) -> Iterator[str]:
    lane, place = (table.layout.lane, "offsets") if table.layout.dense else (table.layout.lane, "places")
    for one, other in overlaps(held):
        twice = f"{max(one.first, other.first)} to {min(one.last, other.last)}"
        yield f"{lane} {one.lane}: {place} {twice} are there twice"
    if table.layout.dense:
        for gap in gaps(held):
            yield f"{lane} {gap.lane}: {place} {gap.first} to {gap.last} are missing"
    reached = {each: max(span.last for span in held if span.lane == each) + 1 for each in {span.lane for span in held}}
    for number, position in table.positions(source).items():
        if reached.get(number) != position:
            ends = reached.get(number, "nothing")
            yield f"{lane} {number}: was committed up to {position}, and the files end at {ends}"
    committed = table.rows_committed(source)
    if committed != rows:
        yield f"{committed} rows were committed, and the log lists {rows}"


def _seam(broker: Broker, table: Table, queue: str) -> Iterator[str]:
    """Whether the broker still has what comes next. Of a queue that was deleted, nothing does."""
    done = table.positions(queue)
    try:
        partitions = broker.ask_raw(bulk.extent(parse_queue(queue)), patient=False).partitions
    except QueueNotFound:
        return
    except PenstockError as error:
        raise PipelineError(f"{error.message} (--url)") from None
    for each in partitions:
        at = done.get(each.partition, 0)
        if each.end_offset < at:
            yield f"partition {each.partition}: the broker ends at {each.end_offset}, before what the lake has ({at})"
        elif each.start_offset > at:
            yield f"partition {each.partition}: offsets {at} to {each.start_offset - 1} are in neither lake nor broker"
