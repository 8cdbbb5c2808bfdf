"""Every Python block of the guides runs, in order, each guide against a broker of its own."""

from __future__ import annotations

import ast
import asyncio
import functools
import inspect
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from http_server import running

import penstock.sync
from penstock import Assigned, Client, Conflict, client

DOCS = Path(__file__).parents[2] / "docs"
SHOWN_ADDRESS = "http://127.0.0.1:7400"
IDLE_S = 0.05
LOOPS = (
    (client.Queue, "consume"), (client.Queue, "consume_batches"), (client.Queue, "follow"), (client.Scope, "consume"),
    (penstock.sync.Queue, "consume"), (penstock.sync.Queue, "consume_batches"),
)  # fmt: skip


def blocks(name: str) -> list[tuple[int, str]]:
    """(line, code) of each block."""
    text = (DOCS / name).read_text()
    return [
        (text[: found.start(1)].count("\n"), found[1])
        for found in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    ]


async def execute(name: str, line: int, code: str, namespace: dict) -> None:
    """As if it stood in a file at that line; `await` may stand at the top, as in the guides."""
    code = "\n" * line + code
    compiled = compile(code, str(DOCS / name), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    async with asyncio.timeout(60):
        outcome = eval(compiled, namespace)
        if inspect.iscoroutine(outcome):
            await outcome


@pytest.fixture
def loops_that_end(monkeypatch):
    """Loops of a guide go on for ever. Here they end when nothing more comes."""
    for owner, name in LOOPS:
        loop = getattr(owner, name)

        def ending(*args, _loop=loop, **options):
            return _loop(*args, **{"wait": IDLE_S, **options})

        monkeypatch.setattr(owner, name, functools.wraps(loop)(ending))


class Anything:
    """Stands for the reader's own objects: every call does nothing and returns a false value."""

    def __getattr__(self, name):
        return self

    def __call__(self, *args, **options):
        return self

    def __bool__(self):
        return False

    def __await__(self):
        return iter(())


async def feed(orders) -> None:
    """Something for the next loop to find."""
    await orders.publish({"order": 1, "to": "ada@example.org"}, key="user-42")
    await orders.publish({"order": 2, "to": "grace@example.org"})


def test_the_guide_to_the_sdk(tmp_path, loops_that_end, monkeypatch):
    module = ModuleType("__guide__")  # annotations of dataclasses and handlers are looked up in their module
    monkeypatch.setitem(sys.modules, "__guide__", module)
    namespace = module.__dict__
    namespace |= {"asyncio": asyncio, "mail_server": Anything(), "Conflict": Conflict, "timedelta": timedelta}
    namespace |= dict.fromkeys(("handle", "load", "print", "invoice_for"), lambda value=None, *more: value)

    async def handle_in_task(message):
        async with message:
            pass

    async def main(server):
        async with Client(server.url) as client:
            orders = client.queue("orders")
            await client.queue("emails").publish({"to": "ada@example.org"})
            await client.queue("email/high").publish({"to": "ada@example.org"})
            for line, code in blocks("sdk.md"):
                code = code.replace(SHOWN_ADDRESS, server.url)
                namespace.update(client=client, orders=orders, rows=[1, 2], keys=["a", "b"], ids=["1", "2"])
                await feed(orders)
                namespace["handle"] = handle_in_task if "create_task(handle" in code else namespace["load"]
                if code.startswith("await message.ack()"):
                    await settle_by_hand(orders, code, line, namespace)
                    continue
                if "send.publish" in code:  # declared again, because the client of the block before is closed
                    namespace.update(send=client.worker("emails")(namespace["send"]), message=Anything())
                if "from penstock.sync" in code:
                    await asyncio.to_thread(asyncio.run, execute("sdk.md", line, code, namespace))
                    continue
                await execute("sdk.md", line, code, namespace)
                if "@client.worker" in code:
                    async with namespace["client"] as working:
                        assert await working.run_workers(wait=IDLE_S, signals=False)
                        assert (await working.queue("emails").stats()).depth == 0

    async def settle_by_hand(orders, code, line, namespace):
        """Four ways to settle a message: each gets one."""
        for number, statement in enumerate(code.splitlines()):
            await feed(orders)
            namespace["message"] = await anext(orders.consume(prefetch=1))
            await execute("sdk.md", line + number, statement, namespace)

    with running(tmp_path / "data") as server:
        asyncio.run(main(server))


@pytest.mark.parametrize("page", ["groups.md", "orders.md", "schedules.md", "cloudevents.md"])
def test_the_other_guides(page, tmp_path, loops_that_end):
    printed: list[object] = []

    async def main(server):
        async with Client(server.url) as client:
            orders = client.queue("orders")
            await orders.publish({"order": 1}, headers={"ce-type": "order.placed"})
            for line, code in blocks(page):
                namespace = {"client": client, "orders": orders, "job": 1, "print": lambda *many: printed.append(many)}
                namespace |= {"Client": Client, "Assigned": Assigned}
                await execute(page, line, code.replace(SHOWN_ADDRESS, server.url), namespace)
                if "consumer" in namespace:
                    await namespace["consumer"].aclose()

    with running(tmp_path / "data") as server:
        asyncio.run(main(server))
    assert printed == ([("order.placed", {"order": 1})] if page == "cloudevents.md" else [])


def test_the_guide_to_reading_the_log_sees_all_partitions(tmp_path, loops_that_end):
    loaded: list[int] = []
    namespace = {"asyncio": asyncio, "load": loaded.extend}

    async def main(server):
        async with Client(server.url) as client:
            orders = await client.create_queue("orders", partitions=4)
            published = await orders.publish_many(range(40), keys=[f"user-{number}" for number in range(40)])
            assert {message.partition for message in published} == {0, 1, 2, 3}
            ((line, code), *others) = blocks("reading-the-log.md")
            await execute("reading-the-log.md", line, code, namespace | {"client": client})
            assert sorted(loaded) == list(range(40))
            assert set(await orders.offsets("warehouse")) == {0, 1, 2, 3}
            for line, code in others:
                await execute("reading-the-log.md", line, code, namespace | {"client": client})
            assert len(loaded) == 40  # another reader with the same name continues there

    with running(tmp_path / "data") as server:
        asyncio.run(main(server))


def test_the_guide_to_the_embedded_broker(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    printed = []
    for line, code in blocks("embedded.md"):
        asyncio.run(execute("embedded.md", line, code, {"print": printed.append}))
    assert printed == [{"order": 1}, {"order": 2}]
    assert SimpleNamespace(**{p.name: p for p in tmp_path.iterdir()}).data.is_dir()


def test_the_example_of_a_worker(tmp_path):
    example = DOCS.parent / "examples" / "worker.py"
    done = subprocess.run(
        [sys.executable, str(example), str(tmp_path / "data")], capture_output=True, text=True, check=True, timeout=60
    )
    assert sorted(done.stdout.splitlines()) == [
        "dead letter: {'to': 'nobody', 'subject': ''}: this is not an address",
        "sent to ada@example.org on attempt 1",
        "sent to busy@example.org on attempt 2",
    ]
