"""A stream survives the death of its driver, of a worker and of the broker, each in the middle of a batch.

`python -m tests.spark.kills --runs 20` does it as often as it takes to believe it.
"""

from __future__ import annotations

import pytest

from penstock.pipeline.java import find_java
from tests.spark.kills import KINDS, MOMENTS, Driver, Missed, run

ATTEMPTS = 5
"""To meet the moment that is meant."""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """One for all: it takes longer to start than to do its work."""
    with Driver(tmp_path_factory.mktemp("driver") / "log") as started:
        yield started


@pytest.mark.slow
@pytest.mark.skipif(find_java() is None, reason="Spark needs Java 17 or newer, and there is none here")
@pytest.mark.parametrize("kind", KINDS)
def test_every_message_once_after_kills(kind, tmp_path, driver):
    for number in range(ATTEMPTS):
        directory = tmp_path / str(number)
        directory.mkdir()
        try:
            outcome = run(kind, 1 + number * len(MOMENTS), directory, driver)
        except Missed:
            continue  # a busy machine: the batch was over before the blow fell
        assert not outcome.faulty, outcome
        return
    pytest.fail(f"{kind}: no process was killed in {ATTEMPTS} runs")
