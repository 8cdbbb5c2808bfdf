"""Queries on the analytics tables: sums, steps, depths that carry over, percentiles over several batches."""

from __future__ import annotations

import pytest

from penstock.analytics.reader import AnalyticsReader
from penstock.analytics.tables import AnalyticsTable
from penstock.analytics.time_span import QueueFilter, TimeSpan, time_span
from penstock.errors import Conflict, InvalidRequest
from tests.unit.analytics_lake import MINUTE_MS, NOON_MS, make_lake

ORDERS, MAIL = "shop/orders/new", "shop/mail/out"
SPAN = TimeSpan(NOON_MS, NOON_MS + 12 * MINUTE_MS, MINUTE_MS)


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    return AnalyticsReader(make_lake(tmp_path_factory.mktemp("lake")))


def test_queue_summary_has_a_point_per_minute(reader):
    past = reader.summary(QueueFilter(ORDERS), SPAN)
    assert (past.counts.published, past.counts.acked, past.counts.expired) == (100, 65, 4)
    assert [point.counts.acked for point in past.points] == [50, 0, 0, 15, 0, 0, 0, 0, 0, 0, 0, 0]
    assert [point.depth for point in past.points] == [45, 45, 45, 30, 30, 30, 30, 30, 30, 26, 26, 26]
    assert (past.depth, past.dead) == (26, 5)
    assert [group.group for group in past.groups] == ["default"]


def test_percentiles_cover_all_batches_of_a_minute(reader):
    past = reader.summary(QueueFilter(ORDERS), SPAN)
    wait = past.points[3].wait
    assert (wait.count, wait.p50_ms) == (2, pytest.approx(1_000, rel=0.008))
    assert wait.max_ms == pytest.approx(3_000, rel=0.008)
    assert (past.timings.wait.count, past.timings.wait.p50_ms) == (62, 31)
    assert past.timings.processing.p99_ms == 20
    assert past.points[1].wait.count == 0


def test_step_adds_up_its_minutes(reader):
    past = reader.summary(QueueFilter(ORDERS), SPAN._replace(step_ms=5 * MINUTE_MS))
    assert [point.counts.acked for point in past.points] == [65, 0, 0]
    assert [point.depth for point in past.points] == [30, 26, 26]


def test_depth_before_the_span_carries_over(reader):
    past = reader.summary(QueueFilter(ORDERS), SPAN._replace(from_ms=NOON_MS + 2 * MINUTE_MS))
    assert [point.depth for point in past.points][:2] == [45, 30]


def test_prefix_sums_its_queues(reader):
    assert [(queue.queue, queue.counts.published, queue.depth) for queue in reader.queues(QueueFilter(), SPAN)] == [
        (MAIL, 7, 7), (ORDERS, 100, 26),
    ]  # fmt: skip
    shop = reader.summary(QueueFilter(prefix="shop/"), SPAN)
    assert (shop.counts.published, shop.depth) == (107, 33)
    assert reader.summary(QueueFilter(prefix="shop/mail/"), SPAN).counts.published == 7
    assert reader.summary(QueueFilter(prefix="sho/"), SPAN).counts.published == 0


def test_consumers_are_counted(reader):
    ada, bob = reader.consumers(QueueFilter(ORDERS), SPAN)
    assert (ada.consumer, ada.acked, ada.error_rate, ada.mean_processing_ms) == ("ada", 50, 10 / 60, 20)
    assert ada.per_s == 50 / 60
    assert (bob.error_rate, bob.mean_processing_ms, bob.per_s) == (0, None, 0)


def test_failures_are_grouped_by_fingerprint(reader):
    (found,) = reader.failures(QueueFilter(ORDERS), SPAN)
    assert (found.messages, found.error, found.pattern) == (5, "order 0 is broken", "order <number> is broken")


def test_analysed_until_is_the_newest_minute(reader):
    assert reader.analysed_until_ms() == NOON_MS + 10 * MINUTE_MS


def test_lake_without_analytics_is_a_conflict(tmp_path):
    with pytest.raises(Conflict, match="nothing was analysed yet: penstock pipeline analyze"):
        AnalyticsReader(str(tmp_path)).analysed_until_ms()
    AnalyticsTable(tmp_path, "batches").create()
    AnalyticsTable(tmp_path, "minutes").create()
    with pytest.raises(Conflict, match="nothing was analysed yet"):
        AnalyticsReader(str(tmp_path)).analysed_until_ms()


def test_batch_is_committed_once(tmp_path):
    lake = make_lake(tmp_path)
    table = AnalyticsTable(lake, "minutes")
    rows = table.open().to_pyarrow_table()
    table.append(rows, 2)
    table.append(rows, 1)
    assert table.open().to_pyarrow_table().num_rows == rows.num_rows
    assert table.committed() == 2


def test_time_span_is_whole_minutes():
    now_ms = NOON_MS + 30_000
    day = time_span(None, None, None, now_ms)
    assert (day.to_ms, day.to_ms - day.from_ms) == (NOON_MS + MINUTE_MS, 24 * 60 * MINUTE_MS)
    assert day.step_ms == 5 * MINUTE_MS
    assert time_span(NOON_MS + 5, NOON_MS + 61_000, 90_000, now_ms) == (NOON_MS, NOON_MS + 120_000, 120_000)
    with pytest.raises(InvalidRequest, match="is not before to_ms"):
        time_span(NOON_MS, NOON_MS, None, now_ms)
    with pytest.raises(InvalidRequest, match="5000 is the limit"):
        time_span(0, NOON_MS, 60_000, now_ms)
    year = time_span(0, 400 * 24 * 60 * MINUTE_MS, None, now_ms)
    assert (year.to_ms - year.from_ms) // year.step_ms <= 300
