"""The arithmetic of trying again, as tables."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.config import Backoff
from penstock.core.decide.retry import backoff_ms, exhausted


@pytest.mark.parametrize(
    ("max_retries", "deliveries"),
    [(0, 1), (1, 2), (3, 4), (1_000_000, 1_000_001)],
)
def test_n_retries_are_n_plus_one_deliveries(max_retries, deliveries):
    assert not exhausted(deliveries - 1, max_retries)
    assert exhausted(deliveries, max_retries)


@pytest.mark.parametrize(
    ("policy", "waits"),
    [
        (Backoff(kind="none", base_ms=500), [0, 0, 0]),
        (Backoff(kind="fixed", base_ms=500, jitter=0), [500, 500, 500]),
        (Backoff(kind="fixed", base_ms=500, cap_ms=500, jitter=0), [500, 500, 500]),
        (Backoff(kind="exponential", base_ms=1000, factor=2, cap_ms=60_000, jitter=0), [1000, 2000, 4000, 8000]),
        (Backoff(kind="exponential", base_ms=1000, factor=2, cap_ms=3000, jitter=0), [1000, 2000, 3000, 3000]),
        (Backoff(kind="exponential", base_ms=10, factor=1.5, cap_ms=1000, jitter=0), [10, 15, 22, 34]),
        (Backoff(kind="exponential", base_ms=10, factor=1, cap_ms=1000, jitter=0), [10, 10, 10]),
        (Backoff(kind="exponential", base_ms=0, factor=2, cap_ms=1000, jitter=0), [0, 0, 0]),
        (Backoff(kind="steps", steps_ms=(5_000, 90_000, 0, 7), cap_ms=1, jitter=0), [5_000, 90_000, 0, 7, 7, 7]),
    ],
)
def test_waits_by_attempt(policy, waits):
    assert [backoff_ms(policy, attempt, 7) for attempt in range(1, len(waits) + 1)] == waits


@given(
    st.builds(
        Backoff,
        kind=st.sampled_from(["none", "fixed", "exponential"]),
        base_ms=st.integers(0, 10**6),
        factor=st.floats(1, 100),
        cap_ms=st.integers(10**6, 10**12),
        jitter=st.floats(0, 1),
    )
    | st.builds(
        Backoff,
        kind=st.just("steps"),
        jitter=st.floats(0, 1),
        steps_ms=st.lists(st.integers(0, 10**12), min_size=1).map(tuple),
    ),
    st.integers(1, 10**6),
    st.integers(0, 2**64 - 1),
)
def test_jitter_stays_within_its_share_and_any_attempt_is_computable(policy, attempt, seed):
    plain = msgspec.structs.replace(policy, jitter=0)
    middle = backoff_ms(plain, attempt, seed)
    wait = backoff_ms(policy, attempt, seed)
    assert wait >= 0
    assert abs(wait - middle) <= middle * policy.jitter + 1
    assert wait == backoff_ms(policy, attempt, seed), "the same fact gives the same delay on every machine"


def test_neighbours_are_spread():
    policy = Backoff(base_ms=10_000, jitter=0.5)
    waits = [backoff_ms(policy, 1, seed) for seed in range(1000)]
    assert min(waits) < 5_200
    assert max(waits) > 14_800
    assert len(set(waits)) > 900
