"""Inline commits: the answer to a single client is prepared while the disk works, and dropped if the disk fails."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest
import uvicorn
from disks import FailAt, FailingFiles
from uvicorn.server import ServerState

from penstock.clock import SystemClock
from penstock.engines.local.engine import LocalEngine
from penstock.engines.local.files import OsFiles
from penstock.engines.local.writeback import begin_writing
from penstock.ids import parse_queue
from penstock.pending import PendingReply
from penstock.runtime.inline_commit import InlineCommitPolicy
from penstock.testing.clock import ManualClock
from penstock.testing.inprocess import InProcess, in_process
from penstock.transports.dialects.table import with_dialects
from penstock.transports.http.answer import Answer
from penstock.transports.http.app import HttpApp
from penstock.transports.http.in_process import InProcessHttp
from penstock.transports.http.protocol import HttpProtocol

ONE = {"queue": "orders", "messages": [{"payload": 1}]}
ORDERS = parse_queue("orders")


class Caller:
    """A single client."""

    def __init__(self, box: InProcess):
        self.box = box
        self._direct = InProcessHttp(HttpApp(box.broker, SystemClock(), with_dialects(["queen"])))

    async def post(self, path: str, body: object) -> Answer:
        headers = ((b"content-type", b"application/json"),)
        return await self._direct.ask("POST", path, headers, msgspec.json.encode(body))

    async def lease(self) -> list[dict[str, Any]]:
        answer = await self.post("/v1/lease", {"queue": "orders"})
        assert answer.status == 200
        messages: list[dict[str, Any]] = msgspec.json.decode(answer.body)["messages"]
        return messages


class FailingAlone(FailingFiles):
    """Commits may be written inline whatever other work the disk has."""

    def idle(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def always_inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InlineCommitPolicy, "allows", lambda _: True)


@asynccontextmanager
async def alone(path: object, files: OsFiles) -> AsyncIterator[Caller]:
    """With a queue and a message in it."""
    async with in_process(lambda: LocalEngine(str(path), files=files)) as box:
        caller = Caller(box)
        await box.broker.queues.put(ORDERS, {"max_payload_bytes": 1_024})
        await caller.post("/v1/publish", ONE)
        yield caller


def refused(answer: Answer) -> bool:
    if answer.status != 503:
        return False
    assert msgspec.json.decode(answer.body)["error"]["code"] == "unavailable"
    return True


class Done(NamedTuple):
    published: int
    acked: int


@pytest.mark.parametrize("number", range(1, 8))
def test_prepared_answer_is_not_sent_when_the_sync_fails(tmp_path, monkeypatch, number):
    fail = FailAt("sync", number)
    prepared = []
    prepare = PendingReply.prepare

    def noted(pending, reply):
        prepare(pending, reply)
        prepared.append(not pending.failed)

    async def until_it_fails() -> Done:
        async with alone(tmp_path, FailingAlone(fail)) as caller:
            monkeypatch.setattr(PendingReply, "prepare", noted)
            fail.armed = True
            published, acked = 1, 0
            while True:
                if refused(await caller.post("/v1/publish", ONE)):
                    break
                published += 1
                leased = await caller.post("/v1/lease", {"queue": "orders"})
                if refused(leased):
                    break
                (message,) = msgspec.json.decode(leased.body)["messages"]
                if refused(await caller.post("/v1/ack", {"receipts": [message["receipt"]]})):
                    break
                acked += 1
            assert len(caller.box.failures) == 1
            return Done(published, acked)

    async def left() -> int:
        async with in_process(lambda: LocalEngine(str(tmp_path))) as box:
            await box.advance(120_000)  # whatever was leased comes back
            return len(await box.lease("orders", max=1000))

    done = asyncio.run(until_it_fails())
    assert len(prepared) >= number and all(prepared), "each answer was prepared, also the last one, which was not sent"
    # The call whose sync failed may or may not have happened; each call that was answered has.
    assert done.published - done.acked - 1 <= asyncio.run(left()) <= done.published - done.acked + 1


def test_each_answer_is_sent_once_over_a_socket(tmp_path):
    async def run() -> None:
        async with alone(tmp_path, FailingAlone(lambda _operation, _path: None)) as caller:
            app = HttpApp(caller.box.broker, SystemClock())
            config = uvicorn.Config(
                app, http=HttpProtocol, ws="none", log_config=None, interface="asgi3", proxy_headers=False
            )
            state = ServerState()
            serving = await asyncio.get_running_loop().create_server(
                lambda: HttpProtocol(config, state, {}), "127.0.0.1", 0
            )
            reader, writer = await asyncio.open_connection(*serving.sockets[0].getsockname())
            body = msgspec.json.encode(ONE)
            for number in range(5):
                writer.write(b"POST /v1/publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body))
                writer.write(body)
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 201")
                answer = await reader.readuntil(b'"durable":true}')
                (message,) = msgspec.json.decode(answer)["messages"]
                assert message["offset"] == number + 1, "an answer that was sent twice would be taken for the next one"
            writer.close()
            serving.close()
            await serving.wait_closed()

    asyncio.run(run())


async def publish_one_by_one(caller: Caller) -> tuple[str, object]:
    await caller.box.broker.queues.put(parse_queue("others"), {})
    messages = [{"queue": "orders", "payload": 1}, {"queue": "others", "payload": 2}]
    return "/v1/publish", {"atomic": False, "messages": messages}


async def wait_for_more_with_acks(caller: Caller) -> tuple[str, object]:
    """The answer contains the results of the acks, which did not become durable."""
    (message,) = await caller.lease()
    return "/v1/lease", {"queue": "orders", "ack": [message["receipt"]], "wait_ms": 60_000}


async def push_in_halves(_caller: Caller) -> tuple[str, object]:
    """The last one is refused, so that each half is stored by itself."""
    items = [
        {"ns": "default", "task": "default", "queue": "orders", "payload": each} for each in (1, 2, 3, "x" * 5_000)
    ]
    return "/api/v1/push", {"items": items, "config": {"batchMode": False}}


@pytest.mark.parametrize("call", [publish_one_by_one, wait_for_more_with_acks, push_in_halves])
def test_handlers_that_wait_twice_do_not_answer_with_results_that_failed(tmp_path, call):
    """These handlers wait for more than one commit and turn an error into an answer of their own."""
    fail = FailAt("sync", 1)

    async def run() -> None:
        async with alone(tmp_path, FailingAlone(fail)) as caller:
            path, body = await call(caller)
            fail.armed = True
            answer = await caller.post(path, body)
            assert refused(answer) or nothing_succeeded(answer)
            assert len(caller.box.failures) == 1

    asyncio.run(run())


def nothing_succeeded(answer: Answer) -> bool:
    """Each item of the answer tells the error by itself."""
    shown = msgspec.json.decode(answer.body)
    results = shown.get("results") or shown["messages"]
    return len(results) > 1 and all(result["status"] in (503, "failed") for result in results)


def test_error_of_begin_sync_stops_the_shard(tmp_path):
    class Refusing(FailingAlone):
        refuses = False

        def begin_sync(self, handle: int, at: int, length: int) -> None:
            if self.refuses:
                raise OSError(errno.EIO, "no disk")
            super().begin_sync(handle, at, length)

    async def run() -> None:
        files = Refusing(lambda _operation, _path: None)
        async with alone(tmp_path, files) as caller:
            assert (await caller.post("/v1/publish", ONE)).status == 201
            files.refuses = True
            assert refused(await caller.post("/v1/publish", ONE))
            assert len(caller.box.failures) == 1

    asyncio.run(run())


def test_duration_of_a_publish_includes_the_sync(tmp_path):
    clock = ManualClock()

    class Slow(OsFiles):
        def sync(self, handle: int) -> None:
            super().sync(handle)
            clock.advance(1_500)

    async def run() -> list[float]:
        async with in_process(lambda: LocalEngine(str(tmp_path), files=Slow())) as box:
            app = HttpApp(box.broker, clock)
            took: list[float] = []
            app.metrics.publish_seconds = SimpleNamespace(observe=took.append)
            for _ in range(3):
                headers = ((b"content-type", b"application/json"),)
                await InProcessHttp(app).ask("POST", "/v1/publish", headers, msgspec.json.encode(ONE))
                await asyncio.sleep(0)
            return took

    took = asyncio.run(run())
    assert len(took) == 3 and all(seconds >= 1.5 for seconds in took)


def test_begin_writing_reports_errors(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10_000)
    with path.open("rb+") as file:
        begin_writing(file.fileno(), 100, 5_000)
    assert path.read_bytes() == b"x" * 10_000
    with pytest.raises(OSError, match="file descriptor"):
        begin_writing(-1, 0, 1)
