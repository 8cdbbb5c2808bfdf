"""A lake knows which queue its rows are of: a queue that was deleted and created again is another subject."""

from __future__ import annotations

import json
import logging

import pytest

pytest.importorskip("deltalake", reason="the extra `spark` is not installed: pip install 'penstock[spark]'")

from typer.testing import CliRunner

import penstock.pipeline
from penstock.pipeline.analytics import Analysis
from penstock.pipeline.audit import audit
from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.lake.archive import Archive
from penstock.pipeline.lake.redrive import ArchiveRedrive, redrive_spec
from penstock.pipeline.lake.subject import Subject
from penstock.pipeline.lake.tables import Lake
from penstock.pipeline.lake.verify import verify
from penstock.pipeline.options import PipelineError
from penstock.server.cli import app
from tests.acceptance.http_server import running
from tests.spark.following import Following
from tests.spark.recreate import create, recreate


@pytest.fixture
def broker(server):
    return BrokerCalls(server.url, None, 20.0)


def archive(spark, lake, broker, *queues, **options):
    return Archive(spark, Lake.open_or_create(lake), broker, queues=list(queues) or None, **options).once()


def stored(lake, queue):
    """uuid -> offsets, as any reader of Delta sees them."""
    columns = ["queue", "queue_uuid", "offset"]
    found = {}
    for row in Lake(lake).table("messages").delta.to_pyarrow_table(columns=columns).to_pylist():
        if row["queue"] == f"default/default/{queue}":
            found.setdefault(row["queue_uuid"], []).append(row["offset"])
    return {uuid: sorted(offsets) for uuid, offsets in found.items()}


def held(server, lake):
    return server.ask("GET", f"/v1/holds/lake-{Lake(lake).id[:16]}").json


@pytest.mark.parametrize("more", [3, 20], ids=["shorter", "longer"])
def test_both_incarnations_of_a_queue_are_archived(spark, server, broker, tmp_path, more):
    queue, lake = f"twice-{more}", tmp_path / "lake"
    former = create(server, queue, *range(10))
    archive(spark, lake, broker, queue)
    present = recreate(server, queue, *range(more))
    archive(spark, lake, broker, queue)
    assert stored(lake, queue) == {former: list(range(10)), present: list(range(more))}
    hold = held(server, lake)
    assert hold["queues"] == {f"default/default/{queue}": {"0": more}}
    assert hold["uuids"] == {f"default/default/{queue}": present}
    report = verify(Lake(lake), broker)
    assert report.sound, report.faults
    assert archive(spark, lake, broker, queue) <= 1
    # The present one alone goes on, and is what a union shows.
    server.publish(queue, "later")
    rows = penstock.pipeline.union(spark, lake=lake, url=server.url, queue=queue)
    assert sorted(row.offset for row in rows.collect()) == list(range(more + 1))
    assert {row.queue_uuid for row in rows.collect()} == {present}


def test_events_carry_queue_uuid(spark, server, broker, tmp_path):
    lake = tmp_path / "lake"
    former = create(server, "eventful", 1, 2)
    archive(spark, lake, broker, "eventful")
    present = recreate(server, "eventful", 3)
    archive(spark, lake, broker, "eventful")
    rows = Lake(lake).table("events").delta.to_pyarrow_table(columns=["kind", "queue", "queue_uuid"]).to_pylist()
    published = [row["queue_uuid"] for row in rows if row["kind"] == "published" and "eventful" in row["queue"]]
    assert sorted(published) == sorted([former, former, present])


def test_queue_recreated_while_the_archive_follows(server, broker, tmp_path):
    lake = tmp_path / "lake"
    former = create(server, "followed", *range(10))
    with Following(lake, server.url) as following:
        following.until(lambda: (lake / "messages/_delta_log").exists() and former in stored(lake, "followed"))
        present = recreate(server, "followed", *range(4))
        following.until(lambda: stored(lake, "followed").get(present) == [0, 1, 2, 3])
        following.until(lambda: held(server, lake)["uuids"].get("default/default/followed") == present)
        assert following.stop() == 0, following.said()
    report = verify(Lake(lake), broker)
    assert report.sound, report.faults


def test_archive_queries_of_two_incarnations_run_at_the_same_time(spark, server, broker, tmp_path):
    """The query of the deleted queue ends at its next batch; the archive may find the new queue before that."""
    former = create(server, "replaced", *range(10))
    work = Archive(spark, Lake.open_or_create(tmp_path / "lake"), broker, queues=["replaced"])
    queries = [work._start(Subject("default/default/replaced", former), {"processingTime": "1 hour"})]
    try:
        present = recreate(server, "replaced", *range(4))
        queries.append(work._start(Subject("default/default/replaced", present), {"processingTime": "1 hour"}))
        assert len({query.name for query in queries}) == 2
    finally:
        for query in queries:
            query.stop()


def test_all_events_deleted_is_unsound(spark, server, broker, tmp_path):
    create(server, "unsound", *range(10))
    lake = tmp_path / "lake"
    archive(spark, lake, broker, "unsound")
    Lake(lake).table("events").delta.delete()
    told = CliRunner().invoke(app, ["pipeline", "verify", "--lake", str(lake), "-o", "json"])
    report = json.loads(told.stdout)
    assert told.exit_code == 1 and not report["sound"]
    assert {fault["table"] for fault in report["faults"]} == {"events"}
    assert any("events of frames" in fault["what"] for fault in report["faults"])


def test_some_events_deleted_are_listed(spark, server, broker, tmp_path):
    create(server, "partly", 1)
    lake = tmp_path / "lake"
    for _ in range(3):
        server.publish("partly", 1)
        archive(spark, lake, broker, "partly")
    table = Lake(lake).table("events")
    middle = sorted(table.files(), key=lambda file: file.path)[1]
    from deltalake.transaction import RemoveAction

    table.apply([RemoveAction(middle.path, True, 1, middle.size, dict(middle.values))], [])
    found = [fault.what for fault in verify(Lake(lake)).faults]
    assert len(found) == 2 and "events of frames" in found[0] and "rows were committed" in found[1]


def test_lake_of_another_broker_is_refused_everywhere(spark, server, broker, tmp_path):
    create(server, "mine", *range(10))
    lake = tmp_path / "lake"
    archive(spark, lake, broker, "mine")
    with running(tmp_path / "other") as other:
        create(other, "mine", *range(30))
        stranger = BrokerCalls(other.url, None, 5.0)
        for attempt in (
            lambda: archive(spark, lake, stranger, "mine"),
            lambda: archive(spark, lake, stranger, "mine", adopt=True),
            lambda: penstock.pipeline.union(spark, lake=lake, url=other.url, queue="mine"),
            lambda: verify(Lake(lake), stranger),
            lambda: audit(spark, other.url, lake=lake),
            lambda: Analysis(spark, lake, other.url).step(),
        ):
            with pytest.raises(PipelineError, match="filled from another broker"):
                attempt()
    assert stored(lake, "mine").keys() == {server.ask("GET", "/v1/queues/mine").json["uuid"]}


def test_redrive_asks_which_incarnation_is_meant(spark, server, broker, tmp_path):
    lake = tmp_path / "lake"
    former = create(server, "chosen", *range(10))
    archive(spark, lake, broker, "chosen")
    present = recreate(server, "chosen", *range(3))
    archive(spark, lake, broker, "chosen")
    create(server, "target")

    def redrive(uuid=None):
        spec = redrive_spec("chosen", "true", group=None, target="target", delay_ms=0, priority=None, uuid=uuid)
        return ArchiveRedrive(spark, Lake(lake), broker, spec, "once")

    with pytest.raises(PipelineError, match="2 times: choose one with --uuid") as refused:
        redrive().run()
    assert f"{former} (10 messages)" in str(refused.value) and f"{present} (3 messages)" in str(refused.value)
    assert redrive(present).run(100_000).published == 3
    assert redrive(present).run(100_000).published == 0
    with pytest.raises(PipelineError, match="was something else"):
        redrive(former).run()


def test_adoption_is_logged_once(spark, server, broker, tmp_path, caplog):
    """A lake of format 1, made from one of today."""
    lake = tmp_path / "lake"
    Lake.open_or_create(lake)
    (lake / "penstock.json").write_text('{"format": 1, "lake": "0123456789abcdef0123456789abcdef"}')
    create(server, "plain", 1)
    with caplog.at_level(logging.WARNING, "penstock.pipeline"):
        archive(spark, lake, broker, "plain")
    assert "lake_queue_adopted" not in caplog.text, "nothing was in it"
    assert json.loads((lake / "penstock.json").read_text())["format"] == 2
