"""The tables as they are asked: sums, steps, depths that are carried on, times that are put together."""

from __future__ import annotations

import pytest

from penstock.analytics.reading import Reader
from penstock.analytics.span import Chosen, Span, span_of
from penstock.analytics.tables import Table
from penstock.errors import Conflict, InvalidRequest
from tests.unit.analytics_lake import MINUTE_MS, NOON_MS, make_lake

ORDERS, MAIL = "shop/orders/new", "shop/mail/out"
SPAN = Span(NOON_MS, NOON_MS + 12 * MINUTE_MS, MINUTE_MS)


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    return Reader(make_lake(tmp_path_factory.mktemp("lake")))


def test_a_queue_minute_by_minute(reader):
    past = reader.past(Chosen(ORDERS), SPAN)
    assert (past.counts.published, past.counts.acked, past.counts.expired) == (100, 65, 4)
    assert [point.counts.acked for point in past.points] == [50, 0, 0, 15, 0, 0, 0, 0, 0, 0, 0, 0]
    assert [point.depth for point in past.points] == [45, 45, 45, 30, 30, 30, 30, 30, 30, 26, 26, 26]
    assert (past.depth, past.dead) == (26, 5)
    assert [group.group for group in past.groups] == ["default"]


def test_times_of_two_batches_are_one(reader):
    past = reader.past(Chosen(ORDERS), SPAN)
    wait = past.points[3].wait
    assert (wait.count, wait.p50_ms) == (2, pytest.approx(1_000, rel=0.008))
    assert wait.max_ms == pytest.approx(3_000, rel=0.008)
    assert (past.timings.wait.count, past.timings.wait.p50_ms) == (62, 31)
    assert past.timings.processing.p99_ms == 20
    assert past.points[1].wait.count == 0


def test_steps_put_minutes_together(reader):
    past = reader.past(Chosen(ORDERS), SPAN._replace(step_ms=5 * MINUTE_MS))
    assert [point.counts.acked for point in past.points] == [65, 0, 0]
    assert [point.depth for point in past.points] == [30, 26, 26]


def test_a_time_that_begins_later_knows_how_deep_it_was(reader):
    past = reader.past(Chosen(ORDERS), SPAN._replace(from_ms=NOON_MS + 2 * MINUTE_MS))
    assert [point.depth for point in past.points][:2] == [45, 30]


def test_queues_together(reader):
    assert [(queue.queue, queue.counts.published, queue.depth) for queue in reader.queues(Chosen(), SPAN)] == [
        (MAIL, 7, 7), (ORDERS, 100, 26),
    ]  # fmt: skip
    shop = reader.past(Chosen(prefix="shop/"), SPAN)
    assert (shop.counts.published, shop.depth) == (107, 33)
    assert reader.past(Chosen(prefix="shop/mail/"), SPAN).counts.published == 7
    assert reader.past(Chosen(prefix="sho/"), SPAN).counts.published == 0


def test_who_did_what(reader):
    ada, bob = reader.consumers(Chosen(ORDERS), SPAN)
    assert (ada.consumer, ada.acked, ada.error_rate, ada.mean_processing_ms) == ("ada", 50, 10 / 60, 20)
    assert ada.per_s == 50 / 60
    assert (bob.error_rate, bob.mean_processing_ms, bob.per_s) == (0, None, 0)


def test_failures_of_one_kind_are_one(reader):
    (found,) = reader.failures(Chosen(ORDERS), SPAN)
    assert (found.messages, found.error, found.pattern) == (5, "order 0 is broken", "order <number> is broken")


def test_what_was_counted_last(reader):
    assert reader.analysed_until_ms() == NOON_MS + 10 * MINUTE_MS


def test_nothing_was_analysed(tmp_path):
    with pytest.raises(Conflict, match="nothing was analysed yet: penstock pipeline analyze"):
        Reader(str(tmp_path)).analysed_until_ms()
    Table(tmp_path, "batches").create()
    Table(tmp_path, "minutes").create()
    with pytest.raises(Conflict, match="nothing was analysed yet"):
        Reader(str(tmp_path)).analysed_until_ms()


def test_a_batch_is_committed_once(tmp_path):
    lake = make_lake(tmp_path)
    table = Table(lake, "minutes")
    rows = table.open().to_pyarrow_table()
    table.append(rows, 2)
    table.append(rows, 1)
    assert table.open().to_pyarrow_table().num_rows == rows.num_rows
    assert table.committed() == 2


def test_spans():
    now_ms = NOON_MS + 30_000
    day = span_of(None, None, None, now_ms)
    assert (day.to_ms, day.to_ms - day.from_ms) == (NOON_MS + MINUTE_MS, 24 * 60 * MINUTE_MS)
    assert day.step_ms == 5 * MINUTE_MS
    assert span_of(NOON_MS + 5, NOON_MS + 61_000, 90_000, now_ms) == (NOON_MS, NOON_MS + 120_000, 120_000)
    with pytest.raises(InvalidRequest, match="is not before to_ms"):
        span_of(NOON_MS, NOON_MS, None, now_ms)
    with pytest.raises(InvalidRequest, match="5000 is the limit"):
        span_of(0, NOON_MS, 60_000, now_ms)
    year = span_of(0, 400 * 24 * 60 * MINUTE_MS, None, now_ms)
    assert (year.to_ms - year.from_ms) // year.step_ms <= 300
