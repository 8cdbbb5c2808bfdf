"""Files of a lake: they cover holes in the log, and a recount finds every row and file that is missing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("deltalake", reason="the extra `spark` is not installed: pip install 'penstock[spark]'")

import pyarrow as pa
from deltalake.transaction import RemoveAction

from penstock.pipeline.columns import hole
from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.lake.archive import Archive
from penstock.pipeline.lake.archived_rows import read_archived
from penstock.pipeline.lake.compact import compact
from penstock.pipeline.lake.layout import MESSAGES_LAYOUT
from penstock.pipeline.lake.parquet_files import TaskFileWriter
from penstock.pipeline.lake.spans import LaneSpan
from penstock.pipeline.lake.tables import Lake
from penstock.pipeline.lake.verify import verify
from penstock.pipeline.options import PipelineError

QUEUE = "default/default/orders"
UUID = "0e8a1a2c-55aa-5f0e-8d1c-0123456789ab"
OTHER = "7d1b6b1c-55aa-5f0e-8d1c-ba9876543210"
SCHEMA = pa.schema([field for field in MESSAGES_LAYOUT.table_schema if field.name != "date"])
MOMENT = datetime(2026, 11, 16, 23, 59, tzinfo=UTC)


@pytest.fixture
def lake(tmp_path):
    return Lake.open_or_create(tmp_path / "lake")


def subject(lake, uuid=UUID):
    return lake.subject(QUEUE, uuid)


def rows(offsets, at=MOMENT, uuid=UUID):
    columns = {"queue": QUEUE, "partition": 0, "id": "01", "payload": b"x", "published_at": at, "queue_uuid": uuid}
    arrays = [
        pa.array(offsets if field.name == "offset" else [columns.get(field.name)] * len(offsets), field.type)
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def written(lake, *batches, uuid=UUID):
    """The files of one task that has these rows."""
    table = lake.table("messages")
    shelf = TaskFileWriter(table.directory, table.layout, {"queue": QUEUE}, uuid)
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
        for rows in read_archived(str(lake.directory), QUEUE, UUID, 0, first, stop, SCHEMA)
        for row in rows.to_pylist()
    ]


def test_holes_between_rows_and_at_both_ends_are_covered(lake):
    told = together(hole(0, 0, 2, SCHEMA), rows([2, 3, 6]), hole(0, 7, 10, SCHEMA))
    (file,) = written(lake, told)
    assert (file.span, file.held, file.rows) == (LaneSpan(0, 0, 9), LaneSpan(0, 2, 6), 3)


def test_hole_at_midnight_belongs_to_the_next_day(lake):
    files = written(lake, rows([0, 1]), rows([5, 6], MOMENT + timedelta(hours=1)))
    assert spans(files) == [(0, 1), (2, 6)]


def test_range_without_messages_makes_an_empty_file(lake):
    (file,) = written(lake, hole(0, 0, 7, SCHEMA))
    assert (file.span, file.held, file.rows) == (LaneSpan(0, 0, 6), None, 0)


def test_lake_with_holes_is_sound_before_and_after_compaction(lake):
    table = lake.table("messages")
    table.commit(subject(lake), written(lake, rows([0, 1, 4])))
    table.commit(subject(lake), written(lake, hole(0, 5, 8, SCHEMA)))
    table.commit(subject(lake), written(lake, hole(0, 8, 10, SCHEMA), rows([10, 11])))
    assert lake.table("messages").positions(subject(lake)) == {0: 12}
    assert verify(lake).faults == []
    assert offsets(lake, 1, 11) == [1, 4, 10]
    compact(lake)
    assert verify(lake).faults == []
    assert offsets(lake, 0, 12) == [0, 1, 4, 10, 11]
    with pytest.raises(PipelineError, match="offsets 12 to 14 are in neither broker nor lake"):
        offsets(lake, 11, 15)


def test_files_that_skip_or_repeat_offsets_are_refused(lake):
    table = lake.table("messages")
    table.commit(subject(lake), written(lake, rows([0, 1])))
    with pytest.raises(PipelineError, match="goes on at 2, and this begins at 3"):
        table.commit(subject(lake), written(lake, rows([3, 4])))
    with pytest.raises(PipelineError, match="goes on at 2, and this begins at 1"):
        table.commit(subject(lake), written(lake, rows([1, 2])))


# -- a recount begins with what was committed --------------------------------------------------------------------------


@pytest.fixture
def two_incarnations(lake):
    """Offsets 0 to 5 of the former queue in three files, 0 to 3 of the present one in two."""
    table = lake.table("messages")
    for first in (0, 2, 4):
        table.commit(subject(lake), written(lake, rows([first, first + 1])))
    for first in (0, 2):
        files = written(lake, rows([first, first + 1], uuid=OTHER), uuid=OTHER)
        table.commit(subject(lake, OTHER), files)
    assert verify(lake).faults == []
    return lake


def faults(lake):
    return [(fault.where, fault.what) for fault in verify(lake).faults]


def remove(lake, *files):
    lake.table("messages").apply([RemoveAction(file.path, True, 1, file.size, dict(file.values)) for file in files], [])


def test_incarnations_of_a_queue_are_separate(two_incarnations):
    table = two_incarnations.table("messages")
    assert table.subjects() == [subject(two_incarnations), subject(two_incarnations, OTHER)]
    assert table.positions(subject(two_incarnations)) == {0: 6}
    assert table.positions(subject(two_incarnations, OTHER)) == {0: 4}
    assert [len(list(table.files(subject(two_incarnations, uuid)))) for uuid in (UUID, OTHER)] == [3, 2]
    compact(two_incarnations)
    assert faults(two_incarnations) == []
    assert sorted(file.uuid for file in two_incarnations.table("messages").files()) == sorted([UUID, OTHER])


def test_all_rows_of_a_queue_deleted_is_unsound(two_incarnations):
    two_incarnations.table("messages").delta.delete()
    assert faults(two_incarnations) == [
        (f"{QUEUE} (uuid {UUID})", "partition 0: offsets 0 to 5 were committed and are missing"),
        (f"{QUEUE} (uuid {UUID})", "6 rows were committed, and the log lists 0"),
        (f"{QUEUE} (uuid {OTHER})", "partition 0: offsets 0 to 3 were committed and are missing"),
        (f"{QUEUE} (uuid {OTHER})", "4 rows were committed, and the log lists 0"),
    ]
    # Also when the removals are forgotten, and only the checkpoint of the log is left.
    two_incarnations.table("messages").delta.create_checkpoint()
    assert len(faults(two_incarnations)) == 4


@pytest.mark.parametrize(("number", "missing"), [(0, "0 to 1"), (1, "2 to 3"), (2, "4 to 5")])
def test_committed_offsets_that_are_missing_are_listed(two_incarnations, number, missing):
    files = sorted(two_incarnations.table("messages").files(subject(two_incarnations)), key=lambda file: file.path)
    remove(two_incarnations, files[number])
    where = f"{QUEUE} (uuid {UUID})"
    assert faults(two_incarnations) == [
        (where, f"partition 0: offsets {missing} were committed and are missing"),
        (where, "6 rows were committed, and the log lists 4"),
    ]


def test_restored_older_version_is_unsound(two_incarnations):
    two_incarnations.table("messages").delta.restore(2)
    assert any("offsets 4 to 5 were committed and are missing" in what for _, what in faults(two_incarnations))


def test_rows_under_the_uuid_of_another_queue_are_found(lake):
    lake.table("messages").commit(subject(lake, OTHER), written(lake, rows([0, 1]), uuid=OTHER))
    ((_, what),) = faults(lake)
    assert what == f"has rows of another queue than the one with uuid {OTHER}"


def test_lake_is_filled_from_one_broker(lake):
    lake.bind("01BROKER", {})
    lake.bind("01BROKER", {})
    with pytest.raises(PipelineError, match="filled from another broker, 01BROKER, and this is broker 01OTHER"):
        Lake(lake.directory).bind("01OTHER", {})
    with pytest.raises(PipelineError, match="update the broker"):
        lake.bind("", {})


def test_second_archive_on_a_lake_is_refused(lake):
    """By another process, and also by another object of this one. It ends before Spark is asked for anything."""
    other = "from penstock.pipeline.lake.tables import Lake; Lake(%r).locked('archive').__enter__(); input()"
    command = [sys.executable, "-c", other % str(lake.directory)]
    with lake.locked("archive"):
        done = subprocess.run(command, capture_output=True, text=True, input="", check=False)
        assert "another `penstock pipeline archive` writes to the lake" in done.stderr, done
        assert f"process {os.getpid()} on" in done.stderr
        archive = Archive(None, Lake(lake.directory), BrokerCalls("http://127.0.0.1:9", None, 1.0))
        for run in (archive.once, lambda: archive.follow(1.0, threading.Event())):
            with pytest.raises(PipelineError, match="stop it first"):
                run()
    with lake.locked("archive"), lake.locked("analyze"):
        pass
