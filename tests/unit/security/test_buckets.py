from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.errors import InvalidRequest
from penstock.security.buckets import FailureBackoff, Rate, TokenBucket, parse_rate


@pytest.mark.parametrize(("text", "rate"), [("1000/m", Rate(1000, "m")), ("1/s", Rate(1, "s")), ("5/h", Rate(5, "h"))])
def test_rates(text, rate):
    assert parse_rate(text) == rate and str(rate) == text


def test_rates_have_prefixes():
    assert [parse_rate(f"5{size}/s").amount for size in ("", "k", "M", "G")] == [5, 5e3, 5e6, 5e9]


@pytest.mark.parametrize(
    "text", ["", "0/s", "1", "1/d", "-1/s", "1.5/s", "1/s ", " 1/s", "01/s", "9999999999k/s", "١/s"]
)
def test_other_rates_are_refused(text):
    with pytest.raises(InvalidRequest, match="rate"):
        parse_rate(text)


@given(st.integers(1, 1000), st.sampled_from("smh"))
def test_full_bucket_gives_exactly_its_size(size, unit):
    bucket = TokenBucket(Rate(size, unit))
    assert all(bucket.take(10.0) == 0 for _ in range(size))
    wait = bucket.take(10.0)
    assert 0 < wait <= Rate(size, unit).interval_s + 1e-6
    assert bucket.take(10.0 + wait + 1e-6) == 0


@given(st.integers(1, 50), st.lists(st.floats(0, 5), max_size=200))
def test_no_window_gives_more_than_twice_the_rate(size, pauses):
    bucket, now, taken = TokenBucket(Rate(size, "s")), 100.0, []
    for pause in pauses:
        now += pause / 10
        if bucket.take(now) == 0:
            taken.append(now)
    for start in taken:
        assert len([at for at in taken if start <= at < start + 1]) <= 2 * size


def test_failures_of_one_address_are_answered_with_a_doubling_wait():
    backoff = FailureBackoff()
    assert [backoff.failed("a", 0.0) for _ in range(limits.FAILURES_PER_MINUTE)] == [0] * limits.FAILURES_PER_MINUTE
    waits, now = [], 0.0
    for _ in range(20):
        waits.append(backoff.failed("a", now))
        now += waits[-1]
    assert [wait for wait in waits if wait][:5] == [1, 2, 4, 8, 16]
    assert backoff.failed("b", now) == 0, "other addresses are not affected"


def test_failures_during_the_wait_do_not_prolong_it():
    backoff = FailureBackoff()
    for _ in range(limits.FAILURES_PER_MINUTE + 1):
        backoff.failed("a", 0.0)
    assert backoff.failed("a", 0.5) == 0.5
    assert backoff.blocked("a", 0.5) == 0.5 and backoff.blocked("a", 1.0) == 0 and backoff.blocked("b", 0) == 0


def test_failures_are_forgotten_after_a_quiet_time():
    backoff = FailureBackoff()
    for _ in range(limits.FAILURES_PER_MINUTE + 1):
        backoff.failed("a", 0.0)
    assert [backoff.failed("a", 1000.0) for _ in range(limits.FAILURES_PER_MINUTE)] == [0] * limits.FAILURES_PER_MINUTE


def test_wait_is_bounded_and_so_is_the_table():
    backoff, now = FailureBackoff(), 0.0
    for _ in range(40):
        now += backoff.failed("a", now)
    assert backoff.failed("a", now) <= limits.FAILURE_BACKOFF_S_MAX
    for number in range(limits.ADDRESSES_TRACKED_MAX + 10):
        backoff.failed(f"10.0.{number >> 8}.{number & 255}", 0.0)
    assert len(backoff) == limits.ADDRESSES_TRACKED_MAX
