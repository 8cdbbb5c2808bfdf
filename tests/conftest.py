"""Options and profiles that hold for every test."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from hypothesis import HealthCheck, settings

# The same examples on every machine and every run, so that a red build is red for everyone. With
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
    # As in a job that a shell runs in the background. What tests start would inherit it, and could not be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what the code does now into the golden transcripts, instead of comparing; read the diff afterwards",
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite"))
