"""A peek shows what a lease would give next, in that order, in any order of delivery and after any commands."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_explained_leases import ORDERS, Story

from penstock.core import snapshot
from penstock.core.preview import Newcomer, next_runs


def peeked(story: Story, group: str, most: int) -> list[tuple[int, int]]:
    number = story.queue.groups.get(group)
    if number is None and story.config.indexed:
        newcomer = Newcomer(story.queue, at_once=3)
        for _ in newcomer.load():
            pass
        return list(islice(newcomer.upcoming(story.now), most))
    runs = next_runs(story.queue, number, story.now)
    return list(islice(((run[0], offset) for run in runs for offset in range(*run[1:])), most))


@pytest.mark.parametrize("group", ["default", "newcomer"])
@pytest.mark.parametrize("name", [name for name in ORDERS if "window" not in name])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_peek_shows_what_a_lease_would_give(name, group, data):
    story = Story(ORDERS[name])
    for _ in range(data.draw(st.integers(3, 30))):
        story.step(data)
    before = snapshot.digest(story.shard)
    most = data.draw(st.sampled_from([1, 3, 1000]))
    shown = peeked(story, group, most)
    assert shown == peeked(story, group, most)
    assert snapshot.digest(story.shard) == before
    assert shown == story.lease(most, group)
