"""The broker inside a program: one owner of a directory, nothing lost, no output by default."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest
from patience import until

import penstock
import penstock.sync
from penstock import InvalidRequest, PenstockError, Unavailable


def run(test) -> None:
    async def main() -> None:
        async with asyncio.timeout(30):
            await test()

    asyncio.run(main())


def test_what_was_published_is_there_when_it_is_opened_again(tmp_path):
    async def first():
        async with penstock.open(tmp_path / "data") as client:
            published = await client.queue("orders").publish({"n": 1})
            assert published.durable

    run(first)
    with penstock.sync.open(str(tmp_path / "data")) as client:
        (message,) = client.queue("orders").consume(wait=0.0)
        assert message.value == {"n": 1}


def test_queue_names_are_kept_and_compared_exactly(tmp_path):
    names = ["orders", "Orders", "Shop_1.EU/eu-west.1/Orders_v2", "Shop_1.EU/eu-west.1/orders_v2"]
    with penstock.sync.open(tmp_path / "data") as client:
        for name in names:
            client.queue(name).publish(name)
    with penstock.sync.open(tmp_path / "data") as client:
        for name in names:
            (message,) = client.queue(name).consume(wait=0.0)
            assert message.value == name
            assert message.queue.endswith(name)


def test_a_directory_has_one_owner_at_a_time(tmp_path):
    async def test():
        async with penstock.open(tmp_path / "data"):
            with pytest.raises(Unavailable, match="in use by another process"):
                async with penstock.open(tmp_path / "data"):
                    pass
            with pytest.raises(Unavailable, match="in use"), penstock.sync.open(tmp_path / "data"):
                pass
        async with penstock.open(tmp_path / "data"):
            pass

    run(test)


def test_in_memory_nothing_is_kept_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    async def test():
        for _ in range(2):
            async with penstock.open(":memory:") as client:
                assert (await client.queue("orders").publish(1)).offset == 0

    run(test)
    assert list(tmp_path.iterdir()) == []


def test_the_environment_of_a_server_is_not_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_AUTO_CREATE", "false")
    with penstock.sync.open(tmp_path / "data") as client:
        client.queue("orders").publish(1)


def test_closing_answers_a_consumer_that_waits_and_sends_its_acks(tmp_path):
    async def test():
        async with penstock.open(tmp_path / "data") as client:
            queue = client.queue("orders")
            await queue.publish_many(range(3))
            seen = []

            async def work():
                async for message in queue.consume():
                    async with message:
                        seen.append(message.value)

            working = asyncio.create_task(work())
            await until(lambda: len(seen) >= 3)
        await working
        async with penstock.open(tmp_path / "data") as client:
            assert (await client.queue("orders").stats()).depth == 0

    run(test)


def test_settings_are_checked_before_anything_is_opened(tmp_path):
    with pytest.raises(InvalidRequest, match="fsync"):
        penstock.open(tmp_path / "data", fsync="sometimes")
    with pytest.raises(InvalidRequest, match="data_dir"):
        penstock.sync.open("")
    (tmp_path / "file").write_text("")

    async def test():
        with pytest.raises(InvalidRequest, match="data_dir: cannot use"):
            async with penstock.open(tmp_path / "file"):
                pass

    run(test)


def test_it_is_open_inside_its_block_only(tmp_path):
    async def test():
        client = penstock.open(tmp_path / "data")
        with pytest.raises(PenstockError, match="async with"):
            await client.queue("orders").publish(1)
        async with client:
            await client.queue("orders").publish(1)
        with pytest.raises(PenstockError, match="closed"):
            await client.queue("orders").publish(1)

    run(test)
    blocking = penstock.sync.open(tmp_path / "data")
    with blocking:
        blocking.queue("orders").publish(1)
    with pytest.raises(PenstockError, match="closed"):
        blocking.queue("orders").publish(1)


def test_a_client_that_is_never_entered_starts_nothing(tmp_path):
    before = threading.active_count()
    penstock.sync.open(tmp_path / "data")
    penstock.sync.Client("grpc://127.0.0.1:9").close()
    assert threading.active_count() == before and list(tmp_path.iterdir()) == []


def test_nothing_is_written_to_the_terminal_of_the_program(tmp_path):
    program = f"""
import penstock.sync
with penstock.sync.open({str(tmp_path / "data")!r}) as client:
    client.create_queue("orders", dead_letter_alarm={{"count": 1}}, max_retries=0)
    client.queue("orders").publish(1)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("", "")


def test_it_refuses_to_run_without_assertions():
    program = """
import penstock, penstock.sync
try:
    with penstock.sync.open(":memory:"):
        pass
except penstock.PenstockError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-O", "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert "does not run under python -O" in done.stdout


def test_missing_server_extra_is_reported():
    program = """
import sys
sys.modules["google_crc32c"] = None
import penstock
try:
    penstock.open("data")
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("penstock.open needs the broker: pip install 'penstock[server]' (google_crc32c")
