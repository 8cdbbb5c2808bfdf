"""Durations in buckets: the error is bounded, and sketches add up."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from penstock.analytics import sketch

times = st.integers(min_value=0, max_value=10**12)


@given(times)
def test_bucket_is_within_one_percent(ms):
    value = sketch.value_of(sketch.bucket_of(ms))
    assert abs(value - ms) <= 0.008 * ms
    if ms < sketch.EXACT_BELOW:
        assert value == ms


@given(times, times)
def test_buckets_are_in_order(one, other):
    if one <= other:
        assert sketch.bucket_of(one) <= sketch.bucket_of(other)


@given(st.lists(times, min_size=1), st.sampled_from([0.0, 0.5, 0.95, 0.99, 1.0]))
def test_percentile_of_a_sketch_is_that_of_its_values(values, fraction):
    counted: dict[int, int] = {}
    for value in values:
        counted[sketch.bucket_of(value)] = counted.get(sketch.bucket_of(value), 0) + 1
    exact = sorted(values)[max(1, -int(-len(values) * fraction // 1)) - 1]
    found = sketch.percentile(counted, fraction)
    assert found is not None
    assert abs(found - exact) <= 0.008 * exact


def test_sketches_add_up_in_any_order():
    dice = random.Random(1)
    parts = [{dice.randrange(900): dice.randrange(1, 9) for _ in range(20)} for _ in range(5)]
    together = sketch.merged(parts)
    assert together == sketch.merged([sketch.merged(parts[:2]), sketch.merged(reversed(parts[2:]))])
    assert sketch.summary(together)["count"] == sum(sum(part.values()) for part in parts)


def test_empty_sketch_has_no_percentiles():
    assert sketch.percentile({}, 0.5) is None
    assert sketch.summary({}) == {"count": 0, "p50_ms": None, "p95_ms": None, "p99_ms": None, "max_ms": None}
