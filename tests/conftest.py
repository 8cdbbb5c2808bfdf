"""Options and profiles that hold for every test."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# The same examples on every machine and every run, so that a red build is red on all of them. With
# `HYPOTHESIS_PROFILE=explore` new ones are drawn; what that finds is then written down as an ordinary test.
# `quick` is for `make check`: the first of those examples.
_SLOW_MACHINES = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("ci", derandomize=True, deadline=None, database=None, suppress_health_check=_SLOW_MACHINES)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=25)
settings.register_profile("explore", derandomize=False, deadline=None, suppress_health_check=_SLOW_MACHINES)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Hundreds of processes are started here. Where the cache is switched off, each of them compiles all the source anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in a background job of a shell. Processes that tests start would inherit it, and could not be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)


_ORDER = (
    "tests/spark/",
    "tests/acceptance/test_kill9",
    "tests/properties/",
    "tests/contract/",
    "tests/acceptance/",
    "tests/",
    "tests/test_simulation",
)
"""The slowest first, and at the end those that can be distributed in small pieces, so that all workers end at about the
same time."""
_ONE_BY_ONE = ("tests/properties/", "tests/contract/", "tests/test_simulation")


class _Dealer(LoadScopeScheduling):
    """The worker of a test: all tests of Spark run in one worker, because one JVM is enough; those of a file run in
    one, because they may share a server; slow tests that share nothing run in any."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith("tests/spark/"):
            return "spark"
        return nodeid if nodeid.startswith(_ONE_BY_ONE) else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    config.option.loadscopereorder = False  # as they were collected
    return _Dealer(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Tests are distributed to workers by name: of two with the same name only one would run.
    twice = [nodeid for nodeid, count in Counter(item.nodeid for item in items).items() if count > 1]
    if twice:
        raise pytest.UsageError(f"several tests are called {', '.join(twice)}")
    items.sort(key=lambda item: _ORDER.index(max(filter(item.nodeid.startswith, _ORDER), key=len, default="tests/")))


def pytest_collection_finish() -> None:
    # Thousands of tests stay until the end. To look through them for garbage takes 0.3 s, every time.
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what the code does now into the golden transcripts, instead of comparing; read the diff afterwards",
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite"))


@pytest.fixture(scope="session")
def postgres() -> Any:
    """A PostgreSQL server for all tests of this process; each takes a schema of its own."""
    from postgres_server import PostgresServer

    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.close()
