"""The audit: an eventful history balances, a doctored one is caught, a broker that was killed loses nothing."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import functions as F
from typer.testing import CliRunner

from penstock.pipeline import bulk
from penstock.pipeline.audit import audit, examine, take_state
from penstock.pipeline.connect import BrokerCalls
from penstock.pipeline.lifecycle_rules import Balance
from penstock.server.cli import app
from tests.spark.eventful import make_eventful
from tests.spark.mortal import kill_under_load

ORDERS = "default/default/orders"


@pytest.fixture(scope="module")
def eventful(server):
    make_eventful(server)
    return server


@pytest.fixture(scope="module")
def history(spark, eventful):
    """The events and the state of the eventful broker."""
    broker = BrokerCalls(eventful.url, None, 10.0)
    state = take_state(broker, "test")
    broker.ask(bulk.remove_hold("test"))
    events = spark.read.format("penstock").options(url=eventful.url, table="events").load().persist()
    yield events, state
    events.unpersist()


def test_an_eventful_history_balances(history):
    report = examine(*history)
    assert not report.discrepancies
    assert report.balances
    found = {(line.queue.rpartition("/")[2], line.queue_id, line.group): line.balance for line in report.lines}
    by_name = {(queue, group): balance for (queue, _, group), balance in found.items() if queue != "gone"}
    assert by_name == {
        ("orders", "default"): Balance(105, 67, acked=32, dead=3, removed=1, cancelled=2),
        ("brief", None): Balance(20, 0, expired=20),
        ("purged", "default"): Balance(35, 5, acked=10, purged=20),
        ("kept", "first"): Balance(50, 0, acked=50),
        ("kept", "second"): Balance(50, 40, acked=10),
        ("once", "default"): Balance(10, 6, acked=4),
        ("late", "early"): Balance(30, 21, acked=9),
        ("late", "newcomer"): Balance(21, 18, acked=3),
        ("lossy", "default"): Balance(4, 2, removed=2),
    }
    assert sorted(balance for (queue, _, _), balance in found.items() if queue == "gone") == [
        Balance(3, 3), Balance(7, 0, deleted=7),
    ]  # fmt: skip


def _of(kind, offset):
    return (F.col("queue") == ORDERS) & (F.col("kind") == kind) & (F.col("offset") == offset)


def _with(events, column, value, where):
    return events.withColumn(column, F.when(where, F.lit(value)).otherwise(F.col(column)))


def test_a_doctored_history_is_caught(history):
    events, state = history
    events = events.where(
        ~_of("acked", 20) & ~_of("leased", 22) & ~_of("published", 24) & ~_of("dead_lettered", 3)
    )  # fmt: skip
    events = _with(events, "offset", 27, _of("acked", 26))
    events = _with(events, "lease", 999, _of("acked", 28))
    events = events.union(_with(events.where(_of("published", 30)), "record", 900, F.lit(True)))
    report = examine(events, state)
    assert not report.balances
    assert {line.queue for line in report.lines if line.verdict == "unbalanced"} == {ORDERS}
    told = {discrepancy.what: [name.split()[0] for name in discrepancy.named] for discrepancy in report.discrepancies}
    assert told.pop("acked while pending") == ["0/22"], "its delivery was left out"
    assert told.pop("offsets of which no publish is recorded") == ["0/24"], "its publish was left out"
    assert told.pop("something happened to them, but they were never published") == ["0/24"]
    assert told.pop("acked while acked") == ["0/27"], "an ack was said to be of another message"
    assert told.pop("acked under lease 999, but it was leased as 1") == ["0/28"]
    assert told.pop("published twice") == ["0/30"]
    assert "2 dead letters by the records, 3 by the broker" in told
    del told["2 dead letters by the records, 3 by the broker"]
    ((compared, names),) = told.items()
    assert compared.endswith("live by the records, 67 by the broker")
    assert {"0/20", "0/26", "0/3"} <= set(names), "what ended it was left out"


def test_a_history_without_its_beginning_proves_nothing(history):
    events, state = history
    middle = events.selectExpr("max(frame) div 2").first()[0]
    report = examine(events.where(F.col("frame") > middle), state._replace(start=middle))
    assert not report.balances
    assert {line.verdict for line in report.lines} == {"incomplete"}
    assert not report.discrepancies


def test_audit_command_reports_discrepancies(spark, eventful):
    told = CliRunner().invoke(app, ["pipeline", "audit", "--url", eventful.url, "-o", "json"])
    answer = json.loads(told.output)
    assert answer["balances"] is True
    assert {line["verdict"] for line in answer["groups"]} == {"balanced"}
    assert eventful.ask("GET", "/v1/holds").json["holds"] == []


def test_audit_without_a_broker_fails(spark):
    refused = CliRunner().invoke(app, ["pipeline", "audit", "--url", "http://127.0.0.1:9"])
    assert refused.exit_code == 1
    assert "cannot reach http://127.0.0.1:9" in refused.output


def test_it_balances_after_kills_and_while_busy(spark, tmp_path):
    with kill_under_load(tmp_path / "data", kills=3, seed=5) as server:
        report = audit(spark, server.url)
        assert not report.discrepancies
        assert report.balances
        assert len(report.lines) == 4
