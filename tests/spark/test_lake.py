"""The archive copies queues and events into a lake: each row once, also after kills and lost checkpoints."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the extra `spark` is not installed: pip install 'penstock[spark]'")

from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.lake.archive import Archive
from penstock.pipeline.lake.subject import EVENTS
from penstock.pipeline.lake.tables import Lake, LakeTable
from penstock.pipeline.lake.verify import verify
from penstock.pipeline.options import PipelineError
from tests.acceptance.http_server import running

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def broker(server):
    return BrokerCalls(server.url, None, 20.0)


def archive(spark, lake, broker, queues, **options):
    return Archive(spark, Lake.open_or_create(lake), broker, queues=queues, **options).once()


def stored(lake, queue=None):
    """(queue, partition, offset) of all rows, as any reader of Delta sees them."""
    rows = Lake(lake).table("messages").delta.to_pyarrow_table(columns=["queue", "partition", "offset"]).to_pylist()
    return sorted((row["queue"], row["partition"], row["offset"]) for row in rows if queue in (None, row["queue"]))


def test_queues_and_events_are_copied_once(spark, client, broker, tmp_path):
    queue = client.create_queue("copied", partitions=2, retention={"mode": "keep"})
    queue.publish_many([{"n": number} for number in range(500)], keys=[str(number) for number in range(500)])
    lake, told = tmp_path / "lake", []
    archive(spark, lake, broker, ["copied"], rows_per_batch=200, report=told.append)
    assert sum(each.rows for each in told if each.source != EVENTS.queue) == 500
    assert len([each for each in told if each.source != EVENTS.queue]) == 3
    assert archive(spark, lake, broker, ["copied"]) <= 1  # the hold itself is no event
    queue.publish_many([1, 2, 3])
    archive(spark, lake, broker, ["copied"])
    rows = stored(lake)
    assert len(rows) == len(set(rows)) == 503
    events = Lake(lake).table("events").delta.to_pyarrow_table(columns=["kind", "queue"]).to_pylist()
    assert sum(row == {"kind": "published", "queue": "default/default/copied"} for row in events) == 503
    report = verify(Lake(lake), broker)
    assert report.sound, report.faults


def test_retention_waits_for_the_lake(spark, client, broker, server, tmp_path):
    queue = client.create_queue("fleeting")
    lake = tmp_path / "lake"
    archive(spark, lake, broker, ["fleeting"])
    queue.publish_many(list(range(100)))
    with_all = iter(queue.consume_batches(max=100, wait=1))
    next(with_all).ack()
    with_all.close()
    assert server.ask("GET", "/v1/extent?queue=fleeting").json["partitions"][0]["start_offset"] == 0
    archive(spark, lake, broker, ["fleeting"])
    assert len(stored(lake)) == 100
    hold = server.ask("GET", f"/v1/holds/lake-{Lake(lake).id[:16]}").json
    assert hold["queues"] == {"default/default/fleeting": {"0": 100}} and hold["events"] > 0
    assert server.ask("GET", "/v1/extent?queue=fleeting").json["partitions"][0]["start_offset"] == 100


def test_lost_checkpoint_loses_no_rows(spark, client, broker, tmp_path):
    queue = client.create_queue("again", retention={"mode": "keep"})
    queue.publish_many(list(range(50)))
    lake = tmp_path / "lake"
    archive(spark, lake, broker, ["again"])
    shutil.rmtree(lake / "checkpoints")
    queue.publish_many(list(range(50)))
    archive(spark, lake, broker, ["again"])
    assert [offset for _, _, offset in stored(lake)] == list(range(100))
    assert verify(Lake(lake)).sound


def test_archive_resumes_after_a_crash_between_lake_commit_and_checkpoint(spark, client, broker, tmp_path):
    """The last batch is in the lake and gone from the broker, and Spark's checkpoint does not know that it is done."""
    queue = client.create_queue("torn")
    lake = tmp_path / "lake"
    archive(spark, lake, broker, ["torn"])
    for _ in range(2):
        queue.publish_many(list(range(10)))
        batches = iter(queue.consume_batches(max=10, wait=1))
        next(batches).ack()
        batches.close()
        archive(spark, lake, broker, ["torn"])
        for note in (lake / "checkpoints/messages").glob("**/commits/*"):
            note.unlink()
    assert [offset for _, _, offset in stored(lake)] == list(range(20))
    assert verify(Lake(lake), broker).sound


def test_killed_archive_resumes(spark, client, broker, server, tmp_path):
    queue = client.create_queue("killed", partitions=2, retention={"mode": "keep"})
    for first in range(0, 2_000, 1_000):
        queue.publish_many(list(range(first, first + 1_000)), keys=[str(n) for n in range(1_000)])
    lake = tmp_path / "lake"
    command = [sys.executable, "-m", "penstock", "pipeline", "archive", "--lake", str(lake), "--url", server.url,
               "--queue", "killed", "--master", "local[2]"]  # fmt: skip
    log = (tmp_path / "log").open("wb")
    with log:
        first = subprocess.Popen([*command, "--batch-rows", "200"], cwd=ROOT, stderr=log, start_new_session=True)
        try:
            deadline = time.monotonic() + 120
            while (
                not (lake / "penstock.json").exists()
                or not (lake / "messages/_delta_log").exists()
                or len(stored(lake)) < 400
            ):
                assert time.monotonic() < deadline and first.poll() is None, (tmp_path / "log").read_text()
                time.sleep(0.05)
        finally:
            signal_group(first)
    assert 400 <= len(stored(lake)) < 2_000
    archive(spark, lake, broker, ["killed"])
    rows = stored(lake)
    assert len(rows) == len(set(rows)) == 2_000
    checked = subprocess.run(
        [sys.executable, "-m", "penstock", "pipeline", "verify", "--lake", str(lake), "--url", server.url],
        cwd=ROOT, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert checked.returncode == 0 and "sound" in checked.stdout, checked


def test_overtaken_archive_resumes_behind_the_other_commit(spark, client, broker, tmp_path, monkeypatch):
    queue = client.create_queue("overtaken", retention={"mode": "keep"})
    queue.publish_many(list(range(20)))
    archive(spark, tmp_path / "lake", broker, ["overtaken"])
    queue.publish_many(list(range(20)))
    start, overtaken = Archive._start, []

    def start_before_the_other_committed(self, source, trigger):
        with monkeypatch.context() as past:
            if source != EVENTS and len(overtaken) < times:
                overtaken.append(source)
                past.setattr(LakeTable, "positions", lambda _self, _source: {})
            return start(self, source, trigger)

    monkeypatch.setattr(Archive, "_start", start_before_the_other_committed)
    times = 1
    archive(spark, tmp_path / "lake", broker, ["overtaken"])
    assert overtaken and [offset for _, _, offset in stored(tmp_path / "lake")] == list(range(40))
    times = 100
    queue.publish_many([1])
    with pytest.raises(PipelineError, match="Does another archive write to this lake"):
        archive(spark, tmp_path / "lake", broker, ["overtaken"])


def signal_group(process):
    """The driver, its JVM and all workers, at once."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_wrong_queue_broker_or_directory_is_refused_before_work(spark, client, broker, tmp_path):
    with pytest.raises(PipelineError, match="no queue"):
        archive(spark, tmp_path / "one", broker, ["nobody-made-it"])
    with pytest.raises(PipelineError, match="cannot reach"):
        archive(spark, tmp_path / "two", BrokerCalls("http://127.0.0.1:9", None, 1.0), ["x"])
    (tmp_path / "three").mkdir()
    (tmp_path / "three" / "thesis.txt").touch()
    with pytest.raises(PipelineError, match="other files"):
        Lake.open_or_create(tmp_path / "three")
    with pytest.raises(PipelineError, match="there is no lake"):
        Lake(tmp_path / "four")


def test_lake_of_another_broker_is_refused(spark, client, broker, tmp_path):
    client.create_queue("home", retention={"mode": "keep"}).publish_many([1, 2, 3])
    archive(spark, tmp_path / "lake", broker, ["home"])
    with running(tmp_path / "other") as stranger:
        stranger.ask("PUT", "/v1/queues/home", {"retention": {"mode": "keep"}})
        with pytest.raises(PipelineError, match="another broker"):
            archive(spark, tmp_path / "lake", BrokerCalls(stranger.url, None, 5.0), ["home"])
