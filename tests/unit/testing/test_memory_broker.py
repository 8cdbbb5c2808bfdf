"""The broker that users test with, and its fixtures."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock import Conflict, InvalidRequest, PenstockError, QueueNotFound
from penstock.testing import MemoryBroker, plugin

DOCUMENT = Path(__file__).parents[3] / "docs" / "testing.md"


def test_manual_clock_moves_on_demand():
    start = datetime(2026, 1, 1, 12, tzinfo=UTC)
    with MemoryBroker(start=start) as broker, broker.sync_client() as client:
        queue = client.queue("orders")
        queue.publish("soon", delay=60)
        queue.publish("at three", deliver_at=start + timedelta(hours=3))
        client.schedules.set("hourly", "orders", "0 * * * *", "tick")
        assert list(queue.consume(wait=0.0)) == []
        broker.advance(60)
        assert [m.value for m in queue.consume(wait=0.0) if m.ack() is None] == ["soon"]
        broker.advance(3 * 3600)
        assert broker.now == start + timedelta(hours=3, minutes=1)
        values = [m.value for m in queue.consume(wait=0.1) if m.ack() is None]
        assert sorted(values) == ["at three", "tick", "tick", "tick"]
        with pytest.raises(InvalidRequest):
            broker.advance(-1)


def test_leases_end_by_the_broker_s_clock_and_retries_come_by_it():
    with MemoryBroker() as broker, broker.sync_client() as client:
        queue = client.create_queue("orders", backoff={"kind": "fixed", "base_ms": 10_000, "jitter": 0})
        queue.publish(1)
        kept = next(iter(queue.consume(lease=30)))
        broker.advance(31)
        broker.advance(10)
        (again,) = queue.consume(wait=0.0)
        assert (again.attempt, kept.attempt) == (2, 1)


def test_a_waiting_consumer_is_served_when_time_passes():
    with MemoryBroker() as broker:

        async def main():
            async with asyncio.timeout(30), broker.client() as client:
                queue = client.queue("orders")
                await queue.publish("later", delay=3600)
                waiting = asyncio.create_task(anext(queue.consume()))
                while (await queue.autoscale()).waiting_consumers == 0:  # noqa: ASYNC110
                    await asyncio.sleep(0)
                broker.advance(3600)
                message = await waiting
                assert message.value == "later"
                await message.ack()

        asyncio.run(main())


def test_a_restart_keeps_what_was_stored_and_clients_go_on():
    with MemoryBroker() as broker, broker.sync_client() as client:
        client.queue("orders").publish(1)
        broker.restart()
        client.queue("orders").publish(2)
        assert [m.value for m in client.queue("orders").consume(wait=0.0)] == [1, 2]


def test_options_apply_as_in_a_server():
    with MemoryBroker(auto_create=False) as broker, broker.sync_client() as client:
        with pytest.raises(QueueNotFound):
            client.queue("orders").publish(1)
        client.create_queue("orders").publish(1)
        with pytest.raises(Conflict):
            client.queue("orders").purge()


def test_it_is_there_inside_its_block_and_leaves_no_thread_behind():
    before = threading.active_count()
    broker = MemoryBroker()
    with pytest.raises(PenstockError, match="use it with"):
        broker.client()
    with broker:
        client = broker.sync_client()
        client.queue("orders").publish(1)
    with pytest.raises(PenstockError, match="closed"):
        client.queue("orders").publish(1)
    assert threading.active_count() == before
    with pytest.raises(InvalidRequest, match="time zone"):
        MemoryBroker(start=datetime(2026, 1, 1))


def test_missing_server_extra_is_reported():
    program = """
import sys
sys.modules["google_crc32c"] = None
try:
    from penstock.testing import MemoryBroker
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert "pip install 'penstock[server]' (google_crc32c is missing)" in done.stdout


def test_the_fixtures_are_announced_to_pytest():
    text = (DOCUMENT.parents[1] / "pyproject.toml").read_text()
    assert f'[project.entry-points.pytest11]\npenstock = "{plugin.__name__}"' in text


def test_the_examples_of_the_guide_pass(tmp_path):
    """As a user would run them: copied into a file, with the plugin that an installed Penstock brings."""
    blocks = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "test_guide.py").write_text("\n\n".join(blocks))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", plugin.__name__, "-p", "no:cacheprovider", "-W", "error", "."],
        cwd=tmp_path, env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout + done.stderr
