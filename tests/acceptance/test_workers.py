"""Functions as workers, over every carrier: what they are called with, what becomes of messages, how they stop."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from itertools import count
from typing import Any, TypedDict

import msgspec
import pytest
from carriers import CARRIERS, carried_by, running

import penstock.sync
from penstock import InvalidRequest, Message, Reject, Retry, Unavailable

_numbers = count()
NO_BACKOFF = {"kind": "none"}


@dataclass
class Order:
    id: int
    paid: bool = False


class Item(msgspec.Struct):
    name: str


class Address(TypedDict):
    city: str


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("workers") / "data") as running_server:
        yield running_server


@pytest.fixture(params=CARRIERS)
def carrier(request, server, tmp_path):
    with carried_by(request.param, server, tmp_path / "embedded") as carrier:
        yield carrier


@pytest.fixture
def name() -> str:
    return f"workers/q{next(_numbers)}"


def with_client(carrier, test, **options) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), carrier.client(**options) as client:
            await test(client)

    asyncio.run(main())


async def letters(queue) -> list[Any]:
    return (await queue.dead_letters()).messages


# -- arguments ----------------------------------------------------------------------------------------------------


def test_function_is_called_with_arguments_of_its_annotations(carrier, name):
    async def test(client):
        got = []

        @client.worker(f"{name}/dataclass")
        async def take_order(order: Order, message: Message):
            got.append((order, message.attempt))

        @client.worker(f"{name}/struct")
        async def take_item(item: Item):
            got.append(item)

        @client.worker(f"{name}/typed-dict")
        def take_address(address: Address):
            got.append(address)

        @client.worker(f"{name}/fields")
        async def take_fields(to: str, subject: str = "hello", *, retries_left: int = 7):
            got.append((to, subject, retries_left))

        @client.worker(f"{name}/plain")
        async def take_anything(value):
            got.append(value)

        @client.worker(f"{name}/bytes")
        async def take_bytes(payload: bytes):
            got.append(payload)

        @client.worker(f"{name}/nothing")
        async def take_nothing():
            got.append("nothing")

        publish = {
            "dataclass": {"id": 1}, "struct": {"name": "nut"}, "typed-dict": {"city": "Oslo"}, "fields": {"to": "ada"},
            "plain": [1, 2], "bytes": b"\x00", "nothing": 0,
        }  # fmt: skip
        for path, value in publish.items():
            await client.queue(f"{name}/{path}").publish(value)
        assert await client.run_workers(wait=0.1)
        expected = [(Order(1), 1), Item("nut"), {"city": "Oslo"}, ("ada", "hello", 7), [1, 2], b"\x00", "nothing"]
        assert sorted(map(repr, got)) == sorted(map(repr, expected))
        assert await take_anything("called like any function") is None

    with_client(carrier, test)


def test_function_publishes_calls_of_itself(carrier, name):
    async def test(client):
        got = []

        @client.worker(f"{name}/dataclass")
        async def take_order(order: Order, message: Message):
            """Takes an order."""
            got.append((order, message.key))

        @client.worker(f"{name}/model")
        async def take_model(model: Model):
            got.append(model)

        @client.worker(f"{name}/fields")
        def take_fields(to: str, order: Order | None = None, subject: str = "hello", *, retries_left: int = 7):
            got.append((to, order, subject, retries_left))

        @client.worker(f"{name}/bytes")
        async def take_bytes(payload: bytes = b"default"):
            got.append(payload)

        @client.worker(f"{name}/nothing")
        async def take_nothing():
            got.append("nothing")

        @client.worker(f"{name}/again")
        @client.worker(f"{name}/once")
        async def take_twice(value):
            got.append(value)

        assert (await take_order.publish(Order(1))).queue.endswith("/dataclass")
        await take_order.options(key="user-42").publish(order=Order(2))
        await take_model.publish(Model(1))
        await take_fields.publish("ada", Order(3))
        await take_fields.publish(subject="bye", to="bob")
        await take_bytes.publish()
        await take_bytes.publish(b"\x00")
        await take_nothing.publish()
        assert (await take_twice.publish("twice")).queue.endswith("/again")
        for wrong in ((), ("a", "b"), (Order(1), None)):
            with pytest.raises(TypeError, match=r"take_order: .*argument"):
                take_order.publish(*wrong)
        with pytest.raises(TypeError, match="retries_left"):
            take_fields.publish("ada", retries_left=1)
        with pytest.raises(InvalidRequest, match="delay"):
            await take_nothing.options(delay=-1).publish()
        assert await client.run_workers(wait=0.1)
        expected = [
            (Order(1), None), (Order(2), "user-42"), Model(1), ("ada", Order(3), "hello", 7), ("bob", None, "bye", 7),
            b"default", b"\x00", "nothing", "twice",
        ]  # fmt: skip
        assert sorted(map(repr, got)) == sorted(map(repr, expected))
        assert (take_order.__name__, take_order.__doc__) == ("take_order", "Takes an order.")
        assert await take_nothing() is None

    with_client(carrier, test)


class Model:
    """A model as pydantic has them: it reads and writes itself."""

    def __init__(self, id: int):
        self.id = id

    def __repr__(self) -> str:
        return f"Model({self.id})"

    def model_dump(self, *, mode: str) -> dict[str, int]:
        assert mode == "json"
        return {"id": self.id}

    @classmethod
    def model_validate_json(cls, data: bytes) -> Model:
        return cls(**msgspec.json.decode(data))


def test_payload_that_does_not_fit_is_a_dead_letter_at_once(carrier, name):
    async def test(client):
        @client.worker(name)
        async def take(order: Order):
            raise AssertionError("never called")

        queue = client.queue(name)
        await queue.publish({"id": "one"})
        await queue.publish(b"\xff")
        await client.run_workers(wait=0.1)
        errors = sorted(letter.error for letter in await letters(queue))
        assert "take: Expected `int`, got `str` - at `$.id`" in errors[0]
        assert "published as bytes" in errors[1]

    with_client(carrier, test)


def test_bad_worker_options_are_refused_where_they_are_declared():
    client = penstock.Client("http://127.0.0.1:9")
    for wrong in (
        {"concurrency": 0},
        {"retries": -1},
        {"timeout": -1.0},
        {"lease": 0.0},
        {"prefetch": 0},
        {"group": "no way"},
    ):
        with pytest.raises(InvalidRequest, match=next(iter(wrong))):
            client.worker("orders", **wrong)
    with pytest.raises(InvalidRequest):
        client.worker("Not A Queue")
    with pytest.raises(InvalidRequest, match="delay"):
        Retry(delay=-1)
    with pytest.raises(TypeError, match="cannot be found"):

        @client.worker("orders")
        async def local_types(order: Nowhere):  # noqa: F821
            pass

    with pytest.raises(TypeError, match="by name"):
        client.worker("orders")(lambda value, /: None)
    with pytest.raises(TypeError, match="set_like"):

        @client.worker("orders")
        async def set_like(value: dict[bytes, threading.Lock] | dict[str, str]):
            pass

    with pytest.raises(InvalidRequest, match="declare a worker"):
        asyncio.run(client.run_workers())


# -- what becomes of messages -------------------------------------------------------------------------------------


def test_an_exception_is_retried_and_reject_and_retry_say_otherwise(carrier, name):
    async def test(client):
        queue = await client.create_queue(name, max_retries=0, backoff=NO_BACKOFF)
        calls: list[tuple[str, int]] = []

        @client.worker(name, retries=2)
        async def work(what: str, message: Message):
            calls.append((what, message.attempt))
            if what == "reject":
                raise Reject("not ours")
            if what == "retry once" and message.attempt == 1:
                raise Retry("busy", delay=0.01)
            if what == "fails":
                raise RuntimeError("cannot")

        await queue.publish_many(["fine", "reject", "retry once", "fails"])
        await client.run_workers(wait=0.2)
        assert sorted(calls) == [
            ("fails", 1), ("fails", 2), ("fails", 3), ("fine", 1), ("reject", 1), ("retry once", 1), ("retry once", 2),
        ]  # fmt: skip
        assert sorted((letter.reason, letter.error) for letter in await letters(queue)) == [
            ("max_retries", "RuntimeError: cannot"), ("rejected", "not ours"),
        ]  # fmt: skip
        assert (await queue.config()).config.max_retries == 2, "the worker's retries need a queue that allows them"

    with_client(carrier, test)


def test_a_worker_that_allows_fewer_retries_than_the_queue_gives_up_earlier(carrier, name):
    async def test(client):
        queue = await client.create_queue(name, max_retries=9, backoff=NO_BACKOFF)
        attempts = []

        @client.worker(name, retries=1)
        def work(value, message: penstock.sync.Message):
            attempts.append(message.attempt)
            raise ValueError("no")

        await queue.publish(1)
        await client.run_workers(wait=0.1)
        assert attempts == [1, 2] and (await queue.config()).config.max_retries == 9

    with_client(carrier, test)


def test_dead_letters_of_used_up_retries_are_found_by_their_reason(carrier, name):
    async def test(client):
        queue = await client.create_queue(name, max_retries=9, backoff=NO_BACKOFF)

        @client.worker(name, retries=1)
        async def work(value):
            raise Retry(value) if value == "later" else ValueError(value)

        await queue.publish_many(["later", "never"])
        await client.run_workers(wait=0.1)
        page = await queue.dead_letters(filter='reason = "max_retries"')
        found = [(letter.error, letter.attempt) for letter in page.messages]
        assert sorted(found) == [("ValueError: never", 2), ("later", 2)]

    with_client(carrier, test)


def test_lease_of_the_queue_applies_to_workers(carrier, name):
    async def test(client):
        queue = await client.create_queue(name, lease_ms=77_000)
        lengths = []

        @client.worker(name)
        async def work(value, message: Message):
            (explained,) = (await queue.explain(message.id)).messages
            (reason,) = [each for each in explained.reasons if each["kind"] == "leased"]
            lengths.append(reason["deadline_at_ms"] - reason["since_at_ms"])

        await queue.publish(1)
        await client.run_workers(wait=0.1)
        assert lengths == [77_000]

    with_client(carrier, test)


def test_a_handler_that_takes_too_long_has_failed(carrier, name):
    async def test(client):
        queue = await client.create_queue(name, max_retries=0)
        released = threading.Event()

        @client.worker(name, timeout=0.05)
        async def slow(value):
            await asyncio.Event().wait()

        @client.worker(f"{name}/threads", timeout=0.05)
        def slow_thread(value):
            released.wait()

        threads = await client.create_queue(f"{name}/threads", max_retries=0)
        await queue.publish(1)
        await threads.publish(1)

        async def release():
            while not await letters(threads):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            released.set()

        releasing = asyncio.create_task(release())
        assert await client.run_workers(wait=0.1)
        await releasing
        for each in (queue, threads):
            (letter,) = await letters(each)
            assert letter.error == "TimeoutError: not handled within 0.05 s"

    with_client(carrier, test)


def test_leases_live_as_long_as_the_handler_and_the_buffer(carrier, name):
    async def test(client):
        attempts = []

        @client.worker(name, lease=1.0, prefetch=3)
        async def slow(value, message: Message):
            attempts.append((value, message.attempt))
            if value == 0:
                # Several leases long, with two others waiting in the buffer.
                assert [m async for m in client.queue(name).consume(wait=2.5)] == []

        await client.queue(name).publish_many(range(3))
        await client.run_workers(wait=0.3)
        assert attempts == [(0, 1), (1, 1), (2, 1)]

    with_client(carrier, test)


def test_a_handler_may_settle_by_itself_also_with_a_transaction(carrier, name):
    async def test(client):
        queue, out = client.queue(name), await client.create_queue(f"{name}/out")

        @client.worker(name)
        async def work(value, message: Message):
            if value == "transact":
                async with message.transaction() as tx:
                    tx.publish(f"{name}/out", "made")
            else:
                await message.reject("by hand")

        @client.worker(f"{name}/threads")
        def work_in_thread(value, message: penstock.sync.Message):
            if value == "transact":
                with message.transaction() as tx:
                    tx.publish(f"{name}/out", "made in a thread")
            else:
                message.reject("by hand in a thread")

        await queue.publish_many(["transact", "reject"])
        await client.queue(f"{name}/threads").publish_many(["transact", "reject"])
        await client.run_workers(wait=0.1)
        assert sorted((await out.read()).values()) == ["made", "made in a thread"]
        assert [letter.error for letter in await letters(queue)] == ["by hand"]
        assert [letter.error for letter in await letters(client.queue(f"{name}/threads"))] == ["by hand in a thread"]
        assert (await queue.stats()).depth == 0

    with_client(carrier, test)


# -- hands --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_threads", [False, True])
def test_so_many_run_at_a_time_and_no_more(carrier, name, in_threads):
    async def test(client):
        lock, now, most = threading.Lock(), 0, 0
        all_in = threading.Barrier(4)

        def enter(step: int):
            nonlocal now, most
            with lock:
                now += step
                most = max(most, now)

        if in_threads:

            @client.worker(name, concurrency=4)
            def work(value):
                enter(1)
                all_in.wait(30)
                enter(-1)
        else:
            meeting = asyncio.Barrier(4)

            @client.worker(name, concurrency=4)
            async def work(value):
                enter(1)
                await meeting.wait()
                enter(-1)

        await client.queue(name).publish_many(range(20))
        await client.run_workers(wait=0.1)
        assert most == 4
        assert (await client.queue(name).stats()).depth == 0

    with_client(carrier, test)


def test_context_variables_reach_threads(carrier, name):
    request = contextvars.ContextVar("request")

    async def test(client):
        seen = []

        @client.worker(name)
        def work(value):
            seen.append((request.get(), threading.current_thread() is not threading.main_thread()))

        request.set("r1")
        await client.queue(name).publish(1)
        await client.run_workers(wait=0.1)
        assert seen == [("r1", True)]

    with_client(carrier, test)


def test_message_from_one_worker_to_another_is_handled_before_both_are_idle(carrier, name):
    async def test(client):
        got = []

        @client.worker(f"{name}/first")
        async def first(n: int):
            await asyncio.sleep(0.2)
            await client.queue(f"{name}/second").publish(n + 1)

        @client.worker(f"{name}/second")
        async def second(n: int):
            got.append(n)

        await client.queue(f"{name}/first").publish(1)
        await client.run_workers(wait=0.05)
        assert got == [2]

    with_client(carrier, test)


# -- the end ------------------------------------------------------------------------------------------------------


def test_stopping_finishes_running_handlers_and_gives_back_the_rest(carrier, name):
    async def test(client):
        queue = client.queue(name)
        begun, go_on, done = asyncio.Event(), asyncio.Event(), []

        @client.worker(name, prefetch=10)
        async def work(value):
            begun.set()
            await go_on.wait()
            done.append(value)

        await queue.publish_many(range(10))
        running_workers = asyncio.create_task(client.run_workers())
        await begun.wait()
        client.stop_workers()
        # Another consumer has the rest while the handler still runs; none of them counts as attempted.
        rest = []
        async for message in queue.consume(prefetch=1):
            async with message:
                rest.append((message.value, message.attempt))
            if len(rest) == 9:
                break
        assert sorted(rest) == [(n, 1) for n in range(1, 10)]
        assert not running_workers.done()
        go_on.set()
        assert await running_workers is True
        assert done == [0] and (await queue.stats()).depth == 0

    with_client(carrier, test)


def test_handler_is_cancelled_after_its_grace_period_and_redelivered(carrier, name):
    async def test(client):
        queue = client.queue(name)
        begun = asyncio.Event()

        @client.worker(name)
        async def work(value):
            begun.set()
            await asyncio.Event().wait()

        await queue.publish(1)
        running_workers = asyncio.create_task(client.run_workers(grace=0.05))
        await begun.wait()
        client.stop_workers()
        assert await running_workers is False
        again = await anext(queue.consume(prefetch=1))
        assert again.attempt == 2
        await again.ack()

    with_client(carrier, test)


def test_the_blocking_twin_runs_workers_and_handlers_may_use_it(carrier, name):
    with carrier.sync_client() as client:
        got = []

        @client.worker(name, concurrency=2)
        def work(order: Order, message: penstock.sync.Message):
            client.queue(f"{name}/out").publish(order.id * 10, key=message.key)
            got.append(order.id)

        @client.worker(f"{name}/async")
        async def work_asynchronously(value):
            got.append(value)

        client.queue(name).publish_many([{"id": n} for n in range(5)], key="k")
        client.queue(f"{name}/async").publish("a")
        assert client.run_workers(wait=0.1) is True
        assert sorted(map(str, got)) == ["0", "1", "2", "3", "4", "a"]
        assert sorted(client.queue(f"{name}/out").read().values()) == [0, 10, 20, 30, 40]


def test_unreachable_server_is_reported_at_once():
    client = penstock.sync.Client("http://127.0.0.1:9")

    @client.worker("orders")
    def work(value):
        pass

    with pytest.raises(Unavailable, match="cannot reach"):
        client.run_workers()


PROGRAM = """
import sys, time
from penstock{twin} import Client
client = Client({url!r})

@client.worker({name!r}, prefetch=5)
{kind} work(value):
    print("begun", value, flush=True)
    {wait}
    print("done", value, flush=True)

if __name__ == "__main__":
    sys.exit(client.run())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("twin", ["", ".sync"])
def test_signal_lets_running_handlers_finish(server, name, tmp_path, twin, number):
    wait = "import asyncio; await asyncio.sleep(0.3)" if not twin else "time.sleep(0.3)"
    program = tmp_path / "program.py"
    program.write_text(
        PROGRAM.format(twin=twin, url=server.url, name=name, kind="def" if twin else "async def", wait=wait)
    )
    with penstock.sync.Client(server.url) as client:
        client.queue(name).publish_many(range(5))
        process = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout.readline() == "begun 0\n"
            os.kill(process.pid, number)
            rest, _ = process.communicate(timeout=30)
        finally:
            process.kill()
            process.wait()
        assert (rest, process.returncode) == ("done 0\n", 0)
        assert sorted(m.value for m in client.queue(name).consume(wait=0.0)) == [1, 2, 3, 4]


def test_a_thread_that_never_ends_does_not_keep_the_process(server, name, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        PROGRAM.format(twin=".sync", url=server.url, name=name, kind="def", wait="time.sleep(600)").replace(
            "client.run()", "client.run(grace=0.1)"
        )
    )
    with penstock.sync.Client(server.url) as client:
        client.queue(name).publish(0)
    process = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "begun 0\n"
        began = time.monotonic()
        process.terminate()
        process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1 and time.monotonic() - began < 30
