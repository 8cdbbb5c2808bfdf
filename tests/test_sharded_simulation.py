"""Several shards and several processes in the simulator, with planted bugs of the router and of the links."""

from __future__ import annotations

import pytest

from sim import planted, processes
from sim.shards import run

SEEDS = 120
PROCESS_SEEDS = 36
CHUNKS = 6
PLANTED = [name for name in planted.names() if name.partition("_")[0] in planted.SMALL_WORLDS]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_violation_with_several_shards(chunk):
    assert [(seed, found) for seed in range(chunk, SEEDS, CHUNKS) if (found := run(seed)) is not None] == []


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_violation_with_several_processes(chunk):
    seeds = range(chunk, PROCESS_SEEDS, CHUNKS)
    assert [(seed, found) for seed in seeds if (found := processes.run(seed)) is not None] == []


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bug_of_a_small_world_is_found(name):
    assert planted.hunt(name, range(30), 0) is not None


def test_bugs_are_planted():
    assert len(PLANTED) == 6
