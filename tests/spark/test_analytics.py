"""Analytics: what is counted, that batches add up, that nothing is counted twice, and what is remembered in between."""

from __future__ import annotations

import pandas as pd
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from penstock.analytics import sketch
from penstock.analytics.tables import COUNTS, MEASURES, AnalyticsTable
from penstock.pipeline import analytics
from penstock.pipeline.analytics import Analysis
from penstock.server.cli import app
from tests.spark.eventful import make_eventful

NUMBERS = {
    "minutes": (["queue", "group"], list(COUNTS)),
    "consumers": (["queue", "group", "consumer"], ["delivered", "acked", "failed", "lost", "processing_ms"]),
    "failures": (["queue", "group", "fingerprint", "pattern", "reason"], ["messages"]),
}


@pytest.fixture(scope="module")
def eventful(server):
    make_eventful(server)
    return server


def table(lake, name) -> pd.DataFrame:
    return DeltaTable(f"{lake}/analytics/{name}").to_pyarrow_table().to_pandas()


def sums(lake, name) -> dict:
    keys, numbers = NUMBERS[name]
    grouped = table(lake, name).fillna({"group": ""}).groupby(keys)[numbers].sum()
    return grouped.to_dict("index")


def sketches(lake) -> dict:
    """All times of a group, by measure."""
    found: dict = {}
    for row in table(lake, "minutes").fillna({"group": ""}).itertuples():
        for name in MEASURES:
            counted = {each["bucket"]: each["count"] for each in getattr(row, name)}
            key = (row.queue, row.group, name)
            found[key] = sketch.merged([found.get(key, {}), counted])
    return found


def standing(lake) -> dict:
    """(queue, group) -> live and dead at the end."""
    rows = table(lake, "minutes").sort_values(["minute_ms", "batch"]).groupby(["queue_id", "queue", "group"]).last()
    return {(queue, group): (int(row.live), int(row.dead)) for (_, queue, group), row in rows.iterrows()}


@pytest.fixture(scope="module")
def in_one_go(spark, eventful, tmp_path_factory):
    lake = str(tmp_path_factory.mktemp("one"))
    shown = CliRunner().invoke(app, ["pipeline", "analyze", "--lake", lake, "--url", eventful.url])
    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith("batch 1: "), shown.output
    return lake


def test_everything_is_counted(in_one_go):
    found = sums(in_one_go, "minutes")
    orders = found["default/default/orders", "default"]
    assert {name: count for name, count in orders.items() if count} == {
        "published": 105, "delivered": 54, "redelivered": 6, "acked": 32, "retried": 4, "released": 2,
        "dead_lettered": 6, "redriven": 2, "removed": 1, "cancelled": 2,
    }  # fmt: skip
    assert found["default/default/brief", ""]["expired"] == 20
    assert found["default/default/purged", "default"]["purged"] == 20
    assert found["default/default/gone", ""]["deleted"] == 7
    assert found["default/default/once", "default"]["acked"] == 4
    assert found["default/default/late", "newcomer"]["published"] == 21
    workers = sums(in_one_go, "consumers")
    assert workers["default/default/orders", "default", "ada"]["failed"] == 6
    assert workers["default/default/orders", "default", "bob"]["failed"] == 4
    failures = {key[3]: row["messages"] for key, row in sums(in_one_go, "failures").items() if "orders" in key[0]}
    assert failures == {"order <number> is broken": 4, "timeout after <number> s": 2}


def test_depths_are_those_of_the_broker(in_one_go, eventful):
    found = standing(in_one_go)
    for queue in ("orders", "purged", "kept", "once", "late", "lossy"):
        stats = eventful.ask("GET", f"/v1/stats?queue={queue}").json
        told = {name: live for (path, name), (live, _) in found.items() if path == f"default/default/{queue}"}
        assert told == {group["group"]: group["lag"] for group in stats["groups"]}, queue
    assert found["default/default/orders", "default"][1] == 3


def test_times_are_measured_where_they_are_known(in_one_go):
    found = sketches(in_one_go)
    counts = {name: sum(found["default/default/orders", "default", name].values()) for name in MEASURES}
    # What was released was not worked on.
    assert counts == {"wait": 48, "processing": 32 + 4 + 6, "end_to_end": 32}
    assert not found["default/default/late", "newcomer", "end_to_end"], "published before the group began"


def test_batches_add_up_even_when_interrupted(spark, eventful, in_one_go, tmp_path, monkeypatch):
    lake = str(tmp_path)
    analysis = Analysis(spark, lake, eventful.url, events_per_batch=250)
    replace = AnalyticsTable.replace

    def fail(self, slots, files, batch):
        monkeypatch.setattr(AnalyticsTable, "replace", replace)
        raise RuntimeError("the power is gone")

    assert analysis.step().batch == 1
    monkeypatch.setattr(AnalyticsTable, "replace", fail)
    with pytest.raises(RuntimeError):
        analysis.step()
    counted = table(lake, "minutes")["batch"].max()
    assert counted == 2, "part of it was committed"
    again = list(Analysis(spark, lake, eventful.url, events_per_batch=1_000).run())
    assert again[0].batch == 2, "what was begun is finished first, as it was planned"
    assert again[-1].is_caught_up
    for name in NUMBERS:
        assert sums(lake, name) == sums(in_one_go, name), name
    assert sketches(lake) == sketches(in_one_go)
    assert standing(lake) == standing(in_one_go)
    ours, theirs = ({(r.queue_id, r.partition, r.offset, r.kind, r.place) for r in table(each, "open").itertuples()}
                    for each in (lake, in_one_go))  # fmt: skip
    assert ours == theirs
    assert Analysis(spark, lake, eventful.url).step() is None


def test_finished_messages_are_not_stored(in_one_go):
    left = table(in_one_go, "open")
    by_queue = left.groupby("queue_id")["offset"].nunique().to_dict()
    orders = left[left.queue_id == left.queue_id.min()]
    assert orders["offset"].nunique() == 67 + 3, "live and dead, nothing else"
    assert sum(by_queue.values()) < 230


def test_a_hold_keeps_what_is_not_counted(in_one_go, eventful):
    held = [hold["name"] for hold in eventful.ask("GET", "/v1/holds").json["holds"]]
    assert any(name.startswith(analytics.HOLD) for name in held)
