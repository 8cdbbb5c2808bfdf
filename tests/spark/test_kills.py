"""A stream survives the death of its driver, of a worker and of the broker, each in the middle of a batch.

`python -m tests.spark.kills --runs 20` does it as often as it takes to believe it.
"""

from __future__ import annotations

import pytest

from penstock.pipeline.java import find_java
from tests.spark.kills import KINDS, Driver, run


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """One for all: it takes longer to start than to do its work."""
    with Driver(tmp_path_factory.mktemp("driver") / "log") as started:
        yield started


@pytest.mark.slow
@pytest.mark.skipif(find_java() is None, reason="Spark needs Java 17 or newer, and there is none here")
@pytest.mark.parametrize("kind", KINDS)
def test_every_message_once_whatever_dies(kind, tmp_path, driver):
    outcome = run(kind, 1, tmp_path, driver)
    assert not outcome.faulty, outcome
