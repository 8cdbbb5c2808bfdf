"""`verify` finds changes to a lake; compaction and other engines read the same rows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the extra `spark` is not installed: pip install 'penstock[spark]'")

from typer.testing import CliRunner

import penstock.pipeline
from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.lake.archive import Archive
from penstock.pipeline.lake.compact import compact
from penstock.pipeline.lake.tables import Lake
from penstock.pipeline.lake.verify import verify
from penstock.pipeline.options import PipelineError
from penstock.server.cli import app

ROOT = Path(__file__).parent.parent.parent
COUNT = 1_000


@pytest.fixture(scope="module")
def broker(server):
    return BrokerCalls(server.url, None, 20.0)


@pytest.fixture(scope="module")
def original(spark, client, broker, tmp_path_factory):
    """A lake in a few batches, and messages that came after it."""
    queue = client.create_queue("orders", partitions=2, retention={"mode": "keep"})
    queue.publish_many([{"n": n} for n in range(COUNT)], keys=[str(n) for n in range(COUNT)])
    lake = tmp_path_factory.mktemp("lakes") / "lake"
    Archive(spark, Lake.open_or_create(lake), broker, queues=["orders"], rows_per_batch=250).once()
    queue.publish_many(list(range(100)), keys=[str(n) for n in range(100)])
    return lake


@pytest.fixture
def lake(original, tmp_path):
    """A copy of it to do things to."""
    return Lake(shutil.copytree(original, tmp_path / "lake"))


def files(lake):
    table = lake.table("messages")
    return [table.directory / each.path for each in table.files()]


def faults(lake):
    return [f"{fault.where}: {fault.what}" for fault in verify(lake).faults]


def test_missing_file_is_a_fault(lake):
    gone = files(lake)[0]
    gone.unlink()
    (fault,) = faults(lake)
    assert gone.name in fault and "missing" in fault
    told = CliRunner().invoke(app, ["pipeline", "verify", "--lake", str(lake.directory)])
    assert told.exit_code == 1 and gone.name in told.stdout


def test_changed_bytes_are_a_fault(lake):
    path = files(lake)[0]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    (fault,) = faults(lake)
    assert path.name in fault and "bytes have changed" in fault


def test_file_listed_twice_is_a_fault(lake):
    """The same rows listed a second time, under another directory."""
    table = lake.table("messages")
    file = next(iter(table.files()))
    other = Path("queue=default%2Fdefault%2Forders/date=1999-01-01") / Path(file.path).name
    (table.directory / other).parent.mkdir()
    shutil.copy(table.directory / file.path, table.directory / other)
    from deltalake.transaction import AddAction

    values = {**file.values, "date": "1999-01-01"}
    table.apply([AddAction(str(other), file.size, values, 0, True, f'{{"numRecords": {file.rows}}}')], [])
    found = faults(lake)
    assert any("are there twice" in fault for fault in found)
    assert any("rows were committed" in fault for fault in found)


def test_file_removed_from_the_log_is_a_fault(lake):
    from deltalake.transaction import RemoveAction

    for name in ("messages", "events"):
        table = lake.table(name)
        file = next(iter(table.files()))
        table.apply([RemoveAction(file.path, True, 1, file.size, dict(file.values))], [])
    told = verify(lake).faults
    assert {fault.table for fault in told} == {"messages", "events"}


def test_unlisted_file_is_a_stray_and_no_fault(lake):
    path = files(lake)[0]
    shutil.copy(path, path.with_name("0-5-9-" + "0" * 32 + ".parquet"))
    report = verify(lake)
    assert report.sound and report.strays == 1


def test_compaction_keeps_every_row_and_stays_sound(lake):
    before = (
        lake.table("messages").delta.to_pyarrow_table().sort_by([("partition", "ascending"), ("offset", "ascending")])
    )
    count = len(files(lake))
    done = compact(lake)
    assert done.before > done.after >= 1 and len(files(lake)) < count
    after = (
        lake.table("messages").delta.to_pyarrow_table().sort_by([("partition", "ascending"), ("offset", "ascending")])
    )
    assert before.equals(after)
    assert faults(lake) == []
    assert compact(lake) == (0, 0)


def test_compaction_refuses_damaged_files(lake):
    path = files(lake)[0]
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(PipelineError, match="damaged"):
        compact(lake)


def test_union_has_every_offset_once(spark, server, lake):
    rows = penstock.pipeline.union(spark, lake=lake.directory, url=server.url, queue="orders")
    places = [tuple(row) for row in rows.select("partition", "offset").collect()]
    assert len(places) == len(set(places)) == COUNT + 100
    assert (
        rows.where("queue = 'default/default/orders' and payload is not null and id is not null").count() == COUNT + 100
    )


def test_duckdb_and_polars_read_the_same_rows(spark, lake):
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    polars = pytest.importorskip("polars", reason="Polars is not installed")
    table = lake.table("messages")
    by_spark = spark.read.parquet(*map(str, files(lake))).selectExpr("count(*)", "sum(offset)", "sum(length(payload))")
    expected = tuple(by_spark.first())
    arrow = table.delta.to_pyarrow_dataset()
    by_duckdb = duckdb.from_arrow(arrow).aggregate('count(*), sum("offset"), sum(octet_length(payload))').fetchall()[0]
    assert tuple(map(int, by_duckdb)) == expected
    frame = polars.read_delta(str(table.directory)).filter(polars.col("queue") == "default/default/orders")
    by_polars = (frame.height, frame["offset"].sum(), frame["payload"].bin.size().sum())
    assert by_polars == expected
