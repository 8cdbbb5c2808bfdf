"""A data directory whose shards are divided among several processes: each shard has one owner."""

from __future__ import annotations

import asyncio

import pytest

from penstock.engines.local.engine import LocalEngine
from penstock.errors import Unavailable

OWNER = bytes(16)


def test_each_shard_is_locked_by_the_process_that_has_it(tmp_path):
    async def story():
        supervisor = LocalEngine(str(tmp_path / "data"))
        first, second = (LocalEngine(str(tmp_path / "data"), process=number) for number in range(2))
        journals = [await first.acquire(0, OWNER), await second.acquire(1, OWNER)]
        with pytest.raises(Unavailable, match=r"shard 1 of .* in use"):
            await first.acquire(1, OWNER)
        for journal in journals:
            await journal.close()
        await second.close()
        await (await first.acquire(1, OWNER)).close()
        await first.close()
        await supervisor.close()

    asyncio.run(story())


def test_directory_of_several_processes_is_locked_by_their_supervisor(tmp_path):
    async def story():
        supervisor = LocalEngine(str(tmp_path / "data"))
        process = LocalEngine(str(tmp_path / "data"), process=0)
        with pytest.raises(Unavailable, match="in use by another process"):
            LocalEngine(str(tmp_path / "data"))
        assert process.missing() is None
        await process.close()
        await supervisor.close()

    asyncio.run(story())


def test_processes_hold_back_space_of_their_own(tmp_path):
    """Two that give the same file up and take it back would each find it gone."""

    def reserves() -> list[str]:
        return sorted(path.name for path in (tmp_path / "data").glob("reserve*"))

    async def story():
        supervisor = LocalEngine(str(tmp_path / "data"))
        engines = [LocalEngine(str(tmp_path / "data"), process=number) for number in range(2)]
        for number, engine in enumerate(engines):
            await (await engine.acquire(number, OWNER)).close()
            await engine.close()
        await supervisor.close()
        assert reserves() == ["reserve", "reserve-1"]
        await LocalEngine(str(tmp_path / "data")).close()
        assert reserves() == ["reserve"], "one process needs one"

    asyncio.run(story())
