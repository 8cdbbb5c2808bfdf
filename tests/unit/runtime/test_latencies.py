"""Percentiles from counts per bucket, compared with those of the sorted latencies."""

from __future__ import annotations

import random

import pytest

from penstock.runtime.latencies import NONE, QUANTILES, Latencies, merged, percentiles


@pytest.mark.parametrize("seed", range(20))
def test_percentiles_are_at_most_an_eighth_too_large(seed):
    dice = random.Random(seed)
    latencies, values = Latencies(), []
    for _ in range(dice.randrange(1, 400)):
        ms, count = int(dice.lognormvariate(dice.uniform(0, 9), 1.5)), dice.randrange(1, 5)
        latencies.observe(ms, count)
        values += [ms] * count
    values.sort()
    for quantile, found in zip(QUANTILES, percentiles(latencies.recent()), strict=True):
        exact = values[max(0, -int(-quantile * len(values) // 1) - 1)]
        assert exact <= found <= exact * 1.125


def test_latencies_below_sixteen_milliseconds_are_exact():
    for ms in range(16):
        latencies = Latencies()
        latencies.observe(ms, 3)
        assert percentiles(latencies.recent()) == (ms, ms, ms)


def test_counts_of_two_minutes_are_kept():
    latencies = Latencies()
    latencies.observe(5, 10)
    assert latencies.end_minute() == {5: 10}
    latencies.observe(7, 1)
    assert latencies.recent() == {5: 10, 7: 1}
    latencies.end_minute()
    latencies.end_minute()
    assert percentiles(latencies.recent()) == NONE


def test_counts_of_several_groups_are_summed():
    assert merged([{1: 2, 3: 4}, {3: 1}]) == {1: 2, 3: 5}
