"""The simulator as a test: five hundred worlds, and bugs planted to see that it would find them."""

from __future__ import annotations

import pytest

from sim.__main__ import replay_line
from sim.world import run

SEEDS = 500
CHUNKS = 10
MINUTES = 10.0

FINDERS = {
    "b01_reply_before_fsync": 1,
}


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_seeds(chunk):
    found = []
    for seed in range(chunk, SEEDS, CHUNKS):
        result = run(seed, MINUTES)
        if result.violation is not None:
            found.append(replay_line(result, MINUTES))
    assert not found, "\n" + "\n".join(found)
