"""A redrive publishes archived messages again: the chosen ones, unchanged, each once, with a record."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

pytest.importorskip("deltalake", reason="the extra `spark` is not installed: pip install 'penstock[spark]'")

from deltalake import DeltaTable

from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.lake.archive import Archive
from penstock.pipeline.lake.redrive import ArchiveRedrive, redrive_spec
from penstock.pipeline.lake.redrive_table import RedriveRows
from penstock.pipeline.lake.tables import Lake
from penstock.pipeline.options import PipelineError
from penstock.server.cli import app

FAST = 100_000


@pytest.fixture(scope="module")
def broker(server):
    return BrokerCalls(server.url, None, 20.0)


@pytest.fixture(scope="module")
def lake(spark, client, broker, tmp_path_factory):
    """Orders, of which every tenth was given up; and bytes."""
    orders = client.create_queue("orders", partitions=2, retention={"mode": "keep"}, max_retries=0, dead_letter=True)
    numbers = range(1_000)
    orders.publish_many([{"order": n} for n in numbers], keys=[f"k{n % 7}" for n in numbers], headers={"shop": "north"})
    left = 1_000
    for batch in orders.consume_batches(max=500, wait=5):
        for message in batch:
            if message.value["order"] % 10:
                message.ack()
            else:
                message.reject(error=f"order {message.value['order']}: no stock")
        left -= len(batch)
        if not left:
            break
    raw = client.create_queue("raw", retention={"mode": "keep"})
    for value, tenant in ((b"123", "a"), (123, "b"), (b"\xff\xfe", "a")):
        raw.publish(value, tenant=tenant)
    client.create_queue("untouched")
    made = Lake.open_or_create(tmp_path_factory.mktemp("lake") / "lake")
    Archive(spark, made, broker, queues=["orders", "raw"]).once()
    return made


def spec(queue, where, *, target, group=None, **options):
    return redrive_spec(queue, where, group=group, target=target, delay_ms=0, priority=options.get("priority"))


def read_all(client, queue):
    partitions = [each.partition for each in client.queue(queue).stats().partitions]
    follow = client.queue(queue).follow
    return [message for n in partitions for batch in follow(partition=n, wait=0) for message in batch]


def records(lake, redrive_id):
    rows = DeltaTable(lake.directory / "redrives").to_pyarrow_table().to_pylist()
    return [row for row in rows if row["redrive_id"] == redrive_id]


def test_chosen_messages_are_published_once_and_recorded(spark, client, broker, lake):
    client.create_queue("again", retention={"mode": "keep"})
    asked = spec("orders", "get_json_object(text, '$.order') < 250 and key = 'k3'", target="again")
    expected = sorted(n for n in range(250) if n % 7 == 3)

    preview = ArchiveRedrive(spark, lake, broker, asked).preview()
    assert preview.messages == len(expected) and 0 < len(preview.sample) <= 10
    assert client.queue("again").stats().totals["published"] == 0

    outcome = ArchiveRedrive(spark, lake, broker, asked, "first").run(FAST)
    assert (outcome.messages, outcome.published) == (len(expected), len(expected))
    found = read_all(client, "again")
    assert sorted(message.value["order"] for message in found) == expected
    one = found[0]
    assert one.key == "k3" and one.headers["shop"] == "north"
    assert one.headers["penstock-archive-queue"] == "default/default/orders"
    assert one.headers["penstock-redrive"] == "first"

    repeated = ArchiveRedrive(spark, lake, broker, asked, "first").run(FAST)
    assert (repeated.messages, repeated.published) == (len(expected), 0)
    assert len(read_all(client, "again")) == len(expected)
    started, finished = sorted(records(lake, "first"), key=lambda row: row["at"])
    assert (started["state"], finished["state"]) == ("started", "finished")
    assert started["predicate"] == asked.predicate and started["messages"] == len(expected) and "@" in started["by"]
    assert not list((lake.directory / "redrives" / "_work").glob("first-*"))


def test_predicate_may_use_the_fate_of_a_message(spark, client, broker, lake):
    client.create_queue("dead-again", retention={"mode": "keep"})
    asked = spec("orders", "fate = 'dead' and error like '%no stock'", target="dead-again", group="default")
    ArchiveRedrive(spark, lake, broker, asked, "fates").run(FAST)
    assert sorted(message.value["order"] for message in read_all(client, "dead-again")) == list(range(0, 1_000, 10))


def test_redrive_keeps_payload_kind_and_tenant(spark, client, broker, lake):
    client.create_queue("raw-again", retention={"mode": "keep"})
    ArchiveRedrive(spark, lake, broker, spec("raw", "true", target="raw-again"), "bytes").run(FAST)
    first, second, third = sorted(read_all(client, "raw-again"), key=lambda message: message.offset)
    assert (first.payload, second.value, third.payload) == (b"123", 123, b"\xff\xfe")
    assert [message.is_json for message in (first, second, third)] == [False, True, False]
    assert [message.tenant for message in (first, second, third)] == ["a", "b", "a"]


@pytest.mark.parametrize("where", ["before it is noted", "after it is noted"])
def test_interrupted_redrive_resumes(spark, client, broker, lake, where, monkeypatch):
    name = where.split()[0]
    queue = client.create_queue(f"interrupted-{name}", partitions=2, retention={"mode": "keep"})
    asked = spec("orders", "true", target=queue.path)
    steps = 0

    def stop_at_third(*_):
        nonlocal steps
        steps += 1
        if steps == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if where == "before it is noted":
            mark = RedriveRows.mark_published
            patched.setattr(RedriveRows, "mark_published", lambda work, rows: (stop_at_third(), mark(work, rows)))
        report = stop_at_third if where == "after it is noted" else (lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            ArchiveRedrive(spark, lake, broker, asked, where.replace(" ", "-")).run(1_000, report)
    assert 200 <= queue.stats().totals["published"] < 1_000
    # At another rate, so that nothing is cut where it was cut before.
    ArchiveRedrive(spark, lake, broker, asked, where.replace(" ", "-")).run(FAST)
    assert sorted(message.value["order"] for message in read_all(client, queue.path)) == list(range(1_000))


def test_invalid_redrive_is_refused_and_publishes_nothing(spark, client, broker, lake):
    def refuses(match, queue="orders", where="true", target="untouched", redrive_id=None, **options):
        with pytest.raises(PipelineError, match=match):
            ArchiveRedrive(spark, lake, broker, spec(queue, where, target=target, **options), redrive_id).run()

    refuses("--where: .*colour", where="colour = 'red'")
    refuses("--where: ", where="key = (")
    refuses("--where: .*BOOLEAN", where="offset + 1")
    refuses("is not in the lake", queue="nobody-archived-it")
    refuses("no group 'strangers'", group="strangers")
    refuses("no queue", target="nobody-made-it")
    refuses("--redrive-id is a name", redrive_id="../../etc/passwd")
    ArchiveRedrive(spark, lake, broker, spec("orders", "false", target="untouched"), "taken").run()
    refuses("was something else", where="key = 'k1'", redrive_id="taken")
    assert client.queue("untouched").stats().totals["published"] == 0


def test_redrive_is_locked_by_its_process(spark, broker, lake):
    work = ArchiveRedrive(spark, lake, broker, spec("orders", "true", target="untouched"), "mine")
    with work._records.locked("mine"), pytest.raises(PipelineError, match="another process"):
        work.run()


def test_redrive_of_no_messages_publishes_nothing(spark, broker, lake):
    work = ArchiveRedrive(spark, lake, broker, spec("orders", "false", target="untouched"), "nothing")
    assert work.preview() == (0, [])
    assert work.run(FAST)[1:3] == (0, 0)
    assert sorted(row["state"] for row in records(lake, "nothing")) == ["finished", "started"]


def test_redrive_command(spark, client, broker, lake, monkeypatch):
    # The session is that of all tests here, and not to be slowed down for them.
    monkeypatch.setattr("penstock.pipeline.session.run_in_background", lambda _: None)
    client.create_queue("by-hand", retention={"mode": "keep"})
    command = ["pipeline", "redrive", "--lake", str(lake.directory), "--queue", "orders", "--where", "key = 'k1'",
               "--to", "by-hand", "--url", broker.url, "-o", "json"]  # fmt: skip
    looked = CliRunner().invoke(app, [*command, "--dry-run"])
    assert looked.exit_code == 0, looked.output
    told = json.loads(looked.stdout)
    assert told["total"] == 143 and len(told["messages"]) == 10 and told["messages"][0]["key"] == "k1"
    refused = CliRunner().invoke(app, command, input="n\n")
    assert refused.exit_code == 1 and not client.queue("by-hand").stats().totals["published"]
    done = CliRunner().invoke(app, [*command, "--yes", "--redrive-id", "hand", "--rate", "100000"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["published"] == 143 and "redrive hand" in done.stderr
    wrong = CliRunner().invoke(app, [*command, "--where", "colour = 1", "--dry-run"])
    assert wrong.exit_code == 1 and "--where" in wrong.stderr and "Traceback" not in wrong.output
