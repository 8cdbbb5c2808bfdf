"""Messages that were expired or cancelled leave holes in the log; the files of a lake cover them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("deltalake", reason="the extra `spark` is not installed: pip install 'penstock[spark]'")

import pyarrow as pa

from penstock.pipeline.columns import hole
from penstock.pipeline.lake.compact import compact
from penstock.pipeline.lake.layout import MESSAGES_LAYOUT
from penstock.pipeline.lake.recall import recalled
from penstock.pipeline.lake.shelf import Shelf
from penstock.pipeline.lake.spans import Span
from penstock.pipeline.lake.tables import Lake
from penstock.pipeline.lake.verify import verify
from penstock.pipeline.options import PipelineError

QUEUE = "default/default/orders"
SCHEMA = pa.schema([field for field in MESSAGES_LAYOUT.table_schema if field.name != "date"])
MOMENT = datetime(2026, 11, 16, 23, 59, tzinfo=UTC)


@pytest.fixture
def lake(tmp_path):
    return Lake.made(tmp_path / "lake")


def rows(offsets, at=MOMENT):
    columns = {"queue": QUEUE, "partition": 0, "id": "01", "payload": b"x", "published_at": at}
    arrays = [
        pa.array(offsets if field.name == "offset" else [columns.get(field.name)] * len(offsets), field.type)
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def written(lake, *batches):
    """By one task that has got these rows."""
    table = lake.table("messages")
    shelf = Shelf(table.directory, table.layout, {"queue": QUEUE})
    for each in batches:
        shelf.put(each)
    return shelf.close()


def together(*batches):
    """As Spark may hand them over."""
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def spans(files):
    return [tuple(file.span)[1:] for file in files]


def offsets(lake, first, stop):
    return [
        row["offset"]
        for rows in recalled(str(lake.directory), QUEUE, 0, first, stop, SCHEMA)
        for row in rows.to_pylist()
    ]


def test_holes_between_rows_and_at_both_ends_are_covered(lake):
    told = together(hole(0, 0, 2, SCHEMA), rows([2, 3, 6]), hole(0, 7, 10, SCHEMA))
    (file,) = written(lake, told)
    assert (file.span, file.held, file.rows) == (Span(0, 0, 9), Span(0, 2, 6), 3)


def test_a_hole_at_midnight_belongs_to_the_day_after(lake):
    files = written(lake, rows([0, 1]), rows([5, 6], MOMENT + timedelta(hours=1)))
    assert spans(files) == [(0, 1), (2, 6)]


def test_where_nothing_is_left_an_empty_file_says_so(lake):
    (file,) = written(lake, hole(0, 0, 7, SCHEMA))
    assert (file.span, file.held, file.rows) == (Span(0, 0, 6), None, 0)


def test_a_lake_with_holes_is_sound_also_when_compacted(lake):
    table = lake.table("messages")
    table.commit("query", 0, QUEUE, written(lake, rows([0, 1, 4])))
    table.commit("query", 1, QUEUE, written(lake, hole(0, 5, 8, SCHEMA)))
    table.commit("query", 2, QUEUE, written(lake, hole(0, 8, 10, SCHEMA), rows([10, 11])))
    assert lake.table("messages").positions(QUEUE) == {0: 12}
    assert verify(lake).faults == []
    assert offsets(lake, 1, 11) == [1, 4, 10]
    compact(lake)
    assert verify(lake).faults == []
    assert offsets(lake, 0, 12) == [0, 1, 4, 10, 11]
    with pytest.raises(PipelineError, match="offsets 12 to 14 are in neither broker nor lake"):
        offsets(lake, 11, 15)


def test_what_was_left_out_is_still_refused(lake):
    table = lake.table("messages")
    table.commit("query", 0, QUEUE, written(lake, rows([0, 1])))
    with pytest.raises(PipelineError, match="goes on at 2, and this begins at 3"):
        table.commit("query", 1, QUEUE, written(lake, rows([3, 4])))
    with pytest.raises(PipelineError, match="goes on at 2, and this begins at 1"):
        table.commit("query", 1, QUEUE, written(lake, rows([1, 2])))
