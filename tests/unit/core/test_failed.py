"""The records of failed attempts are removed with their messages, and only with them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.state.retries import Retries, Retry

RETRY = Retry(1, 0, 0, 0, "", "")
offsets = st.integers(0, 60)


@given(
    loaded=st.sets(offsets),
    failed=st.sets(offsets),
    done=st.lists(st.lists(st.tuples(offsets, st.integers(1, 9)).map(lambda each: (each[0], sum(each))))),
)
def test_failures_of_finished_messages_are_removed(loaded, failed, done):
    retries = Retries((offset, RETRY) for offset in loaded)
    model = loaded | failed
    for offset in failed:
        retries[offset] = RETRY
    for ranges in done:
        retries.forget(ranges)
        model = model.difference(*(range(first, stop) for first, stop in ranges))
        assert set(retries) == model
