"""Several shards in the simulator, and planted bugs of the router to see that it would find one."""

from __future__ import annotations

import pytest

from sim import planted
from sim.shards import run

SEEDS = 120
CHUNKS = 6
PLANTED = [name for name in planted.names() if name.startswith("shards_")]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_violation_with_several_shards(chunk):
    assert [(seed, found) for seed in range(chunk, SEEDS, CHUNKS) if (found := run(seed)) is not None] == []


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bug_of_the_router_is_found(name):
    assert planted.hunt(name, range(20), 0) is not None


def test_bugs_are_planted():
    assert len(PLANTED) == 3
