"""Every engine passes the same suite (penstock.testing.check_engine)."""

from __future__ import annotations

import asyncio

import pytest

from penstock.engines.local.engine import LocalEngine
from penstock.engines.memory import MemoryEngine
from penstock.engines.postgres.engine import PostgresEngine
from penstock.testing.check_engine import CHECKS
from penstock.testing.files import SimFiles

# Small files, so that every check rolls and trims several of them.
SEGMENT_BYTES = 1000


def local(fsync: str):
    return lambda path: lambda: LocalEngine(str(path), fsync=fsync, segment_bytes=SEGMENT_BYTES)


def memory(_path):
    engine = MemoryEngine()
    return lambda: engine


def simulated(_path):
    """The files of the simulator: a fake that is held to the same contract as what it stands for."""
    files = SimFiles()
    files.make_dir("/")
    return lambda: LocalEngine("/data", files=files, segment_bytes=SEGMENT_BYTES)


ENGINES = {
    "memory": memory,
    "local-simulated": simulated,
    **{f"local-{fsync}": local(fsync) for fsync in ("always", "interval", "batch", "never")},
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_postgres_keeps_the_contract(postgres, check):
    url = postgres.url()
    asyncio.run(check(lambda: PostgresEngine(url)))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("engine", ENGINES)
def test_the_engine_keeps_its_contract(engine, check, tmp_path):
    asyncio.run(check(ENGINES[engine](tmp_path / "data")))
