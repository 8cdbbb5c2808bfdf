"""Fire times: right by the calendar, strictly ascending, and the same wherever one begins to look."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock import cron
from penstock.errors import InvalidRequest

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu"]
"""One without clock changes, two with, one that changes by half an hour, one that once left out a day."""


def ms(text: str, zone: str = "UTC") -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    return st.one_of(
        st.just("*"),
        number.map(str),
        st.integers(2, 30).map("*/{}".format),
        st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}"),
        st.lists(number, min_size=2, max_size=3).map(lambda many: ",".join(map(str, many))),
    )


expressions = st.tuples(field(0, 59), field(0, 23), st.sampled_from(["*", "1", "L", "25-31"]), st.just("*"),
                        st.sampled_from(["*", "SUN", "1-5", "7L"])).map(" ".join)  # fmt: skip
with_seconds = st.tuples(st.sampled_from(["0", "*/20", "30"]), expressions).map(" ".join)
near_changes = st.sampled_from(
    [ms("2025-03-30T00:00", "UTC"), ms("2025-10-26T00:00", "UTC"), ms("2025-11-02T05:00", "UTC"),
     ms("2025-04-05T14:00", "UTC"), ms("2011-12-30T08:00", "UTC"), ms("2024-02-28T23:00", "UTC")]
)  # fmt: skip


@given(st.one_of(expressions, with_seconds), st.sampled_from(ZONES), near_changes, st.integers(-7_200_000, 7_200_000))
@example("30 2 * * *", "Europe/Berlin", ms("2025-10-26T00:30"), 0)
@example("30 2 * * *", "Europe/Berlin", ms("2025-10-26T01:00"), 0)
@settings(max_examples=3 * settings.default.max_examples, deadline=None)
def test_looking_anew_from_each_fire_time_gives_the_same_as_looking_once(expression, zone, near, shift):
    begin = near + shift
    cron.check(expression, zone)
    at_once = list(islice(cron.fires(expression, zone, begin), 8))
    one_by_one, at = [], begin
    while len(one_by_one) < len(at_once):
        at = cron.next_fire(expression, zone, at)
        one_by_one.append(at)
    assert one_by_one == at_once
    assert at_once == sorted(set(at_once)) and (not at_once or at_once[0] > begin)


@given(st.one_of(expressions, with_seconds), st.sampled_from(ZONES), near_changes)
@settings(max_examples=2 * settings.default.max_examples, deadline=None)
def test_the_times_are_those_of_cronsim(expression, zone, near):
    start = datetime.fromtimestamp(near / 1000, ZoneInfo(zone))
    theirs = [round(moment.timestamp() * 1000) for moment in islice(CronSim(expression, start), 8)]
    ours = list(islice(cron.fires(expression, zone, near), 8))
    wanted = sorted({moment for moment in theirs if moment > near})
    assert ours[: len(wanted)] == wanted[: len(ours)]


@given(st.one_of(expressions, with_seconds), st.sampled_from(ZONES), near_changes, st.integers(0, 200_000_000))
def test_the_latest_is_the_last_of_all(expression, zone, near, span):
    until = near + span
    every = []
    for fire in islice(cron.fires(expression, zone, near - 1), 5_000):
        if fire > until:
            break
        every.append(fire)
    else:
        return  # too many to count
    assert cron.latest_fire(expression, zone, near, until) == (every[-1] if every else None)


def test_a_time_that_the_clock_leaves_out_fires_when_the_clock_has_jumped():
    day_before = ms("2025-03-29T12:00", "Europe/Berlin")
    assert cron.next_fire("30 2 * * *", "Europe/Berlin", day_before) == ms("2025-03-30T03:00", "Europe/Berlin")


def test_a_time_that_the_clock_shows_twice_fires_once():
    first = cron.next_fire("30 2 * * *", "Europe/Berlin", ms("2025-10-25T12:00"))
    assert first == ms("2025-10-26T00:30")
    assert cron.next_fire("30 2 * * *", "Europe/Berlin", first) == ms("2025-10-27T01:30")


def test_every_half_hour_goes_by_real_time():
    times = islice(cron.fires("*/30 * * * *", "Europe/Berlin", ms("2025-10-26T00:00")), 6)
    steps = [datetime.fromtimestamp(time / 1000, UTC) for time in times]
    assert {after - before for before, after in pairwise(steps)} == {timedelta(minutes=30)}


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "* * * *",
        "61 * * * *",
        "* * * * 1L/2",
        "* * * * 1#2/3",
        "1,,2 * * * *",
        "* * 31 2 *",
        "a b c d e",
        "*" * 300,
    ],
)
def test_what_is_no_expression_is_refused_by_the_field_s_name(expression):
    with pytest.raises(InvalidRequest) as refused:
        cron.check(expression, "UTC")
    assert refused.value.details == {"field": "cron"}


@pytest.mark.parametrize("zone", ["", "Mars/Olympus", "../../etc/passwd", "/etc/passwd", "Europe", "UTC\0", "x" * 300])
def test_what_is_no_zone_is_refused_by_the_field_s_name(zone):
    with pytest.raises(InvalidRequest) as refused:
        cron.check("* * * * *", zone)
    assert refused.value.details == {"field": "timezone"}


def test_impossible_fire_times_are_none():
    assert cron.next_fire("* * */20 * 1L", "UTC", 0) is None
    assert cron.next_fire("* * * * *", "UTC", 2**52) is None
